//! Data structures that live in persistent memory.
//!
//! - [`HashMap`] and [`HashMultiMap`]: a lock-free hash map, after the NVC-Hashmap of HYRISE-NV.
//!
//! Each structure lives under a root of a [`Pool`](remanent_pmem::Pool). When a call returns, its
//! effect survives what the pool's durability covers, and no reader ever acts on something that a crash
//! could still take away.

mod error;
pub mod hashmap;
mod stored;

pub use error::{Error, Result};
pub use hashmap::{Change, HashMap, HashMultiMap};
pub use stored::{Key, Stored};

/// Sources with flushes and fences, in which mutation testing looks for `// Redundant: reason`.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("src/hashmap/buckets.rs", include_str!("hashmap/buckets.rs")),
    ("src/hashmap/iterate.rs", include_str!("hashmap/iterate.rs")),
    ("src/hashmap/list.rs", include_str!("hashmap/list.rs")),
    ("src/hashmap/multi.rs", include_str!("hashmap/multi.rs")),
    ("src/hashmap/ops.rs", include_str!("hashmap/ops.rs")),
    ("src/hashmap/recover.rs", include_str!("hashmap/recover.rs")),
];
