//! `remanent-blockdev`: a transactional block device in persistent memory.
//!
//! A [`Disk`] lies in a [`Pool`](remanent_pmem::Pool) and is read and written by byte offset. Every write, of any length, is
//! atomic, and durable when it returns; so is every [`Transaction`] of writes all over the disk. After
//! *nvramdisk* (IEEE Transactions on Computers, 2016), with its shadow blocks and a journal of the mapping table, and past
//! it: one fence for up to 64 blocks and two for any number, writers in parallel, checksums of all data and metadata, thin
//! provisioning, trim, snapshots, another size, and an opening that takes the same time for any disk.
//!
//! | operation | fences |
//! |---|---|
//! | read | 0 |
//! | write or transaction of up to 64 blocks, also one that makes the disk larger | 1: the data and the record |
//! | of more; or of so many places that a slot of the journal has no room for the lines | 2: the data, then the record |
//! | where leaves of the map have to be made: the first write to 1.75 MiB, or the first since a snapshot | 2 more for all |
//! | trim, for each 1.75 MiB; snapshot | 1 |
//! | another size | 1; a smaller one 2, and as many as trimming what it cuts off |
//! | removing a snapshot | 3 |
//! | opening; closing | 4 to 6; 2; and with both three of the heap |
//! | where slabs have to be taken from the pool | 4 more for all, up to some 160, that fit into one run of it; 1 more if its file grows |
//!
//! Every checksum is made with what it belongs to (`seal.rs`), so data of one block are never handed out as another's.
//!
//! A disk survives write disturbance (assumption 8 of `docs/model.md`): each line of metadata carries a checksum, and the
//! journal has every line whole that may be on its way to the medium.
//!
//! The paper's own device is [`papers::nvramdisk`], there for comparison.
//!
//! Beside disks there are plain [files](mod@file): bytes that are written in place and durable when they are synced, for what
//! brings its own protection against torn writes, such as the journal of a database on a disk.
//!
//! How it works is said where it is done, in `disk/`: every operation begins in `device.rs`, which calls down to changing
//! blocks (`change.rs`), the map (`map.rs`), what a commit needs (`base.rs`), and the journal (`journal.rs`) or free space
//! (`space.rs`). Snapshots are in `snapshot.rs`, and where everything lies in `layout.rs`.
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
