//! Consistency check of a log.

use remanent_pmem::Medium;
use remanent_pmem::heap::{Heap, Violation};

use super::core::Core;
use super::layout::{DURABLE, FIRST, STATE};
use crate::Result;
use crate::background::lock_patiently;

impl Core {
    /// Contradictions within the log, including each record's checksum. The caller checks the heap.
    pub(crate) fn check<M: Medium>(&self, heap: &Heap<M>) -> Result<Vec<Violation>> {
        let medium = heap.medium();
        let mut violations = Vec::new();
        let _reserving = lock_patiently(&self.reserving, medium);
        let committed = lock_patiently(&self.committed, medium);
        let first = self.first();
        let newest = self.pair().read(medium).first().copied();
        let is_known = newest.is_some_and(|newest| {
            let [durable, state_first] = [DURABLE, FIRST].map(|word| newest.words[word]);
            (newest.number, durable, state_first) == (committed.number, committed.noted, first)
        });
        if !is_known {
            let what = format!(
                "the newest record of the state is {newest:?}, and should be number {}, from \
                 {first} on",
                committed.number
            );
            violations.push(Violation::new(self.header + STATE, what));
        }
        let mut at = first;
        while at < committed.end {
            match self.with_record(medium, at, committed.end, |head, _| head.record_len()) {
                Some(len) => at += len,
                None => {
                    let what = format!("no whole record lies at position {at}");
                    let offset = self.offset(at).unwrap_or(self.header);
                    violations.push(Violation::new(offset, what));
                    break;
                }
            }
        }
        heap.verify()?;
        Ok(violations)
    }
}
