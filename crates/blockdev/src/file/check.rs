//! The check of a file's consistency.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::layout::{GROUPS, STATE, place};
use super::ops::Body;
use crate::line::WORDS;
use crate::{Lines, Result};

impl<M: Medium> Body<M> {
    pub(super) fn lines(&self) -> Lines {
        let key = self.writing.lock(self.medium()).pair.key();
        Lines::of_file(key, self.heap.header())
    }

    /// Proves that both lines of each pair are complete and that the extents belong to the file.
    /// Nobody writes meanwhile.
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let writing = self.writing.lock(self.medium());
        let header = self.heap.header();
        let states = [(STATE, &writing.pair)].into_iter();
        let groups = (0..GROUPS).map(|group| place(group * WORDS).0).zip(&writing.groups);
        let mut violations: Vec<Violation> = states
            .chain(groups)
            .filter(|(_, pair)| !pair.is_whole(self.medium()))
            .map(|(at, _)| {
                Violation::new(header + at, "a line of a file's metadata fails its checksum")
            })
            .collect();
        if writing.state.len > self.capacity() {
            let what = format!("{} bytes, and extents for {}", writing.state.len, self.capacity());
            violations.push(Violation::new(header + STATE, what));
        }
        violations.extend(self.heap.check(self.extents().map(|extent| extent.at))?);
        self.verify()?;
        Ok(violations)
    }
}
