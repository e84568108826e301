//! `remanent-blockdev`: a transactional block device in persistent memory.
//!
//! A [`Disk`] lies in a [`Pool`](remanent_pmem::Pool) and is read and written by byte offset. Every
//! write, of any length, is atomic, and durable when it returns. So is every [`Transaction`], whose
//! writes may go anywhere on the disk.
//!
//! The design follows *nvramdisk* (IEEE Transactions on Computers, 2016), with its shadow blocks
//! and a journal of the mapping table. It adds: one fence for up to 64 blocks and two for any
//! number, parallel writers, checksums of all data and metadata, thin provisioning, trim,
//! snapshots, resizing, and an opening that takes the same time for any disk.
//!
//! | operation | fences |
//! |---|---|
//! | read | 0 |
//! | write or transaction of up to 64 blocks, even if the disk grows | 1: data and record |
//! | of more blocks, or of lines that do not fit a slot of the journal | 2: data, then record |
//! | either of them, if it makes leaves of the map | 2 more for all leaves |
//! | either of them, if it takes slabs from the pool | 4 more per run of up to some 160 slabs |
//! | either of them, if the pool's file grows for these slabs | 1 more |
//! | trim, for each 1.75 MiB; making a snapshot | 1 |
//! | making the disk larger | 1 |
//! | making the disk smaller | 2, and those of trimming what it cuts off |
//! | removing a snapshot | 3 |
//! | opening | 4 to 6, and 3 of the heap |
//! | closing | 2, and 3 of the heap |
//!
//! A write makes a leaf of the map if it is the first to 1.75 MiB of the disk, or the first there
//! since a snapshot.
//!
//! Every checksum covers the place of its data (`seal.rs`), so data of one block are never handed
//! out as another's.
//!
//! A disk survives write disturbance (assumption 8 of `docs/model.md`). Each line of metadata
//! carries a checksum, and the journal has a complete copy of every line that may be on its way to
//! the medium.
//!
//! [`papers::nvramdisk`] is the paper's own device, for comparison.
//!
//! The crate also has plain [files](mod@file): bytes that are written in place, and are durable
//! after a sync. They are for content with its own protection against torn writes, such as the
//! journal of a database on a disk.
//!
//! The modules of `disk/`, from top to bottom:
//!
//! | module | what it does |
//! |---|---|
//! | `device.rs` | begins every operation, and calls down |
//! | `change.rs`, `read.rs`, `snapshot.rs`, `resize.rs` | one kind of operation each |
//! | `map.rs`, `tree.rs` | find the block of a logical block |
//! | `base.rs` | lanes, new blocks, commits |
//! | `journal.rs`, `record.rs` | make any set of lines change atomically |
//! | `space.rs`, `slabs.rs` | free blocks; slabs from the pool |
//! | `layout.rs` | draws every byte |
#![forbid(unsafe_code)]

mod damage;
mod disk;
mod error;
pub mod file;
mod line;
pub mod papers;
mod seal;

#[doc(hidden)]
pub use damage::{Lines, MapEntry};
pub use disk::{
    BLOCK_LEN, CheckScope, Disk, DiskInfo, Extent, SIZE_MAX, SNAPSHOT_COUNT, SNAPSHOT_NAME_LEN,
    Shape, Snapshot, SnapshotInfo, Transaction,
};
pub use error::{Error, Result};

/// Sources with flushes and fences, in which mutation testing looks for `// Redundant: reason`.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("src/disk/journal.rs", include_str!("disk/journal.rs")),
    ("src/disk/map.rs", include_str!("disk/map.rs")),
    ("src/disk/recover.rs", include_str!("disk/recover.rs")),
    ("src/disk/slabs.rs", include_str!("disk/slabs.rs")),
    ("src/file/ops.rs", include_str!("file/ops.rs")),
    ("src/file/pair.rs", include_str!("file/pair.rs")),
    ("src/file/recover.rs", include_str!("file/recover.rs")),
    ("src/papers/nvramdisk/ops.rs", include_str!("papers/nvramdisk/ops.rs")),
    ("src/papers/nvramdisk/recover.rs", include_str!("papers/nvramdisk/recover.rs")),
];
