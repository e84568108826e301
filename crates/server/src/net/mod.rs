//! The sockets: one thread accepts connections, the others serve them.

mod connection;
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

/// Connections that the system keeps for us until we accept them.
const BACKLOG: i32 = 1024;
/// Files besides connections that the process may need at a time, and for each thread that serves them.
const OTHER_FILES: u64 = 32;
const THREAD_FILES: u64 = 4;
/// What a client is told that cannot be served.
const TOO_MANY: &[u8] = b"-ERR max number of clients reached\r\n";

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Other machines could reach the server and nothing would be asked of them.
    #[error(
        "refusing to listen on {0} without a password: any machine that reaches it could read and \
         delete everything; set `Config::password`, listen on 127.0.0.1, or set \
         `Config::unprotected` if the network is trusted"
    )]
    Unprotected(SocketAddr),
    /// A password that everybody knows.
    #[error(
        "the password is empty, and would keep nobody out; set another one, or none, with which only clients on this \
         machine are served"
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
    /// What a crash has left in the store cannot be completed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A store that listens for clients.
#[derive(Debug)]
pub struct Server<S: Store> {
    shared: Arc<Shared<S>>,
    listener: std::net::TcpListener,
}

/// What tells a connection to end, and the server.
#[derive(Clone, Debug)]
struct Ending {
    /// Becomes true when connections are to finish.
    stop: watch::Receiver<bool>,
    /// Told by a connection whose client asked for the end of the server.
    shutdown: Arc<Notify>,
}

impl<S: Store> Server<S> {
    /// Listens; clients that connect wait until [`run`](Server::run).
    ///
    /// # Errors
    ///
    /// When the address cannot be had, or would let strangers in; when the store cannot be read.
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

    /// Serves clients until `stop` is done or a client sends `SHUTDOWN`, then lets every connection
    /// finish what it has read, and returns when all are closed and what they wrote is safe.
    ///
    /// Runs within a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    ///
    /// When the system refuses what the threads need, or what was acknowledged cannot be made safe.
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
        // What it has not removed is found at the next start, and so is what clients take away from now on.
        self.shared.keys.stop_sweeper();
        let shared = self.shared;
        tokio::task::spawn_blocking(move || {
            workers.into_iter().for_each(Worker::join);
            sweeper.join()?;
            shared.keys.store().sync().map_err(io::Error::other)
        })
        .await?
    }

    /// Hands each new connection to the worker that has fewest.
    async fn accept(&self, workers: &[Worker]) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let mut spare = Spare::new();
        // Relaxed: a count for people.
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
                // Best effort: whoever does not take the explanation is closed without it.
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

/// The thread that removes the members of sorted sets that are gone.
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

    /// Waits until the thread has ended, which it does soon after it was told.
    fn join(mut self) -> io::Result<()> {
        self.shared.keys.stop_sweeper();
        let joined = self.thread.take().map_or(Ok(()), std::thread::JoinHandle::join);
        joined.map_err(|_| io::Error::other("the thread that sweeps panicked"))
    }
}

/// A server that is dropped in mid-run must not leave a thread that waits for ever.
impl<S: Store> Drop for Sweeper<S> {
    fn drop(&mut self) {
        self.shared.keys.stop_sweeper();
    }
}

/// A socket that belongs to no runtime yet, with the options of a connection.
fn prepare(socket: tokio::net::TcpStream) -> io::Result<TcpStream> {
    let socket = socket.into_std()?;
    prepare_tcp(&socket)?;
    Ok(socket)
}

/// How many threads serve connections.
fn thread_count(config: &Config) -> usize {
    match config.threads {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).max(1),
        threads => threads,
    }
}

/// Asks the system for as many open files as are wanted; it may allow fewer. Returns how many it does.
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
