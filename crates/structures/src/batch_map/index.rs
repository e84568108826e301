//! The volatile index: it leads from each key to the key's newest record.
//!
//! Open addressing with linear probing, where entries lie in the order of their hashes (Amble and
//! Knuth, *Ordered hash tables*, 1974). The upper bits of a hash select the entry's home slot, so
//! the whole table is in hash order: a scan can continue from any hash, and growing is one pass
//! from left to right.

use super::layout::{PLACE_BITS, Place};

/// Binary logarithm of the number of shards.
pub(super) const SHARD_BITS: u32 = 8;

/// The entry of a key: the place of its newest record, and the number of older values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) hash: u64,
    /// 0 for a vacant slot; else the place, the tombstone flag, and the number of older values.
    word: u64,
}

const TOMBSTONE: u64 = 1 << PLACE_BITS;
const STALE_SHIFT: u32 = PLACE_BITS + 1;
/// The count at its maximum: the true number is no longer known.
const STALE_MANY: u64 = (1 << (64 - STALE_SHIFT)) - 1;

impl Entry {
    pub(super) fn new(hash: u64, place: Place) -> Self {
        Entry { hash, word: place.raw() }
    }

    #[inline]
    pub(super) fn place(self) -> Place {
        Place::from_raw(self.word & (TOMBSTONE - 1))
    }

    /// Whether the key was removed. The entry stays as long as values of it lie in the log.
    #[inline]
    pub(super) fn is_tombstone(self) -> bool {
        self.word & TOMBSTONE != 0
    }

    /// How many values of the key lie in the log besides the newest record.
    pub(super) fn stale(self) -> u64 {
        self.word >> STALE_SHIFT
    }

    #[inline]
    fn is_vacant(self) -> bool {
        self.word == 0
    }

    /// The entry after a newer record was appended. If the old record was a value, it counts as
    /// stale.
    pub(super) fn replaced(self, place: Place, is_tombstone: bool) -> Self {
        let stale = match self.stale() {
            STALE_MANY => STALE_MANY,
            stale => stale + u64::from(!self.is_tombstone()),
        };
        let tombstone = if is_tombstone { TOMBSTONE } else { 0 };
        Entry { hash: self.hash, word: place.raw() | tombstone | stale << STALE_SHIFT }
    }

    /// The entry after one stale value has gone.
    pub(super) fn relieved(self) -> Self {
        match self.stale() {
            STALE_MANY | 0 => self,
            _ => Entry { hash: self.hash, word: self.word - (1 << STALE_SHIFT) },
        }
    }
}

/// The entries of one shard.
#[derive(Debug)]
pub(super) struct Table {
    slots: Box<[Entry]>,
    /// Binary logarithm of the number of homes; [`OVERFLOW`] slots follow the last home.
    bits: u32,
    /// Number of entries, including tombstones.
    len: usize,
}

/// Binary logarithm of the number of homes in an empty table.
const BITS_MIN: u32 = 3;
/// Slots behind the last home. A cluster that needs more makes the table grow.
const OVERFLOW: usize = 24;

impl Default for Table {
    fn default() -> Self {
        Self::with_bits(BITS_MIN)
    }
}

