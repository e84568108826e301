//! Reading and changing entries.

use std::borrow::Borrow;

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::inner::Goal;
use super::key::{Probe, check_of_bytes, with_bytes, word_bytes};
use super::layout::{
    KEY_LEN_MAX, ORDERED, Record, SLOT_COUNT, Slot, USED, VALUE_LEN_MAX, free_slot, is_inline,
    is_word, is_word_value,
};
use super::leaf::{Held, Leaf, LeafRange, Sight};
use super::walk::BoundedWalk;
use crate::nesting::Nesting;
use crate::stored::{OrderedKey, Stored};
use crate::{Change, Error, Result};

/// The value part of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    /// The value itself, or the offset of its record.
    pub(super) word: u64,
    /// A value of one word that lies in a record.
    pub(super) value: u64,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Passes `use_probe` the probe of a key.
    #[inline(always)]
    pub(super) fn probed<R>(&self, key: &K, use_probe: impl FnOnce(&Probe<'_>) -> R) -> R {
        key.with_ordered(|bytes| use_probe(&Probe::new::<K>(bytes)))
    }

    #[inline]
    pub(super) fn get_with<R>(
        &self,
        key: &K,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let _pin = self.heap.pin();
        let found = self.probed(key, |probe| self.find(probe))?;
        let result = found.map(|payload| self.with_value(payload, use_value)).transpose();
        // A faulty medium reads as zeros. Report the fault, not what the zeros look like.
        self.heap.verify()?;
        result
    }

    #[inline(always)]
    pub(super) fn find(&self, probe: &Probe<'_>) -> Result<Option<Payload>> {
        Ok(self.find_with_leaf(probe)?.0)
    }

    /// The same, with the leaf to which the nodes above have led, if the search ended there.
    #[inline(always)]
    pub(super) fn find_with_leaf(
        &self,
        probe: &Probe<'_>,
    ) -> Result<(Option<Payload>, Option<LeafRange>)> {
        let mut walk = BoundedWalk::default();
        loop {
            let range = self.range_at(Goal::At(*probe))?;
            let mut leaf = range.leaf;
            loop {
                // An upper bound from the nodes above is not trusted here: a key is reported as
                // absent only if the leaf itself says so.
                let seen = self.stable(leaf, || match self.find_slot(leaf, probe) {
                    Some(slot) => Sight::Here(Some(self.payload(leaf, slot))),
                    None => self.right_of(leaf, probe).map_or(Sight::Here(None), Sight::Right),
                })?;
                let range = (leaf == range.leaf).then_some(range);
                match seen {
                    Some(Sight::Here(None)) => {
                        self.certain_miss(leaf)?;
                        self.require_begun(leaf, probe)?;
                        return Ok((None, range));
                    }
                    Some(Sight::Here(found)) => return Ok((found, range)),
                    Some(Sight::Right(next)) => leaf = next,
                    None => break,
                }
                self.count_step(&mut walk, leaf)?;
            }
            self.count_restart(&mut walk, leaf)?;
        }
    }

    /// The value part of a slot. The leaf is held, or read by [`stable`](Core::stable).
    #[inline(always)]
    pub(super) fn payload(&self, leaf: Leaf, slot: Slot) -> Payload {
        let medium = self.medium();
        let word = medium.load(leaf.0 + slot.value());
        let is_word_in_record = !is_inline::<K, V>() && is_word_value::<V>();
        let value_at = || {
            let at = self.record_at(word)?.value_at();
            at.checked_add(WORD_LEN).is_some_and(|end| end <= medium.len()).then_some(at)
        };
        // If the word leads to no record, `with_value` reports that.
        let value = if is_word_in_record { value_at().map_or(0, |at| medium.load(at)) } else { 0 };
        Payload { word, value }
    }

    #[inline(always)]
    pub(super) fn with_value<R>(
        &self,
        payload: Payload,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<R> {
        if is_word_value::<V>() {
            if !is_inline::<K, V>() {
                self.record(payload.word)?;
            }
            let word = if is_inline::<K, V>() { payload.word } else { payload.value };
            let bytes = word.to_le_bytes();
            let len = V::LEN.map_or(0, |len| len as usize).min(bytes.len());
            return Ok(V::with_stored(&bytes[..len], use_value));
        }
        let record = self.record(payload.word)?;
        with_bytes(self.medium(), record.value_at(), record.value_len, |bytes| {
            let computed = if self.is_summed { record.sum_with(bytes) } else { record.sum };
            if computed != record.sum {
                return Err(Error::checksum(&self.heap, record.offset, record.sum, computed));
            }
            Ok(V::with_stored(bytes, use_value))
        })
    }

    /// The record that a slot leads to.
    #[inline(always)]
    pub(super) fn record(&self, offset: u64) -> Result<Record> {
        self.record_at(offset)
            .ok_or_else(|| Error::corrupt(&self.heap, offset, "no record is where an entry leads"))
    }

    /// Passes the key of a found entry to `use_key`.
    #[inline(always)]
    pub(super) fn with_key<R>(
        &self,
        head: u64,
        payload: Payload,
        use_key: impl FnOnce(&K) -> R,
    ) -> Result<R> {
        if is_word::<K>() {
            return Ok(word_bytes::<K, R>(head, |bytes| K::from_ordered(bytes, use_key)));
        }
        let record = self.record(payload.word)?;
        with_bytes(self.medium(), record.key_at(), record.key_len, |bytes| {
            let stored = record.key_check;
            let computed = if self.is_summed { check_of_bytes(bytes) } else { stored };
            if computed != stored {
                let (stored, computed) = (u32::from(stored), u32::from(computed));
                return Err(Error::checksum(&self.heap, record.offset, stored, computed));
            }
            Ok(K::from_ordered(bytes, use_key))
        })
    }

    /// Changes the entry of `key` as `decide` says, atomically.
    #[inline]
    pub(super) fn edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.probed(key, |probe| match self.try_edit(probe, &mut decide) {
            // Spelled out, because to pass the whole `Result` on would copy it. The copy's loads
            // are wider than the stores of an `Ok`. The CPU cannot forward such stores, and waits
            // until they are in the cache, behind the operation's fence.
            Ok(done) => Ok(done),
            // Other lanes may hold removed blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.try_edit(probe, &mut decide)
            }
            Err(error) => Err(error),
        })
    }

    #[inline]
    fn try_edit<T: Borrow<V>, R>(
        &self,
        probe: &Probe<'_>,
        decide: &mut impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        loop {
            // A lane is claimed by a locked instruction, which waits for the fence of this thread's
            // previous operation. So the thread searches first, under a pin, which needs none.
            let pin = self.heap.pin();
            let range = self.range_at(Goal::At(*probe))?;
            let (mut lane, _pin, range) = match self.gate.try_enter(&self.heap) {
                Some(lane) => (lane, Some(pin), Some(range)),
                None => {
                    // Entering may mean to wait until no other thread is pinned.
                    drop(pin);
                    (self.gate.enter(&self.heap, || probe.gate_key::<K>())?, None, None)
                }
            };
            let (held, is_posted) = self.hold_leaf_from(range, probe)?;
            let leaf = held.leaf;
            let found = self.find_slot(leaf, probe);
            let (change, result) = match found {
                None => {
                    self.certain_miss(leaf)?;
                    self.require_home(leaf, probe)?;
                    decide(None)
                }
                Some(slot) => {
                    self.with_value(self.payload(leaf, slot), |value| decide(Some(value)))?
                }
            };
            match (change, found) {
                (Change::Put(value), None) => match self.free_slot(leaf, probe) {
                    Some(slot) => self.fill(&mut lane, held, slot, probe, value.borrow())?,
                    None => {
                        self.split(&mut lane, held, probe)?;
                        continue;
                    }
                },
                (Change::Put(value), Some(slot)) => {
                    self.replace(&mut lane, held, slot, probe, value.borrow())?;
                }
                (Change::Remove, Some(slot)) => {
                    let is_sparse = self.empty(&mut lane, held, slot);
                    if is_sparse {
                        self.merge(&mut lane, probe)?;
                    }
                }
                (Change::Keep, _) | (Change::Remove, None) => drop(held),
            }
            self.heap.verify()?;
            if !is_posted {
                self.post(&mut lane, leaf)?;
            }
            return Ok(result);
        }
    }

    /// The leaf where a key belongs, held; and whether the inner nodes led there directly.
    #[inline(always)]
    pub(super) fn hold_leaf_of(&self, probe: &Probe<'_>) -> Result<(Held<'_, M>, bool)> {
        self.hold_leaf_from(None, probe)
    }

    /// As [`hold_leaf_of`](Core::hold_leaf_of), beginning with the leaf `first` that the inner
    /// nodes led to.
    #[inline(always)]
    fn hold_leaf_from(
        &self,
        mut first: Option<LeafRange>,
        probe: &Probe<'_>,
    ) -> Result<(Held<'_, M>, bool)> {
        let mut walk = BoundedWalk::default();
        loop {
            let mut range = match first.take() {
                Some(first) => first,
                None => self.range_at(Goal::At(*probe))?,
            };
            let mut is_posted = true;
            while let Some(held) = self.hold(range.leaf)? {
                match self.right_of_range(range, probe) {
                    None => return Ok((held, is_posted)),
                    Some(next) => range.leaf = next,
                }
                drop(held);
                is_posted = false;
                self.count_step(&mut walk, range.leaf)?;
            }
            self.count_restart(&mut walk, range.leaf)?;
        }
    }

    /// Entries of a leaf at the most.
    pub(super) fn leaf_max() -> usize {
        SLOT_COUNT.min(K::NODE_ENTRIES_MAX)
    }

    #[inline(always)]
    pub(super) fn free_slot(&self, leaf: Leaf, probe: &Probe<'_>) -> Option<Slot> {
        free_slot(self.used(leaf), probe.fingerprint, Self::leaf_max())
    }

    /// Puts a new entry into a free slot. One fence, and one for the record if there is one.
    #[inline(always)]
    fn fill(
        &self,
        lane: &mut Lane<'_, M>,
        mut held: Held<'_, M>,
        slot: Slot,
        probe: &Probe<'_>,
        value: &V,
    ) -> Result<()> {
        let (medium, leaf) = (self.medium(), held.leaf);
        let word = if is_inline::<K, V>() {
            value_word(value)
        } else {
            let (record, _) = self.make_record(lane, probe, value)?;
            // Fence: the record, before a slot leads to it.
            medium.fence();
            record.offset
        };
        medium.store(leaf.0 + slot.key(), self.head_in(leaf, probe));
        medium.store(leaf.0 + slot.value(), word);
        // Release: after key and value in the line's order of stores, so that a crash leaves the
        // complete entry or nothing. Partner of the loads in `stable_at`.
        self.store_valid(leaf, slot, true);
        // Flush and fence: the entry is durable before anybody sees it.
        medium.persist(leaf.0 + slot.line(), LINE_LEN);
        held.begin_change();
        self.store_fingerprint(leaf, slot, probe.fingerprint);
        medium.store(leaf.0 + USED, self.used(leaf) | 1 << slot.0);
        medium.store(leaf.0 + ORDERED, 0);
        self.count.add(lane.index(), 1);
        Ok(())
    }

    /// Gives an entry another value. One fence for a value of one word, two for others.
    fn replace(
        &self,
        lane: &mut Lane<'_, M>,
        mut held: Held<'_, M>,
        slot: Slot,
        probe: &Probe<'_>,
        value: &V,
    ) -> Result<()> {
        let (medium, at) = (self.medium(), held.leaf.0 + slot.value());
        if is_word_value::<V>() {
            let at =
                if is_inline::<K, V>() { at } else { self.record(medium.load(at))?.value_at() };
            held.begin_change();
            medium.store(at, value_word(value));
            // Flush and fence: the value is durable before anybody sees it; readers wait.
            medium.persist(at, WORD_LEN);
            return Ok(());
        }
        let (record, _) = self.make_record(lane, probe, value)?;
        let old = lane.suspect(medium.load(at));
        // Fence: the record, before the slot leads to it; the suspect, before the slot stops
        // leading to the old record.
        lane.fence();
        held.begin_change();
        medium.store(at, record.offset);
        // Flush and fence: the new value is durable before anybody sees it, and before the old
        // record may be freed.
        medium.persist(at, WORD_LEN);
        drop(held);
        lane.retire(old);
        Ok(())
    }

    /// Removes an entry. One fence, and one for its record if there is one. Returns whether the
    /// leaf should be joined to a neighbour.
    fn empty(&self, lane: &mut Lane<'_, M>, mut held: Held<'_, M>, slot: Slot) -> bool {
        let (medium, leaf) = (self.medium(), held.leaf);
        let old = (!is_inline::<K, V>()).then(|| {
            let old = lane.suspect(medium.load(leaf.0 + slot.value()));
            // Fence: the suspect, before nothing leads to its record any more.
            lane.fence();
            old
        });
        self.store_valid(leaf, slot, false);
        // Flush and fence: the removal is durable before anybody misses the entry, and before its
        // record may be freed.
        medium.persist(leaf.0 + slot.line(), LINE_LEN);
        held.begin_change();
        let used = self.used(leaf) & !(1 << slot.0);
        medium.store(leaf.0 + USED, used);
        self.remove_from_order(leaf, slot);
        drop(held);
        if let Some(old) = old {
            lane.retire(old);
        }
        self.count.add(lane.index(), -1);
        Self::is_sparse(used)
    }

    /// Whether a leaf that has just lost an entry, and whose used slots are `used`, should be
    /// joined to a neighbour.
    pub(super) fn is_sparse(used: u64) -> bool {
        // A half-empty leaf becomes free space only when it is joined. Each attempt takes the
        // shape's lock, so only every fourth removal tries.
        let count = used.count_ones() as usize;
        let is_half_empty = count < Self::leaf_max() / 2 && count.is_multiple_of(4);
        is_half_empty || count < Self::leaf_max() / 4
    }

    /// Number of entries.
    pub(super) fn len(&self) -> Result<u64> {
        if let Some(count) = self.count.get() {
            return Ok(count);
        }
        Nesting::refuse()?;
        self.heap.quiesced(|_, _| {
            let mut count = 0;
            self.for_each_leaf(|leaf| count += u64::from(self.used(leaf).count_ones()))?;
            self.count.set(count);
            Ok(count)
        })
    }

    /// Writes and flushes a record.
    pub(super) fn make_record(
        &self,
        lane: &mut Lane<'_, M>,
        probe: &Probe<'_>,
        value: &V,
    ) -> Result<(Record, Block)> {
        let medium = self.medium();
        value.with_bytes(|bytes| {
            let (key_len, value_len) = (probe.bytes.len() as u64, bytes.len() as u64);
            for (what, len, limit) in
                [("key", key_len, KEY_LEN_MAX), ("value", value_len, VALUE_LEN_MAX)]
            {
                if len > limit {
                    return Err(Error::TooLong { what, len, limit });
                }
            }
            // A value of one word is loaded and stored as a whole word.
            let room = if is_word_value::<V>() { WORD_LEN } else { value_len };
            let key_check = check_of_bytes(probe.bytes);
            let record = self.tags.new_record(key_len, value_len, key_check);
            let len = record.value_at() + room;
            let block = lane.allocate(len)?;
            let offset = block.offset;
            let sum = match self.is_summed && !is_word_value::<V>() {
                true => record.sum_with(bytes),
                false => 0,
            };
            let record = Record { offset, sum, ..record };
            record.write_head(medium);
            medium.write(record.key_at(), probe.bytes);
            if is_word_value::<V>() {
                medium.store(record.value_at(), value_word(value));
            } else {
                medium.write(record.value_at(), bytes);
            }
            // Flush: the record; fenced by the caller before it is linked.
            medium.flush(offset, len);
            Ok((record, block))
        })
    }
}

/// A value of at most eight bytes, as a word.
#[inline(always)]
pub(super) fn value_word<V: Stored + ?Sized>(value: &V) -> u64 {
    value.with_bytes(|bytes| {
        let mut word = [0; 8];
        let len = bytes.len().min(word.len());
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_le_bytes(word)
    })
}
