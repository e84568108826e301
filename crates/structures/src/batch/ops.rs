//! Committing a batch.

use std::collections::BTreeMap;

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;
use remanent_pmem::pool::layout::RootId;

use super::intents::{Intent, Intents, Slot};
use super::{Batch, Change, Entry, GateOf};
use crate::nesting::Nesting;
use crate::shared::Step;
use crate::{Error, Result};

impl<M: Medium> Batch<M> {
    /// Does everything, durably. Answers for each key, in the order in which they were first named,
    /// whether it had a value before.
    ///
    /// # Errors
    ///
    /// When the pool is full, an entry is too long, an entry is not as [expected](Batch::expect),
    /// this thread is in a closure of `modify` or holds a step ([`Error::Nested`]), or the medium
    /// met a fault: nothing was changed. With [`Error::Unfinished`] the batch is committed, and is
    /// completed when its maps are opened next.
    pub fn commit(self) -> Result<Vec<bool>> {
        if self.operations.is_empty() && self.expected.is_empty() {
            return Ok(Vec::new());
        }
        Nesting::refuse()?;
        // Before anything is held that others may wait for.
        let slot = self.intents.take_slot()?;
        let closed = ClosedKeys::close(self.pool.medium(), self.changes())?;
        for heap in heaps_of(self.changes()).into_values() {
            // Who wants to write to these keys and has not seen that they are closed.
            heap.wait_for_lanes();
        }
        if !self.is_as_expected()? {
            return Err(Error::Conflict);
        }
        if self.operations.is_empty() {
            return Ok(Vec::new());
        }
        let entries = self.operations.iter().map(|change| change.entry().0).collect();
        let intents = &self.intents;
        self.do_all(&mut Commit { intents, entries, intent: None, held: Some((closed, slot)) })
    }

    /// What the batch changes, and what it expects.
    fn changes(&self) -> impl Iterator<Item = &dyn Change<M>> {
        self.operations.iter().chain(&self.expected).map(|change| &**change)
    }

    fn is_as_expected(&self) -> Result<bool> {
        for expected in &self.expected {
            if !expected.is_present()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn do_all(&self, commit: &mut Commit<'_, M>) -> Result<Vec<bool>> {
        let mut heaps = heaps_of(self.operations.iter().map(|change| &**change));
        heaps.insert(self.intents.heap().owner(), self.intents.heap());
        let mut presence = Vec::with_capacity(self.operations.len());
        let mut step = self.prepare_part(&heaps, 0)?;
        let intent = commit.write(&mut step)?;
        // From here on the batch is committed: it is done now, or when the maps are opened next.
        let unfinished = |error: Error| Error::Unfinished { source: Box::new(error) };
        loop {
            let suspect = Intents::suspect(step.lane(self.intents.heap()), intent);
            let published = step.publish();
            presence.extend(step.presence());
            let lane = step.lane(self.intents.heap());
            if published.is_ok() && presence.len() == self.operations.len() {
                self.intents.forget(lane, intent, suspect);
                commit.intent = None;
                // What is left is maintenance. The batch is done, whatever becomes of that.
                drop(step.leave());
                return Ok(presence);
            }
            lane.cancel(suspect);
            match published {
                // The lanes have no room for more: the rest is done in others.
                Ok(()) | Err(Error::TooMany { .. }) => drop(step.leave()),
                Err(error) => return Err(unfinished(error)),
            }
            step = self.prepare_part(&heaps, presence.len()).map_err(unfinished)?;
        }
    }

    /// A step with as many operations, from the one with the number `first` on, as it has room for.
    fn prepare_part<'b>(
        &'b self,
        heaps: &BTreeMap<RootId, &'b Heap<M>>,
        first: usize,
    ) -> Result<Step<'b, M>> {
        let mut step = Step::enter_all(heaps.values().copied());
        for change in &self.operations[first..] {
            match change.add_to(&mut step) {
                Err(Error::TooMany { .. }) if !step.is_empty() => break,
                added => added?,
            }
        }
        Ok(step)
    }
}

/// The heaps of the maps, by their roots: in the order in which every batch enters them.
fn heaps_of<'b, M: Medium>(
    changes: impl Iterator<Item = &'b dyn Change<M>>,
) -> BTreeMap<RootId, &'b Heap<M>> {
    changes.map(|change| (change.heap().owner(), change.heap())).collect()
}

/// A batch whose keys are closed. If this is dropped between the intent and the end, also by a
/// panic, nobody may build on the keys: the next opening changes them.
struct Commit<'b, M: Medium> {
    intents: &'b Intents<M>,
    entries: Vec<Entry>,
    /// The intent, until it is forgotten.
    intent: Option<Intent>,
    /// Taken by `drop` alone.
    held: Option<(ClosedKeys<'b, M>, Slot<'b, M>)>,
}

impl<M: Medium> Commit<'_, M> {
    fn write(&mut self, step: &mut Step<'_, M>) -> Result<Intent> {
        let Some((_, slot)) = &self.held else { unreachable!("only `drop` takes the slot") };
        let intent = self.intents.write(step.lane(self.intents.heap()), slot, &self.entries)?;
        Ok(*self.intent.insert(intent))
    }
}

impl<M: Medium> Drop for Commit<'_, M> {
    fn drop(&mut self) {
        if let (Some(intent), Some((closed, slot))) = (self.intent, self.held.take()) {
            closed.abandon();
            self.intents.leave_unfinished(slot, intent, &self.entries);
        }
    }
}

/// Keys that a batch has closed to others. They are opened when this is dropped.
struct ClosedKeys<'b, M: Medium> {
    medium: &'b M,
    keys: Vec<GateOf<'b>>,
}

impl<'b, M: Medium> ClosedKeys<'b, M> {
    /// Closes the keys of all changes, in the order in which every batch does.
    fn close(medium: &'b M, changes: impl Iterator<Item = &'b dyn Change<M>>) -> Result<Self> {
        // Two keys of one hash are closed as one.
        let keys: BTreeMap<(RootId, u64), GateOf<'b>> = changes
            .map(|change| (change.heap().owner(), change.gate()))
            .map(|(root, of)| ((root, of.key), of))
            .collect();
        let mut closed = ClosedKeys { medium, keys: Vec::with_capacity(keys.len()) };
        for of in keys.into_values() {
            of.gate.close(medium, of.key)?;
            closed.keys.push(of);
        }
        Ok(closed)
    }

    fn abandon(mut self) {
        for GateOf { gate, key } in self.keys.drain(..) {
            gate.abandon(self.medium, key);
        }
    }
}

impl<M: Medium> Drop for ClosedKeys<'_, M> {
    fn drop(&mut self) {
        for GateOf { gate, key } in &self.keys {
            gate.open(self.medium, *key);
        }
    }
}
