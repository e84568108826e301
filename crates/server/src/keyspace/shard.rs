//! What the lock of a shard guards.

use super::intent::{Direction, Intent};
use super::types::Caches;

/// A shard: a 256th of all keys, by their hash. Its lock is the lock of their collections.
#[derive(Debug)]
pub(super) struct Shard {
    /// Index of the shard, under which the tree has its intent.
    pub(super) index: u16,
    pub(super) caches: Caches,
    /// A change that could be neither completed nor taken back, or whose intent could not be
    /// removed. It is finished before the next change to a collection of the shard.
    pub(super) unfinished: Option<Unfinished>,
}

/// A change whose intent is in the tree.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) intent: Intent,
    pub(super) direction: Direction,
}

impl Shard {
    pub(super) fn new(index: u16) -> Self {
        Shard { index, caches: Caches::default(), unfinished: None }
    }
}
