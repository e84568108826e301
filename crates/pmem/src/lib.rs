//! The medium under Remanent: mapped persistent memory, the pool file and its allocator.
//!
//! - [`Medium`] is the only way to access pool memory. [`Mapped`] is the medium of production,
//!   [`Emulated`] that of research; the crash simulator has a third.
//! - [`Pool`] is one file with named roots, which grows in place.
//! - [`heap::Heap`] is the space of one structure: allocation without fences on the fast path, safe
//!   reclamation, bounded recovery.
//! - [`Fresh`], [`fence`] and [`Link`] express the rules of persistent memory in types: an object
//!   is dirty, then flushed, then durable, and only a durable object can be published.
//! - [`order::Method`] has the ordering methods of the nvramdisk paper.
//!
//! # Guarantees of a pool
//!
//! A pool states what it lies on ([`Backing`]), and what survives once a call has returned
//! ([`Durability`]). Asking for a guarantee that the backing cannot give is an error that says why.
#[cfg(test)]
extern crate self as remanent_pmem; // The derive's expansion names this crate.

pub mod error;
pub mod heap;
pub mod medium;
pub mod persistent;
pub mod pool;
mod publish;
pub mod sync;
mod violation;

pub use error::{Error, Result, StorageLimit};
pub use medium::order;
pub use medium::{
    Backing, Durability, Emulated, Emulation, Fault, FlushInstruction, Frozen, Isa, LINE_LEN,
    Latency, Mapped, Medium, PAGE_LEN, WORD_LEN, crc32c, ignore_file_size_signal, isa, lines,
    measure_persist_ns,
};
pub use persistent::{Off, Persistent};
pub use pool::{Format, Guarantee, Options, Pool, PoolInfo};
pub use publish::fresh::{self, Dirty, Durable, Fenceable, Flushed, Fresh, State, fence};
pub use publish::link::{self, Link, PublishResult, Published, Word};
pub use remanent_macros::Persistent;

/// Sources with flushes and fences, in which mutation testing looks for `// Redundant: reason`.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("src/heap/mod.rs", include_str!("heap/mod.rs")),
    ("src/heap/ops.rs", include_str!("heap/ops.rs")),
    ("src/heap/recover.rs", include_str!("heap/recover.rs")),
    ("src/heap/sweep.rs", include_str!("heap/sweep.rs")),
    ("src/pool/directory.rs", include_str!("pool/directory.rs")),
    ("src/pool/double_write.rs", include_str!("pool/double_write.rs")),
    ("src/pool/mod.rs", include_str!("pool/mod.rs")),
    ("src/pool/roots.rs", include_str!("pool/roots.rs")),
    ("src/pool/seal.rs", include_str!("pool/seal.rs")),
    ("src/pool/space/content.rs", include_str!("pool/space/content.rs")),
    ("src/pool/space/give_back.rs", include_str!("pool/space/give_back.rs")),
    ("src/pool/space/growth.rs", include_str!("pool/space/growth.rs")),
    ("src/pool/space/reclaim.rs", include_str!("pool/space/reclaim.rs")),
    ("src/pool/space/take.rs", include_str!("pool/space/take.rs")),
    ("src/pool/superblock.rs", include_str!("pool/superblock.rs")),
    ("src/publish/link.rs", include_str!("publish/link.rs")),
];
