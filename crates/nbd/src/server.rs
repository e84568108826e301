//! The sockets: a task accepts on each, and every connection becomes a thread.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use remanent_sockets::{ACCEPT_PAUSE, Spare, UnixListener, listen_tcp, prepare_tcp};
use socket2::Socket;
use tokio::task::JoinSet;

use crate::connection::Connections;
use crate::export::Exports;

/// Connections that the system queues until they are accepted.
const BACKLOG: i32 = 128;
/// How long connections may take to finish when the server ends, and again after they were cut.
const GRACE: Duration = Duration::from_secs(5);

/// Addresses and limits of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// TCP addresses; 10809 is the port that clients try first.
    pub tcp: Vec<SocketAddr>,
    /// Unix sockets. Everybody who may write a socket's file is served: only the user, unless the
    /// umask says otherwise.
    pub unix: Vec<PathBuf>,
    /// Connections at the same time. Each has a thread, and buffers of up to 66 MiB while it
    /// exchanges the longest requests.
    pub connections_max: usize,
    /// How long an idle connection polls for the next request before its thread sleeps; 50 µs by
    /// default. If waking a thread takes long, polling shortens the latency of a client that sends
    /// one request at a time; it costs a core at most this time for each of its requests. A
    /// connection polls as long as requests arrive within twice this time. With zero it sleeps at
    /// once.
    pub poll: Duration,
    /// Whether other machines may connect: the protocol has no authentication.
    pub unprotected: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tcp: Vec::new(),
            unix: Vec::new(),
            connections_max: 64,
            poll: Duration::from_micros(50),
            unprotected: false,
        }
    }
}

/// The reason why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Other machines could connect, without authentication.
    #[error(
        "refusing to serve block devices on {0}: NBD has no passwords, so any machine that reaches it \
         could read and overwrite everything; listen on 127.0.0.1 or on a Unix socket, or set \
         `Config::unprotected` if the network is trusted"
    )]
    Unprotected(SocketAddr),
    /// The system refused the address.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Tcp {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused the path, or another server has it.
    #[error("cannot listen on {}: {source}; choose another path", path.display())]
    Unix {
        /// The path asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Exports with listening sockets.
#[derive(Debug)]
pub struct Server {
    connections: Arc<Connections>,
    tcp: Vec<std::net::TcpListener>,
    unix: Vec<UnixListener>,
}

impl Server {
    /// Listens. Clients that connect wait until [`run`](Server::run).
    ///
    /// A Unix socket that a dead server has left behind is replaced.
    ///
    /// # Errors
    ///
    /// When an address is not available, or would admit other machines.
    pub fn bind(exports: Exports, config: Config) -> Result<Self, BindError> {
        let Config { tcp, unix, connections_max, poll, unprotected } = config;
        if let Some(open) = tcp.iter().find(|a| !a.ip().is_loopback() && !unprotected) {
            return Err(BindError::Unprotected(*open));
        }
        let tcp = tcp.into_iter().map(|address| {
            listen_tcp(address, BACKLOG).map_err(|source| BindError::Tcp { address, source })
        });
        let tcp = tcp.collect::<Result<_, _>>()?;
        let unix = unix.into_iter().map(|path| {
            UnixListener::bind(&path).map_err(|source| BindError::Unix { path, source })
        });
        let unix = unix.collect::<Result<_, _>>()?;
        let connections = Arc::new(Connections::new(exports, connections_max, poll));
        Ok(Server { connections, tcp, unix })
    }

    /// The TCP addresses of the server, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves clients until `stop` is done. Then lets every connection finish what it has received.
    /// Returns when all are closed and their exports are dropped; exports that only the server had
    /// are gone then.
    ///
    /// Runs within a tokio runtime with I/O and time enabled. The runtime only accepts; the
    /// connections have threads of their own.
    ///
    /// # Errors
    ///
    /// When the system refuses to listen any longer, or a connection is stuck in its export.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Server { connections, tcp, unix } = self;
        let ending = EndOnDrop(Arc::clone(&connections));
        let mut accepting = JoinSet::new();
        for listener in tcp {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            accepting.spawn(accept_tcp(listener, Arc::clone(&connections)));
        }
        let mut files = Vec::new();
        for listener in unix {
            let (listener, file) = listener.into_parts();
            files.push(file);
            let listener = tokio::net::UnixListener::from_std(listener)?;
            accepting.spawn(accept_unix(listener, Arc::clone(&connections)));
        }
        stop.await;
        accepting.shutdown().await;
        drop(files);
        let ended = tokio::task::spawn_blocking(move || {
            connections.end(GRACE) || {
                tracing::warn!("connections did not finish and are cut");
                connections.cut(GRACE)
            }
        });
        let all_ended = ended.await?;
        drop(ending);
        if all_ended {
            Ok(())
        } else {
            Err(io::Error::other("a connection is stuck in its export"))
        }
    }
}

/// Ends the connections if a server is dropped during `run`, so that no thread waits for ever.
struct EndOnDrop(Arc<Connections>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end(Duration::ZERO);
    }
}

async fn accept_tcp(listener: tokio::net::TcpListener, connections: Arc<Connections>) {
    let mut spare = Spare::new();
    loop {
        match listener.accept().await {
            Ok((socket, address)) => {
                let prepared = socket.into_std().and_then(|socket| {
                    prepare_tcp(&socket)?;
                    Ok(Socket::from(socket))
                });
                start(&connections, prepared, address.to_string(), &mut spare);
            }
            Err(error) => refuse(&mut spare, &listener, &error).await,
        }
    }
}

async fn accept_unix(listener: tokio::net::UnixListener, connections: Arc<Connections>) {
    let mut spare = Spare::new();
    loop {
        match listener.accept().await {
            Ok((socket, _)) => {
                let client = match socket.peer_cred().ok().and_then(|peer| peer.pid()) {
                    Some(pid) => format!("process {pid}"),
                    None => "a process".to_owned(),
                };
                let prepared = socket.into_std().map(Socket::from);
                start(&connections, prepared, client, &mut spare);
            }
            Err(error) => refuse(&mut spare, &listener, &error).await,
        }
    }
}

/// Closes a connection for which no descriptor is left. NBD has no error for that.
async fn refuse(spare: &mut Spare, listener: impl AsFd, error: &io::Error) {
    if !spare.refuse(listener, error, b"") {
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

fn start(
    connections: &Arc<Connections>,
    socket: io::Result<Socket>,
    client: String,
    spare: &mut Spare,
) {
    let started = socket.and_then(|socket| {
        socket.set_nonblocking(false)?;
        connections.start(socket, client.clone())
    });
    // A client that connects again and again must not fill the log.
    if let Err(error) = started
        && let Some(count) = spare.count_refusal()
    {
        tracing::warn!(%error, %client, refused = count, "cannot serve a connection");
    }
}
