//! `remanent-sqlite`: SQLite on persistent memory.
//!
//! Two VFSs for the SQLite that a program links, or that loads this crate as an extension (`libremanent_sqlite.so`):
//!
//! | VFS | database | journals |
//! |---|---|---|
//! | `remanent` | a [`Disk`](remanent_blockdev::Disk) in a pool, as large as the database | files in the same pool |
//! | `remanent-journal` | a file of the default VFS | files in a pool |
//!
//! ```
//! use remanent_sqlite::Host;
//! use rusqlite::{Connection, ffi};
//!
//! # let directory = tempfile::tempdir()?;
//! # let pool = directory.path().join("app.pool");
//! # let pool = pool.display();
//! let host = Host {
//!     vfs_find: ffi::sqlite3_vfs_find as *const (),
//!     vfs_register: ffi::sqlite3_vfs_register as *const (),
//!     uri_parameter: ffi::sqlite3_uri_parameter as *const (),
//!     malloc: ffi::sqlite3_malloc as *const (),
//!     log: ffi::sqlite3_log as *const (),
//!     libversion_number: ffi::sqlite3_libversion_number as *const (),
//!     compileoption_used: ffi::sqlite3_compileoption_used as *const (),
//! };
//! // SAFETY: these are the functions of the fields' names, all of the SQLite that rusqlite links.
//! unsafe { remanent_sqlite::register(&host) }?;
//!
//! let connection = Connection::open(format!("file:{pool}?vfs=remanent"))?;
//! connection.execute_batch("create table t(a); insert into t values (7)")?; // durable, in the pool's class
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # URIs
//!
//! `file:POOL?vfs=remanent` is the database `main` in the pool file `POOL`, and `file:POOL:NAME?vfs=remanent` another one in
//! it. The pool, and the database, are made when SQLite opens them with permission to create. Parameters:
//!
//! | parameter | what it says | else |
//! |---|---|---|
//! | `size=8G` | length that a new pool may grow to | 64 GiB |
//! | `durability=process` or `power` | what a commit survives | what the pool was made for; of a new one, `power` where its backing can give that |
//! | `psow=0` | SQLite is not to rely on bytes beside a write | 1 |
//! | `journal=POOL` | with `remanent-journal`: the pool for the journals | an error |
//! | `emulate=nvram` | for research: lines are flushed as persistent memory needs it | `none` |
//! | `slowdown=150` | for research: percent of its time that each access to the pool takes | 100 |
//! | `batch=0` | for research: SQLite is not told of batches | 1 |
//!
//! # What SQLite is told
//!
//! A write to a disk is atomic, at any length (`SQLITE_IOCAP_ATOMIC` and those of all sizes), and so are writes
//! between `SQLITE_FCNTL_BEGIN_ATOMIC_WRITE` and `COMMIT_ATOMIC_WRITE`, growth among them (`SQLITE_IOCAP_BATCH_ATOMIC`). A SQLite
//! that is built with `SQLITE_ENABLE_BATCH_ATOMIC_WRITE` then commits without a journal, unless its mode is WAL. What SQLite
//! writes while neither a journal nor a log says what was there is kept back until it would sync, and happens as one. Nothing
//! is said of order and of appending, since SQLite takes it to hold for the journals, too, which are written in place and
//! durable when they are synced. Memory mapping is not offered: a disk moves a block with each write.
//!
//! docs/sqlite.md says how to use it from the shell and from Python, what survives what, and what the limits are.
#![deny(unsafe_code)]

mod batch;
mod codes;
mod content;
mod database;
mod error;
mod ffi;
mod file_database;
mod journals;
mod locks;
mod names;
mod pools;
mod settings;
mod slowdown;
mod wal_index;

pub use error::{Error, Result};
pub use ffi::host::Host;
pub use ffi::register::register;
