//! What reads and changes by an index have in common.

use std::ops::Bound;
use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::{KeyBound, Row};
use crate::index::order::{self, OrderedBytes, Span};
use crate::index::{Index, Key};
use crate::root::Root;
use crate::schema::Structure;
use crate::table::Table;
use crate::table::layout::KeyCells;
use crate::table::ops::key_cells;
use crate::transaction::layout::TransactionId;
use crate::transaction::notes::{Note, Notes, NotingRange, Read};
use crate::transaction::view::View;
use crate::value::Value;
use crate::{Error, Result};

/// A table for which a statement is prepared, and for which transaction, if for one alone.
pub(crate) struct Asked<'t, M: Medium> {
    pub(crate) engine: &'t Arc<Root<M>>,
    pub(crate) table: &'t Arc<Table<M>>,
    pub(crate) by: Option<TransactionId>,
}

impl<M: Medium> Clone for Asked<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Medium> Copy for Asked<'_, M> {}

/// An index of a table that a statement was prepared for.
pub(super) struct Prepared<M: Medium> {
    pub(super) engine: Arc<Root<M>>,
    pub(super) table: Arc<Table<M>>,
    /// If it was moved since, another one is read.
    index: Arc<Index<M>>,
}

impl<M: Medium> Prepared<M> {
    /// A unique index.
    pub(super) fn unique(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Self::new(table, name, |index| index.spec.kind.is_unique())
    }

    /// Any index.
    pub(super) fn any(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Self::new(table, name, |_| true)
    }

    /// An ordered index.
    pub(super) fn ordered(table: Asked<'_, M>, name: &str) -> Result<Self> {
        let found = Self::any(table, name)?;
        match found.index().spec.structure {
            Structure::Ordered => Ok(found),
            Structure::Hash => {
                let (table, index) = (table.table.name.clone(), name.to_owned());
                Err(Error::NotOrdered { table, index })
            }
        }
    }

    /// The index of this name, if `is_right` takes it.
    fn new(table: Asked<'_, M>, name: &str, is_right: impl Fn(&Index<M>) -> bool) -> Result<Self> {
        let Asked { engine, table, by } = table;
        let index = table.index(name, by)?;
        if !is_right(&index) {
            return Err(table.no_index(name));
        }
        Ok(Prepared { engine: Arc::clone(engine), table: Arc::clone(table), index })
    }

    /// The index for which the statement was prepared.
    #[inline(always)]
    pub(super) fn index(&self) -> &Index<M> {
        &self.index
    }

    /// Has `read` read the index, as often as it is moved meanwhile.
    ///
    /// # Errors
    ///
    /// That of `read`, and when the index was dropped meanwhile.
    pub(super) fn read_index(&self, mut read: impl FnMut(&Index<M>) -> Result<()>) -> Result<()> {
        read(&self.index)?;
        if self.index.is_in_use() {
            return Ok(());
        }
        loop {
            let index = self.table.require_moved_to(&self.index)?;
            read(&index)?;
            if index.is_in_use() {
                return Ok(());
            }
        }
    }

    /// Refuses what was asked of an index that was dropped: before it is read, and if it does not
    /// lead to a row, afterwards.
    #[inline]
    pub(super) fn require_index(&self) -> Result<()> {
        self.table.require_index(&self.index)
    }

    /// Notes for a serializable transaction that it reads all rows with a key.
    #[cold]
    pub(super) fn note_key(&self, notes: &Notes<M>, key: &Key, view: View) {
        let read = Read::Key { index: self.index.id, key: key.clone() };
        notes
            .add(self.engine.medium(), Note { table: self.table.clone(), read, since: view.stamp });
    }

