//! Errors of operations on structures.

use std::path::{Path, PathBuf};

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of operations on structures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the pool, its allocator or its medium.
    #[error(transparent)]
    Pool(#[from] remanent_pmem::Error),
    /// A key, a value or a record is longer than an entry can hold.
    #[error(
        "{what} has {len} bytes, more than the {limit} an entry can hold; \
         split it over several entries"
    )]
    TooLong {
        /// `key`, `value` or `record`.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A step has no room for another operation.
    #[error(
        "the step has no room for another operation: it has {limit} at most, and fewer where values \
         are large, or other threads remove neighbours; commit this one, and go on with another"
    )]
    TooMany {
        /// The largest number of operations.
        limit: usize,
    },
    /// A batch was committed, but not all of its changes could be made.
    #[error(
        "the batch is committed, but not done: {source}; its keys cannot be changed until their maps \
         are opened again, after all their handles were dropped, with room for them: that completes \
         it"
    )]
    Unfinished {
        /// The error that interrupted it.
        source: Box<Error>,
    },
    /// An entry is not as a batch [expects](crate::Batch::expect) it.
    #[error(
        "nothing was changed: an entry that the batch depends on is not as it was expected; read \
         it again, and make a new batch"
    )]
    Conflict,
    /// As many batches as a pool has slots for are committed and not completed.
    #[error(
        "nothing was changed: {limit} batches are committed and not done, and a pool has no room for \
         more; remove entries, drop all handles of these batches' maps, and open them again, which \
         completes them"
    )]
    TooManyUnfinished {
        /// The number of slots.
        limit: usize,
    },
    /// A batch that could not be completed ([`Unfinished`](Error::Unfinished)) is to change the
    /// key, or a key of the map.
    #[error(
        "nothing was changed: a batch that is committed, but not done for want of room, is to \
         change the key, or a key of the map; remove other entries, drop all handles of the batch's \
         maps, and open them again, which completes the batch"
    )]
    Abandoned,
    /// A call would have to wait for a batch, inside of a closure of a map or while this thread
    /// holds a step. The batch may wait for this thread.
    #[error(
        "nothing was changed: inside of a closure of a map, or while it holds a step, a thread \
         cannot wait for a batch, which may wait for this thread; do this before or after"
    )]
    Nested,
    /// A batch was to change a map that shares its heap with other structures.
    #[error(
        "the map shares its heap with other structures, and a batch changes maps under roots of \
         their own; change it with a step, and have the owner of the heap make that atomic"
    )]
    SharedHeap,
    /// A batch was given a map that lies in another pool than the one that it was made for.
    #[error(
        "the map lies in another pool than the one that the batch was made for; a batch is of one \
         pool"
    )]
    OtherPool,
    /// A value cannot be encoded, or stored bytes cannot be decoded.
    #[cfg(feature = "serde")]
    #[error(transparent)]
    Encoding(#[from] crate::stored::EncodingError),
    /// The thread that makes batches safe could not be started, or has ended.
    #[error(
        "no thread makes batches safe any more: {what}; what was not synced by then may be lost to \
         a crash, so close the structure, and open it again once the cause is gone"
    )]
    Persister {
        /// What happened to it.
        what: String,
    },
    /// The bytes of an entry are not those that were written.
    #[error(
        "{}structure {root:?}: the entry at offset {offset:#x} has changed since it was written: \
         its checksum is {stored:#010x}, its bytes give {computed:#010x}; find all damage with the \
         structure's `check`, and restore the pool from a backup",
        pool_prefix(pool)
    )]
    Checksum {
        /// The pool file; empty when the pool is in no file.
        pool: PathBuf,
        /// Name or number of the root.
        root: String,
        /// Pool offset of the entry.
        offset: u64,
        /// The checksum that was stored with it.
        stored: u32,
        /// The checksum of what is there.
        computed: u32,
    },
    /// A link, a length or another word of a structure cannot be what was written.
    #[error(
        "{}structure {root:?} is damaged at offset {offset:#x}: {what}; find all damage with the \
         structure's `check`, and restore the pool from a backup",
        pool_prefix(pool)
    )]
    Corrupt {
        /// The pool file; empty when the pool is in no file.
        pool: PathBuf,
        /// Name or number of the root.
        root: String,
        /// Pool offset of the contradiction.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
}

impl Error {
    /// Whether the pool had no room. Nothing was changed then, and removing entries makes room.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Pool(error) if error.is_full())
    }

    /// The error as the pool reports it when it opens a root.
    pub(crate) fn into_pool(self) -> remanent_pmem::Error {
        match self {
            Error::Pool(error) => error,
            Error::Corrupt { offset, what, .. } => remanent_pmem::Error::Corrupt { offset, what },
            error => remanent_pmem::Error::corrupt(0, error.to_string()),
        }
    }

    /// Whether bytes of the structure are not what was written.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, Error::Checksum { .. } | Error::Corrupt { .. })
    }

    /// The error for an entry at `offset` whose checksum does not match. A fault of the medium
    /// takes precedence, because bytes that cannot be read are shown as zeros.
    #[cold]
    pub(crate) fn checksum<M: Medium>(
        heap: &Heap<M>,
        offset: u64,
        stored: u32,
        computed: u32,
    ) -> Self {
        match heap.verify() {
            Err(fault) => fault.into(),
            Ok(()) => {
                let (pool, root) = place(heap);
                Error::Checksum { pool, root, offset, stored, computed }
            }
        }
    }

    /// The error for damage at `offset` of the structure in `heap`. A fault of the medium takes
    /// precedence, as in [`checksum`](Error::checksum).
    #[cold]
    pub(crate) fn corrupt<M: Medium>(heap: &Heap<M>, offset: u64, what: impl Into<String>) -> Self {
        match heap.verify() {
            Err(fault) => fault.into(),
            Ok(()) => {
                let (pool, root) = place(heap);
                Error::Corrupt { pool, root, offset, what: what.into() }
            }
        }
    }
}

/// The pool file, and the name of the root that a heap belongs to. The root's number stands for its
/// name where the directory is damaged too.
fn place<M: Medium>(heap: &Heap<M>) -> (PathBuf, String) {
    let (pool, owner) = (heap.pool(), heap.owner());
    let root = pool.roots().ok().and_then(|roots| roots.into_iter().find(|root| root.id == owner));
    (pool.path().to_owned(), root.map_or_else(|| owner.0.to_string(), |root| root.name))
}

fn pool_prefix(pool: &Path) -> String {
    if pool.as_os_str().is_empty() { String::new() } else { format!("pool {}, ", pool.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_with_pool_structure_and_offset() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("told.pool");
        let pool = remanent_pmem::Pool::options().size_max(1 << 30).create(&path).unwrap();
        let map: crate::HashMap<u64, u64> = crate::HashMap::create(&pool, "ages").unwrap();
        let told = [
            Error::checksum(map.heap(), 0x40, 1, 2).to_string(),
            Error::corrupt(map.heap(), 0x40, "a link leads backwards").to_string(),
        ];
        for told in told {
            for part in [path.to_str().unwrap(), "\"ages\"", "0x40", "with the structure's `check`"]
            {
                assert!(told.contains(part) && !told.contains("remanent pool"), "{told}");
            }
        }
    }
}
