//! Checking a dictionary against its index.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;
use remanent_structures::shared::Inspection;

use super::Dictionary;
use super::ops::row_of;
use super::values::{Place, RUN_COUNT};
use crate::Result;
use crate::index::Key;

impl<M: Medium> Dictionary<M> {
    /// What contradicts itself, and which blocks the dictionary reaches.
    pub(crate) fn inspect(&self) -> Result<Inspection> {
        let index = self.index.load();
        let mut found = index.rows.inspect()?;
        let mut blocks = vec![self.store.state];
        let mut note = |at, what: &str| found.violations.push(Violation::new(at, what));
        for run in 0..RUN_COUNT {
            match self.store.run(run) {
                Ok(run) => blocks.extend(run),
                Err(error) => note(self.store.run_at(run), &error.to_string()),
            }
        }
        let is_indexed = index.is_whole();
        for id in (0..self.count()).map(|id| id as u32) {
            let Place { run, at } = Place::of(id);
            let run = self.store.run(run).ok().flatten().unwrap_or_default();
            let at = self.store.entry_at(run, at);
            let Some(value) = self.store.read(id) else {
                // No statement was given the number of a torn entry. Who checks a row asks for the
                // values that it names.
                if self.values.known(id).is_some() {
                    note(at, "an entry of a dictionary has changed since it was read");
                }
                continue;
            };
            let key = Key::of_value(&value);
            let candidates = index.rows.candidates(&key)?;
            if is_indexed && candidates.iter().filter(|other| **other == row_of(id)).count() != 1 {
                note(at, "a value is not found once in the index of its dictionary");
            }
            let is_same = |other: u64| {
                other < self.count()
                    && other != u64::from(id)
                    && self.store.read(other as u32).as_ref() == Some(&value)
            };
            if candidates.iter().any(|other| is_same(other.get())) {
                note(at, "a dictionary has a value twice");
            }
        }
        self.store.heap.verify()?;
        match &mut found.blocks {
            Some(reached) => reached.extend(blocks),
            none => *none = None,
        }
        Ok(found)
    }
}
