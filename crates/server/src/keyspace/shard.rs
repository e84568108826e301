//! What the lock of a shard guards.

use super::intent::{Direction, Intent};
use super::types::Caches;
use crate::store::StoreError;

/// A shard: a 256th of all keys, by their hash. Its lock is the lock of their collections.
#[derive(Debug)]
pub(super) struct Shard {
    /// Index of the shard, under which the tree has its intent.
    pub(super) index: u16,
    pub(super) caches: Caches,
    /// Commands on collections of the shard finish it first. If that fails, they are refused.
    pub(super) unfinished: Option<Unfinished>,
}

/// A change whose intent is in the tree.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// It could be neither completed nor taken back, or its intent could not be removed.
    Change { intent: Intent, direction: Direction },
    /// Opening could not follow the intent: it is damaged, contradicts the collection, or leads to
    /// damage.
    Unknown(StoreError),
}

impl Shard {
    pub(super) fn new(index: u16) -> Self {
        Shard { index, caches: Caches::default(), unfinished: None }
    }
}
