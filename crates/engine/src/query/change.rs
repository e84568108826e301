//! Prepared changes of one row by a key.

use remanent_pmem::{Mapped, Medium};
use remanent_structures::RowId;

use super::Row;
use super::number::Number;
use super::prepared::{Asked, Prepared};
use super::row::{convert, no_column, value_of};
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::ops::{Group, copy_of};
use crate::transaction::Transaction;
use crate::transaction::change::Change;
use crate::transaction::statement::Statement;
use crate::value::{FromValue, Value};
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
///
/// It begins as the row is, and has the values that were set since. So an update sees the old row
/// and the new one, and can return something of both:
///
/// ```
/// use remanent_engine::{Database, Error, TableSpec, Type};
/// # use remanent_pmem::Pool;
/// # let pool = Pool::options().create_in_memory()?;
/// let database = Database::create(&pool, "bank")?;
/// let spec = TableSpec::new("accounts")
///     .column("number", Type::U32)
///     .column("balance", Type::U16)
///     .primary_key(["number"]);
/// let accounts = database.create_table(&spec)?;
/// accounts.insert(&[1.into(), 100.into()])?;
///
/// let (update, balance) = (accounts.prepare_update("primary")?, accounts.column("balance")?);
/// let old_and_new = update.run(&[1.into()], |old, new| {
///     new.add(balance, -30)?; // set balance = balance - 30
///     Ok((old.get::<u16>(balance)?, new.get::<u16>(balance)?))
/// })?;
/// assert_eq!(old_and_new, Some((100, 70)));
/// let refused = update.run(&[1.into()], |_, account| account.add(balance, -80));
/// assert!(matches!(refused, Err(Error::Overflow { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Changes<'r, M: Medium = Mapped> {
    table: &'r Table<M>,
    /// By which index and key the row was found.
    index: &'r Index<M>,
    key: &'r Key,
    groups: [Group; 2],
}

impl<M: Medium> Update<M> {
    pub(crate) fn new(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Ok(Update { prepared: Prepared::unique(table, name)? })
    }

    /// Passes the newest state of the row with this key to `change`, which [sets](Changes::set)
    /// values, and commits that: it is durable when this returns. Returns what `change` does;
    /// `None` if there is no row. One fence, and those for blocks, for folding, and for values that
    /// an [encoded](crate::TableSpec::encoded) column has never had; none if nothing was changed.
    ///
    /// Between what `change` reads and what it sets, nobody else changes the row. It should be
    /// quick, and not change the same row by another statement, which would be refused.
    ///
    /// # Errors
    ///
    /// That of `change`, when the key does not fit, when another statement is changing the row
    /// ([`Error::Conflict`]), when a row has one of the new keys ([`Error::Unique`]), when a
    /// foreign key speaks against it ([`Error::NoParent`], [`Error::HasChildren`]), or the pool is
    /// full: nothing was changed then. When the medium met a fault: the row may be changed.
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
    /// transaction took its snapshot; [`Error::Ambiguous`] when the index was
    /// [made](crate::Database::create_index) since, and two rows had the key at its moment. Nothing
    /// was changed then, and the transaction goes on.
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
        let Some(key) = self.prepared.key(key, statement.view.own)? else { return Ok(None) };
        let index = self.prepared.index();
        engine.change(statement, table, index, &key, |row, groups| {
            Changes::made(table, (index, &key), (row, groups), change)
        })
    }
}

impl<M: Medium> Delete<M> {
    pub(crate) fn new(table: Asked<'_, M>, name: &str) -> Result<Self> {
        Ok(Delete { prepared: Prepared::unique(table, name)? })
    }

    /// Removes the row with this key, and commits that: it is durable when this returns. Returns
    /// whether there was one. One fence, and those for blocks and for folding.
    ///
    /// # Errors
    ///
    /// When the key does not fit, when another statement is changing the row ([`Error::Conflict`]),
    /// when others refer to the row ([`Error::HasChildren`]), or not even what removing needs is
    /// left in a full pool: nothing was changed then. When the medium met a fault: the row may be
    /// gone.
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

