//! Operations that share fences with others; see [`Step`].
//!
//! A step holds each leaf that it changes until the step's last fence, and readers of the leaf wait
//! until then. Several operations of a step on one leaf see each other's changes.

use remanent_pmem::Medium;
use remanent_pmem::heap::{Block, Heap, Suspect};

use super::inner::Goal;
use super::key::Probe;
use super::layout::{ORDERED, Slot, USED, is_inline, is_word_value};
use super::leaf::{Held, Leaf, LeafRange};
use super::ops::value_word;
use super::walk::BoundedWalk;
use super::{BlinkTree, Core};
use crate::Result;
use crate::shared::{Operation, Progress, Scope, Step};
use crate::stored::{OrderedKey, Stored};

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BlinkTree<K, V, M> {
    /// A step on this tree, and on structures that share its heap. Waits for a lane.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::BlinkTree;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let tree: BlinkTree<str, str> = BlinkTree::create(&pool, "tree")?;
    /// let mut step = tree.step();
    /// for (name, city) in [("Ada", "London"), ("Emmy", "Erlangen"), ("Kurt", "Brno")] {
    ///     tree.put_in(&mut step, name, city)?;
    /// }
    /// step.commit()?; // two fences, as for one of them
    /// assert_eq!(tree.len()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn step(&self) -> Step<'_, M> {
        Step::enter(&self.core.heap)
    }

    /// Sets the value of `key` as part of a [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn put_in<'s>(&'s self, step: &mut Step<'s, M>, key: &K, value: &'s V) -> Result<()> {
        step.add(Edit::new(&self.core, key, Some(value)))
    }

    /// Removes the entry of `key`, if there is one, as part of a [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the medium met a fault: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn remove_in<'s>(&'s self, step: &mut Step<'s, M>, key: &K) -> Result<()> {
        step.add(Edit::new(&self.core, key, None))
    }
}

/// Puts an entry, or removes one.
pub(super) struct Edit<'s, K: ?Sized, V: ?Sized, M: Medium> {
    core: &'s Core<K, V, M>,
    /// The ordered form of the key.
    key: Vec<u8>,
    value: Option<&'s V>,
    /// A record that is flushed and that nothing leads to yet.
    record: Option<Block>,
    /// The record that this operation is going to unlink, unless its slot changes before.
    suspect: Option<(u64, Suspect)>,
    /// The leaf that preparing has found, which need not be found again. The start of a leaf's
    /// range never changes; its link tells whether it was divided since, and its lock whether it is
    /// dead. The step's lane keeps its memory.
    range: Option<LeafRange>,
    /// Whether the suspect's record was unlinked.
    is_unlinked: bool,
    /// Whether the leaf was reached over a neighbour, because the nodes above do not know it.
    is_unposted: bool,
    is_sparse: bool,
    was_present: bool,
}

/// A leaf that the step holds.
struct Taken<'s, M: Medium> {
    leaf: Leaf,
    /// `None` when an earlier operation of the step took the leaf.
    held: Option<Held<'s, M>>,
    is_posted: bool,
}

impl<'s, K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Edit<'s, K, V, M> {
    pub(super) fn new(core: &'s Core<K, V, M>, key: &K, value: Option<&'s V>) -> Self {
        let key = key.with_ordered(<[u8]>::to_vec);
        Edit {
            core,
            key,
            value,
            record: None,
            suspect: None,
            range: None,
            is_unlinked: false,
            is_unposted: false,
            is_sparse: false,
            was_present: false,
        }
    }

