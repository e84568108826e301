//! What programs use: databases and their tables.

mod dictionaries;
mod foreign_keys;
mod in_transaction;
mod maps;
mod options;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Mapped, Medium, Pool};
use remanent_structures::RowId;

pub use self::options::DatabaseOptions;
use crate::query::{Asked, Delete, Find, Get, Range, Row, Scan, Update, Upsert};
use crate::rebuild::RebuildProgress;
use crate::root::Root;
use crate::schema::{Column, IndexSpec, NewIndex, Placement, RESERVED, TableSpec};
use crate::table;
use crate::transaction::layout::TransactionId;
use crate::transaction::{
    Moment, OpenTransaction, Resumed, Snapshot, Token, Transaction, TransactionOptions,
};
use crate::value::Value;
use crate::{Error, Result};

/// Tables under one root of a pool; see the [crate](crate).
///
/// Clones are handles to one database.
pub struct Database<M: Medium = Mapped> {
    pub(crate) engine: Arc<Root<M>>,
}

impl Database {
    /// Options by which a database is opened, in a pool of any medium.
    pub const fn options() -> DatabaseOptions {
        DatabaseOptions::new()
    }
}

impl<M: Medium> Database<M> {
    /// Creates an empty database under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self> {
        let engine: Arc<Root<M>> = pool.create_root(name)?;
        engine.clock.begin(engine.medium());
        Ok(Database { engine })
    }

    /// Opens an existing database, whatever state a crash left it in: in a time that does not
    /// depend on the number of rows, unless indexes lie in DRAM. Those are
    /// [rebuilt](crate::Rebuild::Wait) by this thread; [`options`](Database::options) has others do
    /// it.
    ///
    /// # Errors
    ///
    /// When there is no such root, it is of another type, or the database is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        DatabaseOptions::new().open(pool, name)
    }

    /// Opens a database, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](Database::open) and [`create`](Database::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self> {
        DatabaseOptions::new().open_or_create(pool, name)
    }

    /// Makes a table: one durable step. Two fences, and those for chunks that the allocator takes.
    ///
    /// # Errors
    ///
    /// When the description is wrong, a table of this name is there, or the pool is full;
    /// [`Error::SchemaBusy`] while an open transaction [has changed the
    /// schema](Database::create_table_in): nothing was changed then. When the medium met a fault.
    pub fn create_table(&self, spec: &TableSpec) -> Result<Table<M>> {
        if spec.name.starts_with(RESERVED) {
            let reason = format!("names that begin with {RESERVED:?} are the database's own");
            return Err(Error::Schema { table: spec.name.clone(), reason });
        }
        let made = self.engine.create_table(spec)?;
        Ok(Table::of(&self.engine, made))
    }

    /// Drops a table: one durable step. Handles to it answer [`Error::NoSuchTable`] from then on,
    /// and what an open transaction has changed in it is gone. Its space comes back when nobody has
    /// the table any more: now, or with the next [`collect`](Database::collect), dropping of a
    /// table, or closing of the database. Two fences, and those for freeing. Looks at every block
    /// of the database.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let database = Database::create(&pool, "db")?;
    /// let spec = TableSpec::new("drafts").column("number", Type::U32).primary_key(["number"]);
    /// let drafts = database.create_table(&spec)?;
    /// database.drop_table("drafts")?;
    /// assert!(matches!(drafts.insert(&[1.into()]), Err(Error::NoSuchTable { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When there is none, another table refers to it ([`Error::Referenced`]), an open transaction
    /// has changed the schema ([`Error::SchemaBusy`]), or not even what dropping needs is left in a
    /// full pool: nothing was changed then. When the medium met a
    /// fault.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        match name.starts_with(RESERVED) {
            true => Err(Error::NoSuchTable { table: name.to_owned() }),
            false => self.engine.drop_table(name),
        }
    }

    /// Makes an index of a table, while others read and change it: one durable step, after which
    /// the index has its name. Until then, nothing reads it. A crash before leaves nothing of it.
    ///
    /// Looks at every row once, and twice for a unique index. While it does so for the second time,
    /// statements are refused keys that other rows have. Statements add words to the
    /// index meanwhile. An index may have any columns. Those that no index had when the table was
    /// made lie with the rest of the row: each row that such an index leads to costs one line more
    /// to compare. Two fences if it is in DRAM, and four if it is in the pool, besides those for
    /// blocks, and for each key of an [ordered](NewIndex::ordered) one.
    ///
    /// ```
    /// use remanent_engine::{Database, NewIndex, Placement, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items")
    ///     .column("number", Type::U32)
    ///     .column("name", Type::Text { max: 20 })
    ///     .primary_key(["number"]);
    /// let items = shop.create_table(&spec)?;
    /// items.insert(&[1.into(), "lamp".into()])?;
    ///
    /// shop.create_index(&items, &NewIndex::unique("by_name", ["name"]))?;
    /// let by_name = items.prepare_get("by_name")?;
    /// let found = by_name.run(&shop.snapshot(), &["lamp".into()], |row| row.get::<u32>(0))?;
    /// assert_eq!(found, Some(1));
    ///
    /// shop.place_index(&items, "by_name", Placement::Dram)?; // `by_name` goes on
    /// assert!(by_name.run(&shop.snapshot(), &["lamp".into()], |_| Ok(()))?.is_some());
    /// shop.drop_index(&items, "by_name")?;
    /// assert!(by_name.run(&shop.snapshot(), &["lamp".into()], |_| Ok(())).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Index`] when the description is wrong, or an index of this name is there.
    /// [`Error::Duplicate`] when it is to be unique, and two rows have the same key;
    /// [`Error::Conflict`] when a transaction that is open decides that; [`Error::SchemaBusy`]
    /// while one has changed the schema. When the pool is full, the table was dropped meanwhile, or
    /// one of its rows is damaged. Nothing was changed then. When the medium met a fault.
    pub fn create_index(&self, table: &Table<M>, index: &NewIndex) -> Result<()> {
        let table = self.own(table)?;
        self.engine.create_index(table, index)
    }

    /// Drops an index, while others read and change its table: one durable step. Statements that
    /// were prepared for it answer [`Error::IndexDropped`] from then on. Its space comes back when
    /// none of them is left: now, or with the next [`collect`](Database::collect), dropping, or
    /// closing of the database. Two fences, and those for freeing. Looks at every block of the
    /// database if the index is in the pool.
    ///
    /// # Errors
    ///
    /// When the table has no such index, it is that of the primary key ([`Error::PrimaryKey`]), or
    /// a foreign key needs it ([`Error::IndexNeeded`]); [`Error::SchemaBusy`] while an open
    /// transaction has changed the schema; when not even what dropping needs is left in a full
    /// pool: nothing was changed then. When the medium met a fault.
    pub fn drop_index(&self, table: &Table<M>, index: &str) -> Result<()> {
        let table = self.own(table)?;
        self.engine.drop_index(table, index)
    }

    /// Moves an index to the pool or to DRAM, while others read and change its table: builds the
    /// other one, exchanges them in one durable step, and frees the old one. Does nothing if the
    /// index lies there.
    ///
    /// Statements that were prepared for it go on. As long as they are there, they keep the space
    /// of the old one, and each execution takes a lock-free look for the new one. A clone of one,
    /// and one that is prepared again, does neither.
    ///
    /// # Errors
    ///
    /// Those of [`create_index`](Database::create_index), but for those of a description, and when
    /// the table has no such index.
    pub fn place_index(&self, table: &Table<M>, index: &str, placement: Placement) -> Result<()> {
        let table = self.own(table)?;
        self.engine.place_index(table, index, placement)
    }

    pub(crate) fn engine(&self) -> &Arc<Root<M>> {
        &self.engine
    }

    /// A table, if it is one of this database.
    pub(crate) fn own<'t>(&self, table: &'t Table<M>) -> Result<&'t Arc<table::Table<M>>> {
        match Arc::ptr_eq(&self.engine, &table.engine) {
            true => Ok(&table.core),
            false => Err(Error::OtherDatabase),
        }
    }

    /// The table of this name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn table(&self, name: &str) -> Result<Table<M>> {
        let found = Some(name).filter(|name| !name.starts_with(RESERVED));
        let core = found.and_then(|name| self.engine.table(name, None));
        let core = core.ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })?;
        Ok(Table::of(&self.engine, core))
    }

    /// Names of all tables, in the order in which they were made.
    pub fn tables(&self) -> Vec<String> {
        let schema = self.engine.schema.lock(self.engine.medium());
        let tables = schema.tables.iter().filter(|table| table.is_there(None));
        let names = tables.map(|table| &table.name);
        names.filter(|name| !name.starts_with(RESERVED)).cloned().collect()
    }

    /// The present moment: everything that was acknowledged by now, and nothing of what comes.
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_, M> {
        Snapshot::of(&self.engine)
    }

    /// Says how long snapshots are kept; an hour if nothing is said. Versions that a later change
    /// leaves behind are kept as long as somebody may read them, and this bounds the space that
    /// they take. Who reads with a snapshot that is not kept any more is told so
    /// ([`Error::SnapshotTooOld`]). Its age counts from the first folding that finds it. What a
    /// transaction sees is kept until it ends.
    pub fn set_snapshot_limit(&self, limit: Duration) {
        self.engine.snapshots.set_limit(limit);
    }

    /// Has statements that are a transaction by themselves wait for who is in their way, so long at
    /// the most; not at all if nothing is said. For those of transactions, there is
    /// [`TransactionOptions::wait`]. So do changes of the schema, also those of transactions while
    /// they look at rows: for a unique index, and for a foreign key.
    pub fn set_wait(&self, limit: Duration) {
        self.engine.waits.set_limit(limit);
    }

    /// Begins a transaction of several statements: see [`Transaction`]. Waits while 256
    /// transactions are open.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn begin(&self) -> Result<Transaction<'_, M>> {
        self.begin_with(&TransactionOptions::new())
    }

    /// Begins a transaction that is as `options` say.
    ///
    /// # Errors
    ///
    /// As for [`begin`](Database::begin).
    pub fn begin_with(&self, options: &TransactionOptions) -> Result<Transaction<'_, M>> {
        Transaction::begin(&self.engine, options)
    }

    /// Goes on with a transaction that was suspended, or whose process was killed, or tells what
    /// became of it. Of transactions that are over, each of 256 slots remembers the last one, and
    /// the last 5 or 6 of which somebody has asked for the [token](Transaction::token); each crash
    /// may take the place of one of them.
    /// No fence, unless its time is over.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while somebody has it, and [`Error::Forgotten`] if it is over and nobody
    /// knows any more how it ended, or that none of its statements took effect. When the medium met
    /// a fault.
    pub fn resume(&self, token: Token) -> Result<Resumed<'_, M>> {
        self.engine.resume(token)
    }

    /// The transactions that can be [resumed](Database::resume); also those whose time is over, and
    /// that nobody has given up yet.
    pub fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.engine.open_transactions()
    }

    /// Has transactions expire by another clock than the machine's, which begins now; and old
    /// snapshots, and statements that [wait](TransactionOptions::wait). While it stands still,
    /// nobody is too late. To be called first: a transaction that was suspended before expires
    /// later by as much as the clock before has shown.
    pub fn set_clock(&self, now: impl Fn() -> Duration + Send + Sync + 'static) {
        self.engine.clock.set(self.engine.medium(), now);
    }

    /// Gives the space of versions back that no snapshot needs, and returns in how many portions: a
    /// row of many versions counts several times. Statements do it beside their work; what is left
    /// is what an earlier process has left, and the latest changes. Also frees what dropped tables
    /// have left. Looks at every row.
    ///
    /// # Errors
    ///
    /// When the head of a row is damaged, or the medium met a fault.
    pub fn collect(&self) -> Result<u64> {
        // A damaged row stays as it is, and what waits beside it is folded.
        let swept = self.engine.sweep();
        let folded = self.engine.collect()?;
        self.engine.finish_altering()?;
        self.engine.free_dropped()?;
        swept.map(|()| folded)
    }

    /// Does a part of what [`collect`](Database::collect) does: folds up to 32 rows that statements
    /// have left, and those of the next tile, of about a thousand rows. Returns false at the end of
    /// a pass over all tiles; the next call begins another one. The last step of a pass also frees
    /// what dropped tables have left: if there were any, that takes a look at every block.
    ///
    /// For programs without threads, or with deadlines, and for simulations.
    ///
    /// # Errors
    ///
    /// As for [`collect`](Database::collect), at the end of a pass if it tells of a row.
    pub fn collect_step(&self) -> Result<bool> {
        self.engine.collect_step()
    }

    /// Does a part of rebuilding the indexes in DRAM, which opening has found empty: reads some
    /// tiles of the table that is wanted most, up to 256 of about a thousand rows; or if all are
    /// read, adds up to about 1,400 words of what was read to the index that is wanted most, or
    /// values to that of a [dictionary](TableSpec::encoded). If other threads have begun with all
    /// that is left, it waits for a moment. Returns false when nothing is left. For programs that
    /// open with [`Rebuild::Steps`](crate::Rebuild::Steps).
    ///
    /// # Errors
    ///
    /// When there is no memory left, or the medium met a fault.
    pub fn rebuild_step(&self) -> Result<bool> {
        self.engine.rebuild_step()
    }

    /// How far the rebuilding of indexes in DRAM has come.
    pub fn rebuild_progress(&self) -> RebuildProgress {
        self.engine.rebuild_progress()
    }

    /// Proves that the database is whole: catalog, tiles and indexes agree, no two rows have a key
    /// that only one may have, each row has the parents that [foreign keys](TableSpec::foreign_key)
    /// name, and exactly the reachable blocks are allocated. No operation may be in progress.
    /// Indexes in DRAM are rebuilt before.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the database is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.engine.check()
    }
}