    /// Removes the row with this key, and returns what `read` makes of it; `None` if there is no
    /// row.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let database = Database::create(&pool, "queue")?;
    /// let spec = TableSpec::new("jobs")
    ///     .column("number", Type::U32)
    ///     .column("what", Type::Text { max: 20 })
    ///     .primary_key(["number"]);
    /// let jobs = database.create_table(&spec)?;
    /// jobs.insert(&[1.into(), "sweep".into()])?;
    /// let delete = jobs.prepare_delete("primary")?;
    /// let what = delete.take(&[1.into()], |job| Ok(job.get::<&str>(1)?.to_owned()))?;
    /// assert_eq!(what.as_deref(), Some("sweep"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of `read`, after which the row is still there, and those of [`run`](Delete::run).
    pub fn take<R>(
        &self,
        key: &[Value<'_>],
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        self.prepared.engine.alone(|statement| self.take_by(statement, key, read))
    }

    /// Like [`take`](Delete::take), as a statement of a transaction.
    ///
    /// # Errors
    ///
    /// That of `read`, and those of [`run_in`](Delete::run_in).
    pub fn take_in<R>(
        &self,
        transaction: &mut Transaction<'_, M>,
        key: &[Value<'_>],
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let mut statement = transaction.next_statement(&self.prepared.engine)?;
        self.take_by(&mut statement, key, read)
    }

    fn take_by<R>(
        &self,
        statement: &mut Statement<'_, '_, M>,
        key: &[Value<'_>],
        read: impl FnOnce(&Row<'_, M>) -> Result<R>,
    ) -> Result<Option<R>> {
        let mut taken = None;
        self.run_by(statement, key, |row| {
            taken = Some(read(row)?);
            Ok(true)
        })?;
        Ok(taken)
    }

    /// Like [`run`](Delete::run), as a statement of a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Delete::run), and [`Error::Overtaken`] when the row was changed since the
    /// transaction took its snapshot; [`Error::Ambiguous`] when the index was
    /// [made](crate::Database::create_index) since, and two rows had the key at its moment. Nothing
    /// was changed then, and the transaction goes on.
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
        let Some(key) = self.prepared.key(key, statement.view.own)? else { return Ok(None) };
        engine.change(statement, table, self.prepared.index(), &key, |row, groups| {
            let is_removed = decide(&Row::new(table, row, copy_of(groups)))?;
            Ok((if is_removed { Change::Remove } else { Change::Keep }, is_removed))
        })
    }
}

impl<'r, M: Medium> Changes<'r, M> {
    /// What `change` makes of a row, and what it returns.
    pub(super) fn made<R>(
        table: &'r Table<M>,
        (index, key): (&'r Index<M>, &'r Key),
        (row, groups): (RowId, &[Group; 2]),
        change: impl FnOnce(&Row<'_, M>, &mut Changes<'_, M>) -> Result<R>,
    ) -> Result<(Change, R)> {
        let mut changes = Changes { table, index, key, groups: copy_of(groups) };
        let result = change(&Row::new(table, row, copy_of(groups)), &mut changes)?;
        table.format.cells.trim(&mut changes.groups[1]);
        Ok((Change::Update(changes.groups), result))
    }

    /// Gives a column of the row another value.
    ///
    /// # Errors
    ///
    /// When there is no such column, or the value does not fit it: it keeps the one that it has.
    pub fn set<'v>(&mut self, column: usize, value: impl Into<Value<'v>>) -> Result<()> {
        let table = self.table;
        let Some(cell) = table.format.cells.get(column) else {
            return Err(no_column(table, column));
        };
        let before = Group::from_slice(&self.groups[cell.group]);
        let set = table.set(&mut self.groups, column, &value.into());
        if set.is_err() {
            self.groups[cell.group] = before;
        }
        set
    }

    /// Adds to the number in a column: `set x = x + amount`. NULL stays NULL.
    ///
    /// # Errors
    ///
    /// [`Error::Overflow`] when the sum does not fit the column; for DOUBLE, when finite numbers
    /// have an infinite sum. When there is no such column, it has no numbers, or `amount` is of
    /// another kind. The column keeps its value then.
    pub fn add<'v>(&mut self, column: usize, amount: impl Into<Value<'v>>) -> Result<()> {
        let (table, amount) = (self.table, amount.into());
        let before = Number::of(self.value(column)?);
        let cell = table.format.cells.get(column).ok_or_else(|| no_column(table, column))?;
        let of_type = cell.of_type;
        let Some(of_amount) = Number::of(amount).filter(|amount| amount.is_of(of_type)) else {
            return Err(table.refused(column, format!("{amount} cannot be added to {of_type}")));
        };
        let Some(before) = before else { return Ok(()) };
        let sum = before.plus(of_amount).and_then(Number::value);
        match sum.map(|sum| self.set(column, sum)) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if !matches!(error, Error::Value { .. }) => Err(error),
            _ => {
                let reason = format!("{before} + {amount} does not fit {of_type}");
                Err(self.overflow(column, reason))
            }
        }
    }

    /// The value that a column has by now.
    ///
    /// # Errors
    ///
    /// As for [`Row::value`].
    pub fn value(&self, column: usize) -> Result<Value<'_>> {
        value_of(self.table, &self.groups, column)
    }

    /// The value that a column has by now, as `T`.
    ///
    /// # Errors
    ///
    /// As for [`Row::get`].
    pub fn get<'v, T: FromValue<'v>>(&'v self, column: usize) -> Result<T> {
        convert(self.table, column, self.value(column)?)
    }

    #[cold]
    fn overflow(&self, column: usize, reason: String) -> Error {
        let Changes { table, index, key, .. } = self;
        Error::Overflow {
            table: table.name.clone(),
            column: table.column_name(column),
            index: index.spec.name.clone(),
            key: key.tell(&table.format, &index.spec),
            reason,
        }
    }
}

impl<M: Medium> std::fmt::Debug for Changes<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changes").field("table", &self.table.name).finish_non_exhaustive()
    }
}
