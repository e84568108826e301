//! TCP sockets, with the options of a server.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Silence after which the system probes whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(300);

/// Listens on an address. The system queues up to `backlog` connections until they are accepted.
///
/// The socket is non-blocking.
///
/// # Errors
///
/// When the system refuses the address.
pub fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // So that a restart need not wait until the system has forgotten the connections of the
    // previous run.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Sets the options of an accepted connection: replies are sent without delay, and a peer that is
/// gone is noticed.
///
/// # Errors
///
/// When the system refuses an option.
pub fn prepare_tcp(socket: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}
