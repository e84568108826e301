//! Reading all rows.

use std::ops::ControlFlow;

use remanent_pmem::Medium;

use super::Row;
use crate::Result;
use crate::table::Table;

impl<M: Medium> Table<M> {
    /// Passes every row that was committed at `stamp` to `visit`, until it breaks.
    pub(crate) fn scan<R>(
        &self,
        stamp: u64,
        mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let mut result = None;
        self.for_each_row(|row, place, committed| {
            if !committed.is_present() {
                return Err(self.head_damaged(place));
            }
            if committed.stamp() > stamp {
                return Ok(true);
            }
            let keys = self.read_group(place, 0);
            match visit(&Row::read(self, row, place, keys)) {
                ControlFlow::Continue(()) => Ok(true),
                ControlFlow::Break(found) => {
                    result = Some(found);
                    Ok(false)
                }
            }
        })?;
        Ok(result)
    }
}
