//! Are the objects whole?

use remanent_pmem::heap::Violation;
use remanent_pmem::{Medium, Persistent};

use super::layout::INSIDE;
use super::{Objects, ops};
use crate::Result;

impl<T: Persistent, M: Medium> Objects<T, M> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let len = size_of::<T>() as u64;
        let mut violations = Vec::new();
        for index in 0..self.states.len() as u64 {
            let base = self.base(index);
            let found = ops::find_version(self.medium(), self.form, base, len);
            let state = self.state(index).ok().map(|state| state.version());
            match (found, state) {
                (None, _) => {
                    violations
                        .push(Violation::new(base, format!("object {index} has no valid version")));
                }
                (Some(found), Some(known)) if !self.form.is_version(found, known) => {
                    let what = format!("object {index} has version {found}, not {known}");
                    violations.push(Violation::new(base, what));
                }
                _ => {}
            }
        }
        let inside = self.first == self.heap.header() + INSIDE;
        let block = (!inside).then_some(self.first);
        violations.extend(self.heap.check(block.into_iter())?);
        self.heap.verify()?;
        Ok(violations)
    }
}