    /// Takes the leaf where the key belongs. Returns `None` if the step would have to wait for it
    /// and may not.
    fn take_leaf(
        &mut self,
        scope: &Scope<'s, M>,
        probe: &Probe<'_>,
    ) -> Result<Option<Taken<'s, M>>> {
        let core = self.core;
        let mut walk = BoundedWalk::default();
        loop {
            let prepared = self.range.take();
            let is_prepared = prepared.is_some();
            let mut range = prepared.map_or_else(|| core.range_at(Goal::At(*probe)), Ok)?;
            let mut is_posted = true;
            loop {
                let held = if scope.holds(range.leaf.0) {
                    None
                } else if scope.may_wait() {
                    match core.hold(range.leaf)? {
                        None => break,
                        held => held,
                    }
                } else {
                    match core.try_hold(range.leaf) {
                        // It may be dead.
                        None if is_prepared => break,
                        None => return Ok(None),
                        held => held,
                    }
                };
                let Some(next) = core.right_of_range(range, probe) else {
                    return Ok(Some(Taken { leaf: range.leaf, held, is_posted }));
                };
                if is_prepared {
                    // It was divided since. The nodes above may know that by now.
                    break;
                }
                range.leaf = next;
                is_posted = false;
                core.count_step(&mut walk, range.leaf)?;
            }
            core.count_restart(&mut walk, range.leaf)?;
        }
    }

    /// Makes the record of the new value, unless there is one.
    fn make_record(
        &mut self,
        scope: &mut Scope<'s, M>,
        probe: &Probe<'_>,
        value: &V,
    ) -> Result<u64> {
        if let Some(record) = self.record {
            return Ok(record.offset);
        }
        let lane = scope.lane(&self.core.heap);
        let (_, block) = self.core.make_record(lane, probe, value)?;
        scope.has_prepared();
        self.record = Some(block);
        Ok(block.offset)
    }

    /// Registers a record as suspect because it is about to be unlinked, unless it is registered.
    fn suspect_record(&mut self, scope: &mut Scope<'s, M>, record: u64) {
        if self.suspect.as_ref().is_some_and(|(suspected, _)| *suspected == record) {
            return;
        }
        self.cancel_suspect(scope);
        self.suspect = Some((record, scope.lane(&self.core.heap).suspect(record)));
        scope.has_prepared();
    }

    fn cancel_suspect(&mut self, scope: &mut Scope<'s, M>) {
        if let Some((_, suspect)) = self.suspect.take() {
            scope.lane(&self.core.heap).cancel(suspect);
        }
    }

    /// Makes readers of the leaf wait until the step is durable.
    fn begin_change(scope: &mut Scope<'s, M>, held: Option<Held<'s, M>>) {
        if let Some(mut held) = held {
            held.begin_change();
            scope.hold(held.leaf.0, Box::new(held));
        }
    }

    /// Puts a new entry into a free slot.
    fn fill(
        &mut self,
        scope: &mut Scope<'s, M>,
        taken: Taken<'s, M>,
        slot: Slot,
        probe: &Probe<'_>,
        value: &V,
    ) -> Result<()> {
        let (core, leaf) = (self.core, taken.leaf);
        let medium = core.medium();
        let word = if is_inline::<K, V>() {
            value_word(value)
        } else {
            self.make_record(scope, probe, value)?
        };
        // Fence: the record, before a slot leads to it.
        scope.fence_prepared();
        Self::begin_change(scope, taken.held);
        medium.store(leaf.0 + slot.key(), core.head_in(leaf, probe));
        medium.store(leaf.0 + slot.value(), word);
        // Release: after key and value in the line's order of stores, so that a crash leaves the
        // complete entry or nothing. Partner of the loads in `stable_at`.
        core.store_valid(leaf, slot, true);
        core.store_fingerprint(leaf, slot, probe.fingerprint);
        medium.store(leaf.0 + USED, core.used(leaf) | 1 << slot.0);
        medium.store(leaf.0 + ORDERED, 0);
        let lane = scope.lane(&core.heap);
        // Flush: fenced by the step, before anybody sees the entry.
        lane.flush_later(leaf.0 + slot.line());
        core.count.add(lane.index(), 1);
        self.record = None;
        Ok(())
    }

    /// Gives an entry another value.
    fn replace(
        &mut self,
        scope: &mut Scope<'s, M>,
        taken: Taken<'s, M>,
        slot: Slot,
        probe: &Probe<'_>,
        value: &V,
    ) -> Result<()> {
        let (core, at) = (self.core, taken.leaf.0 + slot.value());
        let medium = core.medium();
        let (at, word) = if is_inline::<K, V>() {
            (at, value_word(value))
        } else if is_word_value::<V>() {
            (core.record(medium.load(at))?.value_at(), value_word(value))
        } else {
            let record = self.make_record(scope, probe, value)?;
            self.suspect_record(scope, medium.load(at));
            // Fence: the record, before the slot leads to it; the suspect, before the slot stops
            // leading to the old record.
            scope.fence_prepared();
            (self.record, self.is_unlinked) = (None, true);
            (at, record)
        };
        Self::begin_change(scope, taken.held);
        medium.store(at, word);
        // Flush: fenced by the step, before anybody sees the value and before the old record may be
        // freed.
        scope.lane(&core.heap).flush_later(at);
        Ok(())
    }

    /// Removes an entry.
    fn empty(&mut self, scope: &mut Scope<'s, M>, taken: Taken<'s, M>, slot: Slot) {
        let (core, leaf) = (self.core, taken.leaf);
        let medium = core.medium();
        if !is_inline::<K, V>() {
            self.suspect_record(scope, medium.load(leaf.0 + slot.value()));
            // Fence: the suspect, before nothing leads to its record any more.
            scope.fence_prepared();
            self.is_unlinked = true;
        }
        Self::begin_change(scope, taken.held);
        core.store_valid(leaf, slot, false);
        let used = core.used(leaf) & !(1 << slot.0);
        medium.store(leaf.0 + USED, used);
        core.remove_from_order(leaf, slot);
        let lane = scope.lane(&core.heap);
        // Flush: fenced by the step, before anybody misses the entry and before its record may be
        // freed.
        lane.flush_later(leaf.0 + slot.line());
        core.count.add(lane.index(), -1);
        self.is_sparse = Core::<K, V, M>::is_sparse(used);
    }

    fn publish_at(&mut self, scope: &mut Scope<'s, M>, probe: &Probe<'_>) -> Result<Progress> {
        let core = self.core;
        loop {
            let Some(taken) = self.take_leaf(scope, probe)? else { return Ok(Progress::Busy) };
            let leaf = taken.leaf;
            self.is_unposted |= !taken.is_posted;
            let found = core.find_slot(leaf, probe);
            self.was_present = found.is_some();
            match (self.value, found) {
                (Some(value), Some(slot)) => self.replace(scope, taken, slot, probe, value)?,
                (Some(value), None) => {
                    core.certain_miss(leaf)?;
                    core.require_home(leaf, probe)?;
                    if let Some(slot) = core.free_slot(leaf, probe) {
                        self.fill(scope, taken, slot, probe, value)?;
                    } else if let (true, Some(held)) = (scope.may_wait(), taken.held) {
                        // Splitting a leaf takes other locks, so the step may hold nothing else.
                        core.split(scope.lane(&core.heap), held, probe)?;
                        continue;
                    } else {
                        return Ok(Progress::Busy);
                    }
                }
                (None, Some(slot)) => self.empty(scope, taken, slot),
                (None, None) => {
                    core.certain_miss(leaf)?;
                    core.require_home(leaf, probe)?;
                }
            }
            return Ok(Progress::Done);
        }
    }

    fn prepare_for(&mut self, scope: &mut Scope<'s, M>, probe: &Probe<'_>) -> Result<()> {
        if is_inline::<K, V>() {
            return Ok(());
        }
        let (found, range) = self.core.find_with_leaf(probe)?;
        self.range = range;
        match (self.value, found) {
            (Some(value), None) => drop(self.make_record(scope, probe, value)?),
            (Some(value), Some(old)) if !is_word_value::<V>() => {
                self.make_record(scope, probe, value)?;
                self.suspect_record(scope, old.word);
            }
            (None, Some(old)) => self.suspect_record(scope, old.word),
            _ => {}
        }
        Ok(())
    }
}

