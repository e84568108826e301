//! Removing all entries, and freeing what they took.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use remanent_pmem::heap::{Lane, Suspect};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::bucket::Bucket;
use super::layout::{
    Hash, Target, bucket_count, child_at, each_slot, is_ready, segment_len, slot_at,
};
use super::nodes::Pointer;
use super::observe::Changed;
use super::segment::bucket_at;
use crate::nesting::Nesting;
use crate::shared::SUSPECTS;
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// Records that are freed with the same fences.
pub(super) const FREED_AT_ONCE: usize = 100;
const _: () = assert!(FREED_AT_ONCE + 2 < SUSPECTS);

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Removes every entry by one word, and then frees them.
    pub(super) fn clear(&self) -> Result<u64> {
        self.gate.without_batches(self.medium(), || {
            // The header has room for one directory that is to be freed.
            self.free_cleared()?;
            // Counted before writers have to wait: it may take long. Damage does not matter to it.
            match self.len() {
                Err(error) if !error.is_damage() => return Err(error),
                _ => {}
            }
            let mut cleared = self.clear_all();
            if cleared.as_ref().is_err_and(Error::is_full) {
                self.heap.relieve();
                cleared = self.clear_all();
            }
            let count = match cleared {
                Err(error) if error.is_full() => self.remove_all()?,
                cleared => cleared?,
            };
            self.free_cleared()?;
            Ok(count)
        })
    }

    /// Has the header lead to an empty segment. Two fences, during which writers wait.
    fn clear_all(&self) -> Result<u64> {
        self.heap.quiesced(|lane, _| {
            let medium = self.medium();
            let before = self.count.get().unwrap_or(0);
            // Readers that meet a segment for the first time use what is changed here.
            let _shape = self.shape.lock(medium);
            let old = self.nodes().pointer(self.root_at(), 0)?.target;
            let block = lane.allocate(segment_len::<K>())?;
            self.write_empty_segment(block.offset);
            // Fence: the segment, before the root leads to it.
            lane.fence();
            self.observer.tell(Changed::Cleared);
            let (root, cleared) = (self.root_at(), self.cleared_at());
            medium.store(cleared, old.seal(cleared));
            // Release: after the other word in the line's order of stores, so that what was there
            // is never lost.
            medium.store(root, Target::Segment(block.offset).seal(root));
            // Flush and fence: the clear is durable before anybody acts on it.
            medium.persist(root, LINE_LEN);
            self.heap.verify()?;
            self.count.set(0);
            // Before anything is freed that the former directory leads to.
            self.directory.forget();
            // Release: after the word that it is about.
            self.has_cleared.store(true, Ordering::Release);
            Ok(before)
        })
    }

    /// Removes all entries, one after the other: there is no room for an empty segment.
    #[cold]
    fn remove_all(&self) -> Result<u64> {
        let (mut cursor, mut count) = (0, 0);
        loop {
            let mut keys: Vec<K::Owned> = Vec::with_capacity(FREED_AT_ONCE);
            let mut last = None;
            cursor = self.scan(cursor, FREED_AT_ONCE, |key, _| {
                // The values of one key come one after the other.
                let bytes = MULTI.then(|| key.with_bytes(<[u8]>::to_vec));
                if !MULTI || bytes != last {
                    keys.push(key.to_owned());
                }
                last = bytes;
            })?;
            for key in keys {
                let key = key.borrow();
                let remove = |is_present| (Change::<&V>::Remove, u64::from(is_present));
                count +=
                    if MULTI { self.remove_all_of(key)? } else { self.edit_unread(key, remove)? };
            }
            if cursor == 0 {
                return Ok(count);
            }
        }
    }

    /// Whether there is anything that `clear` has left.
    pub(super) fn has_cleared(&self) -> bool {
        // Acquire: partner of the Release in `clear_all`.
        self.has_cleared.load(Ordering::Acquire)
    }

    /// Frees what a clear has left, or waits for the thread that does.
    fn free_cleared(&self) -> Result<()> {
        while self.has_cleared() {
            if !self.free_some()? {
                self.medium().pause();
            }
            self.heap.verify()?;
        }
        Ok(())
    }

    /// Frees some of what a clear that a crash has interrupted has left.
    #[cold]
    pub(super) fn help_to_clear(&self) {
        // A lane that this thread holds would be in the way.
        if Nesting::refuse().is_ok() {
            // The caller's operation is done, whatever becomes of this.
            drop(self.free_some());
        }
    }

    /// Frees some of what a clear has left. Returns whether there may be more. Not to be called
    /// inside of a lane.
    pub(super) fn free_some(&self) -> Result<bool> {
        if !self.has_cleared() {
            return Ok(false);
        }
        let Some(_freeing) = self.freeing.try_lock() else { return Ok(false) };
        // Asked again: it is reset under this lock alone, and what is there may be of a later
        // clear.
        if !self.has_cleared() {
            return Ok(false);
        }
        if self.medium().load(self.cleared_at()) == 0 {
            self.has_cleared.store(false, Ordering::Release);
            return Ok(false);
        }
        let mut lane = self.heap.enter().prepare_for(SUSPECTS);
        let mut pointer = self.nodes().pointer(self.cleared_at(), 0)?;
        let mut hash = Hash(0);
        while let Target::Node(node) = pointer.target {
            let medium = self.medium();
            let Some(bit) = (0..2).find(|&bit| medium.load(child_at(node, bit)) != 0) else {
                break;
            };
            hash.0 |= bit << (63 - pointer.depth);
            pointer = self.nodes().pointer(child_at(node, bit), pointer.depth + 1)?;
        }
        if let Target::Segment(segment) = pointer.target
            && !Self::IS_INLINE
            && self.free_records(&mut lane, segment, hash, pointer.depth)?
        {
            return Ok(true);
        }
        self.free_block(&mut lane, pointer);
        Ok(true)
    }

    /// Frees some records of a segment. Returns whether there were any.
    fn free_records(
        &self,
        lane: &mut Lane<'_, M>,
        segment: u64,
        hash: Hash,
        depth: u32,
    ) -> Result<bool> {
        let medium = self.medium();
        if !is_ready(medium, segment, self.epoch) {
            let _shape = self.shape.lock(medium);
            self.make_ready(segment, hash, depth)?;
        }
        let slots: Vec<(Bucket, u32, Hash)> = (0..bucket_count::<K>())
            .flat_map(|index| {
                let bucket = bucket_at(segment, index);
                each_slot(bucket.prints(medium).used())
                    .map(move |slot| (slot, bucket.stamp(medium, slot)))
                    .filter(|(_, stamp)| stamp.is_valid())
                    .map(move |(slot, stamp)| (bucket, slot, stamp.hash(index, K::SEGMENT_BITS)))
            })
            .take(FREED_AT_ONCE)
            .collect();
        if slots.is_empty() {
            return Ok(false);
        }
        if MULTI {
            self.free_chains(lane, &slots);
            return Ok(true);
        }
        // What is damaged leads to no record of the slot's key, and nothing is freed.
        let records = slots.iter().filter_map(|&(bucket, slot, hash)| {
            let record = self.record_at(Self::content(bucket.word(medium, slot)))?;
            self.is_of_hash(record, hash).then_some(record.offset)
        });
        let suspects: Vec<Suspect> = records.map(|record| lane.suspect(record)).collect();
        // Fence: the suspects, before nothing leads to their records any more.
        lane.fence();
        for (bucket, slot, _) in slots {
            let at = slot_at(bucket.0, slot);
            self.make_void(bucket, slot);
            // Flush: fenced below.
            medium.flush(at, WORD_LEN);
        }
        // Fence: before the records may be freed.
        lane.fence();
        suspects.into_iter().for_each(|suspect| lane.retire(suspect));
        Ok(true)
    }

    /// Frees a node without children, or a segment without records.
    fn free_block(&self, lane: &mut Lane<'_, M>, pointer: Pointer) {
        let medium = self.medium();
        let suspect = lane.suspect(pointer.target.offset());
        // Fence: the suspect, before nothing leads to the block any more.
        lane.fence();
        medium.store(pointer.at, 0);
        // Flush and fence: before the block may be freed.
        medium.persist(pointer.at, WORD_LEN);
        lane.retire(suspect);
    }
}
