//! Tables in persistent memory: rows that are durable when the call returns, and there the moment
//! the pool is opened, whatever killed the process that wrote them.
//!
//! A statement writes its row where no reader sees it, and then a record of one line. Both become
//! durable with **one fence**. There is no log beside the rows, and opening has no statement to
//! undo: the records, of which there is a fixed number, tell which statements took effect
//! ([Oukid et al., CIDR 2015](https://www.cidrdb.org/cidr2015/Papers/CIDR15_Paper13.pdf), section
//! 4).
//!
//! ```
//! use remanent_engine::{Database, TableSpec, Type};
//! use remanent_pmem::Pool;
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("bank.pool");
//! let pool = Pool::options().create(&path)?;
//! let bank = Database::create(&pool, "bank")?;
//! let spec = TableSpec::new("accounts")
//!     .column("number", Type::U32)
//!     .column("owner", Type::Text { max: 40 })
//!     .column("balance", Type::I64)
//!     .primary_key(["number"]);
//! let accounts = bank.create_table(&spec)?;
//! accounts.insert(&[1.into(), "Ada".into(), 100.into()])?; // durable when it returns
//! drop((accounts, bank, pool)); // or be killed: it makes no difference
//!
//! let pool = Pool::options().open(&path)?;
//! let bank = Database::open(&pool, "bank")?;
//! let accounts = bank.table("accounts")?;
//! let (by_number, balance) = (accounts.prepare_get("primary")?, accounts.column("balance")?);
//! let found = by_number.run(&bank.snapshot(), &[1.into()], |row| row.get::<i64>(balance))?;
//! assert_eq!(found, Some(100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - **Statements** are atomic, and durable in the pool's class when they return. A statement
//!   changes one row; a [batch](Transaction::batch) is one of many rows.
//! - **Transactions** of several statements have snapshot isolation, and outlive the process: see
//!   [`Transaction`]. They are [serializable](Isolation::Serializable) if that is asked for.
//! - **Snapshots.** A read sees a moment of the whole database, writes nothing to the pool, and
//!   waits for no statement. No reader sees a row that a crash could still take away.
//! - **Indexes** are hash tables, unless they are [ordered](TableSpec::ordered). A hash index has
//!   eight bytes for a row, and no key; an ordered one is a tree of keys. Each row that they lead
//!   to is looked at, so what a crash leaves of them does no harm. A hash index needs no fence of
//!   its own. An ordered one in the pool takes two for each key that it gets or loses.
//! - **Foreign keys** are checked at the statement, or at the end of a batch: a row that
//!   [refers](TableSpec::foreign_key) to another one has it, whatever other transactions do.
//! - **Schema changes** are one durable step each. Indexes are made, dropped, and moved between
//!   pool and DRAM while others read and change their table, and indexes of dictionaries are moved;
//!   foreign keys are added and dropped, and columns added without a look at the table's rows.
//! - **Dictionaries.** A column that is [encoded](TableSpec::encoded) has each value once, and rows
//!   have its number. It gives the same answers as a plain one.
//! - **Copies.** Other databases [apply](Database::apply) what a [gate](Database::set_gate) is told
//!   of each commit, or what a transaction [hands out](Transaction::write_set) before it commits.

#![forbid(unsafe_code)]

mod alter;
mod catalog;
mod database;
mod dictionary;
mod engine;
mod error;
mod foreign;
mod index;
mod new_column;
mod placement;
mod portions;
mod presence;
mod query;
mod rebuild;
mod replicate;
mod root;
mod schema;
mod sequence;
mod table;
mod transaction;
mod value;

pub use remanent_structures::RowId;

pub use self::database::{Database, DatabaseOptions, Table};
pub use self::error::{Error, ErrorKind, Result};
pub use self::foreign::spec::{FOREIGN_KEYS_MAX, ForeignKeySpec};
pub use self::index::map::RowMap;
pub use self::index::order::Order;
pub use self::new_column::NewColumn;
pub use self::placement::{IndexUse, PlacementPlan, PlannedIndex};
pub use self::query::{
    Cells, Changes, Delete, Find, Get, KeyBound, Range, Row, Scan, Update, Upsert,
};
pub use self::rebuild::{Rebuild, RebuildProgress};
pub use self::replicate::{Change, Gate, OwnedValue, SchemaChange, WriteSet};
pub use self::schema::{
    COLUMNS_MAX, Column, INDEXES_MAX, IndexKind, IndexSpec, NAME_LEN_MAX, NewForeignKey, NewIndex,
    POOL_DICTIONARIES_MAX, PRIMARY, Placement, ROW_LEN_MAX, Structure, TableSpec,
};
pub use self::sequence::{Sequence, SequenceSpec};
pub use self::transaction::{
    Durability, ForeignKeys, Isolation, LockMode, Moment, OpenTransaction, Resumed, Snapshot,
    Token, Transaction, TransactionOptions, Upserted,
};
pub use self::value::{FromValue, Type, Value};

/// Sources with flushes and fences, in which mutation testing looks for `// Redundant: reason`.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("src/catalog/drop.rs", include_str!("catalog/drop.rs")),
    ("src/catalog/layout.rs", include_str!("catalog/layout.rs")),
    ("src/catalog/ops.rs", include_str!("catalog/ops.rs")),
    ("src/dictionary/layout.rs", include_str!("dictionary/layout.rs")),
    ("src/dictionary/ops.rs", include_str!("dictionary/ops.rs")),
    ("src/dictionary/recover.rs", include_str!("dictionary/recover.rs")),
    ("src/engine.rs", include_str!("engine.rs")),
    ("src/table/extension.rs", include_str!("table/extension.rs")),
    ("src/table/ops.rs", include_str!("table/ops.rs")),
    ("src/table/recover.rs", include_str!("table/recover.rs")),
    ("src/table/version.rs", include_str!("table/version.rs")),
    ("src/transaction/back.rs", include_str!("transaction/back.rs")),
    ("src/transaction/change.rs", include_str!("transaction/change.rs")),
    ("src/transaction/collect.rs", include_str!("transaction/collect.rs")),
    ("src/transaction/finish.rs", include_str!("transaction/finish.rs")),
    ("src/transaction/list.rs", include_str!("transaction/list.rs")),
    ("src/transaction/ops.rs", include_str!("transaction/ops.rs")),
    ("src/transaction/recover.rs", include_str!("transaction/recover.rs")),
    ("src/transaction/slots.rs", include_str!("transaction/slots.rs")),
    ("src/transaction/sweep.rs", include_str!("transaction/sweep.rs")),
    ("src/transaction/write_out.rs", include_str!("transaction/write_out.rs")),
];
