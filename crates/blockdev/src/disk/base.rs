//! What a disk's operations are built of: a lane of the journal, blocks that nobody has, and a commit.
//!
//! The journal and the free space need each other: a record may take blocks of its own, and taking slabs from the pool is a
//! record. So a commit that may need blocks is made here, above both; the one that links new slabs needs none.

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;
use remanent_pmem::sync::{PauseGuard, PauseMutex};

use super::journal::{Datum, Journal, Lane, Spill};
use super::layout::{Block, Shape};
use super::record::{Change, Changes, Spares};
use super::slabs::Slabs;
use super::space::Space;
use super::stripes::Held;
use crate::Result;
use crate::line::WORDS;
use crate::seal::Key;

/// Blocks that are taken at once by who needs a few.
const REFILL: usize = 8;

/// The heap of a disk, its journal and its free space.
#[derive(Debug)]
pub(crate) struct Base<M: Medium> {
    pub(crate) heap: Heap<M>,
    /// What the disk's checksums are made with.
    pub(crate) key: Key,
    pub(crate) journal: Journal,
    pub(crate) space: Space,
    /// Spares that a lane keeps at most.
    pub(crate) spares_max: usize,
    /// Held by who takes slabs from the pool.
    growth: PauseMutex<()>,
}

impl<M: Medium> Base<M> {
    /// One whose volatile part knows nothing yet.
    pub(crate) fn new(heap: Heap<M>, meta: u64, key: Key, shape: Shape) -> Self {
        Base {
            heap,
            key,
            journal: Journal::new(meta, key, shape),
            space: Space::new(shape.slab_blocks, key),
            spares_max: shape.spares_max as usize,
            growth: PauseMutex::default(),
        }
    }

    #[inline]
    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// Pool offset of the meta extent.
    #[inline]
    pub(crate) fn meta(&self) -> u64 {
        self.journal.meta()
    }

    /// Pool offset of a block that the journal, or the map, leads to.
    #[inline]
    pub(crate) fn locate(&self, block: Block) -> Result<u64> {
        self.space.locate(block, self.meta())
    }

    /// The slabs, on the medium.
    pub(crate) fn slabs(&self) -> Slabs<'_, M> {
        Slabs { heap: &self.heap, journal: &self.journal, space: &self.space }
    }

    /// Does `change` in a lane, and reports what the medium could not do.
    pub(crate) fn in_lane<R>(&self, change: impl FnOnce(&mut Lane) -> Result<R>) -> Result<R> {
        let changed = change(&mut self.journal.enter(self.medium()));
        if self.journal.takes_clearing() {
            self.clear_all_records();
        }
        // Before anything else the medium's fault: what was read meanwhile is not to be believed.
        self.heap.verify()?;
        changed
    }

    /// Does `change` while nobody else changes anything.
    pub(crate) fn alone<R>(
        &self,
        change: impl FnOnce(&mut [PauseGuard<'_, Lane>]) -> Result<R>,
    ) -> Result<R> {
        let mut lanes = self.journal.enter_all(self.medium());
        let changed = change(&mut lanes);
        drop(lanes);
        self.heap.verify()?;
        changed
    }

    /// Overwrites the records of all lanes with empty ones: see [`Journal::clear_records`].
    pub(crate) fn clear_all_records(&self) {
        let mut lanes = self.journal.enter_all(self.medium());
        self.clear_records(&mut lanes);
    }

    /// As [`clear_all_records`](Base::clear_all_records), for who has the lanes.
    pub(crate) fn clear_records(&self, lanes: &mut [PauseGuard<'_, Lane>]) {
        self.journal.clear_records(self.medium(), &self.space, lanes);
    }

    /// Commits `changes`, `data` and the lane's new `spares` as one atomic step. The caller holds the lines' locks, or
    /// nobody else changes these lines.
    pub(crate) fn commit(
        &self,
        lane: &mut Lane,
        changes: &mut [Change],
        spares: Option<Spares>,
        data: &[Datum<'_>],
    ) -> Result<()> {
        let spare_count = spares.as_ref().map_or(lane.spares.len(), |spares| spares.len());
        let blocks = match self.journal.spill_count(changes.len(), spare_count) {
            0 => Vec::new(),
            count => self.reserve(lane, count)?,
        };
        let located = blocks.iter().map(|&block| self.locate(block));
        let spill = Spill { located: located.collect::<Result<_>>()?, blocks };
        // From here on nothing fails: what else was committed in this lane has had the spares of before.
        if let Some(spares) = spares {
            lane.spares = spares;
        }
        self.journal.commit_spilled(self.medium(), &self.space, lane, changes, spill, data);
        Ok(())
    }

    /// As [`commit`](Base::commit), with the lane's spares as they are, of changes that fit the lane's slot.
    #[inline]
    pub(crate) fn commit_in_slot(
        &self,
        lane: &mut Lane,
        changes: &mut [Change],
        data: &[Datum<'_>],
    ) {
        self.journal.commit(self.medium(), &self.space, lane, changes, data);
    }

    /// The line at `at`, which is no node's, with other words: what a commit changes it to.
    pub(crate) fn rewrite(&self, at: u64, words: [u64; WORDS]) -> Result<Change> {
        Change::rewrite(self.medium(), self.key, at, words)
    }

    /// Adds to `changes` that blocks are in use from now on, and others free. The locks are to be held until that is
    /// committed.
    pub(crate) fn mark(
        &self,
        used: &[Block],
        free: &[Block],
        changes: &mut Changes,
    ) -> Result<Held<'_>> {
        self.space.mark(self.medium(), used, free, changes)
    }

    /// Gives blocks back that nobody has any more, on the medium neither.
    pub(crate) fn release(&self, blocks: impl IntoIterator<Item = Block>) {
        self.space.release(self.medium(), blocks);
    }

    /// As [`reserve`](Base::reserve), of more than `count`, for who takes a few each time; what is left is no more than a
    /// lane may keep.
    pub(crate) fn reserve_some(&self, lane: &mut Lane, count: usize) -> Result<Vec<Block>> {
        match self.reserve(lane, count.max(REFILL.min(self.spares_max))) {
            Err(error) if error.is_full() => self.reserve(lane, count),
            reserved => reserved,
        }
    }

    /// Takes `count` blocks that nobody has, from new slabs if need be.
    ///
    /// # Errors
    ///
    /// When the pool is full; then nothing was taken, of the pool neither but where [`Slabs::add`] says so.
    pub(crate) fn reserve(&self, lane: &mut Lane, count: usize) -> Result<Vec<Block>> {
        let mut taken = self.space.reserve(self.medium(), count)?;
        while taken.len() < count {
            let slabs = self.space.slab_count();
            let grown = {
                let _growth = self.growth.lock(self.medium());
                // Another thread may have been here meanwhile.
                if self.space.slab_count() > slabs {
                    Ok(())
                } else {
                    self.slabs().add(lane, count - taken.len())
                }
            };
            let more = grown.and_then(|()| self.space.reserve(self.medium(), count - taken.len()));
            match more {
                Ok(more) => taken.extend(more),
                Err(error) => {
                    self.space.release(self.medium(), taken);
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }
}
