//! Errors of the engine.

use remanent_pmem::Error as PoolError;
use remanent_structures::{Error as StructureError, RowId};

use crate::transaction::Token;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of operations on a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the pool, its allocator or its medium.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An error of an index.
    #[error(transparent)]
    Structure(StructureError),
    /// A table cannot be made as it was described.
    #[error("table {table:?} cannot be made: {reason}")]
    Schema {
        /// Name of the table.
        table: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// An index cannot be made as it was described.
    #[error("index {index:?} of table {table:?} cannot be made: {reason}")]
    Index {
        /// Name of the table.
        table: String,
        /// The name that it was to have.
        index: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A column cannot be added as it was described.
    #[error("column {column:?} cannot be added to table {table:?}: {reason}")]
    Column {
        /// Name of the table.
        table: String,
        /// The name that it was to have.
        column: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A unique index cannot be made, because two rows have the same values in its columns.
    #[error(
        "index {index:?} of table {table:?} cannot be unique: rows {} and {} have the same key \
         ({key}); change or remove one of them, and try again",
        rows[0].get(), rows[1].get()
    )]
    Duplicate {
        /// Name of the table.
        table: String,
        /// The name that the index was to have.
        index: String,
        /// The key, as a person writes it.
        key: String,
        /// The rows.
        rows: [RowId; 2],
    },
    /// A unique index was made after the moment that is read, and two rows had the same key then.
    #[error(
        "table {table:?}: rows {} and {} had the same {index:?} key ({key}) at the moment that is \
         read, which is older than the index; read it by another index, or scan the table",
        rows[0].get(), rows[1].get()
    )]
    Ambiguous {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// The key, as a person writes it.
        key: String,
        /// The rows.
        rows: [RowId; 2],
    },
    /// A statement was prepared for an index that was dropped since.
    #[error(
        "table {table:?}: index {index:?} was dropped after the statement was prepared; prepare it \
         for another index (`Table::indexes` lists those that are there)"
    )]
    IndexDropped {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// The index of the primary key was to be dropped.
    #[error(
        "table {table:?}: the index of the primary key cannot be dropped, as long as the table is \
         there; `Database::place_index` moves it"
    )]
    PrimaryKey {
        /// Name of the table.
        table: String,
    },
    /// A foreign key cannot be made as it was described.
    #[error("foreign key {foreign_key:?} of table {table:?} cannot be made: {reason}")]
    ForeignKey {
        /// Name of the table.
        table: String,
        /// The name that it was to have.
        foreign_key: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The table has no foreign key of this name.
    #[error(
        "table {table:?} has no foreign key {foreign_key:?}; `Table::foreign_keys` lists those \
         that it has"
    )]
    NoSuchForeignKey {
        /// Name of the table.
        table: String,
        /// The name that was asked for.
        foreign_key: String,
    },
    /// An index was to be dropped that a foreign key needs.
    #[error(
        "table {table:?}: index {index:?} is needed by the foreign key {foreign_key:?} of table \
         {of:?}; drop that first (`Database::drop_foreign_key`)"
    )]
    IndexNeeded {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// Name of the foreign key.
        foreign_key: String,
        /// Name of the table that has the foreign key.
        of: String,
    },
    /// A table was to be dropped to which another one refers.
    #[error(
        "table {table:?} cannot be dropped: foreign key {foreign_key:?} of table {by:?} refers to \
         it; drop that first (`Database::drop_foreign_key`), or the table that has it"
    )]
    Referenced {
        /// Name of the table.
        table: String,
        /// Name of the table that refers to it.
        by: String,
        /// Name of the foreign key.
        foreign_key: String,
    },
    /// There is no table of this name.
    #[error("there is no table {table:?}; `Database::tables` lists those that are there")]
    NoSuchTable {
        /// The name that was asked for.
        table: String,
    },
    /// The table has no column of this name.
    #[error("table {table:?} has no column {column:?}")]
    NoSuchColumn {
        /// Name of the table.
        table: String,
        /// The name that was asked for.
        column: String,
    },
    /// The column has no dictionary.
    #[error(
        "column {column:?} of table {table:?} has no dictionary: `TableSpec::encoded` gives one to a \
         column when the table is made"
    )]
    NotEncoded {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// The table has no index of this name, or it is none by which single rows are read.
    #[error(
        "table {table:?} has no index {index:?}, or not a unique one, as reading single rows needs \
         it; `primary` is that of the primary key, and others have the names that they were given"
    )]
    NoSuchIndex {
        /// Name of the table.
        table: String,
        /// The name that was asked for.
        index: String,
    },
    /// A hash index, by which no ranges are read.
    #[error(
        "table {table:?}: index {index:?} has no order; `TableSpec::ordered` makes ordered \
         indexes, by which ranges are read"
    )]
    NotOrdered {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// A statement has another number of values than the table has columns, or the index has.
    #[error(
        "table {table:?}: {expected} values are needed, in the order of the columns: got {got}"
    )]
    Values {
        /// Name of the table.
        table: String,
        /// Values that are needed.
        expected: usize,
        /// Values that were given.
        got: usize,
    },
    /// A value does not fit its column.
    #[error("table {table:?}, column {column:?}: {reason}")]
    Value {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// What the value is, and what would fit.
        reason: String,
    },
    /// A number became greater or less than its column can have.
    #[error(
        "table {table:?}, column {column:?}: {reason}, in the row with the {index:?} key ({key}); \
         nothing was changed"
    )]
    Overflow {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Name of the index by which the row was found.
        index: String,
        /// Its key there, as a person writes it.
        key: String,
        /// What was added, and what would fit.
        reason: String,
    },
    /// The sum of a column is greater or less than the type that it was asked for.
    #[error(
        "table {table:?}, column {column:?}: the sum {sum} does not fit {asked}; ask for a wider type"
    )]
    SumOverflow {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// The sum.
        sum: String,
        /// The type that was asked for.
        asked: &'static str,
    },
    /// A row with this key is there.
    #[error(
        "table {table:?}: a row with the same {index:?} key ({key}) is there, row {}; nothing was \
         changed",
        row.get()
    )]
    Unique {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// The key, as a person writes it.
        key: String,
        /// The row that has it.
        row: RowId,
    },
    /// A row would refer to a row that is not there.
    #[error(
        "table {table:?}: foreign key {foreign_key:?} refers to a row of table {parent:?} with the \
         key ({key}), and there is none; nothing was changed; insert that row first, or both in \
         one batch (`Transaction::batch`)"
    )]
    NoParent {
        /// Name of the table.
        table: String,
        /// Name of its foreign key.
        foreign_key: String,
        /// The key that was looked for, as a person writes it.
        key: String,
        /// Name of the table that it refers to.
        parent: String,
    },
    /// A row that others refer to was to be removed, or to get another key.
    #[error(
        "table {table:?}: foreign key {foreign_key:?} of table {child:?} refers to the row with \
         the key ({key}), from row {}; nothing was changed; change or remove the rows that refer \
         to it first, or all in one batch (`Transaction::batch`)",
        row.get()
    )]
    HasChildren {
        /// Name of the table of the row that others refer to.
        table: String,
        /// Name of the foreign key.
        foreign_key: String,
        /// The key, as a person writes it.
        key: String,
        /// Name of the table that has the foreign key.
        child: String,
        /// A row of that table that refers to it.
        row: RowId,
    },
    /// Another statement is inserting, changing or removing a row with the key, and is not done; or
    /// another transaction has locked the row.
    #[error(
        "table {table:?}: {} is changing a row with this {index:?} key ({key}), or has locked it; \
         nothing was changed, and trying again may succeed; so may waiting \
         (`TransactionOptions::wait`)",
        holder_name(*holder)
    )]
    Conflict {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// The key, as a person writes it.
        key: String,
        /// The open transaction that is in the way; `None` for a statement that is one. How it ends
        /// is remembered if its owner asks for its token; otherwise, ask for it soon, and before
        /// the database is opened again.
        holder: Option<Token>,
    },
    /// Another transaction has changed the schema, and is open: until it ends, nobody else changes
    /// it.
    #[error(
        "{} has changed the schema, and is open; nothing was changed, and trying again may succeed \
         once it has ended; so may waiting (`TransactionOptions::wait`, `Database::set_wait`)",
        holder_name(*holder)
    )]
    SchemaBusy {
        /// The open transaction that is in the way.
        holder: Option<Token>,
    },
    /// The same, and that transaction waits for this one.
    #[error(
        "{} has changed the schema, and waits for this transaction; nothing was changed; give this \
         one up, and begin again",
        holder_name(*holder)
    )]
    SchemaDeadlock {
        /// The open transaction that is in the way.
        holder: Option<Token>,
    },
    /// The transaction that is in a statement's way waits for the statement's own.
    #[error(
        "table {table:?}: {} has the row with this {index:?} key ({key}), and waits for this \
         transaction; nothing was changed; give this one up, and begin again",
        holder_name(*holder)
    )]
    Deadlock {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// The key, as a person writes it.
        key: String,
        /// The open transaction that is in the way.
        holder: Option<Token>,
    },
    /// The row, or one with the key, was changed by a transaction that has committed since this one
    /// took its snapshot. Trying again is of no use until the transaction sees what was committed.
    #[error(
        "table {table:?}: the row with this {index:?} key ({key}) was changed since the \
         transaction began; nothing was changed; begin again, or let it see what was committed \
         since (`Transaction::refresh`)"
    )]
    Overtaken {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// The key, as a person writes it.
        key: String,
    },
    /// Others have changed what a [serializable](crate::Isolation::Serializable) transaction has
    /// read, so that it cannot be as if all of it had happened at its commit. It was given up.
    #[error(
        "{}{what}; the transaction was given up; begin again, and make all of it anew",
        table.as_ref().map_or_else(String::new, |table| format!("table {table:?}: "))
    )]
    NotSerializable {
        /// Name of the table; `None` if it is not known what the transaction has read.
        table: Option<String>,
        /// What was changed.
        what: String,
    },
    /// A snapshot is older than snapshots are kept.
    #[error(
        "the snapshot is older than {limit:?}, and what it would see is not kept any more; take \
         another one; `Database::set_snapshot_limit` says how long snapshots are kept"
    )]
    SnapshotTooOld {
        /// How long snapshots are kept.
        limit: std::time::Duration,
    },
    /// A statement of a transaction that was committed, given up, or suspended.
    #[error("the transaction is over; begin another one")]
    TransactionEnded,
    /// A transaction has as many statements as it can have.
    #[error("a transaction has {limit} statements at the most; commit it, and begin another one")]
    TooManyStatements {
        /// The limit.
        limit: u32,
    },
    /// A batch, or a transaction that is durable at its commit, needs more space at once than one
    /// thread can take.
    #[error(
        "so many changes cannot be made durable at once, in a pool as full as this one; nothing \
         was changed; divide the batch"
    )]
    TooMuchAtOnce,
    /// The last statement of a transaction cannot be one of a batch.
    #[error("a batch is in progress; the transaction can be committed when it has ended")]
    InBatch,
    /// In a batch, or a last statement, its transaction was exchanged for another one.
    #[error(
        "in its batch, or its last statement, transaction {token} was exchanged for another one; \
         what the batch has changed is lost, and the transaction can only be given up"
    )]
    Exchanged {
        /// The transaction.
        token: Token,
    },
    /// Statements of a transaction were to be taken back, and some of them could not be.
    #[error(
        "statements of transaction {token} were to be taken back, and not all of them could be; \
         it can only be given up. `Database::check` says what is damaged"
    )]
    HalfTakenBack {
        /// The transaction.
        token: Token,
    },
    /// A slot has had as many transactions as can be numbered.
    #[error("the database has had as many transactions as it can number; copy it to a new one")]
    TooManyTransactions,
    /// A transaction that somebody else goes on with.
    #[error("transaction {token} is in use: somebody else goes on with it")]
    InUse {
        /// Its name.
        token: Token,
    },
    /// A transaction that is over, and after which there were many others.
    #[error(
        "transaction {token} is over, and how it ended is not known any more: each slot keeps the \
         outcomes of the last 6 transactions whose token somebody asked for before they ended, and \
         of the last one"
    )]
    Forgotten {
        /// Its name.
        token: Token,
    },
    /// A text that names no transaction.
    #[error("{text:?} names no transaction: a token has 16 hexadecimal digits")]
    NoToken {
        /// The text.
        text: String,
    },
    /// A sequence cannot be made, or set, as it was described.
    #[error("sequence {sequence:?}: {reason}")]
    Sequence {
        /// Name of the sequence.
        sequence: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// There is no sequence of this name.
    #[error("there is no sequence {sequence:?}; `Database::sequences` lists those that are there")]
    NoSuchSequence {
        /// The name that was asked for.
        sequence: String,
    },
    /// A sequence has given out all of its numbers.
    #[error(
        "sequence {sequence:?} has no more numbers in its range {}..={}; `Sequence::restart` has it \
         begin again, and `SequenceSpec::cycling` makes one that does so by itself",
        range.start(), range.end()
    )]
    SequenceExhausted {
        /// Name of the sequence.
        sequence: String,
        /// Its range.
        range: std::ops::RangeInclusive<i64>,
    },
    /// A snapshot or a transaction of one database was used for a table of another.
    #[error("the snapshot or transaction is of another database than the table")]
    OtherDatabase,
    /// The gate has given up on a commit ([`Gate::wait`](crate::Gate::wait)).
    #[error(
        "commit {stamp} is durable here, and counts, but the gate did not confirm it; ask those \
         that follow the database whether they have it"
    )]
    Unconfirmed {
        /// Its stamp.
        stamp: u64,
    },
    /// More values than the dictionary of a column can have.
    #[error("column {column:?} of table {table:?} has had as many values as a dictionary can have")]
    TooManyValues {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
    },
    /// More rows than a table can have.
    #[error("table {table:?} has as many rows as a table can have")]
    TooManyRows {
        /// Name of the table.
        table: String,
    },
}

