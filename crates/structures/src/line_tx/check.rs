//! Checking objects.

use remanent_pmem::heap::Violation;
use remanent_pmem::{Medium, Persistent};

use super::layout::INSIDE;
use super::{Objects, ops};
use crate::Result;
use crate::shared::Inspection;

impl<T: Persistent, M: Medium> Objects<T, M> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let Inspection { mut violations, blocks } = self.inspect()?;
        violations.extend(self.heap.check(blocks.into_iter().flatten())?);
        self.heap.verify()?;
        Ok(violations)
    }

    pub(super) fn inspect(&self) -> Result<Inspection> {
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
        self.heap.verify()?;
        let is_inside = self.first == self.heap.header() + INSIDE;
        let blocks = if is_inside { Vec::new() } else { vec![self.first] };
        Ok(Inspection { violations, blocks: Some(blocks) })
    }
}
