//! The server on sockets: one thread accepts connections, the workers serve them.

mod connection;
mod polling;
mod worker;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use remanent_sockets::{ACCEPT_PAUSE, Spare, listen_tcp, prepare_tcp};
use tokio::sync::{Notify, watch};

use crate::store::StoreError;
use crate::{Config, Keyspace, Shared, Store};
use worker::Worker;

/// Connections that the system queues until they are accepted.
const BACKLOG: i32 = 1024;
/// Files besides connections that the process may have open at a time.
const OTHER_FILES: u64 = 32;
/// Files that each worker adds to them.
const THREAD_FILES: u64 = 4;
/// The answer to a client beyond the limit of connections.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Other machines could reach the server without a password.
    #[error(
        "refusing to listen on {0} without a password: any machine that reaches it could read and \
         delete everything; set `Config::password`, listen on 127.0.0.1, or set \
         `Config::unprotected` if the network is trusted"
    )]
    Unprotected(SocketAddr),
    /// The password is empty.
    #[error(
        "the password is empty, and would keep nobody out; set another one, or none at all: then \
         only clients on this machine are served"
    )]
    EmptyPassword,
    /// The system refused the address.
    #[error("cannot listen on {address}: {source}; choose another address")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The keys cannot be opened: the store cannot be read, or what a crash has left in it cannot
    /// be completed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that listens for clients.
#[derive(Debug)]
pub struct Server<S: Store> {
    shared: Arc<Shared<S>>,
    listener: std::net::TcpListener,
}

/// How connections learn that the server ends, and make it end.
#[derive(Clone, Debug)]
struct Ending {
    /// Becomes true when connections are to finish what they have read.
    stop: watch::Receiver<bool>,
    /// Notified by a connection whose client sent `SHUTDOWN`.
    shutdown: Arc<Notify>,
}

impl<S: Store> Server<S> {
    /// Opens the keys and listens. Clients that connect wait until [`run`](Server::run) is called.
    ///
    /// # Errors
    ///
    /// When the system refuses the address, when the settings would let strangers in, or when the
    /// store cannot be read.
    pub fn bind(store: S, mut config: Config) -> Result<Self, BindError> {
        let address = config.listen;
        if config.password.as_ref().is_some_and(String::is_empty) {
            return Err(BindError::EmptyPassword);
        }
        if !address.ip().is_loopback() && config.password.is_none() && !config.unprotected {
            return Err(BindError::Unprotected(address));
        }
        let listener =
            listen_tcp(address, BACKLOG).map_err(|source| BindError::Listen { address, source })?;
        if let Ok(bound) = listener.local_addr() {
            config.listen = bound;
        }
        let others = OTHER_FILES + THREAD_FILES * thread_count(&config) as u64;
        let allowed = raise_file_limit(config.clients_max as u64 + others);
        let clients_max = usize::try_from(allowed.saturating_sub(others)).unwrap_or(usize::MAX);
        if clients_max < config.clients_max {
            config.clients_max = clients_max.max(1);
            tracing::warn!(
                clients = config.clients_max,
                open_files = allowed,
                "fewer clients than asked for can be served: see `ulimit -n`"
            );
        }
        let shared = Arc::new(Shared::new(Keyspace::open(store)?, config));
        Ok(Server { shared, listener })
    }

    /// The address that clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.shared.config.listen
    }

    /// What the connections share.
    pub fn shared(&self) -> &Arc<Shared<S>> {
        &self.shared
    }

    /// Serves clients until `stop` is done or a client sends `SHUTDOWN`.
    ///
    /// Then lets every connection finish what it has read, and returns when all of them are closed
    /// and what they wrote is safe. Runs within a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    ///
    /// When the system refuses what the threads need, or the store cannot make acknowledged writes
    /// safe.
    pub async fn run(self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let (stopper, stopped) = watch::channel(false);
        let shutdown = Arc::new(Notify::new());
        let ending = Ending { stop: stopped, shutdown: Arc::clone(&shutdown) };
        let workers = (0..thread_count(&self.shared.config))
            .map(|index| Worker::start(index, Arc::clone(&self.shared), ending.clone()))
            .collect::<io::Result<Vec<_>>>()?;
        let sweeper = Sweeper::start(&self.shared)?;
        tokio::select! {
            accepted = self.accept(&workers) => accepted?,
            () = stop => {}
            () = shutdown.notified() => {}
        }
        drop(self.listener);
        stopper.send_replace(true);
        // The next start removes the entries that are left, and those of keys that clients delete
        // from now on.
        self.shared.keys.stop_sweeper();
        let shared = self.shared;
        tokio::task::spawn_blocking(move || {
            workers.into_iter().for_each(Worker::join);
            sweeper.join()?;
            shared.keys.store().sync().map_err(io::Error::other)
        })
        .await?
    }

    /// Accepts connections, and hands each to the worker that has fewest.
    async fn accept(&self, workers: &[Worker]) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let mut spare = Spare::new();
        // Relaxed: only shown to users.
        let count_rejected = || self.shared.rejected.fetch_add(1, Ordering::Relaxed);
        loop {
            let (socket, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    if spare.refuse(&listener, &error, TOO_MANY) {
                        count_rejected();
                    } else {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                    continue;
                }
            };
            let connected = workers.iter().map(Worker::connections).sum::<usize>();
            if connected >= self.shared.config.clients_max {
                count_rejected();
                // Best effort: the connection is closed, whether or not its peer takes the
                // explanation.
                let _ = socket.try_write(TOO_MANY);
                continue;
            }
            let worker = workers.iter().min_by_key(|worker| worker.connections());
            let worker = worker.expect("there is at least one worker");
            if let Err(error) = prepare(socket).map(|socket| worker.hand_over(socket, address)) {
                tracing::warn!(%error, client = %address, "cannot prepare a connection");
            }
        }
    }
}

/// The sweeper's thread, which removes the entries of collections that are gone.
struct Sweeper<S: Store> {
    shared: Arc<Shared<S>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl<S: Store> Sweeper<S> {
    fn start(shared: &Arc<Shared<S>>) -> io::Result<Self> {
        let shared = Arc::clone(shared);
        let swept = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sweep".into());
        let thread = thread.spawn(move || swept.keys.run_sweeper())?;
        Ok(Sweeper { shared, thread: Some(thread) })
    }

    /// Tells the thread to stop, and waits until it has ended.
    fn join(mut self) -> io::Result<()> {
        self.shared.keys.stop_sweeper();
        let joined = self.thread.take().map_or(Ok(()), std::thread::JoinHandle::join);
        joined.map_err(|_| io::Error::other("the thread that sweeps panicked"))
    }
}

/// A server whose `run` is dropped must not leave a thread that waits forever.
impl<S: Store> Drop for Sweeper<S> {
    fn drop(&mut self) {
        self.shared.keys.stop_sweeper();
    }
}

/// Takes a socket out of its runtime, so that a worker can serve it, and sets its options.
fn prepare(socket: tokio::net::TcpStream) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    prepare_tcp(&socket)?;
    Ok(socket)
}

/// How many workers there are.
fn thread_count(config: &Config) -> usize {
    match config.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1),
        threads => threads,
    }
}

/// Raises the limit of open files to `wanted`, or as far as the system allows. Returns the limit.
fn raise_file_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return wanted };
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised,
        Err(_) => current,
    }
}
