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
    /// It is finished before the next change to a collection of the shard.
    pub(super) unfinished: Option<Unfinished>,
}

/// A change whose intent is in the tree.
#[derive(Debug)]
pub(super) enum Unfinished {
    /// It could be neither completed nor taken back, or its intent could not be removed.
    Change { intent: Intent, direction: Direction },
    /// What it changes is not known, because the intent cannot be read.
    Unknown(StoreError),
}

impl Shard {
    pub(super) fn new(index: u16) -> Self {
        Shard { index, caches: Caches::default(), unfinished: None }
    }
}