fn holder_name(holder: Option<Token>) -> String {
    holder.map_or_else(|| "another statement".to_owned(), |token| format!("transaction {token}"))
}

/// What a program does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody was in the way of the call: make it again.
    Conflict,
    /// Others were first, or the transaction was given up: make all of it again. `refresh` is
    /// enough for one that has not relied on what it has read.
    Restart,
    /// Another row, or another table, speaks against what was asked for.
    Constraint,
    /// A limit of the pool or the database was reached, or the pool is full.
    Exhausted,
    /// There is nothing of this name.
    NotFound,
    /// The call is none that can be made, whatever others do: a value that does not fit, or a
    /// transaction that is over.
    Usage,
    /// A commit is durable, and the gate did not confirm it.
    Unconfirmed,
    /// The pool is damaged, or its medium met a fault.
    Storage,
}

impl Error {
    /// What a program does about it.
    ///
    /// ```
    /// use remanent_engine::{Database, ErrorKind, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items").column("number", Type::U8).primary_key(["number"]);
    /// let items = shop.create_table(&spec)?;
    /// items.insert(&[1.into()])?;
    /// assert_eq!(items.insert(&[1.into()]).unwrap_err().kind(), ErrorKind::Constraint);
    /// assert_eq!(items.insert(&[256.into()]).unwrap_err().kind(), ErrorKind::Usage);
    /// assert_eq!(shop.table("customers").unwrap_err().kind(), ErrorKind::NotFound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            _ if self.is_full() => ErrorKind::Exhausted,
            Error::Pool(_) | Error::Structure(_) => ErrorKind::Storage,
            Error::Conflict { .. } | Error::SchemaBusy { .. } | Error::InUse { .. } => {
                ErrorKind::Conflict
            }
            Error::Deadlock { .. }
            | Error::SchemaDeadlock { .. }
            | Error::Overtaken { .. }
            | Error::NotSerializable { .. }
            | Error::SnapshotTooOld { .. }
            | Error::HalfTakenBack { .. } => ErrorKind::Restart,
            Error::Unique { .. }
            | Error::NoParent { .. }
            | Error::HasChildren { .. }
            | Error::Duplicate { .. }
            | Error::IndexNeeded { .. }
            | Error::Referenced { .. } => ErrorKind::Constraint,
            Error::TooManyStatements { .. }
            | Error::TooMuchAtOnce
            | Error::TooManyTransactions
            | Error::TooManyValues { .. }
            | Error::TooManyRows { .. }
            | Error::SequenceExhausted { .. } => ErrorKind::Exhausted,
            Error::NoSuchTable { .. }
            | Error::NoSuchColumn { .. }
            | Error::NoSuchIndex { .. }
            | Error::NoSuchForeignKey { .. }
            | Error::NoSuchSequence { .. }
            | Error::IndexDropped { .. }
            | Error::Forgotten { .. } => ErrorKind::NotFound,
            Error::Schema { .. }
            | Error::Index { .. }
            | Error::Column { .. }
            | Error::ForeignKey { .. }
            | Error::PrimaryKey { .. }
            | Error::NotEncoded { .. }
            | Error::NotOrdered { .. }
            | Error::Ambiguous { .. }
            | Error::Values { .. }
            | Error::Value { .. }
            | Error::Overflow { .. }
            | Error::SumOverflow { .. }
            | Error::TransactionEnded
            | Error::InBatch
            | Error::Exchanged { .. }
            | Error::NoToken { .. }
            | Error::Sequence { .. }
            | Error::OtherDatabase => ErrorKind::Usage,
            Error::Unconfirmed { .. } => ErrorKind::Unconfirmed,
        }
    }

    /// Whether the pool had no room. Nothing was changed then.
    pub fn is_full(&self) -> bool {
        match self {
            Error::Pool(error) => error.is_full(),
            Error::Structure(error) => error.is_full(),
            _ => false,
        }
    }

    /// Whether the same call may succeed when it is made again, because another transaction was in
    /// its way.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Conflict { .. } | Error::SchemaBusy { .. })
    }

    /// Whether it tells that bytes of the pool have changed.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Pool(PoolError::Corrupt { .. })
                | Error::Structure(StructureError::Corrupt { .. })
        )
    }

    /// The error as the pool reports it when it opens a root.
    pub(crate) fn into_pool(self) -> PoolError {
        match self {
            Error::Pool(error) | Error::Structure(StructureError::Pool(error)) => error,
            Error::Structure(StructureError::Corrupt { offset, what, .. }) => {
                PoolError::corrupt(offset, what)
            }
            error => PoolError::corrupt(0, error.to_string()),
        }
    }
}

impl From<StructureError> for Error {
    fn from(error: StructureError) -> Self {
        match error {
            StructureError::Pool(error) => Error::Pool(error),
            error => Error::Structure(error),
        }
    }
}
