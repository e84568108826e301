//! Removing all entries in one pass over the leaves.

use std::ops::ControlFlow;

use remanent_pmem::Medium;
use remanent_pmem::heap::Lane;

use super::Core;
use super::inner::Goal;
use super::key::{Probe, word_bytes};
use super::layout::{HIGH, LEAF_LOW, NEXT, ORDERED, Slot, USED, is_inline, is_word, slots_of};
use super::leaf::{Held, Leaf};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// Entries that `clear` removes from a leaf at a time. An operation has room for 32 suspects.
const EMPTIED_AT_ONCE: usize = 24;

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Removes every entry in one pass in key order, some entries of a leaf at a time. The pass
    /// ends with the key that was the greatest when it began.
    pub(super) fn clear(&self) -> Result<u64> {
        self.gate.without_batches(self.medium(), || self.clear_all())
    }

    fn clear_all(&self) -> Result<u64> {
        // Without a greatest key, the pass ends with the last leaf: an empty tree still has leaves
        // to join, and a damaged greatest key is to be cleared.
        let last = self.greatest_key().ok().flatten();
        let mut count = 0;
        let mut low = Vec::new();
        loop {
            let mut lane = self.heap.enter().prepare_to_write();
            let probe = Probe::new::<K>(&low);
            let (held, _) = self.hold_leaf_of(&probe)?;
            let leaf = held.leaf;
            self.require_begun(leaf, &probe)?;
            // Keys below `low` were inserted after the pass had gone by, so they stay.
            let is_ahead = |&slot: &Slot| self.compare_slot(leaf, slot, &probe).is_ge();
            let (astray, slots): (Vec<Slot>, Vec<Slot>) =
                slots_of(self.used(leaf)).partition(|&slot| self.is_astray(leaf, slot));
            let rest = slots.into_iter().filter(is_ahead).collect();
            // Damaged keys are removed first. If they take the whole batch, none of its keys says
            // where to go on, so the pass visits this leaf again.
            let stays_here = astray.len() >= EMPTIED_AT_ONCE;
            let (removed, next) = self.first_part(leaf, astray, rest);
            let is_done = next.is_none();
            let next = match next {
                Some(_) if stays_here => Some(low.clone()),
                Some(slot) => Some(self.ordered_key(leaf, slot)),
                None => self.high_of(leaf),
            };
            count += self.empty_some(&mut lane, held, &removed);
            drop(lane);
            if is_done {
                // A second operation: joining leaves needs room for suspects, which the entries may
                // have used up.
                self.merge(&mut self.heap.enter().prepare_to_write(), &probe)?;
            }
            self.heap.verify()?;
            match next {
                Some(next) if last.as_ref().is_some_and(|last| next > *last) => return Ok(count),
                Some(next) if next > low || stays_here => low = next,
                Some(_) => return Err(self.circle(leaf)),
                None => return Ok(count),
            }
        }
    }

    /// The greatest key in its ordered form. In case that key is damaged, the result is at least
    /// the lower bound of the last leaf.
    fn greatest_key(&self) -> Result<Option<Vec<u8>>> {
        let mut greatest = None;
        self.descend(.., |key: &K, _| {
            greatest = Some(key.with_ordered(<[u8]>::to_vec));
            ControlFlow::Break(())
        })?;
        let _inside = self.heap.enter();
        let low = self.medium().load(self.leaf_at(Goal::Last)?.0 + LEAF_LOW);
        let low = self.with_bound(low, |low| low.bytes.to_vec());
        Ok(greatest.map(|greatest: Vec<u8>| greatest.max(low)))
    }

    /// The slots to empty next, and the slot of the least key that remains. Slots of damaged keys
    /// come first, then those of the least keys. The leaf is held.
    fn first_part(
        &self,
        leaf: Leaf,
        mut astray: Vec<Slot>,
        mut rest: Vec<Slot>,
    ) -> (Vec<Slot>, Option<Slot>) {
        if astray.len() + rest.len() > EMPTIED_AT_ONCE {
            rest.sort_unstable_by(|&one, &other| self.compare_slots(leaf, one, other));
        }
        astray.append(&mut rest);
        let next = astray.get(EMPTIED_AT_ONCE).copied();
        astray.truncate(EMPTIED_AT_ONCE);
        (astray, next)
    }

    /// Whether a key is damaged: it does not match its record's check, or lies outside of the
    /// leaf's range. Such a key must not decide where the pass goes on, and must not count as
    /// inserted behind it. The leaf is held.
    fn is_astray(&self, leaf: Leaf, slot: Slot) -> bool {
        let medium = self.medium();
        let compare = |bound| self.with_bound(bound, |bound| self.compare_slot(leaf, slot, bound));
        !is_word::<K>() && !self.is_key_whole(medium.load(leaf.0 + slot.value()))
            || compare(medium.load(leaf.0 + LEAF_LOW)).is_lt()
            || medium.load(leaf.0 + NEXT) != 0 && compare(medium.load(leaf.0 + HIGH)).is_ge()
    }

    /// The key of a slot in its ordered form, even if it is damaged. The leaf is held.
    fn ordered_key(&self, leaf: Leaf, slot: Slot) -> Vec<u8> {
        let medium = self.medium();
        if is_word::<K>() {
            return word_bytes::<K, _>(medium.load(leaf.0 + slot.key()), <[u8]>::to_vec);
        }
        self.with_record_key(medium.load(leaf.0 + slot.value()), <[u8]>::to_vec)
    }

    /// The least key of the next leaf, if there is one. The leaf is held.
    fn high_of(&self, leaf: Leaf) -> Option<Vec<u8>> {
        let medium = self.medium();
        (medium.load(leaf.0 + NEXT) != 0)
            .then(|| self.with_bound(medium.load(leaf.0 + HIGH), |next| next.bytes.to_vec()))
    }

    /// Removes entries of a leaf, and returns how many. Two fences.
    fn empty_some(&self, lane: &mut Lane<'_, M>, mut held: Held<'_, M>, slots: &[Slot]) -> u64 {
        if slots.is_empty() {
            return 0;
        }
        let (medium, leaf) = (self.medium(), held.leaf);
        let mut old = Vec::new();
        if !is_inline::<K, V>() {
            for slot in slots {
                old.push(lane.suspect(medium.load(leaf.0 + slot.value())));
            }
            // Fence: the suspects, before nothing leads to their records any more.
            // Redundant: unless slots are written back before the suspects and before the fence of
            // `clear_slots`, and a record lies in a chunk that nobody allocates from. No tested
            // seed reaches that.
            lane.fence();
        }
        let bits = slots.iter().fold(0, |bits, slot| bits | 1 << slot.0);
        held.begin_change();
        self.clear_slots(leaf, bits);
        medium.store(leaf.0 + USED, self.used(leaf) & !bits);
        medium.store(leaf.0 + ORDERED, 0);
        drop(held);
        for old in old {
            lane.retire(old);
        }
        self.count.add(lane.index(), -(slots.len() as i64));
        slots.len() as u64
    }
}
