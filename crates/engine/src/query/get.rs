//! Reading one row by a key.

use std::sync::Arc;

use remanent_pmem::{Mapped, Medium};

use super::Row;
use crate::engine::Engine;
use crate::index::Key;
use crate::table::Table;
use crate::transaction::Snapshot;
use crate::value::Value;
use crate::{Error, Result};

/// A prepared read of the row with a key, by a unique index.
///
/// Made by [`Table::prepare_get`](crate::Table::prepare_get), which has an example.
pub struct Get<M: Medium = Mapped> {
    engine: Arc<Engine<M>>,
    table: Arc<Table<M>>,
    /// Number of the index in the table.
    index: usize,
}

impl<M: Medium> Get<M> {
    pub(crate) fn new(engine: &Arc<Engine<M>>, table: &Arc<Table<M>>, name: &str) -> Result<Self> {
        let found = table.indexes.iter().position(|index| index.spec.name == name);
        let index = found.ok_or_else(|| Error::NoSuchIndex {
            table: table.name.clone(),
            index: name.to_owned(),
        })?;
        Ok(Get { engine: Arc::clone(engine), table: Arc::clone(table), index })
    }

    /// Passes the row with this key to `read`, as it was at that moment, and returns what `read`
    /// does; `None` if there was none, as for NULL. No fence; a lock only where a part of the index
    /// is used for the first time since the pool was opened. Nothing is allocated for keys of up to
    /// 32 bytes and rows whose columns, with keys and others apart, have up to 64.
    ///
    /// # Errors
    ///
    /// That of `read`. When the key has another number of values than the index has columns, or
    /// values that do not fit them; when the head of a row is damaged, or the medium met a fault.
    #[inline]
    pub fn run<R>(
        &self,
        snapshot: &Snapshot<'_, M>,
        key: &[Value<'_>],
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let table = &*self.table;
        let stamp = snapshot.stamp_in(&self.engine)?;
        let index = &table.indexes[self.index];
        let (format, columns) = (&table.format, &index.spec.columns);
        if key.len() != columns.len() {
            return Err(table.wrong_count(columns.len(), key.len()));
        }
        if key.contains(&Value::Null) {
            return Ok(None);
        }
        let key = Key::of_cells(format, columns, |number, cell| {
            table.encode(columns[number], &key[number], cell)
        })?;
        let mut damaged = None;
        let found = index.find(&key, |row| {
            let place = table.place(row)?;
            table.prefetch(place);
            let committed = table.committed(place);
            if !committed.is_present() || committed.stamp() > stamp {
                if !committed.is_present() && !committed.is_free() {
                    damaged = Some(place);
                }
                return None;
            }
            let keys = table.read_group(place, 0);
            key.is_of(format, columns, &keys).then(|| Row::read(table, row, place, keys))
        })?;
        self.engine.heap.verify()?;
        if let (None, Some(place)) = (&found, damaged) {
            // It may have been the row.
            return Err(table.head_damaged(place));
        }
        found.map(|row| read(&row)).transpose()
    }
}

impl<M: Medium> Clone for Get<M> {
    fn clone(&self) -> Self {
        let (engine, table) = (Arc::clone(&self.engine), Arc::clone(&self.table));
        Get { engine, table, index: self.index }
    }
}

impl<M: Medium> std::fmt::Debug for Get<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let index = &self.table.indexes[self.index].spec.name;
        f.debug_struct("Get").field("table", &self.table.name).field("index", index).finish()
    }
}
