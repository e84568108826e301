//! The commit path: how a change to a collection becomes one atomic, durable step, whatever its
//! type.
//!
//! 1. The change is written to the tree as one entry, the [`Intent`]. This commits the change.
//! 2. It is applied to the entries of the collection: new ones are put together, and then obsolete
//!    ones are removed together.
//! 3. The intent stays until the shard's next one replaces it, if it may; else it is removed.
//!
//! Opening applies the intents that it finds, whether a crash came after step 1 or much later, and
//! removes them ([`recover`](super::recover)). When step 2 fails, the change is taken back: the
//! reversed intent is applied. When that fails as well, the change stays *unfinished*: the shard
//! remembers it, and every later command on a collection of the shard has to finish it first.
//!
//! Other clients see no part of a change, because the shard's lock is held throughout.

use std::ops::ControlFlow;
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

use remanent_structures::{Map, OrderedMap};

use super::Keyspace;
use super::error::KeyError;
use super::intent::{Direction, Intent};
use super::layout::{CollectionId, intent_key};
use super::shard::{Shard, Unfinished};
use super::tree::span;
use super::types::{Caches, CollectionType, Reference};
use crate::store::{Change, Edit, Store, StoreError};

/// Intents of more bytes are removed when they are applied.
const KEPT_LEN_MAX: usize = 4096;

/// What is known of a change that is to be applied.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Nothing of the change was applied before.
    is_first: bool,
    /// The collection has entries that the change does not name. False when nobody knows.
    has_others: bool,
}

impl Known {
    const NOTHING: Known = Known { is_first: false, has_others: false };
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Done,
    /// The collection is gone, or another value has its name: all its entries were removed.
    Superseded,
}

