//! The WAL-index: memory that the connections of this process share while a database has a write-ahead log.
//!
//! SQLite finds pages in the log with it, and keeps the readers' marks in it. It is plain memory of the process and none of
//! the pool, since nothing of it may outlive a crash: it says which frames are committed and who reads, and the first
//! connection after a crash must count the log's frames itself, by their checksums. The memory is therefore given back
//! with the last connection, and the next one finds zeros, upon which SQLite recovers.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use crate::codes::SHM_LOCKS;

/// What all connections to a database have together.
#[derive(Debug, Default)]
pub(crate) struct WalIndex {
    /// SQLite and its threads read and write them in their own manner.
    regions: BTreeMap<usize, Box<[AtomicU64]>>,
    slots: [Slot; SHM_LOCKS],
    users: usize,
}

/// Who holds one of the locks.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    readers: u32,
    has_writer: bool,
}

/// What one connection holds of the locks: a bit for each.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    shared: u8,
    exclusive: u8,
}

impl WalIndex {
    /// One more connection uses it.
    pub(crate) fn enter(&mut self) -> Holding {
        self.users += 1;
        Holding::default()
    }

    /// A connection uses it no more. With the last one the memory goes.
    pub(crate) fn leave(&mut self, mut holding: Holding) {
        self.unlock(&mut holding, 0..SHM_LOCKS);
        self.users -= 1;
        if self.users == 0 {
            self.regions.clear();
        }
    }

    /// The region of a number, made of zeros if there is none and `is_wanted`.
    pub(crate) fn region(
        &mut self,
        number: usize,
        len: usize,
        is_wanted: bool,
    ) -> Option<*mut u64> {
        if is_wanted {
            let words = len.div_ceil(size_of::<u64>());
            let fresh = || (0..words).map(|_| AtomicU64::new(0)).collect();
            self.regions.entry(number).or_insert_with(fresh);
        }
        // A box does not move what is in it, so the address holds until the last connection leaves.
        self.regions.get(&number).map(|region| region.as_ptr().cast_mut().cast())
    }

    /// Takes locks for reading with others, or for being alone; all or none.
    pub(crate) fn lock(
        &mut self,
        holding: &mut Holding,
        slots: std::ops::Range<usize>,
        is_shared: bool,
    ) -> bool {
        let (own_shared, own_exclusive) = (holding.shared, holding.exclusive);
        let is_free = |slot: usize| {
            let Slot { readers, has_writer } = self.slots[slot];
            let own = u32::from(own_shared >> slot & 1);
            let is_own = own_exclusive >> slot & 1 == 1;
            (!has_writer || is_own) && (is_shared || readers == own)
        };
        if !slots.clone().all(is_free) {
            return false;
        }
        for slot in slots {
            let bit = 1 << slot;
            if is_shared && holding.shared & bit == 0 {
                holding.shared |= bit;
                self.slots[slot].readers += 1;
            } else if !is_shared {
                holding.exclusive |= bit;
                self.slots[slot].has_writer = true;
            }
        }
        true
    }

    /// Gives back what the connection holds of these locks.
    pub(crate) fn unlock(&mut self, holding: &mut Holding, slots: std::ops::Range<usize>) {
        for slot in slots {
            let bit = 1 << slot;
            if holding.shared & bit != 0 {
                self.slots[slot].readers -= 1;
            }
            if holding.exclusive & bit != 0 {
                self.slots[slot].has_writer = false;
            }
            holding.shared &= !bit;
            holding.exclusive &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_shared_or_held_alone() {
        let mut index = WalIndex::default();
        let (mut one, mut other) = (index.enter(), index.enter());
        assert!(index.lock(&mut one, 3..4, true));
        assert!(index.lock(&mut one, 3..4, true), "again is once");
        assert!(index.lock(&mut other, 3..4, true));
        assert!(!index.lock(&mut one, 0..4, false), "all or none");
        assert!(index.lock(&mut other, 0..3, false));
        assert!(!index.lock(&mut one, 2..3, true));
        index.unlock(&mut one, 3..4);
        assert!(index.lock(&mut other, 3..4, false), "alone with what is its own");
        index.leave(other);
        assert!(index.lock(&mut one, 0..8, false), "who leaves holds nothing");
    }

    #[test]
    fn memory_is_shared_and_goes_with_the_last() {
        let mut index = WalIndex::default();
        let (one, other) = (index.enter(), index.enter());
        assert_eq!(index.region(0, 32_768, false), None);
        let region = index.region(0, 32_768, true);
        assert!(region.is_some());
        assert_eq!(index.region(0, 32_768, false), region);
        index.leave(one);
        assert_eq!(index.region(0, 32_768, false), region);
        index.leave(other);
        assert_eq!(index.region(0, 32_768, false), None);
    }
}
