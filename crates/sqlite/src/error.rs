//! Errors of this crate, and their SQLite codes.

use std::ffi::c_int;
use std::io::ErrorKind;
use std::path::PathBuf;

use remanent_pmem::{Durability, Error as PoolError};

use crate::codes;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// All errors of this crate. SQLite gets a number for each, and its log the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the pool, or of its content beside the database's pages.
    #[error(transparent)]
    Pool(#[from] remanent_pmem::Error),
    /// An error of the disk with the database's pages, or of a journal.
    #[error(transparent)]
    Device(#[from] remanent_blockdev::Error),
    /// A parameter of the URI cannot be used.
    #[error("the URI parameter {key}={value} is {reason}")]
    Parameter {
        /// Its name.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// A path names no database in a pool.
    #[error("{path} names no database in a pool: {reason}", path = path.display())]
    Name {
        /// The path as SQLite gave it.
        path: PathBuf,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// The database does not exist, and may not be created.
    #[error(
        "the pool {pool} has no database named {name:?}; open it with permission to create one",
        pool = pool.display()
    )]
    Missing {
        /// The pool file.
        pool: PathBuf,
        /// The database.
        name: String,
    },
    /// The pool is open in this process with another durability.
    #[error(
        "{pool} is open with durability `{open}` in this process, and `{asked}` is asked for; \
         leave durability= out, or close all its databases first",
        pool = pool.display()
    )]
    OtherDurability {
        /// The pool file.
        pool: PathBuf,
        /// The durability that it is open with.
        open: Durability,
        /// The requested durability.
        asked: Durability,
    },
    /// The database is open in this process with its journals in another pool.
    #[error(
        "{database} has its journals in {open} while this process has it open, not in {asked}; \
         name the same pool",
        database = database.display(), open = open.display(), asked = asked.display()
    )]
    OtherJournal {
        /// The database.
        database: PathBuf,
        /// The pool with its journals.
        open: PathBuf,
        /// The requested pool.
        asked: PathBuf,
    },
    /// The database is open for reading only.
    #[error("the database was opened for reading only; open it with mode=rw")]
    ReadOnly,
    /// SQLite cannot be extended.
    #[error("SQLite cannot use this VFS: {reason}")]
    Registration {
        /// What is missing, and what to do.
        reason: String,
    },
}

impl Error {
    /// The number for SQLite: of what is wrong where SQLite has one, else `otherwise`.
    pub(crate) fn code(&self, otherwise: c_int) -> c_int {
        use remanent_blockdev::Error as DeviceError;
        match self {
            Error::Pool(error) | Error::Device(DeviceError::Pool(error)) => {
                pool_code(error, otherwise)
            }
            Error::Device(DeviceError::Checksum { .. }) => codes::IOERR_DATA,
            Error::Device(DeviceError::Damaged { .. }) => codes::CORRUPT,
            Error::Device(DeviceError::Size { .. } | DeviceError::FileTooLong { .. }) => {
                codes::FULL
            }
            Error::Device(_) => otherwise,
            Error::ReadOnly => codes::READONLY,
            Error::Parameter { .. }
            | Error::Name { .. }
            | Error::Missing { .. }
            | Error::OtherDurability { .. }
            | Error::OtherJournal { .. } => codes::CANTOPEN,
            Error::Registration { .. } => codes::ERROR,
        }
    }

    /// Whether a path leads to no pool at all.
    pub(crate) fn is_no_pool(&self) -> bool {
        match self {
            Error::Pool(PoolError::NotAPool { .. }) => true,
            Error::Pool(PoolError::Io { source, .. }) => {
                matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
            }
            _ => false,
        }
    }
}

fn pool_code(error: &PoolError, otherwise: c_int) -> c_int {
    match error {
        PoolError::Locked { .. } => codes::BUSY,
        PoolError::Full { .. } | PoolError::StorageFull { .. } | PoolError::TooSmall { .. } => {
            codes::FULL
        }
        PoolError::NotAPool { .. } => codes::NOTADB,
        PoolError::Corrupt { .. } => codes::CORRUPT,
        _ => otherwise,
    }
}
