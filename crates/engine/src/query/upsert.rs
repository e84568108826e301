//! Prepared inserts of rows that may be there.

use remanent_pmem::{Mapped, Medium};

use super::prepared::{Asked, Prepared};
use super::{Changes, Row};
use crate::Result;
use crate::transaction::statement::Statement;
use crate::transaction::{Transaction, Upserted};
use crate::value::Value;

/// A prepared insert of a row that changes the row with the same key of a unique index instead, if
/// there is one.
///
/// Made by [`Table::prepare_upsert`](crate::Table::prepare_upsert), which has an example.
#[derive(Clone, Debug)]
pub struct Upsert<M: Medium = Mapped> {
    prepared: Prepared<M>,
    /// Columns that rows are given values of.
    columns: usize,
}

impl<M: Medium> Upsert<M> {
    pub(crate) fn new(table: Asked<'_, M>, name: &str, columns: usize) -> Result<Self> {
        Ok(Upsert { prepared: Prepared::unique(table, name)?, columns })
    }

    /// Inserts a row of these values, in the order of the columns, and commits that. If a row has
    /// their key in the index, passes that row to `change` instead, as [`Update::run`] does, and
    /// commits what `change` sets. It is durable when this returns. One fence, and those of
    /// [`Table::insert`](crate::Table::insert) or [`Update::run`]. An
    /// [encoded](crate::TableSpec::encoded) column gets its value into the dictionary also if
    /// another row is changed instead.
    ///
    /// Of threads that upsert one key, one inserts the row, and the others change it. A row whose
    /// key has NULL in it is inserted.
    ///
    /// [`Update::run`]: crate::Update::run
    ///
    /// # Errors
    ///
    /// That of `change`, those of [`Update::run`], and those of
    /// [`Table::insert`](crate::Table::insert) but for [`Error::Unique`](crate::Error::Unique) of
    /// this index. Nothing was changed then, unless the medium met a fault.
    pub fn run<R>(
        &self,
        values: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Upserted<R>> {
        self.prepared.engine.alone(|statement| self.run_by(statement, values, change))
    }

    /// The same as a statement of a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Upsert::run), and [`Error::Overtaken`](crate::Error::Overtaken) when
    /// another transaction has inserted, changed or removed a row with the key since this one took
    /// its snapshot; [`Error::Ambiguous`](crate::Error::Ambiguous) when the index was
    /// [made](crate::Database::create_index) since, and two rows had the key at its moment. Nothing
    /// was changed then, and the transaction goes on.
    pub fn run_in<R>(
        &self,
        transaction: &mut Transaction<'_, M>,
        values: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Upserted<R>> {
        let mut statement = transaction.next_statement(&self.prepared.engine)?;
        self.run_by(&mut statement, values, change)
    }

    /// The same, but it also changes a row that others have changed since the transaction's
    /// snapshot.
    pub(crate) fn run_of_newest_in<R>(
        &self,
        transaction: &mut Transaction<'_, M>,
        values: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Upserted<R>> {
        let engine = &self.prepared.engine;
        let mut statement = transaction.next_statement_of_newest(engine)?;
        // What it reads is not of the moment that a serializable transaction is about.
        let notes = statement.note_count(engine.medium());
        let done = self.run_by(&mut statement, values, change);
        statement.forget_notes(engine.medium(), notes);
        done
    }

    fn run_by<R>(
        &self,
        statement: &mut Statement<'_, '_, M>,
        values: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Upserted<R>> {
        let Prepared { engine, table, .. } = &self.prepared;
        self.prepared.require_index()?;
        let index = self.prepared.index();
        engine.upsert(statement, table, index, (self.columns, values), |row, key, groups| {
            Changes::made(table, (index, key), (row, groups), change)
        })
    }
}
