//! Data structures that live in persistent memory.
//!
//! - [`HashMap`] and [`HashMultiMap`]: a lock-free hash map, after the NVC-Hashmap of HYRISE-NV.
//! - [`ExtendibleMap`]: a hash map with buckets of two lines, whose changes of words take one
//!   fence.
//! - [`RowIndex`]: rows by the hash of a key, without a fence of its own.
//! - [`line_tx`]: small objects that change atomically, after the cache-line transactions of PLOS
//!   2019; [`transactional`] makes a struct such an object.
//! - [`batch_list`]: a list whose operations are acknowledged at once and made safe in batches,
//!   after BOPL.
//! - [`BatchMap`]: the same batching under an index.
//! - [`BlinkTree`]: an ordered map.
//! - [`Log`]: records of any length, one after the other.
//! - [`Vector`] and [`AppendVector`]: arrays that grow without moving.
//!
//! [`papers`] has structures as their papers describe them, for comparisons.
//!
//! Each structure lives under a root of a [`Pool`](remanent_pmem::Pool). When a call returns, its
//! effect survives the crashes that the pool's durability covers, and no reader ever acts on a
//! change that a crash could still undo. For structures that work in batches, this holds from the
//! batch or from `sync` on: until then, a crash of the machine may undo the latest changes,
//! although readers have seen them.
//!
//! A panic in a closure that is passed to a structure changes nothing: the operation has no effect,
//! its locks are released, and the structure can be used as before. So all handles are
//! [`UnwindSafe`](std::panic::UnwindSafe), as well as [`Send`] and [`Sync`].

extern crate self as remanent_structures; // The attribute's expansion names this crate.

mod background;
pub mod batch;
pub mod batch_list;
pub mod batch_map;
pub mod blink_tree;
mod count;
mod error;
pub mod extendible;
pub mod hashmap;
mod iterate;
mod key_range;
pub mod line_tx;
pub mod log;
mod map;
mod nesting;
mod options;
mod ordered_map;
mod pair;
pub mod papers;
mod range;
mod segments;
pub mod shared;
mod stored;
pub mod vector;

pub use background::{BatchOptions, Lag};
pub use batch::Batch;
pub use batch_map::{BatchMap, Space};
pub use blink_tree::BlinkTree;
pub use error::{Error, Result};
pub use extendible::rows::{RowId, RowIndex};
pub use extendible::{ExtendibleMap, ExtendibleMultiMap};
pub use hashmap::{HashMap, HashMultiMap};
pub use iterate::Iter;
pub use key_range::{KeyRange, PrefixKey};
pub use line_tx::{SharedTx, Transactional, Tx, TxArray, TxValue};
pub use log::Log;
pub use map::{Change, Map};
pub use options::MapOptions;
pub use ordered_map::OrderedMap;
pub use range::Range;
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{Transactional, transactional};
///
/// #[transactional]
/// struct Account {
///     balance: u64,
/// }
///
/// #[transactional]
/// impl Account {
///     /// An `Err` leaves the account as it was.
///     fn withdraw(&mut self, amount: u64) -> Result<u64, &'static str> {
///         self.balance = self.balance.checked_sub(amount).ok_or("not so much is there")?;
///         Ok(self.balance)
///     }
/// }
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let mut account = Account { balance: 100 }.create(&pool, "account")?;
/// assert_eq!(account.withdraw(30)??, 70); // the pool's result, then the method's
/// assert!(account.withdraw(80)?.is_err());
///
/// let shared = AccountShared::from(account); // for any number of threads
/// assert_eq!(shared.get()?.balance, 70);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The documentation of the macro itself follows.
///
pub use remanent_macros::transactional;
pub use remanent_macros::{Key, OrderedKey, Stored};
#[cfg(feature = "serde")]
pub use stored::{Encoded, EncodingError};
pub use stored::{Key, OrderedKey, Part, PartWriter, Stored};
pub use vector::{AppendVector, Vector};

/// What the expansions of [`transactional`] and of the derives name.
#[doc(hidden)]
pub mod __private {
    pub use remanent_pmem::*;

    pub use crate::line_tx::{SharedTx, Transactional, Tx, require_fits, require_line};
    pub use crate::stored::private::*;
    pub use crate::{Error, Result};

    /// Panics in a method of a trait, whose result cannot say that the medium met a fault.
    ///
    /// # Panics
    ///
    /// Always.
    #[cold]
    #[track_caller]
    pub fn failed(error: Error) -> ! {
        panic!("the transaction was not made durable: {error}")
    }
}

