//! The clients that are connected, and what was counted for them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::command::Command;

/// All clients that are connected, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    connected: BTreeMap<u64, Arc<Record>>,
    last_id: u64,
    /// What was counted for clients that have gone.
    gone: Totals,
}

impl Clients {
    /// Adds a client.
    pub(crate) fn connect(&self, address: SocketAddr, local: SocketAddr) -> Arc<Record> {
        let mut list = self.list();
        list.last_id += 1;
        let record = Arc::new(Record::new(list.last_id, address, local));
        list.connected.insert(record.id, Arc::clone(&record));
        record
    }

    /// Takes a client away and keeps what was counted for it.
    pub(crate) fn disconnect(&self, record: &Record) {
        let mut list = self.list();
        if list.connected.remove(&record.id).is_some() {
            record.counters.add_to(&mut list.gone);
        }
    }

    /// Clients connected now.
    pub(crate) fn len(&self) -> usize {
        self.list().connected.len()
    }

    /// The clients connected now.
    pub(crate) fn all(&self) -> Vec<Arc<Record>> {
        self.list().connected.values().cloned().collect()
    }

    /// What was counted since the server was started.
    pub(crate) fn totals(&self) -> Totals {
        let list = self.list();
        let mut totals = list.gone.clone();
        totals.connections = list.last_id;
        for record in list.connected.values() {
            record.counters.add_to(&mut totals);
        }
        totals
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What others may see of a client.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) connected: Instant,
    pub(crate) counters: Counters,
    /// Milliseconds after `connected` at which it last sent something.
    pub(crate) last_active_ms: AtomicU64,
    pub(crate) protocol: AtomicU8,
    about: Mutex<About>,
}

/// What a client said of itself, and did last.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
}

impl Record {
    fn new(id: u64, address: SocketAddr, local: SocketAddr) -> Self {
        Record {
            id,
            address,
            local,
            connected: Instant::now(),
            counters: Counters::default(),
            last_active_ms: AtomicU64::new(0),
            protocol: AtomicU8::new(2),
            about: Mutex::default(),
        }
    }

    pub(crate) fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's line in `CLIENT LIST`.
    pub(crate) fn line(&self, doing: &Command) -> String {
        let about = self.about().clone();
        // Relaxed, here and below: what people see of a client may be a moment old.
        let age_ms = self.connected.elapsed().as_millis() as u64;
        let idle_ms = age_ms.saturating_sub(self.last_active_ms.load(Ordering::Relaxed));
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags=N db=0 sub=0 psub=0 ssub=0 \
             multi=-1 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=0 events=r cmd={} user=default redir=-1 resp={} lib-name={} lib-ver={}\n",
            self.id,
            self.address,
            self.local,
            about.name,
            age_ms / 1000,
            idle_ms / 1000,
            doing.text,
            self.protocol.load(Ordering::Relaxed),
            about.library,
            about.library_version,
        )
    }
}

/// Counts of one client: written by its connection alone, so no two cores fight for them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    commands: AtomicU64,
    errors: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// Counts of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl Counters {
    /// Adds what a connection did since it last reported, and sets that to nothing.
    pub(crate) fn report(&self, done: &mut Totals) {
        // Relaxed: there is one writer, which needs no read-modify-write; readers want estimates.
        let add = |counter: &AtomicU64, done: u64| {
            if done > 0 {
                counter.store(counter.load(Ordering::Relaxed) + done, Ordering::Relaxed);
            }
        };
        add(&self.commands, done.commands);
        add(&self.errors, done.errors);
        add(&self.hits, done.hits);
        add(&self.misses, done.misses);
        add(&self.bytes_in, done.bytes_in);
        add(&self.bytes_out, done.bytes_out);
        *done = Totals::default();
    }

    fn add_to(&self, totals: &mut Totals) {
        // Relaxed: estimates while the client is at work, exact once it has gone: the lock of the
        // list orders its last report before this.
        totals.commands += self.commands.load(Ordering::Relaxed);
        totals.errors += self.errors.load(Ordering::Relaxed);
        totals.hits += self.hits.load(Ordering::Relaxed);
        totals.misses += self.misses.load(Ordering::Relaxed);
        totals.bytes_in += self.bytes_in.load(Ordering::Relaxed);
        totals.bytes_out += self.bytes_out.load(Ordering::Relaxed);
    }
}

impl Totals {
    /// What was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Totals) -> Totals {
        Totals {
            connections: self.connections.saturating_sub(earlier.connections),
            commands: self.commands.saturating_sub(earlier.commands),
            errors: self.errors.saturating_sub(earlier.errors),
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
        }
    }
}
