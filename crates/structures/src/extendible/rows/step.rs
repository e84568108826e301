//! Operations that share fences with others; see [`Step`].

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;

use super::super::layout::Hash;
use super::{Core, RowId, RowIndex};
use crate::Result;
use crate::shared::{Operation, Progress, Scope, Step};

impl<M: Medium> RowIndex<M> {
    /// Adds a row, which is durable with the [step](Step::commit). Unlike what other structures do
    /// in a step, it may be found at once. It is removed again if the step is dropped.
    ///
    /// # Errors
    ///
    /// When the pool is full, or the step has the largest number of operations: the step is as it
    /// was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn insert_in<'s>(&'s self, step: &mut Step<'s, M>, key: u64, row: RowId) -> Result<()> {
        step.add(Edit::new(&self.core, key, row, Action::Insert))
    }

    /// Removes a row of a key, if it is there, with the [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the step already has the largest number of operations.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn remove_in<'s>(&'s self, step: &mut Step<'s, M>, key: u64, row: RowId) -> Result<()> {
        step.add(Edit::new(&self.core, key, row, Action::Remove))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Insert,
    Remove,
}

/// Adding a row, or removing one.
struct Edit<'s, M: Medium> {
    core: &'s Core<M>,
    hash: Hash,
    row: RowId,
    action: Action,
    /// An inserted row that is taken back if the step is dropped.
    is_pending: bool,
    was_present: bool,
}

impl<'s, M: Medium> Edit<'s, M> {
    fn new(core: &'s Core<M>, key: u64, row: RowId, action: Action) -> Self {
        let hash = core.hash(key);
        Edit { core, hash, row, action, is_pending: false, was_present: false }
    }
}

impl<'s, M: Medium> Operation<'s, M> for Edit<'s, M> {
    fn heap(&self) -> &'s Heap<M> {
        &self.core.heap
    }

    fn suspects(&self) -> usize {
        // A block whose last row is removed, also by `give_up`.
        1
    }

    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()> {
        if self.action == Action::Insert {
            if !self.core.insert_quickly(self.hash, self.row)? {
                let lane = scope.lane(&self.core.heap);
                self.core.insert_in_lane(lane, self.hash, self.row)?;
            }
            scope.has_prepared();
            self.is_pending = true;
        }
        Ok(())
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        if self.action == Action::Remove {
            let lane = scope.lane(&self.core.heap);
            self.was_present = self.core.remove_in_lane(lane, self.hash, self.row)?;
        }
        self.is_pending = false;
        Ok(Progress::Done)
    }

    fn finish(&mut self, _scope: &mut Scope<'s, M>) {}

    fn was_present(&self) -> bool {
        self.was_present
    }

    fn give_up(&mut self, scope: &mut Scope<'s, M>) {
        if self.is_pending {
            let lane = scope.lane(&self.core.heap);
            // Fence: the row is durable where it was added: if the key led to it before, it may be
            // the older word that is removed.
            lane.fence();
            // What cannot be removed leads to a row that is not there, which does no harm.
            drop(self.core.remove_in_lane(lane, self.hash, self.row));
        }
    }
}
