//! How often indexes are used.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads that count beside each other.
const SHARDS: usize = 8;

/// What an index is used for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// Rows with a key are looked for.
    Lookup,
    /// Rows of a range are read.
    Range,
    /// A row gets a key, or loses one.
    Change,
}

/// Uses of an index since the database was opened. An index that is moved keeps them.
#[derive(Debug, Default)]
pub(crate) struct Uses([Shard; SHARDS]);

/// Counts of some threads, in two lines of their own: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard([AtomicU64; 3]);

/// The shard of the next thread.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Uses {
    /// Counts a use.
    #[inline]
    pub(crate) fn count(&self, of: Use) {
        let shard = SHARD.get().unwrap_or_else(first_of_thread);
        // Relaxed: a number.
        self.0[shard].0[of as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often there was such a use.
    pub(crate) fn of(&self, of: Use) -> u64 {
        // Relaxed: numbers, of which one may be seen later than another.
        self.0.iter().map(|shard| shard.0[of as usize].load(Ordering::Relaxed)).sum()
    }
}

#[cold]
fn first_of_thread() -> usize {
    // Relaxed: a number.
    let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    SHARD.set(Some(shard));
    shard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_use_is_lost() {
        let uses = Uses::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| (0..1_000).for_each(|_| uses.count(Use::Lookup)));
            }
        });
        uses.count(Use::Change);
        assert_eq!([Use::Lookup, Use::Range, Use::Change].map(|of| uses.of(of)), [16_000, 0, 1]);
    }
}
