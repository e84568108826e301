//! The NVB+-Tree.

mod basic;
mod damage;
mod fences;

use remanent_pmem::Medium;
use remanent_structures::{Key, OrderedKey, Stored};

/// A key of trees whose nodes have six entries, so that few make many levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SmallNodes(u64);

impl Stored for SmallNodes {
    const LEN: Option<u32> = Some(8);

    fn type_name() -> String {
        "SmallNodes".to_owned()
    }

    fn with_bytes<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_bytes(use_bytes)
    }

    fn with_stored<R>(bytes: &[u8], use_value: impl FnOnce(&Self) -> R) -> R {
        u64::with_stored(bytes, |key| use_value(&SmallNodes(*key)))
    }
}

impl Key for SmallNodes {
    fn matches<M: Medium>(&self, medium: &M, offset: u64) -> bool {
        self.0.matches(medium, offset)
    }
}

impl OrderedKey for SmallNodes {
    const NODE_ENTRIES_MAX: usize = 6;

    fn with_ordered<R>(&self, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        self.0.with_ordered(use_bytes)
    }

    fn from_ordered<R>(bytes: &[u8], use_key: impl FnOnce(&Self) -> R) -> R {
        u64::from_ordered(bytes, |key| use_key(&SmallNodes(*key)))
    }
}
