//! The WAL-index: memory shared by the connections of this process while a database has a
//! write-ahead log.
//!
//! SQLite uses it to find pages in the log, and keeps the readers' marks in it. It says which
//! frames are committed and who reads. It is plain memory of the process and not in the pool,
//! because nothing of it may survive a crash: the first connection after a crash must count the
//! log's frames by their checksums. So the memory is freed with the last connection. The next one
//! finds zeros, which makes SQLite recover.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use crate::codes::SHM_LOCKS;

/// State shared by all connections to a database.
#[derive(Debug, Default)]
pub(crate) struct WalIndex {
    /// SQLite and its threads access them by their own rules.
    regions: BTreeMap<usize, Box<[AtomicU64]>>,
    slots: [Slot; SHM_LOCKS],
    users: usize,
}

/// Holders of one of the locks.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    readers: u32,
    has_writer: bool,
}

/// The locks of one connection: a bit for each.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    shared: u8,
    exclusive: u8,
}

impl WalIndex {
    /// Adds a connection.
    pub(crate) fn enter(&mut self) -> Holding {
        self.users += 1;
        Holding::default()
    }

    /// Removes a connection. Removing the last one frees the memory.
    pub(crate) fn leave(&mut self, mut holding: Holding) {
        self.unlock(&mut holding, 0..SHM_LOCKS);
        self.users -= 1;
        if self.users == 0 {
            self.regions.clear();
        }
    }

    /// The region of this number; if there is none and `is_wanted`, a new one of zeros.
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
        // The content of a box never moves, so the address is valid until the last connection
        // leaves.
        self.regions.get(&number).map(|region| region.as_ptr().cast_mut().cast())
    }

    /// Takes locks, shared or exclusive; all or none.
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

    /// Releases these locks of the connection.
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
