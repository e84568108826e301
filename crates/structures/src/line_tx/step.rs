//! Transactions that share fences with other operations; see [`Step`].

use remanent_pmem::heap::Heap;
use remanent_pmem::persistent::bytes_of;
use remanent_pmem::{Medium, Persistent};

use super::shared::SharedTx;
use crate::Result;
use crate::shared::{Operation, Progress, Scope, Step};

impl<T: Persistent, M: Medium> SharedTx<T, M> {
    /// Replaces the object as part of a [step](Step::commit).
    ///
    /// # Errors
    ///
    /// When the step already has as many operations as it may have.
    ///
    /// # Panics
    ///
    /// When the step is on another heap.
    pub fn set_in<'s>(&'s self, step: &mut Step<'s, M>, value: T) -> Result<()> {
        step.add(Set { shared: self, value, staged: None })
    }
}

/// Replaces an object.
struct Set<'s, T: Persistent, M: Medium> {
    shared: &'s SharedTx<T, M>,
    value: T,
    staged: Option<StagedVersion<'s, T, M>>,
}

/// The lock of an object whose next version is flushed. Dropping it releases the lock.
struct StagedVersion<'s, T: Persistent, M: Medium> {
    shared: &'s SharedTx<T, M>,
    version: u64,
}

impl<T: Persistent, M: Medium> Drop for StagedVersion<'_, T, M> {
    fn drop(&mut self) {
        self.shared.objects.unlock(self.shared.place.index);
    }
}

impl<'s, T: Persistent, M: Medium> Operation<'s, M> for Set<'s, T, M> {
    fn heap(&self) -> &'s Heap<M> {
        &self.shared.objects.heap
    }

    fn prepare(&mut self, _: &mut Scope<'s, M>) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self, scope: &mut Scope<'s, M>) -> Result<Progress> {
        let SharedTx { objects, place } = self.shared;
        let version = match scope.may_wait() {
            true => objects.lock(place.index)?,
            false => match objects.try_lock(place.index)? {
                Some(version) => version,
                None => return Ok(Progress::Busy),
            },
        };
        let staged = StagedVersion { shared: self.shared, version };
        let before = objects.read(*place, version);
        if bytes_of(&before) != bytes_of(&self.value) {
            objects.stage(place.index, version, &before, &self.value);
            // An empty guard, since the operation itself holds the lock.
            scope.hold(objects.base(place.index), Box::new(()));
            self.staged = Some(staged);
        }
        Ok(Progress::Done)
    }

    fn finish(&mut self, _: &mut Scope<'s, M>) {
        if let Some(staged) = self.staged.take() {
            self.shared.objects.conclude(self.shared.place.index, staged.version + 1);
        }
    }

    fn give_up(&mut self, _: &mut Scope<'s, M>) {}
}
