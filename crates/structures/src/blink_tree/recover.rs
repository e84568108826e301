//! Creating and opening a tree, and recovery.
//!
//! Opening looks only at interrupted changes: at the blocks that the heap has as suspects, and at
//! leaves that were being split or joined. Every other leaf is [revived](Core::revive) by the first
//! thread that touches it.

use std::marker::PhantomData;
use std::sync::OnceLock;

use remanent_pmem::heap::{Block, Heap, Lane};
use remanent_pmem::pool::layout::BLOCK_LEN_MIN;
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::inner::{Entry, Goal};
use super::key::{Probe, with_bytes};
use super::layout::{
    COUNT, COUNT_UNKNOWN, HIGH, KEY_LEN_MAX, Kind, LAYOUT, LEAF_LEN, LEAF_LOW, LOCK, NODE_LOW,
    OPTIONS, ORDERED, PREFIX, ROOT, Record, SLOTS, SUMMED, Tags, UNSUMMED, USED, child_at, is_word,
    separator_key,
};
use super::leaf::{EPOCH_MASK, Leaf, Lock};
use super::walk::BoundedWalk;
use crate::batch::Gate;
use crate::count::Count;
use crate::options::MapOptions;
use crate::shared::Site;
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// An odd factor permutes the epochs.
const EPOCH_FACTOR: u64 = 0x9e_3779;

