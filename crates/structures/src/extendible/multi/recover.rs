//! Recovery of chains.

use remanent_pmem::heap::Block;
use remanent_pmem::{Medium, WORD_LEN};

use super::super::Core;
use super::super::bucket::Bucket;
use super::super::layout::Hash;
use crate::stored::{Key, Stored};

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Whether a slot of this hash leads to a record whose value is there, or may lead there: what
    /// may be behind damage is kept. If the value is removed, the record is taken out of the chain.
    /// The caller flushes the slot.
    ///
    /// The walk ends where the record would be by its number, so it is short for the newest values
    /// of a key. For an old one that lies in a chunk of which blocks were being allocated, it is
    /// almost as long as the chain.
    pub(in super::super) fn is_linked_in_chain(
        &self,
        bucket: Bucket,
        slot: u32,
        hash: Hash,
        block: Block,
    ) -> bool {
        let medium = self.medium();
        if self.is_slot_damaged(bucket, slot) {
            return true;
        }
        // None: the block has no sealed link, and may be anywhere in the chain.
        let number = self.linked(block.offset, None).map(|linked| linked.link.number).ok();
        let mut before = None;
        for linked in self.chain(Self::content(bucket.word(medium, slot))) {
            let Some(linked) = linked.ok().filter(|found| self.is_of_hash(found.record, hash))
            else {
                return true;
            };
            // Flush: what a killed process may have left in the caches alone; fenced by the heap
            // before it forgets that the block was suspect.
            // Redundant: unless a process was killed before and the power fails later.
            medium.flush(linked.record.link_at(), WORD_LEN);
            if linked.record.offset != block.offset {
                if number.is_some_and(|number| linked.link.number <= number) {
                    return false;
                }
                before = Some(linked);
                continue;
            }
            if !linked.link.is_dead {
                return true;
            }
            let changed = self.lead_past(bucket, slot, before, linked.link);
            // Flush: fenced by the heap before it frees the record.
            medium.flush(changed, WORD_LEN);
            return false;
        }
        false
    }
}
