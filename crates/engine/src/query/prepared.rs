//! What reads and changes by an index have in common.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::Row;
use crate::index::{Index, Key};
use crate::root::Root;
use crate::table::Table;
use crate::transaction::view::View;
use crate::value::Value;
use crate::{Error, Result};

/// An index of a table that a statement was prepared for.
pub(super) struct Prepared<M: Medium> {
    pub(super) engine: Arc<Root<M>>,
    pub(super) table: Arc<Table<M>>,
    /// Number of the index in the table.
    index: usize,
}

impl<M: Medium> Prepared<M> {
    /// A unique index.
    pub(super) fn unique(engine: &Arc<Root<M>>, table: &Arc<Table<M>>, name: &str) -> Result<Self> {
        Self::new(engine, table, name, |index| index.spec.kind.is_unique())
    }

    /// Any index.
    pub(super) fn any(engine: &Arc<Root<M>>, table: &Arc<Table<M>>, name: &str) -> Result<Self> {
        Self::new(engine, table, name, |_| true)
    }

    /// The index of this name, if `is_right` takes it.
    fn new(
        engine: &Arc<Root<M>>,
        table: &Arc<Table<M>>,
        name: &str,
        is_right: impl Fn(&Index<M>) -> bool,
    ) -> Result<Self> {
        let is_asked_for = |index: &Index<M>| index.spec.name == name && is_right(index);
        let found = table.indexes.iter().position(is_asked_for);
        let index = found.ok_or_else(|| Error::NoSuchIndex {
            table: table.name.clone(),
            index: name.to_owned(),
        })?;
        Ok(Prepared { engine: Arc::clone(engine), table: Arc::clone(table), index })
    }

    #[inline(always)]
    pub(super) fn index(&self) -> &Index<M> {
        &self.table.indexes[self.index]
    }

    /// The key with these values; `None` if one of them is NULL: no row has that key.
    #[inline]
    pub(super) fn key(&self, values: &[Value<'_>]) -> Result<Option<Key>> {
        let (table, columns) = (&*self.table, &self.index().spec.columns);
        table.require_there()?;
        if values.len() != columns.len() {
            return Err(table.wrong_count(columns.len(), values.len()));
        }
        if values.contains(&Value::Null) {
            return Ok(None);
        }
        let key = Key::of_cells(&table.format, columns, |number, cell| {
            table.encode(columns[number], &values[number], cell)
        });
        key.map(Some)
    }

    /// The row of this number, if it has the key in a view.
    ///
    /// # Errors
    ///
    /// When its head or a version is damaged: it may be the row.
    #[inline]
    pub(super) fn pinned_row(
        &self,
        row: RowId,
        key: &Key,
        view: View,
    ) -> Result<Option<Row<'_, M>>> {
        let table = &*self.table;
        // No version is freed that the row leads to. Not longer: who gets the row may change it,
        // which may mean to wait for all pins.
        let _pin = self.engine.heap.pin();
        let Some(place) = table.place(row) else { return Ok(None) };
        table.prefetch(place);
        let Some(seen) = table.seen(row, place, view)? else { return Ok(None) };
        let keys = table.group_of(place, seen, 0)?;
        if !key.is_of(&table.format, &self.index().spec.columns, &keys) {
            return Ok(None);
        }
        let others = table.group_of(place, seen, 1)?;
        Ok(Some(Row::new(table, row, [keys, others])))
    }
}

impl<M: Medium> Clone for Prepared<M> {
    fn clone(&self) -> Self {
        let (engine, table) = (Arc::clone(&self.engine), Arc::clone(&self.table));
        Prepared { engine, table, index: self.index }
    }
}

impl<M: Medium> std::fmt::Debug for Prepared<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let index = &self.index().spec.name;
        f.debug_struct("Prepared").field("table", &self.table.name).field("index", index).finish()
    }
}
