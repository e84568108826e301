//! Reading one row by a key.

use std::sync::Arc;

use remanent_pmem::{Mapped, Medium};

use super::Row;
use super::prepared::Prepared;
use crate::Result;
use crate::root::Root;
use crate::table::Table;
use crate::transaction::Moment;
use crate::value::Value;

/// A prepared read of the row with a key, by a unique index.
///
/// Made by [`Table::prepare_get`](crate::Table::prepare_get), which has an example.
#[derive(Clone, Debug)]
pub struct Get<M: Medium = Mapped> {
    prepared: Prepared<M>,
}

impl<M: Medium> Get<M> {
    pub(crate) fn new(engine: &Arc<Root<M>>, table: &Arc<Table<M>>, name: &str) -> Result<Self> {
        Ok(Get { prepared: Prepared::unique(engine, table, name)? })
    }

    /// Passes the row with this key to `read`, as it was at that moment, and returns what `read`
    /// does; `None` if there was none, as for NULL. No fence; a lock only where a part of the index
    /// is used for the first time since the pool was opened. Nothing is allocated for keys of up to
    /// 32 bytes, and rows whose key columns and other columns take up to 64 bytes each.
    ///
    /// # Errors
    ///
    /// That of `read`. When the key has another number of values than the index has columns, or
    /// values that do not fit them; when the head of a row is damaged, or the medium met a fault.
    #[inline]
    pub fn run<R>(
        &self,
        moment: &impl Moment<M>,
        key: &[Value<'_>],
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let prepared = &self.prepared;
        let view = moment.view_in(&prepared.engine)?;
        let Some(key) = prepared.key(key)? else { return Ok(None) };
        let mut damage = None;
        let found = prepared.table.search(prepared.index(), &key, |row| {
            let found = prepared.row_with_key(row, &key, view);
            prepared.engine.heap.verify()?;
            found.or_else(|error| {
                damage.get_or_insert(error);
                Ok(None)
            })
        })?;
        prepared.engine.require_kept(view)?;
        match found {
            Some(row) => read(&row).map(Some),
            None => damage.map_or(Ok(None), Err),
        }
    }
}
