//! Reading all rows.

use std::ops::ControlFlow;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::Row;
use crate::Result;
use crate::table::Table;
use crate::table::ops::{Group, copy_of};
use crate::transaction::view::View;

impl<M: Medium> Table<M> {
    /// Passes every row of a view to `visit`, until it breaks. `require_kept` is asked after each
    /// row, and at the end.
    pub(crate) fn scan<R>(
        &self,
        view: View,
        require_kept: impl Fn() -> Result<()>,
        mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let with_groups = |row, groups: &[Group; 2]| visit(&Row::new(self, row, copy_of(groups)));
        self.scan_groups(view, [true, true], require_kept, with_groups)
    }

    /// The same for who needs these groups of cells alone: the others are empty. Allocates nothing
    /// for a row.
    pub(crate) fn scan_groups<R>(
        &self,
        view: View,
        needs: [bool; 2],
        require_kept: impl Fn() -> Result<()>,
        mut visit: impl FnMut(RowId, &[Group; 2]) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        self.require_there(view.own)?;
        let (mut groups, mut result) = ([Group::new(), Group::new()], None);
        self.for_each_row(|row, place, _| {
            {
                // No version is freed that the row leads to.
                let _pin = self.heap.pin();
                let Some(seen) = self.seen(row, place, view)? else { return Ok(true) };
                for group in (0..2).filter(|&group| needs[group]) {
                    self.read_seen(place, seen, group, &mut groups[group])?;
                }
            }
            require_kept()?;
            match visit(row, &groups) {
                ControlFlow::Continue(()) => Ok(true),
                ControlFlow::Break(found) => {
                    result = Some(found);
                    Ok(false)
                }
            }
        })?;
        require_kept()?;
        Ok(result)
    }
}