impl<M: Medium> Clone for Database<M> {
    fn clone(&self) -> Self {
        Database { engine: Arc::clone(&self.engine) }
    }
}

impl<M: Medium> std::fmt::Debug for Database<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("tables", &self.tables()).finish_non_exhaustive()
    }
}

/// A table of a [`Database`].
///
/// Clones are handles to one table.
pub struct Table<M: Medium = Mapped> {
    pub(crate) engine: Arc<Root<M>>,
    pub(crate) core: Arc<table::Table<M>>,
    /// The transaction that the handle was made for.
    pub(crate) of: Option<TransactionId>,
    /// Those that it had when the handle was made.
    columns: Arc<Vec<Column>>,
}

impl<M: Medium> Table<M> {
    pub(crate) fn of(engine: &Arc<Root<M>>, core: Arc<table::Table<M>>) -> Self {
        Self::for_transaction(engine, core, None)
    }

    /// A handle to the table as it is there for a transaction.
    fn for_transaction(
        engine: &Arc<Root<M>>,
        core: Arc<table::Table<M>>,
        of: Option<TransactionId>,
    ) -> Self {
        let columns = core.columns_for(of);
        Table { engine: Arc::clone(engine), core, of, columns }
    }

    /// What statements are prepared for.
    pub(crate) fn asked(&self) -> Asked<'_, M> {
        Asked { engine: &self.engine, table: &self.core, by: self.of }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Its columns, in their order: those that it had when the handle was made. Columns that were
    /// [added](Database::add_column) since are known to [new handles](Database::table).
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The number of the column of this name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn column(&self, name: &str) -> Result<usize> {
        let found = self.columns.iter().position(|column| column.name == name);
        found.ok_or_else(|| Error::NoSuchColumn {
            table: self.core.name.clone(),
            column: name.to_owned(),
        })
    }

