//! The list of connected clients, and their counters.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The connected clients, in the order in which they connected.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    connected: BTreeMap<u64, Arc<Record>>,
    last_id: u64,
    /// Counts of clients that have disconnected.
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

    /// Removes a client, and keeps its counts for the totals.
    pub(crate) fn disconnect(&self, record: &Record) {
        let mut list = self.list();
        if list.connected.remove(&record.id).is_some() {
            record.counters.add_to(&mut list.gone);
        }
    }

    /// How many clients are connected.
    pub(crate) fn len(&self) -> usize {
        self.list().connected.len()
    }

    /// The connected clients.
    pub(crate) fn all(&self) -> Vec<Arc<Record>> {
        self.list().connected.values().cloned().collect()
    }

    /// Closes the client that takes most memory among those that have stalled for `patience`, and
    /// returns it.
    ///
    /// A stalled client does not read its answers, or does not send the rest of its request. One
    /// that was told to close before, and has not closed yet, is left out: telling it again makes
    /// no room.
    pub(crate) fn close_largest(&self, patience: Duration) -> Option<Arc<Record>> {
        // Relaxed: an estimate is enough to choose a client by.
        let taken = |record: &Record| record.memory_len.load(Ordering::Relaxed);
        let mut records = self.all();
        records.retain(|record| record.has_stalled_for().is_some_and(|time| time >= patience));
        records.retain(|record| !record.is_closing.load(Ordering::Relaxed));
        let largest = records.into_iter().max_by_key(|record| taken(record))?;
        largest.close();
        Some(largest)
    }

    /// Counts of all clients since the server was started.
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

/// A client as other threads see it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) connected: Instant,
    pub(crate) counters: Counters,
    /// When it last sent something, in milliseconds after `connected`.
    pub(crate) last_active_ms: AtomicU64,
    pub(crate) protocol: AtomicU8,
    /// File descriptor of its socket; negative if it has none.
    pub(crate) descriptor: AtomicI32,
    /// Whether it is between `MULTI` and `EXEC`.
    pub(crate) is_in_transaction: AtomicBool,
    pub(crate) buffers: Buffers,
    /// Whether the client is to be closed, because it takes memory that others need.
    is_closing: AtomicBool,
    /// Notified when `is_closing` is set.
    told_to_close: Notify,
    /// Number of its last command, or [`NO_COMMAND`].
    last_command: AtomicU8,
    /// Bytes of the clients' memory that it takes.
    memory_len: AtomicU64,
    /// Since when it has stalled: milliseconds after `connected`, plus 1. 0 if it takes no memory.
    memory_since_ms: AtomicU64,
    labels: Mutex<Labels>,
}

/// Lengths of a client's buffers, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Requests that have not run yet.
    pub(crate) query_len: AtomicU64,
    /// Free room for requests.
    pub(crate) query_free: AtomicU64,
    /// Room for answers, free or not.
    pub(crate) reply_capacity: AtomicU64,
    /// Answers that have not been sent yet.
    pub(crate) reply_len: AtomicU64,
}

/// In place of the last command's number: the client has called no command yet.
const NO_COMMAND: u8 = u8::MAX;

