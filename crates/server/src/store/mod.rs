//! The maps that have a server's entries, behind one trait.

mod batch;
mod convert;
mod form;
mod map;
mod tree;
mod volatile;
mod volatile_tree;

pub use batch::BatchStore;
pub use convert::{Conversion, convert};
pub use form::{Form, has_two_maps};
pub use map::MapStore;
pub use remanent_structures::Change;
pub use volatile::Volatile;
pub use volatile_tree::VolatileTree;

use std::borrow::Borrow;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use remanent_pmem::{Medium, Pool};
use remanent_structures::OrderedMap;

/// Name of the root under which a server keeps its entries, if these become safe in batches or an
/// older version made the pool.
pub const ROOT: &str = "redis";
/// Name of the root under which a server keeps its entries, if they are in an `ExtendibleMap` and
/// there is no [`ROOT`].
pub const TABLE_ROOT: &str = "redis entries";
/// Name of an empty root that is there while [`convert`] copies entries to [`TABLE_ROOT`].
pub const CONVERSION_ROOT: &str = "redis conversion";
/// Name of the root under which a server keeps its ordered map. The map has the entries of all
/// collections; the name is from the time when these were sorted sets alone.
pub const TREE_ROOT: &str = "redis sorted sets";

/// Why an operation of a store failed.
///
/// Nothing was changed, with one exception: when the thread of a store that works in batches has
/// failed, the change is there, and may not become durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No room is left. Removing entries makes room.
    #[error("the pool is full")]
    Full,
    /// An entry is longer than the store can hold. The text is for the client.
    #[error("{0}")]
    Refused(String),
    /// Any other reason. The text is for the client.
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

/// What `INFO` and the server's first line of output say of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Path of the pool file.
    pub path: String,
    /// What the pool file lies on: `dax`, `memory` or `file`.
    pub backing: String,
    /// What an acknowledged write survives: the end of the `process`, or a loss of `power`.
    pub durability: String,
    /// The medium that is emulated for research, or `none`.
    pub emulation: String,
    /// Bytes that the pool occupies.
    pub used_bytes: u64,
    /// Bytes that the pool may grow to.
    pub size_max_bytes: u64,
    /// Whether the pool had been closed properly before it was opened.
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
            // The system counts in units of 512 bytes, whatever the block size of the file system
            // is.
            used_bytes: blocks * 512,
            size_max_bytes: pool.size_max(),
            opened_clean: pool.was_clean(),
        }
    }
}

/// How far safe writes lag behind acknowledged ones, and how far they may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that are acknowledged and not safe yet.
    pub bytes: u64,
    /// Most such bytes: a writer that would exceed this waits.
    pub bytes_max: u64,
    /// Greatest age of such bytes. At half of it, the store begins to make them safe.
    pub age_max: Duration,
}

/// What becomes of one of several entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'e> {
    /// The key.
    pub key: &'e [u8],
    /// The value that it gets; `None` to remove its entry.
    pub value: Option<&'e [u8]>,
}

/// A map from byte strings to byte strings, shared by all connections.
///
/// Every call is atomic. When it returns, its effect is durable in the store's class. In a store
/// that works in batches the effect becomes durable later: [`lag`] says how much later at most, and
/// [`sync`] waits for it.
///
/// Closures that are passed to [`get_with`], [`modify`] and [`scan`] must not use the store, which
/// may hold a lock while it calls them.
///
/// [`lag`]: Store::lag
/// [`sync`]: Store::sync
/// [`get_with`]: Store::get_with
/// [`modify`]: Store::modify
/// [`scan`]: Store::scan
pub trait Store: Send + Sync + 'static {
    /// The ordered map beside the map of entries.
    type Tree: OrderedMap<[u8], [u8]>;

    /// Calls `read` with the value of `key`; `None` if there is none.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError>;

    /// Begins to fetch the entries of some keys into the CPU's caches, which are read or written
    /// soon. It is a hint, which changes nothing.
    fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) {
        let _ = keys;
    }

    /// Replaces the value of `key` by a function of it, as one step. `change` may be called several
    /// times, of which the last call counts.
    ///
    /// # Errors
    ///
    /// When there is no room, or the store cannot be written.
    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError>;

    /// Stores values and removes entries. Returns for each edit whether its key had a value before.
    ///
    /// If the store supports it, a crash leaves all of the edits or none. This default makes the
    /// edits one after the other.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Store::modify).
    fn apply(&self, edits: &[Edit<'_>]) -> Result<Vec<bool>, StoreError> {
        let edit = |edit: &Edit<'_>| {
            self.modify(edit.key, |old| {
                (edit.value.map_or(Change::Remove, Change::Put), old.is_some())
            })
        };
        edits.iter().map(edit).collect()
    }

    /// Removes all entries, as one step.
    ///
    /// # Errors
    ///
    /// When the store cannot be written.
    fn clear(&self) -> Result<(), StoreError>;

    /// How many entries there are.
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

    /// Visits about `limit` entries from `cursor` on, and returns the cursor for the next call, or
    /// 0 after the last entry. An entry that is there throughout a scan from 0 to 0 is visited at
    /// least once.
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

    /// Waits until everything that was acknowledged before the call is durable, which may take as
    /// long as a disk needs.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: then nothing is known to have become safe.
    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How far safe writes lag behind acknowledged ones; `None` if acknowledged writes are durable.
    fn lag(&self) -> Option<Lag> {
        None
    }

    /// The fault that the medium has met, in words: it cannot store, or cannot be read. It stays
    /// until the pool is opened again.
    fn fault(&self) -> Option<String> {
        None
    }

    /// Where the entries lie, and what they survive.
    fn describe(&self) -> Description;

    /// The ordered map, which has the entries of collections; `None` if it has not been made yet.
    ///
    /// What a call of it did is durable when the call returns, also in a store that works in
    /// batches.
    fn tree(&self) -> Option<&Self::Tree>;

    /// The ordered map, which is made if there is none.
    ///
    /// # Errors
    ///
    /// When there is no room for it.
    fn create_tree(&self) -> Result<&Self::Tree, StoreError>;

    /// Makes changes to the ordered map, in their order, each durable when the call returns. They
    /// may share fences. This is not one step: a crash may leave any of them done and others not.
    ///
    /// # Errors
    ///
    /// When there is no room, or the map cannot be read: any of the changes may be done.
    fn change_tree(&self, edits: &[Edit<'_>]) -> Result<(), StoreError> {
        Ok(change_one_by_one(self.create_tree()?, edits)?)
    }

    /// Called by a thread that waits for another one. The simulator runs the other one then.
    fn pause(&self) {
        std::thread::yield_now();
    }
}

/// Makes changes to an ordered map, one after the other.
fn change_one_by_one(
    tree: &impl OrderedMap<[u8], [u8]>,
    edits: &[Edit<'_>],
) -> remanent_structures::Result<()> {
    edits.iter().try_for_each(|Edit { key, value }| match value {
        Some(value) => tree.put(key, value).map(|_| ()),
        None => tree.discard(key).map(|_| ()),
    })
}
