//! Reading all rows with a key.

use remanent_pmem::{Mapped, Medium};
use std::ops::ControlFlow;

use super::Row;
use super::prepared::{Asked, Prepared};
use crate::Result;
use crate::index::Candidates;
use crate::transaction::Moment;
use crate::value::Value;

/// A prepared read of the rows with a key, by any index.
///
/// Made by [`Table::prepare_find`](crate::Table::prepare_find), which has an example.
#[derive(Debug)]
pub struct Find<M: Medium = Mapped> {
    prepared: Prepared<M>,
}

impl<M: Medium> Clone for Find<M> {
    fn clone(&self) -> Self {
        Find { prepared: self.prepared.clone() }
    }
}

impl<M: Medium> Find<M> {
    pub(crate) fn new(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Ok(Find { prepared: Prepared::any(table, name)? })
    }

    /// Passes the rows with this key to `visit`, as they were at that moment, until it breaks: each
    /// once, in the order of their numbers. No fence. Their numbers are collected first, which
    /// allocates for more than 8.
    ///
    /// # Errors
    ///
    /// When the key has another number of values than the index has columns, or values that do not
    /// fit them; when the head of a row is damaged, or the medium met a fault.
    pub fn run<R>(
        &self,
        moment: &impl Moment<M>,
        key: &[Value<'_>],
        mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let prepared = &self.prepared;
        let view = moment.view_in(&prepared.engine)?;
        let Some(key) = prepared.key(key, view.own)? else { return Ok(None) };
        if let Some(notes) = moment.notes() {
            prepared.note_key(notes, &key, view);
        }
        let mut rows = Candidates::new();
        prepared.table.search(prepared.index(), &key, |row| {
            rows.push(row);
            Ok(None::<()>)
        })?;
        prepared.require_index()?;
        // A row number that was used before, with the same key, may have a second word.
        rows.sort_unstable();
        rows.dedup();
        for row in rows {
            let found = prepared.row_with_key(row, &key, view);
            // A faulty medium reads as zeros: not a row of those is shown.
            prepared.engine.heap.verify()?;
            prepared.engine.require_kept(view)?;
            if let Some(row) = found?
                && let ControlFlow::Break(result) = visit(&row)
            {
                return Ok(Some(result));
            }
        }
        // Also if there was none.
        prepared.engine.require_kept(view)?;
        Ok(None)
    }
}
