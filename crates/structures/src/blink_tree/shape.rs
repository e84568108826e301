//! Splitting leaves, and joining them.
//!
//! A leaf's word *next* decides which keys belong to the leaf: all below the least key of the leaf
//! that *next* leads to. So storing one word splits a leaf, or joins two. Entries that a leaf holds
//! beyond its range do not count: a split has copied them to the right neighbour, or a join is
//! about to take them over from there. The nodes above follow later. Until then, a leaf that they
//! do not know is found through its left neighbour.

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::inner::{Entry, Goal, Step};
use super::key::{Probe, shortest_between, with_separator, word_bytes};
use super::layout::{
    HIGH, LEAF_LEN, LEAF_LOW, LOCK, NEXT, ORDERED, SLOTS, Slot, USED, child_at, free_slot,
    is_inline, is_word, separator_len, slots_of,
};
use super::leaf::{Held, Leaf, Lock};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// Ignores that a change of the shape found no room: a later operation makes it.
fn unless_full(reshaped: Result<()>) -> Result<()> {
    match reshaped {
        Err(error) if error.is_full() => Ok(()),
        reshaped => reshaped,
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Splits a full leaf. Two fences, three where there are records, and two for the node above.
    #[cold]
    pub(super) fn split(
        &self,
        lane: &mut Lane<'_, M>,
        mut held: Held<'_, M>,
        probe: &Probe<'_>,
    ) -> Result<()> {
        let (medium, leaf) = (self.medium(), held.leaf);
        let count = self.count_that_stays(leaf, probe);
        let slots = self.divided_slots(leaf, count);
        let (stays, moves) = slots.split_at(count);
        let low = self.make_separator(lane, leaf, stays, moves[0])?;
        let right = match lane.allocate(LEAF_LEN) {
            Ok(block) => Leaf(block.offset),
            Err(error) => {
                self.give_back_separator(lane, low);
                return Err(error.into());
            }
        };
        let high = medium.load(leaf.0 + HIGH);
        self.tags.write_leaf_head(medium, right.0, low, medium.load(leaf.0 + NEXT));
        let copied = self.copy_slots(leaf, moves, right, 0);
        medium.store(right.0 + USED, copied);
        medium.store(right.0 + HIGH, high);
        medium.store(right.0 + ORDERED, 0);
        self.refresh_heads(right);
        medium.store(right.0 + LOCK, Lock::fresh(self.epoch).word());
        // Flush: the new leaf; fenced below.
        medium.flush(right.0, LINE_LEN);
        medium.flush(right.0 + SLOTS, LEAF_LEN - SLOTS);
        // After a crash between the next two steps, recovery has to clear the entries that moved.
        let divided = lane.suspect(leaf.0);
        // Fence: the new leaf, its separator and the suspect, before the leaf is linked.
        // Redundant flush: it flushes only the suspect. That matters only where a moved record is
        // freed before this leaf is touched again, which no tested seed reaches.
        lane.fence();
        held.begin_change();
        medium.store(leaf.0 + NEXT, right.0);
        // Flush and fence: from here on the moved entries belong to the new leaf.
        medium.persist(leaf.0 + NEXT, WORD_LEN);
        let moved = moves.iter().fold(0, |bits, slot| bits | 1 << slot.0);
        if Self::has_records() {
            self.clear_slots(leaf, moved);
        } else {
            // Need not be durable. After a crash these slots are known to be void because their
            // keys are beyond the leaf's range, and a join of the two leaves flushes them first.
            self.void_slots(leaf, moved);
        }
        medium.store(leaf.0 + USED, self.used(leaf) & !moved);
        medium.store(leaf.0 + HIGH, low);
        medium.store(leaf.0 + ORDERED, 0);
        self.refresh_heads(leaf);
        drop(held);
        lane.cancel(divided);
        self.post(lane, right)
    }

    /// How many of a full leaf's entries stay in it.
    fn count_that_stays(&self, leaf: Leaf, probe: &Probe<'_>) -> usize {
        let used = self.used(leaf);
        let count = used.count_ones() as usize;
        let is_last = self.medium().load(leaf.0 + NEXT) == 0;
        let greatest = || self.last_slot(leaf, slots_of(used));
        // If keys come in ascending order, the leaf gets no further entries, so it stays nearly
        // full.
        let is_ascending =
            is_last && greatest().is_some_and(|slot| self.compare_slot(leaf, slot, probe).is_lt());
        if is_ascending { count - (count / 8).max(1) } else { count / 2 }
    }

    /// Makes the least key of a new leaf: greater than the keys of the slots `left`, and at most
    /// the key of the slot `right`.
    fn make_separator(
        &self,
        lane: &mut Lane<'_, M>,
        leaf: Leaf,
        left: &[Slot],
        right: Slot,
    ) -> Result<u64> {
        let medium = self.medium();
        if is_word::<K>() {
            return Ok(medium.load(leaf.0 + right.key()));
        }
        let left = self.last_slot(leaf, left.iter().copied()).expect("some entries stay");
        let record = |slot: Slot| medium.load(leaf.0 + slot.value());
        self.with_record_key(record(left), |left| {
            self.with_record_key(record(right), |right| {
                self.write_separator_between(lane, left, right)
            })
        })
    }

    /// Writes and flushes the shortest separator between two keys.
    pub(super) fn write_separator_between(
        &self,
        lane: &mut Lane<'_, M>,
        left: &[u8],
        right: &[u8],
    ) -> Result<u64> {
        let key = shortest_between(left, right);
        let len = separator_len(key.len());
        let separator = lane.allocate(len)?.offset;
        self.tags.write_separator(self.medium(), separator, key);
        // Flush: the separator; the caller fences before anything leads to it.
        self.medium().flush(separator, len);
        Ok(separator)
    }

    pub(super) fn give_back_separator(&self, lane: &mut Lane<'_, M>, separator: u64) {
        if !is_word::<K>() {
            let len = with_separator(self.medium(), separator, |key| separator_len(key.len()));
            // A long separator has whole chunks.
            lane.give_back(Block { offset: separator, len: len.next_multiple_of(CHUNK_LEN) });
        }
    }

    /// Copies entries to another leaf, which has room for them. Returns the slots that are used
    /// there afterwards.
    fn copy_slots(&self, from: Leaf, slots: &[Slot], to: Leaf, mut used: u64) -> u64 {
        let medium = self.medium();
        for &slot in slots {
            let fingerprint = self.fingerprint(from, slot);
            let copy = free_slot(used, fingerprint, Self::leaf_max()).expect("there is room");
            medium.store(to.0 + copy.key(), medium.load(from.0 + slot.key()));
            medium.store(to.0 + copy.value(), medium.load(from.0 + slot.value()));
            self.store_valid(to, copy, true);
            self.store_fingerprint(to, copy, fingerprint);
            used |= 1 << copy.0;
        }
        used
    }

    /// Makes the nodes above lead to a leaf that so far only its left neighbour links to. In a full
    /// pool, nothing happens: the next writer of that leaf tries again.
    #[cold]
    pub(super) fn post(&self, lane: &mut Lane<'_, M>, leaf: Leaf) -> Result<()> {
        unless_full(self.try_post(lane, leaf))
    }

    fn try_post(&self, lane: &mut Lane<'_, M>, leaf: Leaf) -> Result<()> {
        let medium = self.medium();
        let _shape = self.shape.lock(medium);
        // The leaf may have been joined to its neighbour meanwhile. While the shape is locked it
        // cannot be.
        if self.stable(leaf, || ())?.is_none() {
            return Ok(());
        }
        let low = medium.load(leaf.0 + LEAF_LOW);
        self.with_bound(low, |probe| {
            let path = self.path(Goal::At(*probe))?;
            let last = path[path.len() - 1];
            if medium.load(child_at::<K>(last.node, last.index)) == leaf.0 {
                return Ok(());
            }
            let after = last.index + 1;
            self.reshape(lane, &path, after..after, vec![Entry { low, child: leaf.0 }])
        })
    }

    /// Passes the least key of a leaf or node to `use_probe`.
    pub(super) fn with_bound<R>(&self, bound: u64, use_probe: impl FnOnce(&Probe<'_>) -> R) -> R {
        if is_word::<K>() {
            return word_bytes::<K, R>(bound, |bytes| use_probe(&Probe::new::<K>(bytes)));
        }
        with_separator(self.medium(), bound, |key| use_probe(&Probe::new::<K>(key)))
    }

    /// Joins the leaf where `probe` belongs to a neighbour under the same node, when the entries of
    /// both fit into one leaf. Does nothing when the pool is full.
    #[cold]
    pub(super) fn merge(&self, lane: &mut Lane<'_, M>, probe: &Probe<'_>) -> Result<()> {
        unless_full(self.try_merge(lane, probe))
    }

    fn try_merge(&self, lane: &mut Lane<'_, M>, probe: &Probe<'_>) -> Result<()> {
        let medium = self.medium();
        // Most attempts end here, without a lock: a neighbour has too many entries.
        let path = self.path(Goal::At(*probe))?;
        let Some((_, left, right)) = self.siblings(path[path.len() - 1])? else { return Ok(()) };
        let used = |leaf| self.stable(leaf, || self.used(leaf));
        let (Some(left), Some(right)) = (used(left)?, used(right)?) else { return Ok(()) };
        if !Self::fits_one_leaf(left, right) {
            return Ok(());
        }
        let _shape = self.shape.lock(medium);
        let path = self.path(Goal::At(*probe))?;
        let siblings = self.siblings(path[path.len() - 1])?;
        let Some((right_index, left, right)) = siblings else { return Ok(()) };
        let Some(left) = self.hold(left)? else { return Ok(()) };
        let Some(right) = self.hold(right)? else { return Ok(()) };
        // Between the two may be a leaf that the nodes above do not know yet.
        let are_neighbours = medium.load(left.leaf.0 + NEXT) == right.leaf.0;
        if !are_neighbours || !Self::fits_one_leaf(self.used(left.leaf), self.used(right.leaf)) {
            return Ok(());
        }
        // First the nodes above stop leading to the right leaf, so that no node ever leads to a
        // freed leaf.
        self.reshape(lane, &path, right_index..right_index + 1, Vec::new())?;
        self.join(lane, left, right);
        Ok(())
    }

    /// The leaf that a step on the lowest level leads to, and a neighbour of it under the same
    /// node: the index of the right one of the two, the left one, the right one. `None` for the
    /// only leaf of a node.
    fn siblings(&self, step: Step) -> Result<Option<(usize, Leaf, Leaf)>> {
        // The first child of a node is never the right one of the two: its least key is also a
        // bound in the nodes above.
        let right_index = step.index.max(1);
        let count = self.node_head(step.node).map_or(0, |head| head.count);
        if right_index >= count {
            return Ok(None);
        }
        let leaf = |index| Leaf::linked(self.medium().load(child_at::<K>(step.node, index)));
        let (left, right) = (leaf(right_index - 1), leaf(right_index));
        if left == right {
            return Err(PoolError::corrupt(step.node, "a node leads to one leaf twice").into());
        }
        Ok(Some((right_index, left, right)))
    }

    /// Whether two leaves with these used slots should be joined.
    fn fits_one_leaf(left: u64, right: u64) -> bool {
        (left.count_ones() + right.count_ones()) as usize <= Self::leaf_max() * 7 / 8
    }

    /// Moves all entries of a leaf to its left neighbour. Two fences.
    fn join(&self, lane: &mut Lane<'_, M>, mut left: Held<'_, M>, mut right: Held<'_, M>) {
        let medium = self.medium();
        let (to, from) = (left.leaf, right.leaf);
        let low = medium.load(from.0 + LEAF_LOW);
        let joined = lane.suspect(from.0);
        let separator = (!is_word::<K>()).then(|| lane.suspect(low));
        // After a crash before the deciding store, recovery has to clear the copies.
        let grown = lane.suspect(to.0);
        left.begin_change();
        right.begin_change();
        let used = self.used(to);
        let moves: Vec<Slot> = slots_of(self.used(from)).collect();
        let used = self.copy_slots(from, &moves, to, used);
        // Flush: the copies. Also the void slots: the leaf's range is about to grow, and then a
        // slot that is still valid on the medium would count.
        medium.flush(to.0 + SLOTS, LEAF_LEN - SLOTS);
        // Fence: the copies and the suspects, before the copies count.
        lane.fence();
        medium.store(to.0 + NEXT, medium.load(from.0 + NEXT));
        // Flush and fence: from here on the copies count, and the right leaf is no part of the
        // tree.
        medium.persist(to.0 + NEXT, WORD_LEN);
        medium.store(to.0 + HIGH, medium.load(from.0 + HIGH));
        medium.store(to.0 + USED, used);
        medium.store(to.0 + ORDERED, 0);
        self.refresh_heads(to);
        right.bury();
        drop(left);
        lane.cancel(grown);
        lane.retire(joined);
        if let Some(separator) = separator {
            lane.retire(separator);
        }
    }

    /// Whether entries have records outside of leaves.
    #[inline(always)]
    pub(super) const fn has_records() -> bool {
        !is_inline::<K, V>()
    }
}
