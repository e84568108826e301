//! What the commands need from the map they work on.

mod batch;
mod form;
mod map;
mod tree;
mod volatile;
mod volatile_tree;

pub use batch::BatchStore;
pub use form::Form;
pub use map::MapStore;
pub use remanent_structures::Change;
pub use volatile::Volatile;
pub use volatile_tree::VolatileTree;

use std::borrow::Borrow;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use remanent_pmem::{Medium, Pool};
use remanent_structures::OrderedMap;

/// Name of the root under which a server keeps its entries.
pub const ROOT: &str = "redis";
/// Name of the root under which a server keeps the members of sorted sets.
pub const TREE_ROOT: &str = "redis sorted sets";

/// Why a store did not do what it was asked.
///
/// Nothing was changed then, but in a store that works in batches: if its thread has failed, the change is there and
/// may not become durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No room is left; removing entries helps.
    #[error("the pool is full")]
    Full,
    /// An entry is longer than the store can hold, in words for the client.
    #[error("{0}")]
    Refused(String),
    /// Anything else, in words for the client.
    #[error("{0}")]
    Failed(String),
}

impl From<remanent_structures::Error> for StoreError {
    fn from(error: remanent_structures::Error) -> Self {
        match error {
            error if error.is_full() => StoreError::Full,
            error @ remanent_structures::Error::TooLong { .. } => {
                StoreError::Refused(error.to_string())
            }
            error => StoreError::Failed(error.to_string()),
        }
    }
}

/// What `INFO` and the start line tell of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The pool file.
    pub path: String,
    /// Where the bytes live: `dax`, `memory`, `file`.
    pub backing: String,
    /// What an acknowledged write survives: `process` or `power`.
    pub durability: String,
    /// Medium emulated for research, or `none`.
    pub emulation: String,
    /// Bytes that the pool occupies.
    pub used_bytes: u64,
    /// Bytes that it may grow to.
    pub size_max_bytes: u64,
    /// Whether it had been closed cleanly before it was opened.
    pub opened_clean: bool,
}

impl Description {
    fn of<M: Medium>(pool: &Pool<M>) -> Self {
        let guarantee = pool.guarantee();
        let blocks = std::fs::metadata(&guarantee.path).map_or(0, |metadata| metadata.blocks());
        Description {
            path: guarantee.path.display().to_string(),
            backing: guarantee.backing.to_string(),
            durability: guarantee.durability.to_string(),
            emulation: guarantee.emulation.to_string(),
            // The system counts in 512 bytes, whatever the file system's own blocks are.
            used_bytes: blocks * 512,
            size_max_bytes: pool.size_max(),
            opened_clean: pool.was_clean(),
        }
    }
}

/// How far what is safe may lag behind what was acknowledged, and how far it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that are acknowledged and not safe.
    pub bytes: u64,
    /// At so many bytes a writer waits until they are safe.
    pub bytes_max: u64,
    /// After half of this, what is not safe begins to be made so.
    pub age_max: Duration,
}

/// A map from byte strings to byte strings, shared by all connections.
///
/// Every call is atomic. When it returns, what it did is durable in the store's class, or [`lag`] says
/// how far from that the store may be and [`sync`] waits for it.
///
/// What is passed to [`get_with`], [`modify`] and [`scan`] runs while the store may hold a lock, so it must
/// not use the store.
///
/// [`lag`]: Store::lag
/// [`sync`]: Store::sync
/// [`get_with`]: Store::get_with
/// [`modify`]: Store::modify
/// [`scan`]: Store::scan
pub trait Store: Send + Sync + 'static {
    /// The ordered map beside the entries.
    type Tree: OrderedMap<[u8], [u8]>;

    /// Lets `read` see the value of `key`; `None` when there is none.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError>;

    /// Replaces the value of `key` by a function of it, as one step. `change` may run several
    /// times; what its last run returned counts.
    ///
    /// # Errors
    ///
    /// When there is no room, or the store cannot be written.
    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError>;

    /// Takes all entries away, as one step.
    ///
    /// # Errors
    ///
    /// When the store cannot be written.
    fn clear(&self) -> Result<(), StoreError>;

    /// Entries there are.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn len(&self) -> Result<u64, StoreError>;

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.len()? == 0)
    }

    /// Visits about `limit` entries from `cursor` on and returns the cursor for the next call, or 0
    /// when that was all. Entries present throughout a scan from 0 to 0 are visited at least once.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn scan(
        &self,
        cursor: u64,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError>;

    /// Waits until everything that was acknowledged before the call is durable. May take as long as a
    /// disk does.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: then nothing more is known to be safe.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How far what is safe lags behind; `None` where everything is durable when it is acknowledged.
    fn lag(&self) -> Option<Lag> {
        None
    }

    /// What the medium has met that keeps it from storing, or from reading, in words; it stays until the pool is opened
    /// again.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Where the entries live and what they survive.
    fn describe(&self) -> Description;

    /// An ordered map beside the entries, for values that have an order; `None` when there has been no need of one.
    ///
    /// Each of its calls is durable when it returns, also in a store that works in batches.
    fn tree(&self) -> Option<&Self::Tree>;

    /// The ordered map, made if it is not there.
    ///
    /// # Errors
    ///
    /// When there is no room for it.
    fn create_tree(&self) -> Result<&Self::Tree, StoreError>;

    /// Called by a thread that waits for another one.
    fn pause(&self) {
        std::thread::yield_now();
    }
}
