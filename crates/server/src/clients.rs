//! The clients that are connected, and what was counted for them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

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

    /// Closes the client that takes most memory among those that have taken some for as long as
    /// `patience` without getting on, and returns it: it does not read its answers, or does not
    /// send the rest of its request. One that was told so before, and cannot obey yet, makes no
    /// room by being told again.
    pub(crate) fn close_largest(&self, patience: Duration) -> Option<Arc<Record>> {
        // Relaxed: estimates, of which the largest is good enough.
        let taken = |record: &Record| record.memory_len.load(Ordering::Relaxed);
        let mut records = self.all();
        records.retain(|record| record.has_stalled_for().is_some_and(|time| time >= patience));
        records.retain(|record| !record.is_closing.load(Ordering::Relaxed));
        let largest = records.into_iter().max_by_key(|record| taken(record))?;
        largest.close();
        Some(largest)
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
    /// Number of its socket in this process; negative where it has none.
    pub(crate) descriptor: AtomicI32,
    /// Whether it is between `MULTI` and `EXEC`.
    pub(crate) is_in_transaction: AtomicBool,
    pub(crate) buffers: Buffers,
    /// Whether the client is to be closed, because it takes memory that others need; and told when
    /// that begins.
    is_closing: AtomicBool,
    told_to_close: Notify,
    /// Number of the command that it called last, or [`NO_COMMAND`].
    last_command: AtomicU8,
    /// Bytes that it takes of the clients' memory.
    memory_len: AtomicU64,
    /// Milliseconds after `connected`, and 1, since when it takes some without getting on; 0 where
    /// it takes none.
    memory_since_ms: AtomicU64,
    labels: Mutex<Labels>,
}

/// Bytes in the buffers of a client.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    /// Of requests that were not run yet.
    pub(crate) query_len: AtomicU64,
    /// Of room for more of them.
    pub(crate) query_free: AtomicU64,
    /// Of room for answers.
    pub(crate) reply_capacity: AtomicU64,
    /// Of answers that wait to be sent.
    pub(crate) reply_len: AtomicU64,
}

/// Marks a client that has called no command yet.
const NO_COMMAND: u8 = u8::MAX;

/// How a client named itself.
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

    /// Notes the number of the command that the client calls.
    pub(crate) fn set_last_command(&self, number: u8) {
        // Relaxed, here and below: what people see of a client may be a moment old.
        self.last_command.store(number, Ordering::Relaxed);
    }

    /// Number of the command that the client called last; `None` before its first one.
    pub(crate) fn last_command(&self) -> Option<u8> {
        Some(self.last_command.load(Ordering::Relaxed)).filter(|number| *number != NO_COMMAND)
    }

    /// Says how much of the clients' memory the client takes now.
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

    /// Says that the client got on: a request of it was run, or its answers were sent. It need not
    /// be closed any more.
    pub(crate) fn get_on(&self) {
        if self.is_closing.load(Ordering::Relaxed) {
            self.is_closing.store(false, Ordering::Relaxed);
        }
        if self.memory_since_ms.load(Ordering::Relaxed) != 0 {
            self.memory_since_ms.store(self.age_ms() + 1, Ordering::Relaxed);
        }
    }

    fn close(&self) {
        // Relaxed: whoever is told learns it from the notice, which orders this before it.
        self.is_closing.store(true, Ordering::Relaxed);
        self.told_to_close.notify_one();
    }

    /// Returns when the client is to be closed for the memory that it takes.
    pub(crate) async fn closing(&self) {
        loop {
            self.told_to_close.notified().await;
            // One that got on since it was told stays.
            if self.is_closing.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// For how long it has taken memory without getting on.
    fn has_stalled_for(&self) -> Option<Duration> {
        let since_ms = self.memory_since_ms.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(self.age_ms().saturating_sub(since_ms)))
    }

    pub(crate) fn labels(&self) -> MutexGuard<'_, Labels> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Whether the client learns now that it is to be closed.
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
        large.get_on();
        assert_eq!([&small, &large, &idle].map(|record| learns(record)), [true, false, false]);
        assert_eq!(close(), Some(large.id), "it stalls again");
        assert!(learns(&large));
    }
}
