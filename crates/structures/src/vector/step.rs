//! Operations that share fences with others; see [`Step`].

use std::sync::atomic::Ordering;

use remanent_pmem::heap::Heap;
use remanent_pmem::sync::PauseGuard;
use remanent_pmem::{Medium, Persistent};

use super::Vector;
use super::append::AppendVector;
use super::core::Committed;
use super::ops::{Staged, StagedChange};
use super::root::Root;
use crate::Result;
use crate::background::lock_patiently;
use crate::shared::{Operation, Progress, Scope, Step};

macro_rules! append_in {
    ($vector:ident) => {
        impl<T: Persistent, M: Medium> $vector<T, M> {
            /// Adds elements at the end, all of them or none, with the [step](Step::commit).
            ///
            /// Pass all new elements of a vector in one call: each further call in a step takes one
            /// more fence.
            ///
            /// # Errors
            ///
            /// When the pool is full: the step is as it was.
            ///
            /// # Panics
            ///
            /// When the step is on another heap.
            pub fn extend_in<'s>(
                &'s self,
                step: &mut Step<'s, M>,
                elements: &'s [T],
            ) -> Result<()> {
                step.add(Append { root: &*self.root, elements, ticket: None, staged: None })
            }
        }
    };
}

append_in!(Vector);
append_in!(AppendVector);

impl<T: Persistent, M: Medium> Vector<T, M> {
    /// Replaces an element atomically, with the [step](Step::commit). Nothing happens if `index` is
    /// not less than the length.
    ///
    /// Each further change to one vector in a step takes one more fence.
    ///
    /// # Errors
    ///
    /// When the step already has the largest number of operations.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn set_in<'s>(&'s self, step: &mut Step<'s, M>, index: u64, element: T) -> Result<()> {
        step.add(Set { root: &*self.root, index, element, staged: None })
    }
}

impl<T: Persistent, M: Medium, const CHANGES: bool> Root<T, M, CHANGES> {
    /// The right to commit. `None` when the step would have to wait for it.
    fn lock_in<'s>(&'s self, scope: &mut Scope<'s, M>) -> Option<PauseGuard<'s, Committed>> {
        let guard = match scope.may_wait() {
            true => lock_patiently(&self.core.committed, self.heap.medium()),
            false => self.core.committed.try_lock()?,
        };
        // The scope only notes the lock; the operation holds the guard.
        scope.hold(self.heap.header(), Box::new(()));
        Some(guard)
    }
}

/// Adding elements.
struct Append<'s, T: Persistent, M: Medium, const CHANGES: bool> {
    root: &'s Root<T, M, CHANGES>,
    elements: &'s [T],
    /// The ticket of elements that are written and not committed.
    ticket: Option<u64>,
    staged: Option<(PauseGuard<'s, Committed>, Staged)>,
}

impl<'s, T: Persistent, M: Medium, const CHANGES: bool> Operation<'s, M>
    for Append<'s, T, M, CHANGES>
{
    fn heap(&self) -> &'s Heap<M> {
        &self.root.heap
    }

    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()> {
        // Written elements cannot be taken back, because other threads may write behind them.
        let lane = scope.lane(&self.root.heap);
        self.root.core.make_room(lane, self.elements.len() as u64)
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        let Root { core, heap } = self.root;
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => core.write(heap, Some(scope.lane(heap)), self.elements)?.1,
        };
        self.ticket = Some(ticket);
        let Some(committed) = self.root.lock_in(scope) else { return Ok(Progress::Busy) };
        // Relaxed: it changes only under the lock.
        if core.tickets_done.load(Ordering::Relaxed) < ticket {
            let staged = core.stage_written(heap, &committed)?;
            self.staged = Some((committed, staged));
        }
        Ok(Progress::Done)
    }

    fn finish(&mut self, _: &mut Scope<'s, M>) {
        let core = &self.root.core;
        if let Some((mut committed, staged)) = self.staged.take() {
            if let Some(record) = staged.record {
                core.conclude(&mut committed, record);
            }
            // Relaxed: it changes only under the lock.
            core.tickets_done.store(staged.tickets, Ordering::Relaxed);
        }
    }

    fn give_up(&mut self, _: &mut Scope<'s, M>) {}
}

/// Replacing an element.
struct Set<'s, T: Persistent, M: Medium> {
    root: &'s Root<T, M, true>,
    index: u64,
    element: T,
    staged: Option<(PauseGuard<'s, Committed>, StagedChange)>,
}

impl<'s, T: Persistent, M: Medium> Operation<'s, M> for Set<'s, T, M> {
    fn heap(&self) -> &'s Heap<M> {
        &self.root.heap
    }

    fn prepare(&mut self, _: &mut Scope<'s, M>) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        let Root { core, heap } = self.root;
        let Some(mut committed) = self.root.lock_in(scope) else { return Ok(Progress::Busy) };
        let staged = core.stage_change(heap, &mut committed, self.index, &self.element)?;
        self.staged = staged.map(|staged| (committed, staged));
        Ok(Progress::Done)
    }

    fn finish(&mut self, _: &mut Scope<'s, M>) {
        let Root { core, heap } = self.root;
        if let Some((mut committed, staged)) = self.staged.take() {
            core.conclude_change(heap.medium(), &mut committed, &staged, &self.element);
        }
    }

    fn give_up(&mut self, _: &mut Scope<'s, M>) {}
}
