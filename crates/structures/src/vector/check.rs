//! Consistency check of a vector.

use remanent_pmem::heap::{Heap, Violation};
use remanent_pmem::{Medium, Persistent};

use super::core::Core;
use super::layout::{FROM, LEN, LENGTH, Shape};
use crate::Result;
use crate::background::lock_patiently;
use crate::segments::Slot;

impl<T: Persistent> Core<T> {
    /// Contradictions within the vector. The caller checks the heap.
    pub(crate) fn check<M: Medium>(&self, heap: &Heap<M>) -> Result<Vec<Violation>> {
        let medium = heap.medium();
        let mut violations = Vec::new();
        let _reserving = lock_patiently(&self.reserving, medium);
        let committed = lock_patiently(&self.committed, medium);
        let at = self.header + LENGTH;
        match self.pair().read(medium).first() {
            Some(newest)
                if newest.number == committed.number
                    && newest.words[LEN] == committed.len
                    && newest.words[FROM] == committed.from => {}
            newest => {
                let what = format!(
                    "the newest record of the length is {newest:?}, and should be number {} with \
                     {} elements",
                    committed.number, committed.len
                );
                violations.push(Violation::new(at, what));
            }
        }
        for run in (0..Shape::<T>::runs(committed.len)).map(Slot) {
            let len = self.runs.get(run).map_or(0, |segment| segment.len);
            if len < Shape::<T>::run_len(run) {
                let what = format!("run {} has {len} bytes, less than its elements", run.0);
                violations.push(Violation::new(at, what));
            }
        }
        heap.verify()?;
        Ok(violations)
    }
}
