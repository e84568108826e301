//! Ids for new collections.
//!
//! Ids are reserved in the tree by the thousand, so that a new collection costs no fence for its
//! id. Opening goes on behind those that were reserved: none is used again while entries of its
//! collection may be left.

use std::ops::ControlFlow;

use remanent_structures::{Map, OrderedMap};

use super::layout::{CollectionId, next_id_key};
use crate::store::{Store, StoreError};

/// Ids that are reserved at a time.
const RESERVED: u64 = 1024;

/// Ids that are still free.
#[derive(Debug)]
pub(super) struct Ids {
    next: u64,
    /// Ids below this one are reserved.
    reserved: u64,
    /// Ids below this one were in use before this opening, all others were not.
    first: u64,
}

impl Ids {
    /// The ids that no collection has had of which the store may have entries.
    ///
    /// # Errors
    ///
    /// When neither the entry that reserves ids says them nor the last entry of the tree.
    pub(super) fn open(store: &impl Store) -> Result<Self, StoreError> {
        let Some(tree) = store.tree() else { return Ok(Ids { next: 1, reserved: 0, first: 1 }) };
        let reserved = tree.get_with(&next_id_key(), |bytes| {
            bytes.try_into().map(u64::from_le_bytes).unwrap_or(0)
        });
        let mut last = None;
        let is_found = tree.descend(.., |key, _| {
            last = CollectionId::of_entry(key);
            ControlFlow::Break(())
        });
        let behind = last.map_or(1, |last| last.0 + 1);
        let next = match (reserved, is_found) {
            (Ok(reserved), Ok(())) => reserved.unwrap_or(1).max(behind),
            // All ids that are in use are reserved.
            (Ok(Some(reserved)), Err(_)) => reserved.max(behind),
            (Err(_), Ok(())) => behind + RESERVED,
            (Ok(None) | Err(_), Err(error)) => return Err(error.into()),
        };
        Ok(Ids { next, reserved: 0, first: next })
    }

    /// Whether collections may have had an id before this opening.
    pub(super) fn is_older(&self, id: CollectionId) -> bool {
        id.0 < self.first
    }

    /// Takes an id for a new collection. Makes the tree if it is not there.
    pub(super) fn take(&mut self, store: &impl Store) -> Result<CollectionId, StoreError> {
        if self.next >= self.reserved {
            let reserved = self.next + RESERVED;
            store.create_tree()?.put(&next_id_key(), &reserved.to_le_bytes())?;
            self.reserved = reserved;
        }
        self.next += 1;
        Ok(CollectionId(self.next - 1))
    }

    /// Takes note that the entry of the tree that reserves ids is removed: the next id is reserved
    /// anew.
    pub(super) fn forget_reserved(&mut self) {
        self.reserved = 0;
    }
}