    /// The same for a range, once what this returns is dropped.
    #[cold]
    pub(super) fn note_range<'n>(
        &'n self,
        notes: &'n Notes<M>,
        span: Span,
        view: View,
    ) -> NotingRange<'n, M> {
        NotingRange {
            notes,
            medium: self.engine.medium(),
            table: &self.table,
            index: self.index.id,
            span,
            since: view.stamp,
        }
    }

    /// The key with these values, for a statement of a transaction, or of none; `None` if one of
    /// them is NULL: no row has that key.
    #[inline]
    pub(super) fn key(
        &self,
        values: &[Value<'_>],
        own: Option<TransactionId>,
    ) -> Result<Option<Key>> {
        let (table, spec) = (&*self.table, &self.index().spec);
        let columns = &spec.columns;
        table.require_there(own)?;
        self.require_index()?;
        if values.len() != columns.len() {
            return Err(table.wrong_count(columns.len(), values.len()));
        }
        if values.contains(&Value::Null) {
            return Ok(None);
        }
        let key = Key::of_cells(&table.format, spec, |number, cell| {
            table.encode(columns[number], &values[number], cell)
        });
        key.map(Some)
    }

    /// The keys that a bound of a range stands for: their beginning.
    pub(super) fn bound(
        &self,
        bound: KeyBound<'_>,
        own: Option<TransactionId>,
    ) -> Result<Bound<OrderedBytes>> {
        let (table, columns) = (&*self.table, &self.index().spec.columns);
        table.require_there(own)?;
        self.require_index()?;
        let prefix = |values: &[Value<'_>]| {
            let Some(columns) = columns.get(..values.len()) else {
                return Err(table.wrong_count(columns.len(), values.len()));
            };
            order::of_cells(&table.format, columns, |number, cell| {
                let (column, value) = (columns[number], &values[number]);
                match value {
                    Value::Null if table.format.cells[column].null.is_some() => Ok(false),
                    value => table.encode(column, value, cell).map(|()| true),
                }
            })
        };
        Ok(match bound {
            Bound::Included(values) => Bound::Included(prefix(values)?),
            Bound::Excluded(values) => Bound::Excluded(prefix(values)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    }

    /// The row of this number, if `is_wanted` takes the cells of its keys as they are in a view.
    ///
    /// # Errors
    ///
    /// When its head or a version is damaged: it may be the row.
    #[inline]
    pub(super) fn pinned_row(
        &self,
        row: RowId,
        is_wanted: impl FnOnce(KeyCells<'_>) -> bool,
        view: View,
    ) -> Result<Option<Row<'_, M>>> {
        let table = &*self.table;
        // No version is freed that the row leads to. Not longer: who gets the row may change it,
        // which may mean to wait for all pins.
        let _pin = self.engine.heap.pin();
        let Some(place) = table.place(row) else { return Ok(None) };
        table.prefetch(place);
        let Some(seen) = table.seen(row, place, view)? else { return Ok(None) };
        let mut groups = table.key_groups(place, seen, self.index.needs_others)?;
        if !is_wanted(key_cells(&groups)) {
            table.require_values(&self.index.spec.columns, key_cells(&groups))?;
            return Ok(None);
        }
        if !self.index.needs_others {
            groups[1] = table.group_of(place, seen, 1)?;
        }
        Ok(Some(Row::new(table, row, groups)))
    }
}

impl<M: Medium> Prepared<M> {
    /// The row of this number, if it has a key of the index in a view.
    ///
    /// # Errors
    ///
    /// Those of [`pinned_row`](Prepared::pinned_row).
    #[inline]
    pub(super) fn row_with_key(
        &self,
        row: RowId,
        key: &Key,
        view: View,
    ) -> Result<Option<Row<'_, M>>> {
        let (format, spec) = (&self.table.format, &self.index().spec);
        self.pinned_row(row, |keys| key.is_of(format, spec, keys), view)
    }
}

impl<M: Medium> Clone for Prepared<M> {
    fn clone(&self) -> Self {
        let (engine, table) = (Arc::clone(&self.engine), Arc::clone(&self.table));
        // That of a moved index does not keep the memory of the old one.
        let moved = if self.index.is_in_use() { None } else { table.moved_to(&self.index) };
        let index = moved.unwrap_or_else(|| Arc::clone(&self.index));
        Prepared { engine, table, index }
    }
}

impl<M: Medium> std::fmt::Debug for Prepared<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let index = &self.index().spec.name;
        f.debug_struct("Prepared").field("table", &self.table.name).field("index", index).finish()
    }
}