    /// Where the index of this name lies.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn placement(&self, index: &str) -> Result<Placement> {
        Ok(self.core.index(index, self.of)?.spec.placement)
    }

    /// Its indexes, as they are now. That of the primary key is named `primary`.
    pub fn indexes(&self) -> Vec<IndexSpec> {
        let is_author = self.core.statuses.is_author(self.of);
        self.core.indexes.load().named(is_author).map(|index| index.spec.clone()).collect()
    }

    /// Adds a row, and commits that: it is durable when this returns. The values are in the order
    /// of the [columns](Table::columns) that the handle knows. One fence; each new tile takes four
    /// or more besides, each division of a hash index's segment two, each
    /// [ordered](TableSpec::ordered) index in the pool two, and each value that an
    /// [encoded](TableSpec::encoded) column has never had one.
    ///
    /// # Errors
    ///
    /// When the values do not fit the columns, a row has one of its keys ([`Error::Unique`]), or is
    /// getting it ([`Error::Conflict`]), it refers to a row that is not there
    /// ([`Error::NoParent`]), or the pool is full: nothing was changed then. When the medium met a
    /// fault: the row may be there.
    pub fn insert(&self, values: &[Value<'_>]) -> Result<RowId> {
        let (engine, columns) = (&self.engine, self.columns.len());
        engine.alone(|statement| engine.insert(statement, &self.core, columns, values))
    }

    /// The same as a statement of a transaction: it is durable when this returns, and counts when
    /// the transaction has committed.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Table::insert), and [`Error::Overtaken`] when a row had one of the keys
    /// at the transaction's moment, and has lost it since. Nothing was changed then, and the
    /// transaction goes on.
    pub fn insert_in(
        &self,
        transaction: &mut Transaction<'_, M>,
        values: &[Value<'_>],
    ) -> Result<RowId> {
        let mut statement = transaction.next_statement(&self.engine)?;
        self.engine.insert(&mut statement, &self.core, self.columns.len(), values)
    }

    /// Prepares to read rows by the keys of a unique index; `primary` is that of the primary key.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// let database = Database::create(&pool, "phones")?;
    /// let spec = TableSpec::new("subscribers")
    ///     .column("id", Type::U32)
    ///     .column("number", Type::Text { max: 15 })
    ///     .primary_key(["id"])
    ///     .unique("by_number", ["number"]);
    /// let subscribers = database.create_table(&spec)?;
    /// subscribers.insert(&[1.into(), "0151".into()])?;
    ///
    /// let by_number = subscribers.prepare_get("by_number")?;
    /// let found = by_number.run(&database.snapshot(), &["0151".into()], |row| row.get::<u32>(0))?;
    /// assert_eq!(found, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such index.
    pub fn prepare_get(&self, index: &str) -> Result<Get<M>> {
        Get::new(self.asked(), index)
    }

    /// Prepares to read all rows with a key of an index.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// let database = Database::create(&pool, "phones")?;
    /// let spec = TableSpec::new("calls")
    ///     .column("id", Type::U32)
    ///     .column("subscriber", Type::U32)
    ///     .primary_key(["id"])
    ///     .index("by_subscriber", ["subscriber"]);
    /// let calls = database.create_table(&spec)?;
    /// for id in 0..10 {
    ///     calls.insert(&[id.into(), (id % 3).into()])?;
    /// }
    ///
    /// let by_subscriber = calls.prepare_find("by_subscriber")?;
    /// let mut count = 0;
    /// by_subscriber.run(&database.snapshot(), &[0.into()], |_| {
    ///     count += 1;
    ///     ControlFlow::<()>::Continue(())
    /// })?;
    /// assert_eq!(count, 4); // calls 0, 3, 6 and 9
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such index.
    pub fn prepare_find(&self, index: &str) -> Result<Find<M>> {
        Find::new(self.asked(), index)
    }

    /// Prepares to read the rows of a range of keys, by an [ordered](TableSpec::ordered) index.
    ///
    /// ```
    /// use std::ops::{Bound, ControlFlow};
    ///
    /// use remanent_engine::{Database, Order, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// let database = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("orders")
    ///     .column("id", Type::U32)
    ///     .column("customer", Type::U32)
    ///     .column("day", Type::U16)
    ///     .primary_key(["id"])
    ///     .index("by_customer", ["customer", "day"])
    ///     .ordered(["by_customer"]);
    /// let orders = database.create_table(&spec)?;
    /// for (id, customer, day) in [(1, 7, 30), (2, 8, 31), (3, 7, 12), (4, 7, 33)] {
    ///     orders.insert(&[id.into(), customer.into(), day.into()])?;
    /// }
    ///
    /// // Orders of customer 7 since day 20, the latest first.
    /// let by_customer = orders.prepare_range("by_customer")?;
    /// let from = [7.into(), 20.into()];
    /// let bounds = (Bound::Included(&from[..]), Bound::Included(&from[..1]));
    /// let mut found = Vec::new();
    /// by_customer.run(&database.snapshot(), bounds, Order::Descending, |row| {
    ///     found.push(row.get::<u32>(0).unwrap_or(0));
    ///     ControlFlow::<()>::Continue(()) // or `Break`, once there are enough
    /// })?;
    /// assert_eq!(found, [4, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such index, or a hash index of this name.
    pub fn prepare_range(&self, index: &str) -> Result<Range<M>> {
        Range::new(self.asked(), index)
    }

    /// Prepares to change rows by the keys of a unique index.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// let database = Database::create(&pool, "bank")?;
    /// let spec = TableSpec::new("accounts")
    ///     .column("number", Type::U32)
    ///     .column("balance", Type::I64)
    ///     .primary_key(["number"]);
    /// let accounts = database.create_table(&spec)?;
    /// accounts.insert(&[1.into(), 100.into()])?;
    ///
    /// let (update, balance) = (accounts.prepare_update("primary")?, accounts.column("balance")?);
    /// let left = update.run(&[1.into()], |row, account| {
    ///     let left = row.get::<i64>(balance)? - 30;
    ///     account.set(balance, left)?;
    ///     Ok(left)
    /// })?;
    /// assert_eq!(left, Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such index.
    pub fn prepare_update(&self, index: &str) -> Result<Update<M>> {
        Update::new(self.asked(), index)
    }

    /// Prepares to remove rows by the keys of a unique index.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// let database = Database::create(&pool, "bank")?;
    /// let spec = TableSpec::new("accounts").column("number", Type::U32).primary_key(["number"]);
    /// let accounts = database.create_table(&spec)?;
    /// accounts.insert(&[1.into()])?;
    ///
    /// let before = database.snapshot();
    /// let delete = accounts.prepare_delete("primary")?;
    /// assert!(delete.run(&[1.into()])?);
    /// assert!(!delete.run(&[1.into()])?);
    /// let get = accounts.prepare_get("primary")?;
    /// assert!(get.run(&before, &[1.into()], |_| Ok(()))?.is_some()); // it was there
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such index.
    pub fn prepare_delete(&self, index: &str) -> Result<Delete<M>> {
        Delete::new(self.asked(), index)
    }

    /// Prepares to insert rows, or to change those that have their keys in a unique index.
    ///
    /// ```
    /// use remanent_engine::{Database, TableSpec, Type, Upserted};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let database = Database::create(&pool, "site")?;
    /// let spec = TableSpec::new("visits")
    ///     .column("page", Type::Text { max: 40 })
    ///     .column("count", Type::U64)
    ///     .primary_key(["page"]);
    /// let visits = database.create_table(&spec)?;
    ///
    /// let (visit, count) = (visits.prepare_upsert("primary")?, visits.column("count")?);
    /// for expected in [None, Some(2), Some(3)] {
    ///     let done = visit.run(&["/".into(), 1.into()], |_, page| {
    ///         page.add(count, 1)?;
    ///         page.get::<u64>(count)
    ///     })?;
    ///     match done {
    ///         Upserted::Inserted(_) => assert_eq!(expected, None),
    ///         Upserted::Changed(count) => assert_eq!(expected, Some(count)),
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such index.
    pub fn prepare_upsert(&self, index: &str) -> Result<Upsert<M>> {
        Upsert::new(self.asked(), index, self.columns.len())
    }

    /// Prepares to read some columns of all rows, or of those that a filter takes, to count them,
    /// and to sum them up.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use remanent_engine::{Database, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let database = Database::create(&pool, "bank")?;
    /// let spec = TableSpec::new("accounts")
    ///     .column("number", Type::U32)
    ///     .column("branch", Type::U8)
    ///     .column("balance", Type::I32)
    ///     .primary_key(["number"]);
    /// let accounts = database.create_table(&spec)?;
    /// for number in 1..=10 {
    ///     accounts.insert(&[number.into(), (number % 2).into(), (number * 10).into()])?;
    /// }
    ///
    /// let (now, scan) = (database.snapshot(), accounts.prepare_scan(["balance", "branch"])?);
    /// assert_eq!(scan.count(&now)?, 10);
    /// // `select sum(balance), max(balance) from accounts where branch = 1`
    /// let of_branch = scan.filter(|row| Ok(row.get::<u8>(1)? == 1));
    /// assert_eq!(of_branch.sum::<i64>(&now, 0)?, Some(250));
    /// assert_eq!(of_branch.max::<i32>(&now, 0)?, Some(90));
    /// // The first two of more than 50: `limit 2`.
    /// let mut found = Vec::new();
    /// scan.filter(|row| Ok(row.get::<i32>(0)? > 50)).run(&now, |row| {
    ///     found.push(row.get::<i32>(0).unwrap_or(0));
    ///     if found.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    /// })?;
    /// assert_eq!(found.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the table has no such column.
    pub fn prepare_scan<'n>(&self, columns: impl IntoIterator<Item = &'n str>) -> Result<Scan<M>> {
        let columns = columns.into_iter().map(|name| self.column(name));
        Scan::new(&self.engine, &self.core, columns)
    }

    /// Passes every row to `visit`, as it was at that moment, until it breaks. In no particular
    /// order.
    ///
    /// # Errors
    ///
    /// When the head of a row is damaged, or the medium met a fault.
    pub fn scan<R>(
        &self,
        moment: &impl Moment<M>,
        visit: impl FnMut(&Row<'_, M>) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        let view = moment.view_in(&self.engine)?;
        if let Some(notes) = moment.notes() {
            notes.add_all(self.engine.medium(), &self.core, view.stamp);
        }
        self.core.scan(view, || self.engine.require_kept(view), visit)
    }
}

impl<M: Medium> Clone for Table<M> {
    fn clone(&self) -> Self {
        let (engine, core) = (Arc::clone(&self.engine), Arc::clone(&self.core));
        Table { engine, core, of: self.of, columns: Arc::clone(&self.columns) }
    }
}

impl<M: Medium> std::fmt::Debug for Table<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.core.name).finish_non_exhaustive()
    }
}
