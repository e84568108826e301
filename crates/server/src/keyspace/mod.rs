//! The keys of a server, of all types.
//!
//! The [`Store`] has an entry for each key. The value of a string lies in that entry. A
//! *collection*, such as a sorted set, has only a [reference](types) there; its entries are in the
//! store's ordered map, the [tree](layout).
//!
//! | module                            | what is in it                                            |
//! |-----------------------------------|----------------------------------------------------------|
//! | [`types`]                         | the types, and what each of them provides                |
//! | [`sorted_set`]                    | sorted sets                                              |
//! | [`layout`], [`ids`], [`tree`]     | keys of the tree, numbers of collections, single entries |
//! | [`gate`], [`shard`]               | locks, and what they guard                               |
//! | [`intent`], [`commit`]            | how a change to a collection becomes one step            |
//! | [`together`]                      | several keys that change as one                          |
//! | [`recover`], [`sweep`], [`check`] | opening, removed collections, consistency                |
//!
//! # What holds
//!
//! - **Atomicity.** A command changes a collection as a whole, however many entries it names: for
//!   other clients, and for a crash ([`commit`]).
//! - **Locks.** Each key belongs to one of 256 shards. A command that changes or removes a
//!   collection holds the lock of the key's shard, and one that reads a collection shares it.
//!   Commands on strings take the lock only where they replace a collection. So a `SET` may claim a
//!   key while another client creates a collection under it: then the collection is removed, and
//!   its command gets `WRONGTYPE`.
//! - **Removal.** A command that removes a collection removes the reference alone. The entries are
//!   removed by the sweeper, or by the command itself if there is no sweeper ([`sweep`]).
//! - **Recovery.** Opening completes the intents that it finds, one for each shard at most
//!   ([`recover`]).
//!
//! In a store that works in batches, strings and references become safe later than entries of the
//! tree, which are durable at once. So a crash may take away a collection that is younger than the
//! store's bound. It may also keep an entry of a collection, and take away a string that was
//! written before that entry. Before the entries of a removed collection are removed, the store is
//! synced.

mod check;
mod commit;
mod encoding;
mod error;
mod gate;
mod ids;
mod intent;
mod layout;
mod recover;
mod shard;
pub(crate) mod sorted_set;
mod sweep;
mod together;
mod tree;
mod types;

use std::borrow::Borrow;
use std::fmt;

use remanent_structures::Map;
use xxhash_rust::xxh3::xxh3_64;

use self::error::damaged;
use self::gate::Gate;
use self::ids::Ids;
use self::layout::CollectionId;
use self::shard::Shard;
use self::sweep::Gone;
use self::types::Reference;
use crate::store::{Change, Store, StoreError};

pub(crate) use self::error::KeyError;
pub(crate) use self::types::ValueType;

/// Shards, which is also the number of locks that the keys share.
const SHARDS: u16 = 256;

/// All keys of a server.
pub struct Keyspace<S> {
    store: S,
    shards: Box<[Gate<Shard>]>,
    ids: Gate<Ids>,
    gone: Gone,
}

impl<S: Store> Keyspace<S> {
    /// The shard of the key `name`.
    fn shard(&self, name: &[u8]) -> &Gate<Shard> {
        &self.shards[xxh3_64(name) as usize % self.shards.len()]
    }

    /// The store's tree, which is there when a collection is.
    fn tree(&self) -> Result<&S::Tree, StoreError> {
        self.store.tree().ok_or_else(|| damaged("it names a sorted set, and has no members of any"))
    }

    /// An id for a new collection.
    fn new_id(&self) -> Result<CollectionId, StoreError> {
        self.ids.write(&self.store).take(&self.store)
    }

    /// The store behind the keys.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Calls `read` with the stored value of `name`, its tag first; `None` when there is no such
    /// key.
    pub(crate) fn get_with<R>(
        &self,
        name: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        self.store.get_with(name, read)
    }

    pub(crate) fn contains(&self, name: &[u8]) -> Result<bool, StoreError> {
        Ok(self.store.get_with(name, |_| ())?.is_some())
    }

    /// Replaces the stored value of `name` by a function of it, as one step, and removes the
    /// entries of a collection that was replaced. Takes the shard's lock only if the value is a
    /// collection.
    pub(crate) fn modify<R, T: Borrow<[u8]>>(
        &self,
        name: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError> {
        let replaced = |old: Option<&[u8]>, change: &Change<T>| {
            old.and_then(Reference::read).filter(|_| !matches!(change, Change::Keep))
        };
        let done = self.store.modify(name, |old| {
            let (change, result) = change(old);
            match replaced(old, &change) {
                None => (change, Some(result)),
                Some(_) => (Change::Keep, None),
            }
        })?;
        if let Some(result) = done {
            return Ok(result);
        }
        let mut shard = self.shard(name).write(&self.store);
        // A change that cannot be finished for want of room may be one of this collection, and goes
        // with it.
        let _ = self.finish(&mut shard);
        let (result, replaced) = self.store.modify(name, |old| {
            let (change, result) = change(old);
            let replaced = replaced(old, &change);
            (change, (result, replaced))
        })?;
        if let Some(Reference { id, .. }) = replaced {
            self.remove_entries(&mut shard, id);
        }
        Ok(result)
    }

    /// Stores a value, whether or not there is one.
    pub(crate) fn put(&self, name: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.modify(name, |_| (Change::Put(value), ()))
    }

    /// Stores a value if there is none, and returns whether it did.
    pub(crate) fn insert(&self, name: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.modify(name, |old| match old {
            None => (Change::Put(value), true),
            Some(_) => (Change::Keep, false),
        })
    }

    /// Stores a value if there is one already, and returns whether it did.
    pub(crate) fn replace(&self, name: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        self.modify(name, |old| match old {
            Some(_) => (Change::Put(value), true),
            None => (Change::Keep, false),
        })
    }

    /// Removes a key of any type, and returns whether it was there.
    pub(crate) fn remove(&self, name: &[u8]) -> Result<bool, StoreError> {
        self.modify(name, |old| (Change::<&[u8]>::Remove, old.is_some()))
    }

    /// Removes all keys as one step, and then the entries of collections one by one.
    pub(crate) fn clear(&self) -> Result<(), StoreError> {
        let mut shards: Vec<_> = self.shards.iter().map(|shard| shard.write(&self.store)).collect();
        self.store.clear()?;
        let Some(tree) = self.store.tree() else { return Ok(()) };
        shards.iter_mut().for_each(|shard| shard.caches.clear());
        // A crash must not bring references back when the entries are gone.
        self.store.sync()?;
        {
            // The entry that reserves ids is removed as well. The next id stays, so that entries
            // which a crash leaves here are never taken for those of a later collection.
            let mut ids = self.ids.write(&self.store);
            ids.forget_reserved();
            tree.clear()?;
        }
        shards.iter_mut().for_each(|shard| shard.unfinished = None);
        Ok(())
    }

    pub(crate) fn len(&self) -> Result<u64, StoreError> {
        self.store.len()
    }

    /// As [`Store::scan`].
    pub(crate) fn scan(
        &self,
        cursor: u64,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError> {
        self.store.scan(cursor, limit, visit)
    }
}

impl<S: fmt::Debug> fmt::Debug for Keyspace<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("store", &self.store).finish_non_exhaustive()
    }
}
