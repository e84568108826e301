//! Walks along the leaves, bounded so that a damaged tree cannot make them endless.

use remanent_pmem::{Error as PoolError, Medium};

use super::Core;
use super::inner::Goal;
use super::key::with_separator;
use super::layout::{LEAF_LOW, NEXT, is_word};
use super::leaf::Leaf;
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// Restarts of a search before it gives up. A search restarts at the root when it meets a dead
/// leaf, since the way from the root leads past it.
const RESTARTS_MAX: u32 = 1 << 9;

/// Counts the steps of a search that bring it no lower. In a healthy tree they may be thousands,
/// where there was no room to tell the nodes above of new leaves. In a damaged tree, leaves may
/// lead in a circle.
#[derive(Default)]
pub(super) struct BoundedWalk {
    /// Steps to the right since the last restart.
    steps: u64,
    /// The leaf of step 1, 2, 4, 8 and so on, whichever was last. A search in a circle meets it
    /// again.
    mark: u64,
    restarts: u32,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Counts a step to the right, to `leaf`. An error when the search goes in a circle.
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

    /// Counts a restart because `leaf` is dead. An error when there were too many.
    #[cold]
    pub(super) fn count_restart(&self, walk: &mut BoundedWalk, leaf: Leaf) -> Result<()> {
        self.heap.verify()?;
        *walk = BoundedWalk { restarts: walk.restarts + 1, ..BoundedWalk::default() };
        if walk.restarts > RESTARTS_MAX {
            return Err(PoolError::corrupt(leaf.0, "a leaf is dead but linked").into());
        }
        // The thread that buried the leaf changed the way to it before, so a restart needs nobody
        // else's progress. A pause now and then lets other threads run.
        if walk.restarts.is_multiple_of(16) {
            self.medium().pause();
        }
        Ok(())
    }

    /// The error for leaves that lead in a circle.
    #[cold]
    pub(super) fn circle(&self, leaf: Leaf) -> Error {
        match self.heap.verify() {
            Err(error) => error.into(),
            Ok(()) => PoolError::corrupt(leaf.0, "leaves lead in a circle").into(),
        }
    }

    /// Visits every leaf from left to right, each at one moment. Nobody may change the tree's shape
    /// meanwhile.
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

    /// Whether the bound `one` is below the bound `other`.
    pub(super) fn is_ascending(&self, one: u64, other: u64) -> bool {
        if is_word::<K>() {
            return one < other;
        }
        let medium = self.medium();
        with_separator(medium, one, |one| with_separator(medium, other, |other| one < other))
    }
}
