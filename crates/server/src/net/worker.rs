//! A worker: a thread that serves connections of its own.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::polling::Polling;
use super::{Ending, connection};
use crate::{Session, Shared, Store};

/// Threads of each worker for long requests.
const LONG_THREADS: usize = 2;
/// How long connections may take to finish when the server ends. A client that reads its answers
/// needs less; one that does not is cut.
const GRACE: Duration = Duration::from_secs(5);

/// A thread that serves connections.
#[derive(Debug)]
pub(super) struct Worker {
    arrivals: UnboundedSender<(TcpStream, SocketAddr)>,
    /// Connections that were handed over and are not closed yet.
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Worker {
    pub(super) fn start<S: Store>(
        index: usize,
        shared: Arc<Shared<S>>,
        ending: Ending,
    ) -> io::Result<Self> {
        let (arrivals, arrived) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(LONG_THREADS)
            .thread_name("remanent-long")
            .build()?;
        let open = Arc::clone(&connections);
        let thread =
            std::thread::Builder::new().name(format!("remanent-{index}")).spawn(move || {
                runtime.block_on(serve(shared, arrived, open, ending));
                runtime.shutdown_timeout(GRACE);
            })?;
        Ok(Worker { arrivals, connections, thread })
    }

    /// Gives a connection to this worker.
    pub(super) fn hand_over(&self, socket: TcpStream, address: SocketAddr) {
        // Relaxed: the accepting thread chooses a worker by it, for which an estimate is enough.
        self.connections.fetch_add(1, Ordering::Relaxed);
        // Sending fails only if the worker has ended. The connection is closed then.
        let _ = self.arrivals.send((socket, address));
    }

    /// How many connections the worker has.
    pub(super) fn connections(&self) -> usize {
        // Relaxed: as for `hand_over`.
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits until all its connections are closed.
    pub(super) fn join(self) {
        drop(self.arrivals);
        if self.thread.join().is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}

async fn serve<S: Store>(
    shared: Arc<Shared<S>>,
    mut arrived: UnboundedReceiver<(TcpStream, SocketAddr)>,
    open: Arc<AtomicUsize>,
    ending: Ending,
) {
    let polling = Arc::new(Polling::new(shared.config.poll));
    let poller = Arc::clone(&polling);
    // It ends with the runtime.
    tokio::spawn(async move { poller.run().await });
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            arrival = arrived.recv() => {
                let Some((socket, address)) = arrival else { break };
                let shared = Arc::clone(&shared);
                let ending = ending.clone();
                let (polling, open) = (Arc::clone(&polling), Open(Arc::clone(&open)));
                tasks.spawn(connect(shared, socket, address, ending, polling, open));
            }
            Some(ended) = tasks.join_next() => {
                // A panic ends the task of one connection, which is closed. The others go on.
                if ended.is_err() {
                    tracing::error!("a request made the server panic; its connection was closed");
                }
            }
        }
    }
    let all_ended = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all_ended).await.is_err() {
        tracing::warn!(left = tasks.len(), "connections did not finish and are cut");
    }
}

/// Keeps a connection counted until it is dropped, however the connection ends.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        // Relaxed: as for `hand_over`.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connect<S: Store>(
    shared: Arc<Shared<S>>,
    socket: TcpStream,
    address: SocketAddr,
    ending: Ending,
    polling: Arc<Polling>,
    _open: Open,
) {
    let served = async {
        let socket = tokio::net::TcpStream::from_std(socket)?;
        let mut session = Session::new(shared, address, socket.local_addr()?);
        session.set_descriptor(socket.as_raw_fd());
        connection::serve(socket, session, ending, &polling).await
    };
    if let Err(error) = served.await {
        // Peers that disconnect in the middle are common, so this is no warning.
        tracing::debug!(%error, client = %address, "connection lost");
    }
}
