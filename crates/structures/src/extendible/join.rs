//! Joining a segment with the one that it was split from, when few entries are left in both.

use remanent_pmem::heap::{Lane, Suspect};
use remanent_pmem::{Medium, WORD_LEN};

use super::Core;
use super::bucket::Held;
use super::layout::{
    Hash, Stamp, Target, bucket_count, child_at, each_slot, segment_len, slots_of,
};
use super::nodes::Pointer;
use super::segment::bucket_at;
use crate::Result;
use crate::stored::{Key, Stored};

/// Two segments are joined when their entries take at most this part of the slots of one: much less
/// than where a segment is split, so that the same one is not split again soon.
const FILLED_MAX: (u64, u64) = (2, 5);

/// Two segments that one node leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Siblings {
    /// The pointer to the node.
    parent: Pointer,
    node: u64,
    left: u64,
    right: u64,
    /// The least hash of both.
    hash: Hash,
}

impl Siblings {
    /// The least hash of the right one.
    fn right_hash(&self) -> Hash {
        Hash(self.hash.0 | 1 << (63 - self.parent.depth))
    }
}

/// An entry on its way to the left segment.
struct Moved {
    bucket: u64,
    slot: u32,
    stamp: Stamp,
    content: u64,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Whether to look for a join after an entry of this hash has left a bucket empty. That takes
    /// some microseconds, so it is done for few: it depends on bits of the hash that say nothing of
    /// where the entry lies, so that each segment has such entries.
    #[inline]
    pub(super) fn is_join_due(hash: Hash) -> bool {
        (hash.0 >> 24).is_multiple_of(bucket_count::<K>() / 4)
    }

    /// Joins the segment of a hash with its sibling, if both have few entries. Two fences.
    ///
    /// Readers go on meanwhile, writers of both segments wait.
    #[cold]
    pub(super) fn try_join(&self, hash: Hash) -> Result<()> {
        // Without waiting for readers: this thread may be one.
        let Some(mut lane) = self.heap.try_enter_to_write() else { return Ok(()) };
        let shape = self.shape.lock(self.medium());
        let found = self.siblings(hash)?;
        drop(shape);
        let Some(found) = found.filter(|found| self.has_few(found)) else { return Ok(()) };
        // Both are ready to be used then.
        self.place(found.hash)?;
        self.place(found.right_hash())?;
        let mut left = self.hold_all(found.left)?;
        let right = self.hold_all(found.right)?;
        let _shape = self.shape.lock(self.medium());
        // Another thread may have split one of them, or joined both.
        let is_as_found = self.siblings(hash)? == Some(found) && self.has_few(&found);
        if !is_as_found || left.iter().chain(&right).any(|held| held.control().is_damaged()) {
            return Ok(());
        }
        let Some(moved) = self.find_places(&left, &right) else { return Ok(()) };
        self.copy_left(&left, found.left, &moved);
        let suspects = self.replace_node(&mut lane, &found)?;
        self.show_moved(&mut left, &moved);
        // The segments are entered in the volatile directory before others change them. Readers
        // that were led to the right one before still find its entries as they are now.
        self.directory.join(found.hash, found.parent.depth, found.left);
        for suspect in suspects {
            lane.retire(suspect);
        }
        Ok(())
    }

    /// The segment of a hash and the one that it was split from, if that was not split again. The
    /// caller has the lock of the directory's shape.
    fn siblings(&self, hash: Hash) -> Result<Option<Siblings>> {
        let mut parent = None;
        self.nodes().walk(self.root_at(), hash, |pointer| {
            parent = Some(pointer);
            false
        })?;
        let Some(parent) = parent else { return Ok(None) };
        let node = parent.target.offset();
        let child = |bit| self.nodes().pointer(child_at(node, bit), parent.depth + 1);
        Ok(match (child(0)?.target, child(1)?.target) {
            (Target::Segment(left), Target::Segment(right)) => {
                Some(Siblings { parent, node, left, right, hash: hash.first(parent.depth) })
            }
            _ => None,
        })
    }

    /// Whether one segment has room for the entries of both, and more.
    fn has_few(&self, found: &Siblings) -> bool {
        let slots: u64 =
            (0..bucket_count::<K>()).map(|i| u64::from(slots_of::<K>(i).count_ones())).sum();
        let used_in = |segment| -> u64 {
            let prints = |index| bucket_at(segment, index).prints(self.medium());
            (0..bucket_count::<K>()).map(|index| u64::from(prints(index).used().count_ones())).sum()
        };
        let used = used_in(found.left) + used_in(found.right);
        used * FILLED_MAX.1 <= slots * FILLED_MAX.0
    }

    /// Where the entries of the right segment are to lie: each in the same bucket of the left one.
    /// `None` when there is no room for one.
    fn find_places(&self, left: &[Held<'_, M>], right: &[Held<'_, M>]) -> Option<Vec<Moved>> {
        let mut moved = Vec::new();
        for (bucket, (left, right)) in (0..).zip(left.iter().zip(right)) {
            let mut free = each_slot(left.free_slots(slots_of::<K>(bucket)));
            for (slot, stamp) in right.entries() {
                let content = Self::content(right.bucket.word(self.medium(), slot));
                moved.push(Moved { bucket, slot: free.next()?, stamp, content });
            }
        }
        Some(moved)
    }

    /// Stores the entries in the left segment, where nobody finds them yet. What splits have left
    /// there would be found, too, and is removed.
    fn copy_left(&self, left: &[Held<'_, M>], segment: u64, moved: &[Moved]) {
        let medium = self.medium();
        for (index, held) in (0..).zip(left) {
            for slot in each_slot(held.free_slots(slots_of::<K>(index))) {
                self.make_void(held.bucket, slot);
            }
        }
        for Moved { bucket, slot, stamp, content } in moved {
            let bucket = bucket_at(segment, *bucket);
            let word = Self::word_for(bucket, *slot, *stamp, *content);
            bucket.store_slot(medium, *slot, *stamp, word);
        }
        // Flush: fenced before the directory leads here with both hashes.
        medium.flush(segment, segment_len::<K>());
    }

    /// Has the left segment in place of the node. Returns the node and the right segment, which are
    /// to be freed. Two fences.
    fn replace_node(&self, lane: &mut Lane<'_, M>, found: &Siblings) -> Result<[Suspect; 2]> {
        let (medium, at) = (self.medium(), found.parent.at);
        let suspects = [lane.suspect(found.node), lane.suspect(found.right)];
        // Fence: the left segment, and the suspects, before the pointer leads past them.
        lane.fence();
        medium.store(at, Target::Segment(found.left).seal(at));
        // Flush and fence: before anybody changes an entry in its new place.
        medium.persist(at, WORD_LEN);
        self.heap.verify()?;
        Ok(suspects)
    }

    fn show_moved(&self, left: &mut [Held<'_, M>], moved: &[Moved]) {
        let bits = K::SEGMENT_BITS;
        for Moved { bucket, slot, stamp, .. } in moved {
            let hash = stamp.hash(*bucket, bits);
            left[*bucket as usize].show(*slot, hash.fingerprint());
            if stamp.is_displaced() {
                left[hash.home(bits) as usize].count_displaced(1);
            }
        }
    }
}
