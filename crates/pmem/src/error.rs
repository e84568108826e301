//! Errors of pools, which say what to do about them.

use std::path::PathBuf;
use std::{fmt, io};

use rustix::io::Errno;

use crate::medium::fault::Fault;
use crate::pool::root_type::RootType;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the medium, the pool and its allocator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a request.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file does not begin with a pool's superblock.
    #[error(
        "{path} is not a Remanent pool: {reason}; create one with `Options::create`",
        path = path.display()
    )]
    NotAPool {
        /// The file.
        path: PathBuf,
        /// What is missing, and where.
        reason: String,
    },
    /// The pool was written by a version this one cannot read.
    #[error(
        "pool format version {found} cannot be opened: this build reads version {expected}; \
         open it with the release that wrote it"
    )]
    Version {
        /// The version in the superblock.
        found: u32,
        /// The version this build writes.
        expected: u32,
    },
    /// A process holds the pool, maybe this one.
    #[error("{} {}", path.display(), holder_text(*holder))]
    Locked {
        /// The pool file.
        path: PathBuf,
        /// The holder's process id, if it is known. It is this process's own if this process has
        /// the pool open.
        holder: Option<u32>,
    },
    /// The backing cannot give the guarantee that was asked for.
    #[error("{path} cannot give {asked}: {reason}", path = path.display())]
    Unsupported {
        /// The pool file.
        path: PathBuf,
        /// The guarantee that was asked for.
        asked: &'static str,
        /// Why it is not available here, and what to choose instead.
        reason: String,
    },
    /// The pool was opened for inspection, and an operation would have changed its file.
    #[error(
        "{path} was opened for inspection, which changes nothing in the file: it cannot grow; open \
         it with `Options::open`",
        path = path.display()
    )]
    Inspected {
        /// The pool file.
        path: PathBuf,
    },
    /// The file should be accessible to the caller alone
    /// ([`Options::private`](crate::Options::private)), and is not.
    #[error("{path} is not yours alone: {reason}; choose another path", path = path.display())]
    NotPrivate {
        /// The path.
        path: PathBuf,
        /// What others could do.
        reason: String,
    },
    /// No room is left for an allocation below the size that the pool was created for.
    #[error(
        "pool is full: {needed} bytes asked for, {size} of at most {size_max} bytes in use; \
         remove entries, or copy them to a pool created with a larger `Options::size_max`"
    )]
    Full {
        /// Bytes of the allocation that failed.
        needed: u64,
        /// Current size of the pool in bytes.
        size: u64,
        /// Size in bytes up to which the pool grows
        /// ([`Options::size_max`](crate::Options::size_max)).
        size_max: u64,
    },
    /// The pool may grow, but its file system does not give it the room.
    #[error("no room for {needed} bytes in {path}: {limit}", path = path.display())]
    StorageFull {
        /// Bytes that were asked of the file system.
        needed: u64,
        /// The pool file.
        path: PathBuf,
        /// Which limit was met.
        limit: StorageLimit,
    },
    /// A new pool would be too small to hold a value.
    #[error(
        "a pool of {size_max} bytes has no room for a value: its metadata takes {metadata} bytes; \
         ask for {size_min} bytes at least (`Options::size_max`)"
    )]
    TooSmall {
        /// Bytes that were asked for.
        size_max: u64,
        /// Bytes that no value can use.
        metadata: u64,
        /// The smallest size of a pool.
        size_min: u64,
    },
    /// An allocation is larger than any extent.
    #[error("{needed} bytes is more than one allocation can hold ({limit} bytes)")]
    TooLarge {
        /// Bytes asked for.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A root of that name is missing.
    #[error("the pool has no root named {name:?}; it has: {present}")]
    NoSuchRoot {
        /// The name asked for.
        name: String,
        /// The names that exist, comma-separated.
        present: String,
    },
    /// A root of that name exists already.
    #[error("the pool already has a root named {name:?}, of type {found}")]
    RootExists {
        /// The name asked for.
        name: String,
        /// Type of the root that has it.
        found: String,
    },
    /// A root is open in this process, and the operation needs it for itself.
    #[error("root {name:?} is in use; drop every handle to it first")]
    RootInUse {
        /// The root's name.
        name: String,
    },
    /// The medium may leave garbage in lines that were being written, and the structure does not
    /// survive that.
    #[error(
        "root {name:?}: a {structure} does not survive write disturbance, which this pool's medium \
         is declared to have; keep it in a pool on another medium"
    )]
    Disturbed {
        /// The root's name.
        name: String,
        /// The structure's type.
        structure: String,
    },
    /// An object was made for a medium without write disturbance, and is opened on one that is
    /// declared to have it.
    #[error(
        "this {structure} was made for a medium without write disturbance and would not survive \
         it; copy it, in a pool opened without that declaration, to a root made in a pool created \
         with it"
    )]
    Unprotected {
        /// The structure's type.
        structure: String,
    },
    /// A root was opened as another type than it was created with.
    #[error("root {name:?} {}", found.difference_to(expected))]
    WrongType {
        /// The root's name.
        name: String,
        /// Type stored in the pool.
        found: RootType,
        /// Type asked for.
        expected: RootType,
    },
    /// The root directory is full, or a name does not fit in it.
    #[error("cannot name a root {name:?}: {reason}")]
    RootName {
        /// The name asked for.
        name: String,
        /// Which limit it breaks.
        reason: String,
    },
    /// Data in the pool contradict each other.
    #[error("pool is damaged at offset {offset:#x}: {what}; `Pool::check` looks for more")]
    Corrupt {
        /// Pool offset of the contradiction.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// The medium met memory it could not read, write back, or address.
    #[error("{}", fault_text(*.0))]
    Medium(Fault),
}

