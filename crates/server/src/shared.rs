//! What all connections of a server share: the store, the configuration, the list of clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::clients::{Clients, Totals};
use crate::resp::Limits;
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
    /// Bytes of answers that may wait for a client to read them; one that needs more is closed.
    pub output_len_max: usize,
}

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
        Shared {
            keys,
            config,
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
        // Relaxed: a count for people.
        self.rejected.store(0, Ordering::Relaxed);
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
