//! What the commands need from the map they work on.

mod batch;
mod form;
mod map;
mod volatile;

pub use batch::BatchStore;
pub use form::Form;
pub use map::MapStore;
pub use volatile::Volatile;

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use remanent_pmem::{Medium, Pool};

/// Name of the root under which a server keeps its entries.
pub const ROOT: &str = "redis";

/// What becomes of an entry that [`Store::modify`] looked at.
pub type Change = remanent_structures::Change<Vec<u8>>;

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
    /// Anything else, in words for the client.
    #[error("{0}")]
    Failed(String),
}

impl From<remanent_structures::Error> for StoreError {
    fn from(error: remanent_structures::Error) -> Self {
        if error.is_full() { StoreError::Full } else { StoreError::Failed(error.to_string()) }
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

    /// Whether `key` has a value.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn contains(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Gives `key` a value, whether or not it has one.
    ///
    /// # Errors
    ///
    /// When there is no room, or the store cannot be written.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Gives `key` a value if it has none; says whether it did.
    ///
    /// # Errors
    ///
    /// When there is no room, or the store cannot be written.
    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, StoreError>;

    /// Gives `key` a value if it has one already; says whether it did.
    ///
    /// # Errors
    ///
    /// When there is no room, or the store cannot be written.
    fn replace(&self, key: &[u8], value: &[u8]) -> Result<bool, StoreError>;

    /// Takes `key` away; says whether it was there.
    ///
    /// # Errors
    ///
    /// When the store cannot be written.
    fn remove(&self, key: &[u8]) -> Result<bool, StoreError>;

    /// Replaces the value of `key` by a function of it, as one step. `change` may run several
    /// times; what its last run returned counts.
    ///
    /// # Errors
    ///
    /// When there is no room, or the store cannot be written.
    fn modify<R>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> (Change, R),
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

    /// Where the entries live and what they survive.
    fn describe(&self) -> Description;
}

/// The first byte of every stored value: what kind of value follows.
///
/// Kinds that come later take other numbers, so a pool written today stays readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) u8);

impl Tag {
    /// A byte string.
    pub(crate) const STRING: Tag = Tag(0);

    /// The name that `TYPE` and `SCAN … TYPE` know it by.
    pub(crate) fn name(self) -> &'static str {
        if self == Tag::STRING { "string" } else { "unknown" }
    }

    /// The kind of a stored value.
    pub(crate) fn of(stored: &[u8]) -> Tag {
        Tag(stored.first().copied().unwrap_or(u8::MAX))
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
