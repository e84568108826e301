//! Prepared changes of one row by a key.

use std::sync::Arc;

use remanent_pmem::{Mapped, Medium};

use super::Row;
use super::prepared::Prepared;
use crate::root::Root;
use crate::table::Table;
use crate::table::ops::Group;
use crate::transaction::Transaction;
use crate::transaction::change::Change;
use crate::transaction::statement::Statement;
use crate::value::Value;
use crate::{Error, Result};

/// A prepared update of the row with a key, by a unique index.
///
/// Made by [`Table::prepare_update`](crate::Table::prepare_update), which has an example.
#[derive(Debug)]
pub struct Update<M: Medium = Mapped> {
    prepared: Prepared<M>,
}

impl<M: Medium> Clone for Update<M> {
    fn clone(&self) -> Self {
        Update { prepared: self.prepared.clone() }
    }
}

/// A prepared removal of the row with a key, by a unique index.
///
/// Made by [`Table::prepare_delete`](crate::Table::prepare_delete), which has an example.
#[derive(Debug)]
pub struct Delete<M: Medium = Mapped> {
    prepared: Prepared<M>,
}

impl<M: Medium> Clone for Delete<M> {
    fn clone(&self) -> Self {
        Delete { prepared: self.prepared.clone() }
    }
}

/// What an update makes of a row.
pub struct Changes<'r, M: Medium = Mapped> {
    table: &'r Table<M>,
    groups: [Group; 2],
}

impl<M: Medium> Update<M> {
    pub(crate) fn new(engine: &Arc<Root<M>>, table: &Arc<Table<M>>, name: &str) -> Result<Self> {
        Ok(Update { prepared: Prepared::unique(engine, table, name)? })
    }

    /// Passes the newest state of the row with this key to `change`, which [sets](Changes::set)
    /// values, and commits that: it is durable when this returns. Returns what `change` does;
    /// `None` if there is no row. One fence, and those for blocks and for folding; none if nothing
    /// was changed.
    ///
    /// Between what `change` reads and what it sets, nobody else changes the row. It should be
    /// quick, and not change the same row by another statement, which would be refused.
    ///
    /// # Errors
    ///
    /// That of `change`, when the key does not fit, when another statement is changing the row
    /// ([`Error::Conflict`]), when a row has one of the new keys ([`Error::Unique`]), or the pool
    /// is full: nothing was changed then. When the medium met a fault: the row may be changed.
    pub fn run<R>(
        &self,
        key: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        self.prepared.engine.alone(|statement| self.run_by(statement, key, change))
    }

    /// The same as a statement of a transaction, which is durable when this returns, and counts
    /// when the transaction has committed. `change` is passed the row as the transaction sees it.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Update::run), and [`Error::Overtaken`] when the row was changed since the
    /// transaction took its snapshot. Nothing was changed then, and the transaction goes on.
    pub fn run_in<R>(
        &self,
        transaction: &mut Transaction<'_, M>,
        key: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let mut statement = transaction.next_statement(&self.prepared.engine)?;
        self.run_by(&mut statement, key, change)
    }

    fn run_by<R>(
        &self,
        statement: &mut Statement<'_, '_, M>,
        key: &[Value<'_>],
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let Prepared { engine, table, .. } = &self.prepared;
        let Some(key) = self.prepared.key(key)? else { return Ok(None) };
        engine.change(statement, table, self.prepared.index(), &key, |row, groups| {
            let mut changes = Changes { table, groups: groups.clone() };
            let result = change(&Row::new(table, row, groups.clone()), &mut changes)?;
            Ok((Change::Update(changes.groups), result))
        })
    }
}

impl<M: Medium> Delete<M> {
    pub(crate) fn new(engine: &Arc<Root<M>>, table: &Arc<Table<M>>, name: &str) -> Result<Self> {
        Ok(Delete { prepared: Prepared::unique(engine, table, name)? })
    }

    /// Removes the row with this key, and commits that: it is durable when this returns. Returns
    /// whether there was one. One fence, and those for blocks and for folding.
    ///
    /// # Errors
    ///
    /// When the key does not fit, when another statement is changing the row
    /// ([`Error::Conflict`]), or not even what removing needs is left in a full pool: nothing was
    /// changed then. When the medium met a fault: the row may be gone.
    pub fn run(&self, key: &[Value<'_>]) -> Result<bool> {
        self.run_if(key, |_| Ok(true)).map(|removed| removed == Some(true))
    }

    /// Removes the row with this key if `decide` says so. Returns what it said; `None` if there is
    /// no row.
    ///
    /// # Errors
    ///
    /// That of `decide`, and those of [`run`](Delete::run).
    pub fn run_if(
        &self,
        key: &[Value<'_>],
        decide: impl FnOnce(&Row<'_, M>) -> Result<bool>,
    ) -> Result<Option<bool>> {
        self.prepared.engine.alone(|statement| self.run_by(statement, key, decide))
    }

    /// Like [`run`](Delete::run), as a statement of a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Delete::run), and [`Error::Overtaken`] when the row was changed since the
    /// transaction took its snapshot. Nothing was changed then, and the transaction goes on.
    pub fn run_in(&self, transaction: &mut Transaction<'_, M>, key: &[Value<'_>]) -> Result<bool> {
        self.run_if_in(transaction, key, |_| Ok(true)).map(|removed| removed == Some(true))
    }

    /// Like [`run_if`](Delete::run_if), as a statement of a transaction.
    ///
    /// # Errors
    ///
    /// That of `decide`, and those of [`run_in`](Delete::run_in).
    pub fn run_if_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        key: &[Value<'_>],
        decide: impl FnOnce(&Row<'_, M>) -> Result<bool>,
    ) -> Result<Option<bool>> {
        let mut statement = transaction.next_statement(&self.prepared.engine)?;
        self.run_by(&mut statement, key, decide)
    }

    fn run_by(
        &self,
        statement: &mut Statement<'_, '_, M>,
        key: &[Value<'_>],
        decide: impl FnOnce(&Row<'_, M>) -> Result<bool>,
    ) -> Result<Option<bool>> {
        let Prepared { engine, table, .. } = &self.prepared;
        let Some(key) = self.prepared.key(key)? else { return Ok(None) };
        engine.change(statement, table, self.prepared.index(), &key, |row, groups| {
            let is_removed = decide(&Row::new(table, row, groups.clone()))?;
            Ok((if is_removed { Change::Remove } else { Change::Keep }, is_removed))
        })
    }
}

impl<M: Medium> Changes<'_, M> {
    /// Gives a column of the row another value.
    ///
    /// # Errors
    ///
    /// When there is no such column, or the value does not fit it.
    pub fn set<'v>(&mut self, column: usize, value: impl Into<Value<'v>>) -> Result<()> {
        let table = self.table;
        if column >= table.columns.len() {
            let (table, column) = (table.name.clone(), column.to_string());
            return Err(Error::NoSuchColumn { table, column });
        }
        table.set(&mut self.groups, column, &value.into())
    }
}

impl<M: Medium> std::fmt::Debug for Changes<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("table", &self.table.name).finish_non_exhaustive()
    }
}
