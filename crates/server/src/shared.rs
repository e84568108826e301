//! What all connections of a server share: the store, the configuration, the list of clients.

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

/// How a server is to behave; none of it can be changed while it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What `AUTH` asks for. Without one, every client is trusted.
    pub password: Option<String>,
    /// Whether to serve other machines without a password.
    pub unprotected: bool,
    /// Connections at a time; further ones are told so and closed.
    pub clients_max: usize,
    /// Threads that serve connections; 0 takes one a core but one, which is left to the system's
    /// network work and to clients on this machine.
    pub threads: usize,
    /// What a client may send.
    pub limits: Limits,
    /// Bytes of answers that may wait for a client to read them; a command that needs more is answered by an error.
    pub output_len_max: usize,
    /// Bytes that requests which arrive, answers that wait to be read, and copies that commands make may take of all
    /// clients together. What each connection needs for short requests, 136 KiB at most, is not counted.
    ///
    /// What would need more is answered by an error that begins with `OOM`. The client that takes most of those that
    /// have not got on for ten seconds is then closed: it does not read, or does not send the rest of a request.
    pub clients_memory_max: u64,
}

/// How long a client may take memory that others need.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);
/// How often clients are looked through for one to be closed, and the log says so, at most.
const MEMORY_REFUSAL_INTERVAL: Duration = Duration::from_millis(200);
/// Bytes of a command's copies that are not counted.
const COPIES_UNCOUNTED: usize = 64 << 10;

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 6380)),
            password: None,
            unprotected: false,
            clients_max: 10_000,
            threads: 0,
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
    /// When somebody was last refused memory.
    refused: Mutex<Option<Instant>>,
    /// Totals at the last `CONFIG RESETSTAT`.
    baseline: Mutex<Totals>,
    pub(crate) rejected: AtomicU64,
    pub(crate) started: Instant,
    /// Names this run of the server, as Redis's `run_id` does.
    pub(crate) run_id: String,
}

impl<S> Shared<S> {
    /// What the connections of one server share, before there are any.
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

    /// What was counted since the last `CONFIG RESETSTAT`.
    pub(crate) fn totals(&self) -> Totals {
        let baseline = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        self.clients.totals().since(&baseline)
    }

    /// Counts from 0 again.
    pub(crate) fn reset_totals(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.clients.totals();
        self.statistics.reset();
        // Relaxed: counts for people.
        self.rejected.store(0, Ordering::Relaxed);
        self.evicted.store(0, Ordering::Relaxed);
    }

    /// Memory for what a command copies.
    pub(crate) fn copies(&self) -> Share {
        Share::new(&self.memory, COPIES_UNCOUNTED)
    }

    /// Says that a client was refused memory, and closes the one that keeps it from others.
    pub(crate) fn memory_refused(&self, client: SocketAddr) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.is_some_and(|time| time.elapsed() < MEMORY_REFUSAL_INTERVAL) {
            return;
        }
        *refused = Some(Instant::now());
        let (taken, max) = (self.memory.taken(), self.memory.max());
        match self.clients.close_largest(MEMORY_PATIENCE) {
            Some(largest) => {
                // Relaxed: a count for people.
                self.evicted.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    closed = %largest.address, %client, taken, max,
                    "clients take all the memory that they may; the one that takes most, and has not got on for long, is closed"
                );
            }
            None => tracing::info!(
                %client, taken, max,
                "clients take all the memory that they may; a request was refused"
            ),
        }
    }

    /// Seconds since the server was started.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

impl<S: Store> Shared<S> {
    /// Waits until what was written before `ticket` was taken is safe.
    pub(crate) fn sync(&self, ticket: Ticket) -> Result<(), store::StoreError> {
        self.syncs.wait(ticket, || self.keys.store().sync())
    }
}
