//! Inserting a row, or changing the one that has its key.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::change::Change;
use super::ops::NewRow;
use super::statement::Statement;
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::ops::Group;
use crate::value::Value;
use crate::{Error, Result};

/// What an [`Upsert`](crate::Upsert) has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upserted<R> {
    /// No row had the key: this one was inserted.
    Inserted(RowId),
    /// A row had the key, and was changed; what the closure returned.
    Changed(R),
}

impl<M: Medium> Engine<M> {
    /// Changes the row that has the key of `values` in a unique index as `decide` says, or inserts
    /// `values` of the first `columns` columns if there is none. One fence.
    ///
    /// Between the search and the insert, another thread may insert the key. A statement that is a
    /// transaction then begins again with that row. A transaction does not see that row, and is
    /// overtaken.
    pub(crate) fn upsert<R>(
        &self,
        statement: &mut Statement<'_, '_, M>,
        table: &Arc<Table<M>>,
        index: &Index<M>,
        (columns, values): (usize, &[Value<'_>]),
        decide: impl FnOnce(RowId, &Key, &[Group; 2]) -> Result<(Change, R)>,
    ) -> Result<Upserted<R>> {
        self.require_open(statement)?;
        table.require_there(statement.view.own)?;
        let mut new_row = NewRow::of(table, statement.view.own, columns, values)?;
        let Some(key) = new_row.unique_key(table, index) else {
            return self.insert_row(statement, table, &mut new_row).map(Upserted::Inserted);
        };
        let mut decide = Some(decide);
        loop {
            let once = |row, groups: &_| {
                let decide = decide.take().expect("a row is found once");
                decide(row, &key, groups)
            };
            if let Some(result) = self.change(statement, table, index, &key, once)? {
                return Ok(Upserted::Changed(result));
            }
            match self.insert_row(statement, table, &mut new_row) {
                Err(Error::Unique { index: taken, .. }) if taken == index.spec.name => {
                    if statement.view.place.is_some() {
                        return Err(self.overtaken(table, index, &key));
                    }
                }
                inserted => return inserted.map(Upserted::Inserted),
            }
        }
    }
}