/// Sources with flushes and fences, in which mutation testing looks for `// Redundant: reason`.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("src/batch/intents.rs", include_str!("batch/intents.rs")),
    ("src/batch_list/log.rs", include_str!("batch_list/log.rs")),
    ("src/batch_list/stream.rs", include_str!("batch_list/stream.rs")),
    ("src/batch_map/log.rs", include_str!("batch_map/log.rs")),
    ("src/batch_map/recover.rs", include_str!("batch_map/recover.rs")),
    ("src/batch_map/space.rs", include_str!("batch_map/space.rs")),
    ("src/blink_tree/bulk.rs", include_str!("blink_tree/bulk.rs")),
    ("src/blink_tree/clear.rs", include_str!("blink_tree/clear.rs")),
    ("src/blink_tree/inner.rs", include_str!("blink_tree/inner.rs")),
    ("src/blink_tree/leaf.rs", include_str!("blink_tree/leaf.rs")),
    ("src/blink_tree/ops.rs", include_str!("blink_tree/ops.rs")),
    ("src/blink_tree/recover.rs", include_str!("blink_tree/recover.rs")),
    ("src/blink_tree/shape.rs", include_str!("blink_tree/shape.rs")),
    ("src/blink_tree/step.rs", include_str!("blink_tree/step.rs")),
    ("src/extendible/clear.rs", include_str!("extendible/clear.rs")),
    ("src/extendible/grow.rs", include_str!("extendible/grow.rs")),
    ("src/extendible/join.rs", include_str!("extendible/join.rs")),
    ("src/extendible/multi/chain.rs", include_str!("extendible/multi/chain.rs")),
    ("src/extendible/multi/ops.rs", include_str!("extendible/multi/ops.rs")),
    ("src/extendible/multi/recover.rs", include_str!("extendible/multi/recover.rs")),
    ("src/extendible/nodes.rs", include_str!("extendible/nodes.rs")),
    ("src/extendible/ops.rs", include_str!("extendible/ops.rs")),
    ("src/extendible/ready.rs", include_str!("extendible/ready.rs")),
    ("src/extendible/recover.rs", include_str!("extendible/recover.rs")),
    ("src/extendible/rows/chain.rs", include_str!("extendible/rows/chain.rs")),
    ("src/extendible/rows/grow.rs", include_str!("extendible/rows/grow.rs")),
    ("src/extendible/rows/ops.rs", include_str!("extendible/rows/ops.rs")),
    ("src/extendible/rows/recover.rs", include_str!("extendible/rows/recover.rs")),
    ("src/extendible/segment.rs", include_str!("extendible/segment.rs")),
    ("src/hashmap/buckets.rs", include_str!("hashmap/buckets.rs")),
    ("src/hashmap/entry.rs", include_str!("hashmap/entry.rs")),
    ("src/hashmap/iterate.rs", include_str!("hashmap/iterate.rs")),
    ("src/hashmap/list.rs", include_str!("hashmap/list.rs")),
    ("src/hashmap/multi.rs", include_str!("hashmap/multi.rs")),
    ("src/hashmap/ops.rs", include_str!("hashmap/ops.rs")),
    ("src/hashmap/recover.rs", include_str!("hashmap/recover.rs")),
    ("src/hashmap/step.rs", include_str!("hashmap/step.rs")),
    ("src/line_tx/ops.rs", include_str!("line_tx/ops.rs")),
    ("src/line_tx/recover.rs", include_str!("line_tx/recover.rs")),
    ("src/log/ops.rs", include_str!("log/ops.rs")),
    ("src/log/recover.rs", include_str!("log/recover.rs")),
    ("src/papers/append_list.rs", include_str!("papers/append_list.rs")),
    ("src/papers/bptree/maintain.rs", include_str!("papers/bptree/maintain.rs")),
    ("src/papers/bptree/ops.rs", include_str!("papers/bptree/ops.rs")),
    ("src/papers/bptree/rebuild.rs", include_str!("papers/bptree/rebuild.rs")),
    ("src/papers/bptree/recover.rs", include_str!("papers/bptree/recover.rs")),
    ("src/papers/bptree/shift.rs", include_str!("papers/bptree/shift.rs")),
    ("src/papers/bptree/version.rs", include_str!("papers/bptree/version.rs")),
    ("src/papers/flush_always_list.rs", include_str!("papers/flush_always_list.rs")),
    ("src/papers/table_list.rs", include_str!("papers/table_list.rs")),
    ("src/segments.rs", include_str!("segments.rs")),
    ("src/shared/recovery.rs", include_str!("shared/recovery.rs")),
    ("src/shared/step.rs", include_str!("shared/step.rs")),
    ("src/vector/ops.rs", include_str!("vector/ops.rs")),
    ("src/vector/recover.rs", include_str!("vector/recover.rs")),
];
