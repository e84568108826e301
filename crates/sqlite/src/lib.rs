//! `remanent-sqlite`: SQLite on persistent memory.
//!
//! The crate has two VFSs for a SQLite that a program links, or that loads this crate as an
//! extension (`libremanent_sqlite.so`):
//!
//! | VFS | database | journals |
//! |---|---|---|
//! | `remanent` | a [`Disk`] in a pool, as large as the database | files in the same pool |
//! | `remanent-journal` | a file of the default VFS | files in a pool |
//!
//! [`Disk`]: remanent_blockdev::Disk
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
//! // Durable in the pool's class when it returns.
//! connection.execute_batch("create table t(a); insert into t values (7)")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # URIs
//!
//! `file:POOL?vfs=remanent` is the database `main` in the pool file `POOL`;
//! `file:POOL:NAME?vfs=remanent` is the database `NAME` in it. Pool and database are created when
//! SQLite opens them with permission to create. Parameters:
//!
//! | parameter | meaning | default |
//! |---|---|---|
//! | `size=8G` | size to which a new pool may grow | 64 GiB |
//! | `durability=process` or `power` | what a commit survives | see below |
//! | `psow=0` | SQLite must not rely on bytes beside a write | 1 |
//! | `journal=POOL` | with `remanent-journal`: the pool for the journals | an error |
//! | `emulate=nvram` | for research: flushes lines as persistent memory needs it | `none` |
//! | `slowdown=150` | for research: time of each access to the pool, in percent | 100 |
//! | `batch=0` | for research: hides batches from SQLite | 1 |
//!
//! Without `durability`, an existing pool keeps its own. A new pool gets `power`, if its backing
//! can give that.
//!
//! # Device characteristics
//!
//! A write to a disk is atomic, at any length (`SQLITE_IOCAP_ATOMIC` and those of all sizes). So
//! are all writes between `SQLITE_FCNTL_BEGIN_ATOMIC_WRITE` and `COMMIT_ATOMIC_WRITE`, including
//! growth (`SQLITE_IOCAP_BATCH_ATOMIC`). A SQLite that is built with
//! `SQLITE_ENABLE_BATCH_ATOMIC_WRITE` then commits without a journal, except in WAL mode. Writes
//! that neither a journal nor a log can undo are held back until SQLite would sync, and then take
//! effect atomically. Nothing is stated about order and appending, because SQLite applies these
//! characteristics to the journals, too, which are written in place and durable after a sync.
//! Memory mapping is not offered, because a disk moves a block with each write.
//!
//! docs/sqlite.md describes the use from the shell and from Python, the guarantees and the limits.
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