impl<K, V, M> RootObject<M> for Core<K, V, M>
where
    K: OrderedKey + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    M: Medium,
{
    fn root_type() -> RootType {
        let name = format!("BlinkTree<{}, {}>", K::type_name(), V::type_name());
        RootType { name, layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::create_at(Site::alone(heap), &MapOptions::new())
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let core = Self::load(Site::alone(heap))?;
        let mut failed = None;
        core.heap.recover(|block| {
            core.is_linked(block).unwrap_or_else(|error| {
                failed = Some(error);
                // A block that is not known to be free is kept.
                true
            })
        })?;
        if let Some(error) = failed {
            return Err(pool_error(error));
        }
        core.take_count()?;
        Ok(core)
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Makes an empty tree. Its header exists and is zero.
    pub(super) fn create_at(heap: Site<M>, options: &MapOptions) -> Result<Self, PoolError> {
        let entered = heap.clone();
        let mut lane = entered.enter().prepare_to_write();
        let core = Self::create_in_lane(heap, &mut lane, options)?;
        // Fence: leaf, root node and header, before the root becomes live.
        lane.fence();
        Ok(core)
    }

    /// As [`create_at`](Core::create_at), in a lane of the caller, who fences.
    pub(super) fn create_in_lane(
        heap: Site<M>,
        lane: &mut Lane<'_, M>,
        options: &MapOptions,
    ) -> Result<Self, PoolError> {
        let core = Self::new(heap, options.has_checksums());
        let (medium, header) = (core.medium(), core.heap.header());
        let block = lane.allocate(LEAF_LEN)?;
        let leaf = block.offset;
        core.tags.write_leaf_head(medium, leaf, 0, 0);
        for at in [HIGH, USED, ORDERED, PREFIX] {
            medium.store(leaf + at, 0);
        }
        medium.store(leaf + LOCK, Lock::fresh(core.epoch).word());
        // Flush: the first leaf; fenced by the caller.
        medium.flush(leaf, LINE_LEN);
        // Redundant: unless a leaf was in this memory before, which no tested seed reaches.
        medium.flush(leaf + SLOTS, LEAF_LEN - SLOTS);
        let entries = [Entry { low: 0, child: leaf }];
        let root = match core.make_node(lane, 1, None, &entries) {
            Ok(root) => root,
            Err(error) => {
                lane.give_back(block);
                return Err(pool_error(error));
            }
        };
        medium.store(header + ROOT, root);
        medium.store(header + COUNT, COUNT_UNKNOWN);
        let options = if core.is_summed { SUMMED } else { UNSUMMED };
        medium.store(header + OPTIONS, options);
        // Flush: the header; fenced by the caller.
        medium.flush(header, LINE_LEN);
        core.count.set(0);
        Ok(core)
    }

    /// Reads the header of an existing tree.
    pub(super) fn load(heap: Site<M>) -> Result<Self, PoolError> {
        let at = heap.header() + OPTIONS;
        match heap.medium().load(at) {
            SUMMED => Ok(Self::new(heap, true)),
            UNSUMMED => Ok(Self::new(heap, false)),
            _ => {
                let what = "the header of a tree does not say whether records have checksums";
                Err(PoolError::corrupt(at, what))
            }
        }
    }

    /// Takes the number of entries from the header, if a proper close stored it there. Called after
    /// recovery, before others use the tree.
    pub(super) fn take_count(&self) -> Result<(), PoolError> {
        let (medium, count_at) = (self.medium(), self.heap.header() + COUNT);
        let count = medium.load(count_at);
        if count != COUNT_UNKNOWN {
            self.count.set(count);
            medium.store(count_at, COUNT_UNKNOWN);
            // Flush and fence: before the first change, since the count in the header is wrong
            // after that.
            // Redundant fence: unless another thread makes the first change.
            medium.persist(count_at, WORD_LEN);
        }
        self.heap.verify()
    }
}

fn pool_error(error: Error) -> PoolError {
    match error {
        Error::Pool(error) => error,
        other => PoolError::corrupt(0, other.to_string()),
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    fn new(heap: Site<M>, is_summed: bool) -> Self {
        // Distinct for 2^24 consecutive openings. Consecutive openings differ in many bits, so a
        // single flipped bit does not make a leaf look as if this opening had touched it.
        let epoch = heap.pool().opens().wrapping_mul(EPOCH_FACTOR) & EPOCH_MASK;
        Core {
            tags: Tags::of(heap.member()),
            epoch,
            is_summed,
            shape: PauseMutex::new(()),
            count: Count::unknown(),
            gate: Gate::default(),
            intents: OnceLock::new(),
            types: PhantomData,
            heap,
        }
    }

    /// Whether the tree leads to `block`, whose content may be garbage. A leaf on the way is
    /// revived, because it may have been in the middle of a change.
    pub(super) fn is_linked(&self, block: Block) -> Result<bool> {
        let medium = self.medium();
        let kind = Kind::read(medium, block.offset);
        match kind.filter(|&(_, member)| member == self.heap.member()).map(|(kind, _)| kind) {
            Some(Kind::Inner) => self.is_linked_node(block.offset),
            Some(Kind::Leaf) if block.len >= LEAF_LEN => {
                let low = medium.load(block.offset + LEAF_LOW);
                if !self.is_plausible_bound(low) {
                    return Ok(false);
                }
                let leaf = self.with_bound(low, |probe| self.leaf_of(probe))?;
                Ok(leaf.0 == block.offset)
            }
            Some(Kind::Record) if Self::has_records() => {
                let Some(record) = self.record_at(block.offset) else { return Ok(false) };
                if (Record { value_len: 0, ..record }).len() > block.len {
                    return Ok(false);
                }
                with_bytes(medium, record.key_at(), record.key_len, |key| {
                    let probe = Probe::new::<K>(key);
                    let leaf = self.leaf_of(&probe)?;
                    let slot = self.find_slot(leaf, &probe);
                    Ok(slot.is_some_and(|slot| self.payload(leaf, slot).word == block.offset))
                })
            }
            Some(Kind::Separator) if !is_word::<K>() => {
                if !self.is_plausible_bound(block.offset) {
                    return Ok(false);
                }
                let leaf = self.with_bound(block.offset, |probe| self.leaf_of(probe))?;
                Ok(medium.load(leaf.0 + LEAF_LOW) == block.offset)
            }
            _ => Ok(false),
        }
    }

    /// Whether a bound, which may be garbage, leads to a place that can be read.
    fn is_plausible_bound(&self, bound: u64) -> bool {
        if is_word::<K>() || bound == 0 {
            return true;
        }
        let medium = self.medium();
        let is_inside = bound.is_multiple_of(BLOCK_LEN_MIN) && bound < medium.len();
        is_inside && separator_key(medium, bound).1 <= KEY_LEN_MAX
    }

    /// The leaf where a key belongs. Called before others use the tree.
    fn leaf_of(&self, probe: &Probe<'_>) -> Result<Leaf> {
        let mut walk = BoundedWalk::default();
        let mut leaf = self.leaf_at(Goal::At(*probe))?;
        loop {
            match self.stable(leaf, || self.right_of(leaf, probe))? {
                Some(None) => return Ok(leaf),
                Some(Some(next)) => leaf = next,
                None => return Err(PoolError::corrupt(leaf.0, "a leaf is dead but linked").into()),
            }
            self.count_step(&mut walk, leaf)?;
        }
    }

    /// Whether the path from the root leads to an inner node.
    fn is_linked_node(&self, node: u64) -> Result<bool> {
        let medium = self.medium();
        let Some(wanted) = self.node_head(node) else { return Ok(false) };
        let low = medium.load(node + NODE_LOW);
        if !self.is_plausible_bound(low) {
            return Ok(false);
        }
        let path = self.with_bound(low, |probe| self.path(Goal::At(*probe)))?;
        for step in &path {
            // Flush: the links on the path; fenced by the heap before it forgets that the block was
            // suspect.
            // Redundant: unless a process was killed before and the power fails later.
            medium.flush(child_at::<K>(step.node, step.index), WORD_LEN);
        }
        let index = (path.len() as u64).checked_sub(wanted.level);
        Ok(index
            .is_some_and(|index| path.get(index as usize).is_some_and(|step| step.node == node)))
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium> Drop for Core<K, V, M> {
    /// Stores the count in the header. The heap is quiesced after this.
    fn drop(&mut self) {
        let medium = self.heap.medium();
        let Some(count) = self.count.get().filter(|_| medium.fault().is_none()) else { return };
        let at = self.heap.header() + COUNT;
        medium.store(at, count);
        // Flush and fence: the count, before the pool is marked as closed properly.
        // Redundant: if this is lost, the next `len` counts.
        medium.persist(at, WORD_LEN);
    }
}
