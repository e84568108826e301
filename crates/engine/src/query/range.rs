//! Reading the rows of a range of keys, in the order of an index.

use remanent_pmem::{Mapped, Medium};
use std::ops::{Bound, ControlFlow};

use super::Row;
use super::prepared::{Asked, Prepared};
use crate::Result;
use crate::index::entries::Entries;
use crate::index::order::{self, Order, Span};
use crate::index::uses::Use;
use crate::table::layout::KeyCells;
use crate::transaction::Moment;
use crate::transaction::view::View;
use crate::value::Value;

/// Entries that are read from an index at once, at first: few, for reads that break soon.
const FEW: usize = 8;
/// The same, later.
const MANY: usize = 128;

/// A prepared read of the rows of a range of keys, by an ordered index.
///
/// Made by [`Table::prepare_range`](crate::Table::prepare_range), which has an example.
#[derive(Debug)]
pub struct Range<M: Medium = Mapped> {
    prepared: Prepared<M>,
}

impl<M: Medium> Clone for Range<M> {
    fn clone(&self) -> Self {
        Range { prepared: self.prepared.clone() }
    }
}

/// A bound of a range: values of the first columns of an index. All of its columns may have one, or
/// only some, or none.
pub type KeyBound<'b> = Bound<&'b [Value<'b>]>;

impl<M: Medium> Range<M> {
    pub(crate) fn new(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Ok(Range { prepared: Prepared::ordered(table, name)? })
    }

    /// Passes the rows of a range to `visit`, in the order of the index, until it breaks: each
    /// once, as it was at that moment. Rows with equal keys come in the order of their numbers. No
    /// fence. Allocates for the keys of 128 rows, whatever their number.
    ///
    /// A bound has values of the first columns of the index, and stands for all keys that begin
    /// with them: `Included(&[7.into()])` as upper bound includes every key whose first column is
    /// 7, and `Excluded(&[7.into()])` includes none of them. NULL comes before all values of a
    /// column. [`Unbounded`](Bound::Unbounded) is as good as `Included(&[])`. A range whose lower
    /// bound lies behind the upper one is empty.
    ///
    /// If the index is in DRAM and was not rebuilt yet, the call rebuilds what is left of the
    /// table first.
    ///
    /// # Errors
    ///
    /// When a bound has more values than the index has columns, or values that do not fit them;
    /// when a row's head or the index is damaged, or the medium met a fault.
    pub fn run<R>(
        &self,
        moment: &impl Moment<M>,
        (lower, upper): (KeyBound<'_>, KeyBound<'_>),
        order: Order,
        mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let prepared = &self.prepared;
        let view = moment.view_in(&prepared.engine)?;
        prepared.index().uses.count(Use::Range);
        let mut span =
            Span::between(prepared.bound(lower, view.own)?, prepared.bound(upper, view.own)?);
        let notes = moment.notes();
        let mut noting = notes.map(|notes| prepared.note_range(notes, span.clone(), view));
        let (mut entries, mut most) = (Entries::default(), FEW);
        loop {
            // Rows are passed on when the index is not being read any more: whoever gets one may
            // change it, and the index with it.
            prepared.read_index(|index| {
                if !prepared.table.has_all_rows(index) {
                    prepared.table.read_rest()?;
                }
                entries.read(index, &span, order, most)
            })?;
            let mut last = None;
            for entry in entries.iter() {
                last = Some(entry);
                if let Some(row) = self.row_of(entry, view)?
                    && let ControlFlow::Break(result) = visit(&row)
                {
                    if let Some(noting) = &mut noting {
                        noting.end_at(entry, order);
                    }
                    return Ok(Some(result));
                }
            }
            match last {
                Some(last) if entries.len() == most => span.go_on_behind(last, order),
                _ => break,
            }
            most = (2 * most).min(MANY);
        }
        // Also if there was none.
        prepared.engine.require_kept(view)?;
        Ok(None)
    }

    /// The row of an entry, if it has the entry's key in a view. Rows are found at keys that they
    /// had, too.
    fn row_of(&self, entry: &[u8], view: View) -> Result<Option<Row<'_, M>>> {
        let prepared = &self.prepared;
        let table = &*prepared.table;
        let Some((key, row)) = order::key_and_row(entry) else { return Ok(None) };
        let columns = &prepared.index().spec.columns;
        let has_key = |keys: KeyCells<'_>| order::is_of_row(key, &table.format, columns, keys);
        let found = prepared.pinned_row(row, has_key, view);
        // A faulty medium reads as zeros: not a row of those is shown.
        prepared.engine.heap.verify()?;
        prepared.engine.require_kept(view)?;
        found
    }
}
