//! Operations that share fences with others; see [`Step`].

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;
use remanent_pmem::sync::PauseGuard;

use super::Log;
use super::core::Committed;
use super::root::Root;
use crate::Result;
use crate::background::lock_patiently;
use crate::shared::{Operation, Progress, Scope, Step};
use crate::stored::Stored;

impl<V: Stored + ?Sized, M: Medium> Log<V, M> {
    /// Adds records at the end, all of them or none, with the [step](Step::commit).
    ///
    /// Pass all new records of a log in one call: each further call in a step takes one more fence.
    /// Every few records, a segment of the log is full; then the end of the log is noted with one
    /// fence more, behind the step.
    ///
    /// # Errors
    ///
    /// When the pool is full or a record is too long: the step is as it was.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn append_in<'s>(&'s self, step: &mut Step<'s, M>, records: &'s [&'s V]) -> Result<()> {
        step.add(Append { root: &*self.root, records, end: None, staged: None })
    }
}

/// Adding records.
struct Append<'s, V: Stored + ?Sized, M: Medium> {
    root: &'s Root<V, M>,
    records: &'s [&'s V],
    /// Where they end, once they are written.
    end: Option<u64>,
    /// The end that the step's fence makes durable.
    staged: Option<(PauseGuard<'s, Committed>, u64)>,
}

impl<'s, V: Stored + ?Sized, M: Medium> Operation<'s, M> for Append<'s, V, M> {
    fn heap(&self) -> &'s Heap<M> {
        &self.root.heap
    }

    fn prepare(&mut self, scope: &mut Scope<'s, M>) -> Result<()> {
        // Written records cannot be taken back, because other threads may write behind them.
        self.root.core.make_room(scope.lane(&self.root.heap), self.records)
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        let Root { core, heap, .. } = self.root;
        if self.end.is_none() {
            self.end = core.write(heap, Some(scope.lane(heap)), self.records, |_| ())?;
        }
        let Some(end) = self.end else { return Ok(Progress::Done) };
        let committed = match scope.may_wait() {
            true => lock_patiently(&core.committed, heap.medium()),
            false => match core.committed.try_lock() {
                Some(committed) => committed,
                None => return Ok(Progress::Busy),
            },
        };
        // The scope only notes the lock; the operation holds the guard.
        scope.hold(heap.header(), Box::new(()));
        if committed.end < end {
            let end = core.flush_written(heap.medium(), &committed);
            self.staged = Some((committed, end));
        }
        Ok(Progress::Done)
    }

    fn finish(&mut self, _: &mut Scope<'s, M>) {
        if let Some((mut committed, end)) = self.staged.take() {
            self.root.core.conclude(&mut committed, end);
        }
    }

    fn after(self: Box<Self>) -> Result<()> {
        let Root { core, heap, .. } = self.root;
        core.note_segment(heap, &mut lock_patiently(&core.committed, heap.medium()))
    }

    fn give_up(&mut self, _: &mut Scope<'s, M>) {}
}
