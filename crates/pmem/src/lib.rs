//! The medium under Remanent: mapped persistent memory, the pool file and its allocator.
//!
//! - [`Medium`] is the one way to touch pool memory; [`Mapped`] and [`Emulated`] are the media of
//!   production and of research, and the crash simulator brings a third.
//! - [`Pool`] is one file with named roots and room to grow in place.
//! - [`heap::Heap`] is the space of one structure: allocation without fences on the fast path, safe
//!   reclamation, bounded recovery.
//! - [`Fresh`], [`fence`] and [`Link`] carry the discipline of persistent memory in types: an object is
//!   dirty, then flushed, then durable, and only a durable one can be published.
//! - [`order::Method`] has the ordering methods of the nvramdisk paper.
//!
//! # What a pool promises
//!
//! A pool says what it lies on ([`Backing`]) and what survives once a call has returned
//! ([`Durability`]). What a backing cannot give is an error that says why.
#[cfg(test)]
extern crate self as remanent_pmem; // The derive's expansion names this crate.

mod backing;
mod emulated;
pub mod error;
pub mod fresh;
pub mod heap;
mod huge;
mod isa;
pub mod link;
mod mapped;
mod mapping;
pub mod medium;
mod off;
pub mod order;
pub mod persistent;
pub mod pool;
mod sigbus;
mod signals;
#[cfg(target_arch = "x86_64")]
mod summed;
pub mod sync;

pub use backing::{Backing, Durability, Emulation};
pub use emulated::{Emulated, Latency, measure_persist_ns};
pub use error::{Error, Result, StorageLimit};
pub use fresh::{Dirty, Durable, Fenceable, Flushed, Fresh, State, fence};
pub use isa::{FlushInstruction, Isa, isa, lines};
pub use link::{Link, PublishResult, Published, Word};
pub use mapped::Mapped;
pub use medium::{Fault, Frozen, LINE_LEN, Medium, PAGE_LEN, WORD_LEN, crc32c};
pub use off::Off;
pub use persistent::Persistent;
pub use pool::{Format, Guarantee, Options, Pool, PoolInfo};
pub use remanent_macros::Persistent;
pub use signals::ignore_file_size_signal;

/// Sources with flushes and fences, in which mutation testing looks for `// Redundant: reason`.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("src/heap/mod.rs", include_str!("heap/mod.rs")),
    ("src/heap/ops.rs", include_str!("heap/ops.rs")),
    ("src/heap/recover.rs", include_str!("heap/recover.rs")),
    ("src/link.rs", include_str!("link.rs")),
    ("src/pool/chunks.rs", include_str!("pool/chunks.rs")),
    ("src/pool/mod.rs", include_str!("pool/mod.rs")),
    ("src/pool/roots.rs", include_str!("pool/roots.rs")),
    ("src/pool/seal.rs", include_str!("pool/seal.rs")),
    ("src/pool/spares.rs", include_str!("pool/spares.rs")),
    ("src/pool/superblock.rs", include_str!("pool/superblock.rs")),
    ("src/pool/twice.rs", include_str!("pool/twice.rs")),
];