/// Why a file system gives a pool no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageLimit {
    /// The file system is full.
    FileSystem,
    /// The quota of the file's owner is used up.
    Quota,
    /// A limit of the length of files, of the process or of the file system.
    FileLen,
    /// There is no memory for a file that lies in memory.
    Memory,
}

impl StorageLimit {
    /// The limit that an error of the operating system names.
    pub(crate) fn of(errno: Errno) -> Option<Self> {
        match errno {
            Errno::NOSPC => Some(StorageLimit::FileSystem),
            Errno::DQUOT => Some(StorageLimit::Quota),
            Errno::FBIG => Some(StorageLimit::FileLen),
            Errno::NOMEM => Some(StorageLimit::Memory),
            _ => None,
        }
    }
}

impl fmt::Display for StorageLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StorageLimit::FileSystem => {
                "its file system is full; remove entries, or make room on the file system"
            }
            StorageLimit::Quota => {
                "the disk quota is used up; remove entries, or have the quota raised"
            }
            StorageLimit::FileLen => {
                "the limit of a file's length is reached; remove entries, or raise the limit \
                 (RLIMIT_FSIZE, `ulimit -f`)"
            }
            StorageLimit::Memory => {
                "there is no memory left; remove entries, or give the process or machine more"
            }
        })
    }
}

impl Error {
    /// Whether there was no room, in the pool or on its file system. Nothing was changed then, and
    /// freeing entries helps.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. } | Error::StorageFull { .. })
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Error::Io { action, path: path.into(), source: source.into() }
    }

    /// The error for a contradiction at `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Self {
        Error::Corrupt { offset, what: what.into() }
    }
}

/// Who holds a pool, and how to get it.
fn holder_text(holder: Option<u32>) -> String {
    match holder {
        Some(pid) if pid == std::process::id() => {
            "is open in this process already; use a clone of the `Pool` that has it open, or drop \
             that one, its clones and its structures first"
                .to_owned()
        }
        Some(pid) => {
            format!("is in use by process {pid}; stop it, or wait for it (`Options::wait`)")
        }
        None => "is in use by another process; stop it, or wait for it \
                 (`Options::wait`)"
            .to_owned(),
    }
}

fn fault_text(fault: Fault) -> String {
    match fault {
        Fault::Poisoned(offset) => format!(
            "pool memory at offset {offset:#x} cannot be read: uncorrectable memory error, or the \
             file was truncated while open; restore from a backup, or salvage what is readable"
        ),
        Fault::OutOfRange(offset) => format!(
            "a link leads to offset {offset:#x}, outside the pool: it is damaged; \
             the structure's `check` tells where"
        ),
        Fault::WriteBack(offset, errno) => format!(
            "pool page at offset {offset:#x} could not be written back: {}; \
             what was not acknowledged may be lost, reopen the pool when the device is well",
            io::Error::from_raw_os_error(errno)
        ),
    }
}
