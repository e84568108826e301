//! Splitting a segment.

use remanent_pmem::Medium;
use remanent_pmem::heap::Lane;

use super::Core;
use super::bucket::Held;
use super::directory::Place;
use super::layout::{
    Control, DEPTH_MAX, Hash, Prints, bucket_count, each_slot, segment_len, write_segment_head,
};
use super::nodes::Halves;
use super::segment::bucket_at;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Splits a segment, if no other thread has. Its entries with a 1 as the next bit of the hash
    /// go to a new segment, each to the place that it had. Two fences.
    ///
    /// Readers go on meanwhile, writers of the segment wait.
    #[cold]
    pub(super) fn split(&self, lane: &mut Lane<'_, M>, place: Place<'_>, hash: Hash) -> Result<()> {
        let mut buckets = self.hold_all(place.segment)?;
        let _shape = self.shape.lock(self.medium());
        if !self.directory.leads_to(place, hash) {
            return Ok(());
        }
        let segment = place.segment;
        let pointer = self.nodes().pointer_to(segment, hash)?;
        let depth = pointer.depth;
        if depth == DEPTH_MAX {
            let what = "more entries have one hash than a segment has slots";
            return Err(Error::corrupt(&self.heap, segment, what));
        }
        let halves = Halves::allocate(lane, pointer, hash, segment_len::<K>())?;
        let Halves { left_hash, right_hash, right, .. } = halves;
        let moved = self.copy_right_half(&buckets, right.offset, right_hash, depth);
        self.nodes().divide(lane, pointer, &halves);
        self.heap.verify()?;
        self.directory.set(right_hash, depth + 1, right.offset);
        self.directory.set(left_hash, depth + 1, segment);
        self.hide_moved(&mut buckets, &moved);
        Ok(())
    }

    /// Makes the new segment, and flushes it. Returns the slots of each bucket that were copied.
    fn copy_right_half(
        &self,
        buckets: &[Held<'_, M>],
        to: u64,
        hash: Hash,
        depth: u32,
    ) -> Vec<u32> {
        let (medium, bits) = (self.medium(), K::SEGMENT_BITS);
        medium.write_zeros(to, segment_len::<K>());
        write_segment_head(medium, to, self.heap.member(), hash, self.epoch);
        let mut displaced = vec![0_u32; bucket_count::<K>() as usize];
        let mut moved = vec![0_u32; bucket_count::<K>() as usize];
        for (index, held) in buckets.iter().enumerate() {
            let (from, to) = (held.bucket, bucket_at(to, index as u64));
            let mut prints = Prints::default();
            for (slot, stamp) in held.entries() {
                let entry = stamp.hash(index as u64, bits);
                if entry.bit(depth) == 0 {
                    continue;
                }
                let content = Self::content(from.word(medium, slot));
                let word = Self::word_for(to, slot, stamp, content);
                to.store_slot(medium, slot, stamp, word);
                prints = prints.with(slot, entry.fingerprint());
                moved[index] |= 1 << slot;
                displaced[entry.home(bits) as usize] += u32::from(stamp.is_displaced());
            }
            to.set_prints(medium, prints);
        }
        for (index, displaced) in displaced.into_iter().enumerate() {
            medium.store(bucket_at(to, index as u64).0, Control::new(displaced).0);
        }
        // Flush: fenced by the caller.
        medium.flush(to, segment_len::<K>());
        moved
    }

    /// Hides what was moved from readers, once they are led to its new place.
    fn hide_moved(&self, buckets: &mut [Held<'_, M>], moved: &[u32]) {
        let bits = K::SEGMENT_BITS;
        let medium = self.medium();
        let mut displaced = vec![0_i64; buckets.len()];
        for (index, (held, &slots)) in buckets.iter_mut().zip(moved).enumerate() {
            for slot in each_slot(slots) {
                let stamp = held.bucket.stamp(medium, slot);
                if stamp.is_displaced() {
                    displaced[stamp.hash(index as u64, bits).home(bits) as usize] += 1;
                }
            }
            if slots != 0 {
                held.hide(slots);
            }
        }
        for (held, displaced) in buckets.iter_mut().zip(displaced) {
            (0..displaced).for_each(|_| held.count_displaced(-1));
        }
    }
}
