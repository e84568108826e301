//! Splitting a segment.

use remanent_pmem::Medium;
use remanent_pmem::heap::Lane;

use super::super::directory::Place;
use super::super::layout::{DEPTH_MAX, Hash, each_slot, write_segment_head};
use super::super::nodes::Halves;
use super::Core;
use super::layout::Word;
use crate::{Error, Result};

impl<M: Medium> Core<M> {
    /// Splits a segment, if no other thread has, and if removing words that are of no use makes no
    /// room. Two fences.
    ///
    /// Readers go on meanwhile, writers of the segment wait.
    #[cold]
    pub(super) fn split(&self, lane: &mut Lane<'_, M>, place: Place<'_>, hash: Hash) -> Result<()> {
        let _buckets = self.lock_segment(place.segment);
        let _shape = self.shape.lock(self.medium());
        if !self.directory.leads_to(place, hash) {
            return Ok(());
        }
        let segment = place.segment;
        let pointer = self.nodes().pointer_to(segment, hash)?;
        let depth = pointer.depth;
        let is_elsewhere = |word: Word| !word.is_below(hash, depth);
        if self.remove_words(segment, &self.find_words(segment, is_elsewhere)) != 0 {
            return Ok(());
        }
        if depth == DEPTH_MAX {
            let what = "more rows have one hash than a segment has room for";
            return Err(Error::corrupt(&self.heap, segment, what));
        }
        let halves = Halves::allocate(lane, pointer, hash, self.buckets.segment_len())?;
        let Halves { left_hash, right_hash, right, .. } = halves;
        let moved = self.find_words(segment, |word| word.is_below(right_hash, depth + 1));
        self.copy_words(segment, right.offset, right_hash, &moved);
        self.nodes().divide(lane, pointer, &halves);
        self.heap.verify()?;
        self.directory.set(right_hash, depth + 1, right.offset);
        self.directory.set(left_hash, depth + 1, segment);
        // Release: after the directory was changed; partner of the loads in `look`.
        self.remove_words(segment, &moved);
        Ok(())
    }

    /// The words of each bucket for which `is_wanted`, as bits.
    fn find_words(&self, segment: u64, is_wanted: impl Fn(Word) -> bool) -> Vec<u32> {
        let find = |bucket| match self.is_empty(bucket) {
            true => 0,
            false => Word::which(&self.words(bucket), &is_wanted) & bucket.slots(),
        };
        self.buckets.of(segment).map(find).collect()
    }

    /// Makes the new segment, and flushes it.
    fn copy_words(&self, from: u64, to: u64, hash: Hash, moved: &[u32]) {
        let (medium, len) = (self.medium(), self.buckets.segment_len());
        medium.write_zeros(to, len);
        write_segment_head(medium, to, self.heap.member(), hash, 0);
        for ((from, to), &slots) in self.buckets.of(from).zip(self.buckets.of(to)).zip(moved) {
            for slot in each_slot(slots) {
                medium.store(to.slot_at(slot), self.word(from, slot).0);
            }
        }
        // Flush: fenced by the caller.
        medium.flush(to, len);
    }

    /// Removes words of a segment that are found elsewhere, or nowhere, and returns how many. A
    /// crash may bring them back.
    fn remove_words(&self, segment: u64, removed: &[u32]) -> u32 {
        for (bucket, &slots) in self.buckets.of(segment).zip(removed) {
            each_slot(slots).for_each(|slot| self.medium().store(bucket.slot_at(slot), 0));
        }
        removed.iter().map(|slots| slots.count_ones()).sum()
    }
}