impl<S: Store> Keyspace<S> {
    /// Locks the shard of `name` for reading; `None` while it has an unfinished change.
    pub(super) fn lock_shared(&self, name: &[u8]) -> Option<RwLockReadGuard<'_, Shard>> {
        let shard = self.shard(name).read(&self.store);
        shard.unfinished.is_none().then_some(shard)
    }

    /// Locks the shard of `name` for writing, and finishes its unfinished change.
    pub(super) fn lock(&self, name: &[u8]) -> Result<RwLockWriteGuard<'_, Shard>, StoreError> {
        let mut shard = self.shard(name).write(&self.store);
        self.finish(&mut shard)?;
        Ok(shard)
    }

    /// The collection that the store has under `name`; an error when the key has another type.
    pub(super) fn collection(
        &self,
        name: &[u8],
        collection_type: CollectionType,
    ) -> Result<Option<CollectionId>, KeyError> {
        match self.store.get_with(name, Reference::read)? {
            None => Ok(None),
            Some(Some(found)) if found.collection_type == collection_type => Ok(Some(found.id)),
            Some(_) => Err(KeyError::WrongType),
        }
    }

    /// Whether the store has this collection under `name`.
    pub(super) fn names(&self, name: &[u8], id: CollectionId) -> Result<bool, StoreError> {
        let found = self.store.get_with(name, Reference::read)?.flatten();
        Ok(found.is_some_and(|found| found.id == id))
    }

    /// Makes a change, or nothing of it, unless the error is [`KeyError::Undecided`]. `shard` has
    /// no unfinished change. `has_others` says that the collection has entries that the change does
    /// not name; it is false when nobody knows.
    pub(super) fn commit(
        &self,
        shard: &mut Shard,
        intent: Intent,
        has_others: bool,
    ) -> Result<(), KeyError> {
        let (tree, key) = (self.tree()?, intent_key(shard.index));
        // This commits: the intent is durable before anything of it is applied.
        let encoded = intent.encode();
        tree.put(&key, &encoded)?;
        let known = Known { is_first: true, has_others };
        let (applied, result) = match self.apply(&intent, Direction::Forward, &shard.caches, known)
        {
            Ok(Applied::Done) => {
                intent.changes.update_caches(intent.id, &mut shard.caches, tree);
                // As long as its collection is there, no other intent of the shard has come, and
                // applying this one again changes nothing. One that creates its collection would
                // bring it back when it is deleted.
                if !intent.is_new && encoded.len() <= KEPT_LEN_MAX {
                    return Ok(());
                }
                (intent, Ok(()))
            }
            Ok(Applied::Superseded) => (intent.reversed(), Err(KeyError::WrongType)),
            Err(error) => {
                let back = intent.reversed();
                if self.apply(&back, Direction::Back, &shard.caches, Known::NOTHING).is_err() {
                    shard.caches.forget(back.id);
                    // The intent in the tree still says forward: an opening tries that first.
                    let direction = Direction::Back;
                    shard.unfinished = Some(Unfinished::Change { intent: back, direction });
                    return Err(KeyError::Undecided(error));
                }
                (back, Err(error.into()))
            }
        };
        // If the intent cannot be removed, the shard applies again what was applied last, which
        // changes nothing, and removes it then.
        if tree.discard(&key).is_err() {
            let direction = Direction::Forward;
            shard.unfinished = Some(Unfinished::Change { intent: applied, direction });
        }
        result
    }

    /// Applies the unfinished change of a shard, if it has one, and removes its intent.
    pub(super) fn finish(&self, shard: &mut Shard) -> Result<(), StoreError> {
        match &shard.unfinished {
            None => return Ok(()),
            Some(Unfinished::Unknown(error)) => return Err(error.clone()),
            Some(Unfinished::Change { intent, direction }) => {
                self.apply(intent, *direction, &shard.caches, Known::NOTHING)?;
            }
        }
        self.tree()?.discard(&intent_key(shard.index))?;
        shard.unfinished = None;
        Ok(())
    }

    /// Applies an intent, whatever part of it was applied before.
    ///
    /// Forward, entries are put before others are removed, so that a lack of room shows while all
    /// old entries are there. Back, it is the other way round, so that the change back needs no
    /// more room than there was before.
    ///
    /// The store refers to a new collection only when its entries are there, and has ceased to
    /// refer to one that ends before its name entry is removed.
    ///
    /// `caches` are those of the shard. They know the collection as it was before the intent was
    /// applied, or after.
    fn apply(
        &self,
        intent: &Intent,
        direction: Direction,
        caches: &Caches,
        known: Known,
    ) -> Result<Applied, StoreError> {
        let Intent { id, ref name, is_new, ref changes } = *intent;
        let mut entries = Vec::new();
        if is_new {
            // By its name entry the sweeper finds what is left of a collection.
            entries.push((id.name_key(), name.clone()));
        } else if !self.names(name, id)? {
            // The key was removed or replaced, or the collection never got it.
            self.sweep_unnamed(id)?;
            return Ok(Applied::Superseded);
        }
        if direction == Direction::Back {
            self.remove_keys(&changes.obsolete_keys(id))?;
        }
        entries.extend(changes.new_entries(id));
        self.put_entries(&entries, known)?;
        if is_new && !self.claim_name(name, intent.reference())? {
            // Nothing ever referred to the collection.
            self.sweep_collection(id)?;
            return Ok(Applied::Superseded);
        }
        if direction == Direction::Forward {
            self.remove_keys(&changes.obsolete_keys(id))?;
        }
        let may_be_empty =
            changes.removes_any() && !known.has_others && !changes.leave_any(id, caches);
        if may_be_empty && self.is_empty(id)? {
            self.release_name(name, id)?;
            self.sweep_unnamed(id)?;
        }
        Ok(Applied::Done)
    }

    /// Puts entries into the tree. It is not written, and needs no room, for those that are there.
    /// If the change was never applied, none are, and nobody looks.
    fn put_entries(&self, entries: &[(Vec<u8>, Vec<u8>)], known: Known) -> Result<(), StoreError> {
        let tree = self.tree()?;
        let mut edits = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let is_there = || tree.get_with(key, |found| found == value.as_slice());
            if known.is_first || is_there()? != Some(true) {
                edits.push(Edit { key, value: Some(value) });
            }
        }
        self.store.change_tree(&edits)
    }

    fn remove_keys(&self, keys: &[Vec<u8>]) -> Result<(), StoreError> {
        let edits: Vec<Edit<'_>> = keys.iter().map(|key| Edit { key, value: None }).collect();
        self.store.change_tree(&edits)
    }

    /// Makes the store refer to a collection under `name`; false when the key has another value.
    fn claim_name(&self, name: &[u8], reference: Reference) -> Result<bool, StoreError> {
        self.store.modify(name, |stored| match stored {
            None => (Change::Put(reference.to_bytes()), true),
            Some(stored) => (Change::Keep, Reference::read(stored) == Some(reference)),
        })
    }

    /// Removes the key `name`, if the store has this collection under it.
    fn release_name(&self, name: &[u8], id: CollectionId) -> Result<(), StoreError> {
        self.store.modify(name, |stored| {
            let found = stored.and_then(Reference::read);
            let is_named = found.is_some_and(|found| found.id == id);
            (if is_named { Change::<&[u8]>::Remove } else { Change::Keep }, ())
        })
    }

    /// Whether a collection has nothing but its name.
    fn is_empty(&self, id: CollectionId) -> Result<bool, StoreError> {
        let mut is_empty = true;
        // From the end: the leaf with the first entries may be that of the intents, too. Those are
        // replaced all the time, so its order is seldom known.
        self.tree()?.descend(span(&id.content_start(), &id.end()), |_, _| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }
}