impl Table {
    fn with_bits(bits: u32) -> Self {
        let slots = vec![Entry::default(); (1 << bits) + OVERFLOW].into_boxed_slice();
        Table { slots, bits, len: 0 }
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash << SHARD_BITS >> (64 - self.bits)) as usize
    }

    /// The slot of the entry with this hash that `is_it` accepts, or the slot where it would be
    /// inserted.
    #[inline]
    pub(super) fn find(
        &self,
        hash: u64,
        mut is_it: impl FnMut(Entry) -> bool,
    ) -> Result<usize, usize> {
        let mut at = self.home(hash);
        // Terminates, because the last slot is never occupied.
        while !self.slots[at].is_vacant() && self.slots[at].hash < hash {
            at += 1;
        }
        while !self.slots[at].is_vacant() && self.slots[at].hash == hash {
            if is_it(self.slots[at]) {
                return Ok(at);
            }
            at += 1;
        }
        Err(at)
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Entry {
        self.slots[at]
    }

    /// Replaces the entry that [`find`](Table::find) found. The new one has the same hash.
    #[inline]
    pub(super) fn set(&mut self, at: usize, entry: Entry) {
        debug_assert_eq!(self.slots[at].hash, entry.hash);
        self.slots[at] = entry;
    }

    /// Inserts an entry at the slot that [`find`](Table::find) returned as an error.
    pub(super) fn insert(&mut self, at: usize, entry: Entry) {
        let mut vacant = at;
        while !self.slots[vacant].is_vacant() {
            vacant += 1;
        }
        if vacant + 1 >= self.slots.len() || self.len + 1 > (3 << self.bits) / 4 {
            self.grow();
            let at = self.find(entry.hash, |_| false).unwrap_or_else(|at| at);
            return self.insert(at, entry);
        }
        self.slots.copy_within(at..vacant, at + 1);
        self.slots[at] = entry;
        self.len += 1;
    }

    /// Removes the entry that [`find`](Table::find) found.
    pub(super) fn remove(&mut self, at: usize) {
        let mut last = at;
        while !self.slots[last + 1].is_vacant() && self.home(self.slots[last + 1].hash) <= last {
            last += 1;
        }
        self.slots.copy_within(at + 1..last + 1, at);
        self.slots[last] = Entry::default();
        self.len -= 1;
    }

    /// The entries whose hash is at least `from`, in ascending order of hashes.
    pub(super) fn entries_from(&self, from: u64) -> impl Iterator<Item = Entry> + '_ {
        let entries = self.slots[self.home(from)..].iter().copied();
        entries.filter(move |entry| !entry.is_vacant() && entry.hash >= from)
    }

    /// Loads the slot where a search for this hash begins. Several such loads overlap their cache
    /// misses, and the searches after them find the lines cached.
    #[inline]
    pub(super) fn touch(&self, hash: u64) {
        std::hint::black_box(self.slots[self.home(hash)].word);
    }

    /// Whether there is neither an entry nor a tombstone.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn grow(&mut self) {
        let mut bits = self.bits + 1;
        loop {
            match self.copied(bits) {
                Some(grown) => {
                    *self = grown;
                    return;
                }
                // A cluster at the end of the table did not fit.
                None => bits += 1,
            }
        }
    }

    fn copied(&self, bits: u32) -> Option<Self> {
        let mut grown = Self::with_bits(bits);
        let mut next = 0;
        for &entry in self.slots.iter().filter(|entry| !entry.is_vacant()) {
            let at = next.max(grown.home(entry.hash));
            if at + 1 >= grown.slots.len() {
                return None;
            }
            grown.slots[at] = entry;
            next = at + 1;
        }
        grown.len = self.len;
        Some(grown)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::segments::Slot;

    fn place(number: u64) -> Place {
        Place::new(Slot(number as u32), 64)
    }

    fn entries(table: &Table) -> Vec<(u64, u64)> {
        table.entries_from(0).map(|entry| (entry.hash, entry.place().raw())).collect()
    }

    fn assert_ordered(table: &Table) {
        let mut before = 0;
        for (at, entry) in table.slots.iter().enumerate().filter(|(_, entry)| !entry.is_vacant()) {
            let home = table.home(entry.hash);
            assert!(home <= at && entry.hash >= before);
            assert!(table.slots[home..at].iter().all(|between| !between.is_vacant()));
            before = entry.hash;
        }
    }

    proptest! {
        #[test]
        fn a_table_is_a_sorted_map(ops in prop::collection::vec((0_u64..64, any::<bool>()), 1..400)) {
            let mut table = Table::default();
            let mut model = BTreeMap::new();
            for (number, removes) in ops {
                // Few homes, one of them the last; several hashes that differ only in their lowest
                // bits.
                let hash = ((number % 8 * 37) << 48) | (number / 8);
                let hash = if number % 8 == 7 { hash | (0xff << 48) } else { hash };
                let found = table.find(hash, |_| true);
                prop_assert_eq!(found.is_ok(), model.contains_key(&hash));
                match (found, removes) {
                    (Ok(at), true) => {
                        table.remove(at);
                        model.remove(&hash);
                    }
                    (Err(at), false) => {
                        table.insert(at, Entry::new(hash, place(number)));
                        model.insert(hash, place(number).raw());
                    }
                    _ => {}
                }
                assert_ordered(&table);
                prop_assert_eq!(table.len, model.len());
            }
            prop_assert_eq!(entries(&table), model.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn equal_hashes_are_told_apart_by_the_key() {
        let mut table = Table::default();
        for number in 0..100 {
            let at = table.find(5, |entry| entry.place() == place(number)).unwrap_err();
            table.insert(at, Entry::new(5, place(number)));
        }
        for number in 0..100 {
            let at = table.find(5, |entry| entry.place() == place(number)).unwrap();
            assert_eq!(table.get(at).place(), place(number));
            table.remove(at);
        }
        assert_eq!(table.len, 0);
    }

    #[test]
    fn stale_values_are_counted_until_there_are_too_many() {
        let entry = Entry::new(1, place(1)).replaced(place(2), false).replaced(place(3), true);
        assert_eq!((entry.stale(), entry.is_tombstone(), entry.place()), (2, true, place(3)));
        // A replaced tombstone does not count as a value.
        assert_eq!(entry.replaced(place(4), false).stale(), 2);
        assert_eq!(entry.relieved().relieved().stale(), 0);
        let many = Entry { hash: 1, word: place(1).raw() | STALE_MANY << STALE_SHIFT };
        assert_eq!(many.replaced(place(2), false).stale(), STALE_MANY);
        assert_eq!(many.relieved().stale(), STALE_MANY);
    }
}
