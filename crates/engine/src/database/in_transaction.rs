//! Changing the schema by statements of a transaction.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::{Database, Table};
use crate::new_column::NewColumn;
use crate::schema::{NewForeignKey, NewIndex, RESERVED, TableSpec};
use crate::transaction::{Sealed, Transaction};
use crate::{Error, Result};

/// The schema as a transaction sees it, and changes it.
///
/// Each of these is a statement: durable when it returns, there for the transaction's next
/// statements, and taken back with it. Others see the schema as it was until the transaction has
/// committed, and then all of its changes. After a crash the transaction goes on with them. Until
/// it ends, nobody else changes the schema, moves an index, or makes the first sequence: who wants
/// to is refused with [`Error::SchemaBusy`], or waits, as for a row.
///
/// A table is made for the transaction alone. What others do in a table that it has dropped is lost
/// when it commits. An index that it has made, or a foreign key, is kept and checked by statements
/// of others as soon as it is made; one that it has dropped until it has committed. So others may
/// be refused a key by a unique index that they do not see yet, and the transaction itself by one
/// that it has dropped. A column that it has added is for it alone: who names the column by its
/// number before, or after the transaction was given up, may reach another one, or none.
///
/// What a handle knows of a table is as the transaction sees it only if [`table_in`] or one of
/// these methods has made it. One more fence each than the same change by itself, and one more to
/// commit. None of them may be called within a closure that a statement calls, as for
/// [`create_index`](Database::create_index).
///
/// [`table_in`]: Database::table_in
///
/// ```
/// use remanent_engine::{Database, Error, NewColumn, NewIndex, TableSpec, Type};
/// # use remanent_pmem::Pool;
/// # let pool = Pool::options().create_in_memory()?;
/// let shop = Database::create(&pool, "shop")?;
/// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
/// let items = shop.create_table(&spec)?;
/// items.insert(&[1.into()])?;
///
/// let mut migration = shop.begin()?;
/// let new = shop.add_column_in(&mut migration, &items, &NewColumn::nullable("price", Type::U32))?;
/// let (update, price) = (new.prepare_update("primary")?, new.column("price")?);
/// update.run_in(&mut migration, &[1.into()], |_, item| item.set(price, 30))?;
/// shop.create_index_in(&mut migration, &new, &NewIndex::secondary("by_price", ["price"]))?;
/// let orders = TableSpec::new("orders").column("id", Type::U64).primary_key(["id"]);
/// let orders = shop.create_table_in(&mut migration, &orders)?;
/// orders.insert_in(&mut migration, &[1.into()])?;
///
/// assert_eq!(shop.tables(), ["items"]);
/// assert!(shop.table("items")?.column("price").is_err());
/// assert!(matches!(shop.drop_table("items"), Err(Error::SchemaBusy { .. })));
/// migration.commit()?;
/// assert_eq!(shop.tables(), ["items", "orders"]);
/// assert!(shop.table("items")?.prepare_find("by_price").is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<M: Medium> Database<M> {
    /// The table of this name, as a transaction sees it.
    ///
    /// # Errors
    ///
    /// When there is none, or the transaction is over.
    pub fn table_in(&self, transaction: &Transaction<'_, M>, name: &str) -> Result<Table<M>> {
        let own = transaction.view_in(&self.engine)?.own;
        let found = Some(name).filter(|name| !name.starts_with(RESERVED));
        let core = found.and_then(|name| self.engine.table(name, own));
        let core = core.ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })?;
        Ok(Table::for_transaction(&self.engine, core, own))
    }

    /// Names of all tables that a transaction sees, in the order in which they were made.
    ///
    /// # Errors
    ///
    /// When the transaction is over.
    pub fn tables_in(&self, transaction: &Transaction<'_, M>) -> Result<Vec<String>> {
        let own = transaction.view_in(&self.engine)?.own;
        let schema = self.engine.schema.lock(self.engine.medium());
        let tables = schema.tables.iter().filter(|table| table.is_there(own));
        let names = tables.map(|table| &table.name);
        Ok(names.filter(|name| !name.starts_with(RESERVED)).cloned().collect())
    }

    /// Makes a table in a transaction, for which it is there when this returns; for others, once
    /// the transaction has committed.
    ///
    /// # Errors
    ///
    /// Those of [`create_table`](Database::create_table); [`Error::SchemaBusy`],
    /// [`Error::SchemaDeadlock`] and [`Error::InBatch`]. Nothing was changed then, and the
    /// transaction goes on.
    pub fn create_table_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        spec: &TableSpec,
    ) -> Result<Table<M>> {
        if spec.name.starts_with(RESERVED) {
            let reason = format!("names that begin with {RESERVED:?} are the database's own");
            return Err(Error::Schema { table: spec.name.clone(), reason });
        }
        let engine = &self.engine;
        let made = transaction.alter(engine, |author, _| engine.create_table_by(author, spec))?;
        let own = transaction.view_in(engine)?.own;
        Ok(Table::for_transaction(engine, made, own))
    }

    /// Drops a table in a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`drop_table`](Database::drop_table), and of
    /// [`create_table_in`](Database::create_table_in).
    pub fn drop_table_in(&self, transaction: &mut Transaction<'_, M>, name: &str) -> Result<()> {
        if name.starts_with(RESERVED) {
            return Err(Error::NoSuchTable { table: name.to_owned() });
        }
        let engine = &self.engine;
        transaction.alter(engine, |author, _| engine.drop_table_by(author, name))
    }

    /// Adds a column in a transaction. Returns a handle that knows it. If the transaction is given
    /// up, the column's place in rows stays empty, and counts towards what a row can have.
    ///
    /// # Errors
    ///
    /// Those of [`add_column`](Database::add_column), and of
    /// [`create_table_in`](Database::create_table_in).
    pub fn add_column_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        table: &Table<M>,
        column: &NewColumn,
    ) -> Result<Table<M>> {
        let (engine, core) = (&self.engine, self.own(table)?);
        transaction.alter(engine, |author, _| engine.add_column_by(author, core, column))?;
        let own = transaction.view_in(engine)?.own;
        Ok(Table::for_transaction(engine, Arc::clone(core), own))
    }

    /// Makes an index in a transaction. It is by its rows that the index has to be unique, and by
    /// what others have committed.
    ///
    /// # Errors
    ///
    /// Those of [`create_index`](Database::create_index), and of
    /// [`create_table_in`](Database::create_table_in).
    pub fn create_index_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        table: &Table<M>,
        index: &NewIndex,
    ) -> Result<()> {
        let (engine, core) = (&self.engine, self.own(table)?);
        transaction
            .alter(engine, |author, view| engine.create_index_by((author, view), core, index))
    }

    /// Drops an index in a transaction.
    ///
    /// # Errors
    ///
    /// Those of [`drop_index`](Database::drop_index), and of
    /// [`create_table_in`](Database::create_table_in).
    pub fn drop_index_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        table: &Table<M>,
        index: &str,
    ) -> Result<()> {
        let (engine, core) = (&self.engine, self.own(table)?);
        transaction.alter(engine, |author, _| engine.drop_index_by(author, core, index))
    }

    /// Adds a foreign key in a transaction. Its name has to be free for everybody: also of one that
    /// the transaction has dropped.
    ///
    /// # Errors
    ///
    /// Those of [`add_foreign_key`](Database::add_foreign_key), and of
    /// [`create_table_in`](Database::create_table_in).
    pub fn add_foreign_key_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        table: &Table<M>,
        key: &NewForeignKey,
    ) -> Result<()> {
        let (engine, core) = (&self.engine, self.own(table)?);
        transaction
            .alter(engine, |author, view| engine.add_foreign_key_by((author, view), core, key))
    }

    /// Drops a foreign key in a transaction, whose statements do not check it any more.
    ///
    /// # Errors
    ///
    /// Those of [`drop_foreign_key`](Database::drop_foreign_key), and of
    /// [`create_table_in`](Database::create_table_in).
    pub fn drop_foreign_key_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        table: &Table<M>,
        name: &str,
    ) -> Result<()> {
        let (engine, core) = (&self.engine, self.own(table)?);
        transaction.alter(engine, |author, _| engine.drop_foreign_key_by(author, core, name))
    }
}
