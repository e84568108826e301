//! What all connections of a server share: the keys, the configuration, the list of clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::clients::{Clients, Totals};
use crate::guard::Guard;
use crate::memory::{Memory, Share};
use crate::resp::Limits;
use crate::statistics::Statistics;
use crate::syncs::{Syncs, Ticket};
use crate::{Keyspace, Store, store};

/// Settings of a server. None of them can be changed while it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on. Port 0 takes a free port.
    pub listen: SocketAddr,
    /// Password for `AUTH`. Without one, every client is trusted.
    pub password: Option<String>,
    /// Whether to serve other machines without a password.
    pub unprotected: bool,
    /// Connections at a time. Further ones get an error and are closed.
    pub clients_max: usize,
    /// Threads that serve connections. 0 takes one less than there are cores: the remaining core is
    /// for the system's network work, and for clients on this machine.
    pub threads: usize,
    /// How long a thread looks for further requests before it sleeps, if those before came that
    /// soon after each other. Zero: it sleeps at once.
    pub poll: Duration,
    /// Limits on what a client may send.
    pub limits: Limits,
    /// Bytes of answers that may wait for one client to read them. A command whose answer needs
    /// more gets an error.
    pub output_len_max: usize,
    /// Bytes that all clients may take together: for requests that arrive, answers that wait to be
    /// read, and copies that commands make. Up to 136 KiB a connection, which short requests need,
    /// are not counted.
    ///
    /// A command that would exceed the bound gets an error that begins with `OOM`. Of the clients
    /// that have stalled for ten seconds, the one that takes most memory is then closed: it does
    /// not read, or does not send the rest of a request.
    pub clients_memory_max: u64,
}

/// How long a client may stall while others need its memory.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);
/// Shortest time between two searches for a client to close, each of which writes a line to the
/// log.
const MEMORY_REFUSAL_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of a command's copies that do not count as clients' memory.
const COPIES_UNCOUNTED: usize = 64 << 10;

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            password: None,
            unprotected: false,
            clients_max: 10_000,
            threads: 0,
            // A client on the same machine that waits for each answer sends its next request
            // sooner, even if it has to be woken.
            poll: Duration::from_micros(200),
            limits: Limits::default(),
            output_len_max: 1 << 30,
            clients_memory_max: 1 << 30,
        }
    }
}

/// What all connections of a server share.
#[derive(Debug)]
pub struct Shared<S> {
    pub(crate) keys: Keyspace<S>,
    pub(crate) config: Config,
    pub(crate) clients: Clients,
    pub(crate) syncs: Syncs,
    pub(crate) memory: Arc<Memory>,
    pub(crate) guard: Guard,
    pub(crate) statistics: Statistics,
    /// Clients that were closed because they took memory that others needed.
    pub(crate) evicted: AtomicU64,
    /// When a client to close was last searched for.
    refused: Mutex<Option<Instant>>,
    /// Totals at the last `CONFIG RESETSTAT`, from which `INFO` counts.
    baseline: Mutex<Totals>,
    pub(crate) rejected: AtomicU64,
    pub(crate) started: Instant,
    /// Identifies this run of the server, as Redis's `run_id` does.
    pub(crate) run_id: String,
}

impl<S> Shared<S> {
    /// The state of a server that has no connections yet.
    pub fn new(keys: Keyspace<S>, config: Config) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run_id = format!("{:032x}{:08x}", since_epoch.as_nanos(), std::process::id());
        let memory = Arc::new(Memory::new(config.clients_memory_max));
        Shared {
            keys,
            config,
            memory,
            guard: Guard::default(),
            statistics: Statistics::default(),
            evicted: AtomicU64::new(0),
            refused: Mutex::default(),
            clients: Clients::default(),
            syncs: Syncs::default(),
            baseline: Mutex::default(),
            rejected: AtomicU64::new(0),
            started: Instant::now(),
            run_id,
        }
    }

    /// The keys that are served.
    pub fn keys(&self) -> &Keyspace<S> {
        &self.keys
    }

    /// Counts since the last `CONFIG RESETSTAT`.
    pub(crate) fn totals(&self) -> Totals {
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        self.clients.totals().since(&baseline)
    }

    /// Begins to count from 0: `CONFIG RESETSTAT`.
    pub(crate) fn reset_totals(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.clients.totals();
        self.statistics.reset();
        // Relaxed: only shown to users.
        self.rejected.store(0, Ordering::Relaxed);
        self.evicted.store(0, Ordering::Relaxed);
    }

    /// The share of a command's copies in the clients' memory.
    pub(crate) fn copies(&self) -> Share {
        Share::new(&self.memory, COPIES_UNCOUNTED)
    }

    /// Closes the client that keeps memory from others, after `client` was refused some, and says
    /// so in the log.
    pub(crate) fn memory_refused(&self, client: SocketAddr) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_some_and(|time| time.elapsed() < MEMORY_REFUSAL_INTERVAL) {
            return;
        }
        *refused = Some(Instant::now());
        let (taken, max) = (self.memory.taken(), self.memory.max());
        match self.clients.close_largest(MEMORY_PATIENCE) {
            Some(largest) => {
                // Relaxed: only shown to users.
                self.evicted.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    closed = %largest.address, %client, taken, max,
                    "clients take all the memory that they may; the one that takes most, and has \
                     stalled, is closed"
                );
            }
            None => tracing::info!(
                %client, taken, max,
                "clients take all the memory that they may; a request was refused"
            ),
        }
    }

    /// Time since the server was started, in seconds.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

impl<S: Store> Shared<S> {
    /// Waits until everything that was written before `ticket` was taken is safe.
    pub(crate) fn sync(&self, ticket: Ticket) -> Result<(), store::StoreError> {
        self.syncs.wait(ticket, || self.keys.store().sync())
    }
}
