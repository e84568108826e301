//! TCP sockets with the options that servers want.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// After so much silence a peer is asked whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// Listens on an address; the system keeps `backlog` connections until they are accepted.
///
/// The socket does not block.
///
/// # Errors
///
/// What the system says of the address.
pub fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for connections of the previous run to be forgotten.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Gives an accepted connection its options: replies leave at once, and a peer that is gone is noticed.
///
/// # Errors
///
/// What the system says of the socket.
pub fn prepare_tcp(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}
