//! Loading sorted entries: writes whole leaves behind the last one.

use std::borrow::Borrow;

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::inner::Goal;
use super::key::Probe;
use super::layout::{
    HIGH, LEAF_LEN, LOCK, NEXT, ORDERED, PREFIX, SLOTS, Slot, USED, free_slot, is_inline, is_word,
    slots_of,
};
use super::leaf::{Held, Leaf, Lock};
use super::ops::value_word;
use super::walk::BoundedWalk;
use crate::Result;
use crate::stored::{OrderedKey, Stored};

use super::BlinkTree;

/// Suspects that `append` leaves free for the change of the nodes above. A record that is a run of
/// chunks takes a suspect as well.
const SUSPECTS_KEPT: usize = 32;

/// An entry to be loaded: the ordered form of its key, and the value word of its slot.
struct Loaded {
    key: Vec<u8>,
    word: u64,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BlinkTree<K, V, M> {
    /// Puts many entries into the map, and returns how many of their keys are new.
    ///
    /// As long as keys come in ascending order and are greater than all that are there, whole
    /// leaves are written, for four fences each. Every other entry is put by itself. After a crash,
    /// a prefix of the sequence is there.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::BlinkTree;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let squares: BlinkTree<u64, u64> = BlinkTree::create(&pool, "squares")?;
    /// assert_eq!(squares.bulk_load((0..1000).map(|number| (number, number * number)))?, 1000);
    /// assert_eq!(squares.get(&30)?, Some(900));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the pool is full, an entry is too long, or the medium met a fault. What was loaded
    /// before stays.
    pub fn bulk_load<A: Borrow<K>, B: Borrow<V>>(
        &self,
        entries: impl IntoIterator<Item = (A, B)>,
    ) -> Result<u64> {
        // Leaves an eighth of the leaf free for later entries.
        let batch_len = (Core::<K, V, M>::leaf_max() * 7 / 8).max(1);
        let mut entries = entries.into_iter();
        let mut count = 0;
        loop {
            let batch: Vec<(A, B)> = entries.by_ref().take(batch_len).collect();
            if batch.is_empty() {
                return Ok(count);
            }
            match self.core.gate.without_batches(self.core.medium(), || self.core.append(&batch)) {
                Ok(true) => {
                    count += batch.len() as u64;
                    continue;
                }
                // Other lanes may hold removed blocks that are not freed yet. `put` makes them free
                // those.
                Err(error) if !error.is_full() => return Err(error),
                Ok(false) | Err(_) => {}
            }
            for (key, value) in batch {
                count += u64::from(self.put(key.borrow(), value.borrow())?);
            }
        }
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Appends a leaf of these entries behind the last one. Returns false, and changes nothing,
    /// when they do not belong there.
    fn append<A: Borrow<K>, B: Borrow<V>>(&self, entries: &[(A, B)]) -> Result<bool> {
        let keys: Vec<Vec<u8>> =
            entries.iter().map(|(key, _)| key.borrow().with_ordered(<[u8]>::to_vec)).collect();
        if !keys.is_sorted_by(|one, other| one < other) {
            return Ok(false);
        }
        let mut lane = self.heap.enter().prepare_to_write();
        if lane.suspects_left() < entries.len() + SUSPECTS_KEPT {
            return Ok(false);
        }
        let first = Probe::new::<K>(&keys[0]);
        let Some(last) = self.hold_last()? else { return Ok(false) };
        let leaf = last.leaf;
        let Some(greatest) = self.last_slot(leaf, slots_of(self.used(leaf))) else {
            return Ok(false);
        };
        if self.compare_slot(leaf, greatest, &first).is_ge() {
            return Ok(false);
        }
        let mut made = Vec::new();
        match self.write_records(&mut lane, &mut made, keys, entries) {
            Ok(loaded) => {
                let right = self.append_leaf(&mut lane, last, greatest, &loaded);
                if right.is_err() {
                    give_back(&mut lane, made);
                }
                self.post(&mut lane, right?)?;
                self.heap.verify()?;
                Ok(true)
            }
            Err(error) => {
                give_back(&mut lane, made);
                Err(error)
            }
        }
    }

    /// Holds the last leaf; `None` when a leaf died on the way.
    fn hold_last(&self) -> Result<Option<Held<'_, M>>> {
        let mut walk = BoundedWalk::default();
        let mut leaf = self.leaf_at(Goal::Last)?;
        while let Some(held) = self.hold(leaf)? {
            match Leaf::linked(self.medium().load(leaf.0 + NEXT)) {
                Leaf(0) => return Ok(Some(held)),
                next => leaf = next,
            }
            drop(held);
            self.count_step(&mut walk, leaf)?;
        }
        Ok(None)
    }

    fn write_records<A, B: Borrow<V>>(
        &self,
        lane: &mut Lane<'_, M>,
        made: &mut Vec<Block>,
        keys: Vec<Vec<u8>>,
        entries: &[(A, B)],
    ) -> Result<Vec<Loaded>> {
        let load = |(key, (_, value)): (Vec<u8>, &(A, B))| {
            if is_inline::<K, V>() {
                return Ok(Loaded { key, word: value_word::<V>(value.borrow()) });
            }
            let (record, block) = self.make_record(lane, &Probe::new::<K>(&key), value.borrow())?;
            made.push(block);
            Ok(Loaded { key, word: record.offset })
        };
        keys.into_iter().zip(entries).map(load).collect()
    }

    /// Links a leaf of these entries behind `last`, whose greatest key is in the slot `greatest`.
    /// Two fences.
    fn append_leaf(
        &self,
        lane: &mut Lane<'_, M>,
        mut last: Held<'_, M>,
        greatest: Slot,
        entries: &[Loaded],
    ) -> Result<Leaf> {
        let (medium, leaf) = (self.medium(), last.leaf);
        let first = Probe::new::<K>(&entries[0].key);
        let low = if is_word::<K>() {
            first.word
        } else {
            let greatest = medium.load(leaf.0 + greatest.value());
            self.with_record_key(greatest, |left| {
                self.write_separator_between(lane, left, first.bytes)
            })?
        };
        let right = match lane.allocate(LEAF_LEN) {
            Ok(block) => Leaf(block.offset),
            Err(error) => {
                self.give_back_separator(lane, low);
                return Err(error.into());
            }
        };
        self.write_leaf(right, low, entries);
        // Fence: the new leaf, its separator and its records, before the leaf is linked.
        medium.fence();
        last.begin_change();
        medium.store(leaf.0 + NEXT, right.0);
        // Flush and fence: from here on the entries are in the map.
        // Redundant fence: unless another thread writes to the new leaf next.
        medium.persist(leaf.0 + NEXT, WORD_LEN);
        medium.store(leaf.0 + HIGH, low);
        self.refresh_heads(leaf);
        self.count.add(lane.index(), entries.len() as i64);
        Ok(right)
    }

    /// Writes and flushes the new last leaf, which nothing leads to yet.
    fn write_leaf(&self, leaf: Leaf, low: u64, entries: &[Loaded]) {
        let medium = self.medium();
        self.tags.write_leaf_head(medium, leaf.0, low, 0);
        for at in [HIGH, ORDERED, PREFIX] {
            medium.store(leaf.0 + at, 0);
        }
        let mut used = 0;
        for entry in entries {
            let probe = Probe::new::<K>(&entry.key);
            let slot = free_slot(used, probe.fingerprint, Self::leaf_max());
            let slot = slot.expect("a leaf's worth of entries has room");
            used |= 1 << slot.0;
            medium.store(leaf.0 + slot.key(), probe.head::<K>(0));
            medium.store(leaf.0 + slot.value(), entry.word);
            self.store_valid(leaf, slot, true);
            self.store_fingerprint(leaf, slot, probe.fingerprint);
        }
        medium.store(leaf.0 + USED, used);
        medium.store(leaf.0 + LOCK, Lock::fresh(self.epoch).word());
        // Flush: the new leaf; fenced by the caller.
        medium.flush(leaf.0, LINE_LEN);
        medium.flush(leaf.0 + SLOTS, LEAF_LEN - SLOTS);
    }
}

/// Gives back records that nothing leads to.
fn give_back<M: Medium>(lane: &mut Lane<'_, M>, blocks: Vec<Block>) {
    for block in blocks {
        lane.give_back(block);
    }
}
