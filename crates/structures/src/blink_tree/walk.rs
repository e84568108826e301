//! Walks along the leaves, and what ends those that damage has made endless.

use remanent_pmem::{Error as PoolError, Medium};

use super::Core;
use super::inner::Goal;
use super::key::with_separator;
use super::layout::{LEAF_LOW, NEXT, is_word};
use super::leaf::Leaf;
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// Times that a search begins anew before it gives up: whoever meets a dead leaf finds the way past it from the root.
const RESTARTS_MAX: u32 = 1 << 9;

/// The steps of a search that bring it no lower. A healthy tree may make it take thousands, where there was no room
/// to tell the nodes above of new leaves; damage may have leaves lead in a circle.
#[derive(Default)]
pub(super) struct BoundedWalk {
    /// Steps to the right, since it came from the root.
    steps: u64,
    /// A leaf of those: the first, second, fourth, eighth and so on. Who goes in a circle meets one again.
    mark: u64,
    restarts: u32,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Notes that a search goes right, to `leaf`. An error when it was there before.
    #[cold]
    pub(super) fn count_step(&self, walk: &mut BoundedWalk, leaf: Leaf) -> Result<()> {
        self.heap.verify()?;
        if walk.mark == leaf.0 {
            return Err(self.circle(leaf));
        }
        walk.steps += 1;
        if walk.steps.is_power_of_two() {
            walk.mark = leaf.0;
        }
        self.medium().pause();
        Ok(())
    }

    /// Notes that a search begins anew, since `leaf` is dead, and gives up when it does so too often.
    #[cold]
    pub(super) fn count_restart(&self, walk: &mut BoundedWalk, leaf: Leaf) -> Result<()> {
        self.heap.verify()?;
        *walk = BoundedWalk { restarts: walk.restarts + 1, ..BoundedWalk::default() };
        if walk.restarts > RESTARTS_MAX {
            return Err(PoolError::corrupt(leaf.0, "a leaf is dead but linked").into());
        }
        // Who has buried the leaf has changed the way to it before. So nobody need go on first, and others are let go on
        // no more often than is polite.
        if walk.restarts.is_multiple_of(16) {
            self.medium().pause();
        }
        Ok(())
    }

    /// What to say where following the leaves leads back to one before.
    #[cold]
    pub(super) fn circle(&self, leaf: Leaf) -> Error {
        match self.heap.verify() {
            Err(error) => error.into(),
            Ok(()) => PoolError::corrupt(leaf.0, "leaves lead in a circle").into(),
        }
    }

    /// Visits every leaf from left to right, each at one moment; nobody may change the tree's shape.
    pub(super) fn for_each_leaf(&self, mut visit: impl FnMut(Leaf)) -> Result<()> {
        let mut leaf = self.with_bound(0, |probe| self.leaf_at(Goal::At(*probe)))?;
        loop {
            let next = self.stable(leaf, || Leaf::linked(self.medium().load(leaf.0 + NEXT)))?;
            visit(leaf);
            self.heap.verify()?;
            let next = match next {
                None | Some(Leaf(0)) => return Ok(()),
                Some(next) => next,
            };
            let [low, high] = [leaf, next].map(|leaf| self.medium().load(leaf.0 + LEAF_LOW));
            if !self.is_ascending(low, high) {
                return Err(self.circle(next));
            }
            leaf = next;
        }
    }

    /// Whether the first of two bounds is below the other.
    pub(super) fn is_ascending(&self, one: u64, other: u64) -> bool {
        if is_word::<K>() {
            return one < other;
        }
        let medium = self.medium();
        with_separator(medium, one, |one| with_separator(medium, other, |other| one < other))
    }
}