impl<'s, K, V, M> Operation<'s, M> for Edit<'s, K, V, M>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    fn heap(&self) -> &'s Heap<M> {
        &self.core.heap
    }

    fn suspects(&self) -> usize {
        usize::from(!is_inline::<K, V>() && self.suspect.is_none())
    }

    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()> {
        let key = std::mem::take(&mut self.key);
        let prepared = self.prepare_for(scope, &Probe::new::<K>(&key));
        self.key = key;
        prepared
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        let key = std::mem::take(&mut self.key);
        let progress = self.publish_at(scope, &Probe::new::<K>(&key));
        self.key = key;
        if let Ok(Progress::Done) = progress {
            // Preparations that turned out not to be needed, because the entry changed after
            // `prepare`.
            if !self.is_unlinked {
                self.cancel_suspect(scope);
            }
            self.give_record_back(scope);
        }
        progress
    }

    fn finish(&mut self, scope: &mut Scope<'s, M>) {
        if let Some((_, suspect)) = self.suspect.take() {
            scope.lane(&self.core.heap).retire(suspect);
        }
    }

    fn was_present(&self) -> bool {
        self.was_present
    }

    fn after(self: Box<Self>) -> Result<()> {
        let core = self.core;
        if self.is_sparse {
            let mut lane = core.heap.enter().prepare_to_write();
            core.merge(&mut lane, &Probe::new::<K>(&self.key))?;
        }
        if self.is_unposted {
            let mut lane = core.heap.enter().prepare_to_write();
            let (held, is_posted) = core.hold_leaf_of(&Probe::new::<K>(&self.key))?;
            let leaf = held.leaf;
            drop(held);
            if !is_posted {
                core.post(&mut lane, leaf)?;
            }
        }
        Ok(())
    }

    fn give_up(&mut self, scope: &mut Scope<'s, M>) {
        self.cancel_suspect(scope);
        self.give_record_back(scope);
    }
}

impl<'s, K, V, M> Edit<'s, K, V, M>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    fn give_record_back(&mut self, scope: &mut Scope<'s, M>) {
        if let Some(record) = self.record.take() {
            scope.lane(&self.core.heap).give_back(record);
        }
    }
}
