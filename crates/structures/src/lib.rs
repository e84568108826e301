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
