//! Recovery of chains.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use remanent_pmem::heap::Block;
use remanent_pmem::{Medium, WORD_LEN};

use super::super::Core;
use super::super::bucket::Bucket;
use super::super::layout::{Hash, Link, slot_at};
use super::chain::Linked;
use crate::stored::{Key, Stored};

/// How far recovery has walked along the chain of each slot that it was asked about. So each chain
/// is walked once, however many of its records are in doubt.
#[derive(Debug, Default)]
pub(in super::super) struct Walks(Mutex<HashMap<u64, Walk>>);

impl Walks {
    /// Frees the memory that recovery took.
    pub(in super::super) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = HashMap::new();
    }
}

/// The beginning of a chain. It takes 16 bytes of memory a record until recovery has ended.
#[derive(Debug)]
struct Walk {
    /// Number and offset of each record, the newest first.
    passed: Vec<(u64, u64)>,
    /// The last of them.
    last: Option<Linked>,
    /// Where the chain goes on.
    next: Next,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Record(u64),
    /// It ends.
    Nothing,
    /// It is damaged.
    Unknown,
}

impl Walk {
    /// The place of the record with this number, if the walk has come to it.
    fn find(&self, number: u64, offset: u64) -> Option<usize> {
        // Numbers descend.
        let found = self.passed.binary_search_by(|(passed, _)| number.cmp(passed)).ok()?;
        (self.passed[found].1 == offset).then_some(found)
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Whether a slot of this hash leads to a record whose value is there, or may lead there: what
    /// may be behind damage is kept. If the value is removed, the record is taken out of the chain.
    /// The caller flushes the slot.
    ///
    /// The walk ends where the record would be by its number, and the next one goes on there. So
    /// all questions about a chain together take one walk, to the oldest record that is asked for.
    pub(in super::super) fn is_linked_in_chain(
        &self,
        bucket: Bucket,
        slot: u32,
        hash: Hash,
        block: Block,
    ) -> bool {
        if self.is_slot_damaged(bucket, slot) {
            return true;
        }
        let first = Self::content(bucket.word(self.medium(), slot));
        let mut walks = self.walks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let walk = walks.entry(slot_at(bucket.0, slot)).or_insert_with(|| Walk {
            passed: Vec::new(),
            last: None,
            next: Next::Record(first),
        });
        // A record without a sealed link is in no chain, unless behind damage.
        let asked = self.linked(block.offset, None).ok();
        let number = asked.map_or(0, |asked| asked.link.number);
        self.walk_to(walk, number, hash);
        let found = walk.find(number, block.offset);
        let (Some(asked), Some(place)) = (asked, found) else {
            let has_passed =
                asked.is_some() && walk.last.is_some_and(|last| last.link.number <= number);
            return !has_passed && matches!(walk.next, Next::Unknown);
        };
        if asked.link.is_dead {
            self.take_out(walk, place, asked.link, bucket, slot);
        }
        !asked.link.is_dead
    }

    /// Walks on to the record of this number, or to where it would be.
    fn walk_to(&self, walk: &mut Walk, number: u64, hash: Hash) {
        while let Next::Record(next) = walk.next
            && walk.last.is_none_or(|last| last.link.number > number)
        {
            let linked = self.linked(next, walk.last).ok();
            let Some(linked) = linked.filter(|found| self.is_of_hash(found.record, hash)) else {
                walk.next = Next::Unknown;
                return;
            };
            // Flush: what a killed process may have left in the caches alone; fenced by the heap
            // before it forgets that the block was suspect.
            // Redundant: unless a process was killed before and the power fails later.
            self.medium().flush(linked.record.link_at(), WORD_LEN);
            walk.passed.push((linked.link.number, linked.record.offset));
            walk.next = linked.link.next.map_or(Next::Nothing, Next::Record);
            walk.last = Some(linked);
        }
    }

    /// Takes a removed record out of its chain.
    fn take_out(&self, walk: &mut Walk, place: usize, removed: Link, bucket: Bucket, slot: u32) {
        walk.passed.remove(place);
        let before = place.checked_sub(1).map(|before| walk.passed[before].1);
        // It may have been changed since the walk passed it.
        let before = before.and_then(|offset| self.linked(offset, None).ok());
        let changed = self.lead_past(bucket, slot, before, removed);
        // Flush: fenced by the heap before it frees the record.
        self.medium().flush(changed, WORD_LEN);
    }
}
