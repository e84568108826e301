//! Adding many words of one segment at once.
//!
//! Who adds words one by one locks a bucket for each, and reads it to see where there is room. Here
//! the whole segment is locked, and read once.

use remanent_pmem::Medium;

use super::super::directory::Place;
use super::super::layout::Hash;
use super::layout::{Bucket, HOME_FIRST, Pair, SLOT_COUNT, Word};
use super::{Core, RowId};
use crate::Result;

/// Quarters of a segment's slots up to which several partitions share it: with two buckets for each
/// word, nearly all find room.
const FULL: usize = 3;
/// Bits of partitions that get segments of their own at the most. If a few keys have most rows,
/// more would make a large directory of empty segments.
const BITS_MAX: u32 = 20;
/// Partitions that lie in more segments than this are added word by word.
const SEGMENTS_MAX: usize = 8;
/// For fewer words than one for so many slots, locking and reading the segment is not worth it.
const SLOTS_FOR_ONE: usize = 16;

/// What is free in the buckets of a locked segment.
struct Free {
    /// For each bucket: free slots, as bits.
    slots: Vec<u32>,
    /// For each bucket: slots that are used.
    used: Vec<u8>,
}

impl Free {
    /// Takes a slot for a word, in its home or its other bucket; `None` if both are full.
    #[inline(always)]
    fn take(&mut self, Pair { home, other }: Pair) -> Option<u64> {
        let [used_at_home, used_in_other] =
            [home, other].map(|bucket| u32::from(self.used[bucket.index as usize]));
        let goes_home = used_at_home < HOME_FIRST || used_at_home <= used_in_other;
        let bucket = if goes_home { home } else { other };
        self.take_in(bucket).or_else(|| self.take_in(if goes_home { other } else { home }))
    }

    fn used_count(&self) -> usize {
        self.used.iter().copied().map(usize::from).sum()
    }

    fn slot_count(&self) -> usize {
        self.used.len() * SLOT_COUNT
    }

    #[inline(always)]
    fn take_in(&mut self, bucket: Bucket) -> Option<u64> {
        let slots = &mut self.slots[bucket.index as usize];
        if *slots == 0 {
            return None;
        }
        let slot = slots.trailing_zeros();
        *slots &= *slots - 1;
        self.used[bucket.index as usize] += 1;
        Some(bucket.slot_at(slot))
    }
}

impl<M: Medium> Core<M> {
    /// Adds words whose hashes begin with the same `bits` bits; also others, but slowly.
    pub(super) fn insert_partition(&self, bits: u32, added: &[(u64, RowId)]) -> Result<()> {
        let slots = SLOT_COUNT << self.buckets.bits();
        let mut prefixes = added.iter().map(|(key, _)| self.hash(*key).prefix(bits));
        let of_first = prefixes.next();
        if prefixes.any(|prefix| Some(prefix) != of_first) {
            return self.insert_all(added.iter().copied());
        }
        let (mut rows, mut rest);
        rows = added;
        while rows.len() >= (slots / SLOTS_FOR_ONE).max(1) {
            let first = self.hash(rows[0].0);
            let place = self.place(first)?;
            match self.fill(place, (first, bits.min(BITS_MAX)), rows)? {
                Filled::Changed => {}
                Filled::Full => {
                    let mut lane = self.heap.enter().prepare_to_write();
                    match self.split(&mut lane, place, first) {
                        // There may be room for some.
                        Err(error) if error.is_full() => break,
                        split => split?,
                    }
                }
                Filled::Done { crowded, others } => {
                    self.insert_all(crowded.into_iter())?;
                    let is_scattered = (rows.len() - others.len()) * SEGMENTS_MAX < rows.len();
                    rest = others;
                    rows = &rest;
                    if is_scattered {
                        break;
                    }
                }
            }
        }
        self.insert_all(rows.iter().copied())
    }

    /// Puts those words into the segment of `first` that belong there and find room. Words whose
    /// hashes differ in the first `bits` bits are better kept in segments of their own.
    fn fill(
        &self,
        place: Place<'_>,
        (first, bits): (Hash, u32),
        rows: &[(u64, RowId)],
    ) -> Result<Filled> {
        let _buckets = self.lock_segment(place.segment);
        let depth = {
            let _shape = self.shape.lock(self.medium());
            if !self.directory.leads_to(place, first) {
                return Ok(Filled::Changed);
            }
            // A split that has met a fault leaves the two directories different.
            self.heap.verify()?;
            self.nodes().pointer_to(place.segment, first)?.depth
        };
        let is_of_segment = |hash: Hash| hash.prefix(depth) == first.prefix(depth);
        let mut free = self.free(place.segment);
        // Other partitions of the segment have about as many words as this one. An empty segment is
        // split in less time than one that has the words of the first of them.
        let expected = rows.len() << bits.saturating_sub(depth);
        let expected = expected.max(free.used_count() + rows.len());
        if depth < bits && expected > free.slot_count() * FULL / 4 {
            return Ok(Filled::Full);
        }
        let (mut crowded, mut others) = (Vec::new(), Vec::new());
        for &(key, row) in rows {
            let hash = self.hash(key);
            if !is_of_segment(hash) {
                others.push((key, row));
                continue;
            }
            match free.take(self.buckets.pair(place.segment, hash)) {
                Some(at) => self.medium().store(at, Word::of_row(hash, row).0),
                None => crowded.push((key, row)),
            }
        }
        // Flush: fenced by the caller of the index, before it says that the rows are there.
        self.medium().flush(place.segment, self.buckets.segment_len());
        self.heap.verify()?;
        Ok(Filled::Done { crowded, others })
    }

    /// What is free in a segment, which is locked.
    fn free(&self, segment: u64) -> Free {
        let buckets: Vec<Bucket> = self.buckets.of(segment).collect();
        let free = |bucket: &Bucket| match self.is_empty(*bucket) {
            true => bucket.slots(),
            false => self.free_slots(*bucket),
        };
        let slots: Vec<u32> = buckets.iter().map(free).collect();
        let used = |(bucket, free): (&Bucket, &u32)| (bucket.slots() & !free).count_ones() as u8;
        let used = buckets.iter().zip(&slots).map(used).collect();
        Free { slots, used }
    }
}

/// What filling a segment has come to.
enum Filled {
    /// It was split meanwhile.
    Changed,
    /// It is to be split before.
    Full,
    /// Done, but for words that found no room, and those of other segments.
    Done { crowded: Vec<(u64, RowId)>, others: Vec<(u64, RowId)> },
}
