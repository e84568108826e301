//! Errors of disks and files.

use remanent_pmem::Error as PoolError;
use remanent_pmem::heap::Violation;

use crate::disk::layout::Shape;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The message for a line that does not fit its checksum.
pub(crate) const LINE_DAMAGED: &str =
    "a line of metadata is damaged, or not the one that belongs here";

/// Errors of operations on disks and files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the pool, its allocator or its medium.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A request reaches beyond the end of the disk.
    #[error(
        "{len} bytes at {offset} reach beyond the end of the disk, which has {size} bytes; \
         make it larger with `Disk::resize`"
    )]
    OutOfRange {
        /// First byte of the request.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes of the disk.
        size: u64,
    },
    /// A block does not hold what was written to it.
    #[error(
        "the block at byte {offset} of the disk, offset {at:#x} of the pool, fails its checksum: \
         it holds {found:#010x}, {expected:#010x} was written; write it anew, from a backup or a \
         snapshot"
    )]
    Checksum {
        /// First byte of the block on the disk.
        offset: u64,
        /// Pool offset of the block.
        at: u64,
        /// Checksum of what is there.
        found: u32,
        /// Checksum of what was written.
        expected: u32,
    },
    /// A disk cannot have the size that was asked for.
    #[error("a disk cannot have {size} bytes: {reason}")]
    Size {
        /// Bytes asked for.
        size: u64,
        /// Which limit it breaks.
        reason: String,
    },
    /// A disk cannot be made with the limits that were asked for.
    #[error("a disk cannot be made with {shape:?}: {reason}")]
    Shape {
        /// The limits that were asked for.
        shape: Shape,
        /// Which limit is wrong, and what it may be.
        reason: String,
    },
    /// A snapshot cannot be made, found or removed.
    #[error("snapshot {name:?}: {reason}")]
    Snapshot {
        /// Name of the snapshot.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A file already has the largest number of extents, and they are too small.
    #[error(
        "a file of {len} bytes cannot be had: its {extents} extents, which are all it can have, \
         end at {capacity} bytes; write less to it, or copy it to a new one in a pool with larger \
         free pieces"
    )]
    FileTooLong {
        /// Bytes that the file was to have.
        len: u64,
        /// Extents that it has.
        extents: usize,
        /// Bytes that they have room for.
        capacity: u64,
    },
    /// The metadata of the disk contradict each other.
    #[error(
        "disk is damaged, {violation}; find all damage with `Disk::check`, and restore the pool \
         from a backup"
    )]
    Damaged {
        /// What was found, where, and what was expected.
        violation: Violation,
    },
}

impl Error {
    /// Whether the pool had no room. Nothing was changed then, and trimming or removing snapshots
    /// helps.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Pool(error) if error.is_full())
    }

    pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> Self {
        Error::Damaged { violation: Violation::new(offset, what) }
    }

    /// The error for a line at this offset that fails its checksum.
    pub(crate) fn damaged_line(offset: u64) -> Self {
        Self::damaged(offset, LINE_DAMAGED)
    }

    /// The error as the pool's traits require it, which know only the pool's errors.
    pub(crate) fn into_pool(self) -> PoolError {
        match self {
            Error::Pool(error) => error,
            Error::Damaged { violation } => PoolError::corrupt(violation.offset, violation.what),
            other => PoolError::corrupt(0, other.to_string()),
        }
    }
}