/// The names that a client gave itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
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
            descriptor: AtomicI32::new(-1),
            is_in_transaction: AtomicBool::new(false),
            buffers: Buffers::default(),
            is_closing: AtomicBool::new(false),
            told_to_close: Notify::new(),
            last_command: AtomicU8::new(NO_COMMAND),
            memory_len: AtomicU64::new(0),
            memory_since_ms: AtomicU64::new(0),
            labels: Mutex::default(),
        }
    }

    /// Milliseconds since the client connected.
    pub(crate) fn age_ms(&self) -> u64 {
        self.connected.elapsed().as_millis() as u64
    }

    /// Sets the number of the client's last command.
    pub(crate) fn set_last_command(&self, number: u8) {
        // Relaxed, here and below: what `CLIENT LIST` shows may be a moment old.
        self.last_command.store(number, Ordering::Relaxed);
    }

    /// Number of the client's last command; `None` before its first one.
    pub(crate) fn last_command(&self) -> Option<u8> {
        Some(self.last_command.load(Ordering::Relaxed)).filter(|number| *number != NO_COMMAND)
    }

    /// Sets how many bytes of the clients' memory the client takes.
    pub(crate) fn set_memory(&self, bytes: u64) {
        if self.memory_len.load(Ordering::Relaxed) == bytes {
            return;
        }
        self.memory_len.store(bytes, Ordering::Relaxed);
        if bytes == 0 {
            self.memory_since_ms.store(0, Ordering::Relaxed);
        } else if self.memory_since_ms.load(Ordering::Relaxed) == 0 {
            self.memory_since_ms.store(self.age_ms() + 1, Ordering::Relaxed);
        }
    }

    /// Ends a stall: a request of the client was run, or its answers were sent. It is not closed
    /// any more.
    pub(crate) fn note_progress(&self) {
        if self.is_closing.load(Ordering::Relaxed) {
            self.is_closing.store(false, Ordering::Relaxed);
        }
        if self.memory_since_ms.load(Ordering::Relaxed) != 0 {
            self.memory_since_ms.store(self.age_ms() + 1, Ordering::Relaxed);
        }
    }

    fn close(&self) {
        // Relaxed: the notification orders this store before the load in `closing`.
        self.is_closing.store(true, Ordering::Relaxed);
        self.told_to_close.notify_one();
    }

    /// Waits until the client is to be closed for the memory that it takes.
    pub(crate) async fn closing(&self) {
        loop {
            self.told_to_close.notified().await;
            // The client may have made progress since it was told to close; then it stays.
            if self.is_closing.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// For how long the client has stalled; `None` if it takes no memory.
    fn has_stalled_for(&self) -> Option<Duration> {
        let since_ms = self.memory_since_ms.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(self.age_ms().saturating_sub(since_ms)))
    }

    pub(crate) fn labels(&self) -> MutexGuard<'_, Labels> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of one client. Only its connection writes them, so their cache line has one writer.
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
    /// Adds `done`, which the connection has counted since its last report, and sets it to 0.
    pub(crate) fn report(&self, done: &mut Totals) {
        // Relaxed: the only writer needs no read-modify-write, and readers want estimates.
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
        // Relaxed: estimates as long as the client is connected. After it has disconnected they are
        // exact, because the lock of the list orders its last report before these loads.
        totals.commands += self.commands.load(Ordering::Relaxed);
        totals.errors += self.errors.load(Ordering::Relaxed);
        totals.hits += self.hits.load(Ordering::Relaxed);
        totals.misses += self.misses.load(Ordering::Relaxed);
        totals.bytes_in += self.bytes_in.load(Ordering::Relaxed);
        totals.bytes_out += self.bytes_out.load(Ordering::Relaxed);
    }
}

impl Totals {
    /// The difference to `earlier`.
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Whether the client is told now to close.
    fn learns(record: &Record) -> bool {
        pin!(record.closing()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_largest_of_those_that_stall_is_closed_unless_it_gets_on() {
        let clients = Clients::default();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let [small, large, idle] = [5, 9, 0].map(|bytes| {
            let record = clients.connect(address, address);
            record.set_memory(bytes);
            record
        });
        let close = || clients.close_largest(Duration::ZERO).map(|record| record.id);
        assert_eq!(clients.close_largest(Duration::from_secs(60)).map(|record| record.id), None);
        assert_eq!([close(), close(), close()], [Some(large.id), Some(small.id), None]);
        large.note_progress();
        assert_eq!([&small, &large, &idle].map(|record| learns(record)), [true, false, false]);
        assert_eq!(close(), Some(large.id), "it stalls again");
        assert!(learns(&large));
    }
}
