//! Parts of every operation that changes a disk: a lane of the journal, free blocks, and a commit.
//!
//! The journal and the free space depend on each other: a record may take blocks of its own, and
//! taking slabs from the pool is a record. So commits that may need blocks are made here, above
//! both. The commit that links new slabs needs no blocks.

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

/// Blocks that are taken at once when a few are needed.
const REFILL: usize = 8;

/// The heap of a disk, its journal and its free space.
#[derive(Debug)]
pub(crate) struct Base<M: Medium> {
    pub(crate) heap: Heap<M>,
    /// Key of the disk's checksums.
    pub(crate) key: Key,
    pub(crate) journal: Journal,
    pub(crate) space: Space,
    /// Maximal number of spares in a lane.
    pub(crate) spares_max: usize,
    /// Held by the thread that takes slabs from the pool.
    growth: PauseMutex<()>,
}

impl<M: Medium> Base<M> {
    /// A base whose volatile part is empty.
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

    /// Pool offset of a block that the journal or the map leads to.
    #[inline]
    pub(crate) fn locate(&self, block: Block) -> Result<u64> {
        self.space.locate(block, self.meta())
    }

    /// The slabs on the medium.
    pub(crate) fn slabs(&self) -> Slabs<'_, M> {
        Slabs { heap: &self.heap, journal: &self.journal, space: &self.space }
    }

    /// Runs `change` in a lane, and reports faults of the medium.
    pub(crate) fn in_lane<R>(&self, change: impl FnOnce(&mut Lane) -> Result<R>) -> Result<R> {
        let changed = change(&mut self.journal.enter(self.medium()));
        if self.journal.takes_clearing() {
            self.clear_all_records();
        }
        // The medium's fault first: after a fault, nothing that was read is reliable.
        self.heap.verify()?;
        changed
    }

    /// Runs `change` while nobody else changes anything.
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

    /// Like [`clear_all_records`](Base::clear_all_records), for a caller that holds the lanes.
    pub(crate) fn clear_records(&self, lanes: &mut [PauseGuard<'_, Lane>]) {
        self.journal.clear_records(self.medium(), &self.space, lanes);
    }

    /// Commits `changes`, `data` and the lane's new `spares` atomically. The caller holds the
    /// lines' locks, or nobody else changes these lines.
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
        // Nothing fails from here on: a commit that was made above in this lane has recorded the
        // old spares.
        if let Some(spares) = spares {
            lane.spares = spares;
        }
        self.journal.commit_spilled(self.medium(), &self.space, lane, changes, spill, data);
        Ok(())
    }

    /// Like [`commit`](Base::commit), for changes that fit the lane's slot; the lane's spares stay
    /// as they are.
    #[inline]
    pub(crate) fn commit_in_slot(
        &self,
        lane: &mut Lane,
        changes: &mut [Change],
        data: &[Datum<'_>],
    ) {
        self.journal.commit(self.medium(), &self.space, lane, changes, data);
    }

    /// A change that replaces the words of the line at `at`, which is outside the map.
    pub(crate) fn rewrite(&self, at: u64, words: [u64; WORDS]) -> Result<Change> {
        Change::rewrite(self.medium(), self.key, at, words)
    }

    /// Adds to `changes` that the blocks `used` are in use from now on, and the blocks `free` are
    /// free. Hold the returned locks until this is committed.
    pub(crate) fn mark(
        &self,
        used: &[Block],
        free: &[Block],
        changes: &mut Changes,
    ) -> Result<Held<'_>> {
        self.space.mark(self.medium(), used, free, changes)
    }

    /// Gives back blocks that are free on the medium, too.
    pub(crate) fn release(&self, blocks: impl IntoIterator<Item = Block>) {
        self.space.release(self.medium(), blocks);
    }

    /// Like [`reserve`](Base::reserve), of more than `count`, for callers that take a few each
    /// time. The surplus is at most what a lane may keep.
    pub(crate) fn reserve_some(&self, lane: &mut Lane, count: usize) -> Result<Vec<Block>> {
        match self.reserve(lane, count.max(REFILL.min(self.spares_max))) {
            Err(error) if error.is_full() => self.reserve(lane, count),
            reserved => reserved,
        }
    }

    /// Takes `count` free blocks, from new slabs if necessary.
    ///
    /// # Errors
    ///
    /// When the pool is full. Then no block was taken, and nothing from the pool except as
    /// [`Slabs::add`] says.
    pub(crate) fn reserve(&self, lane: &mut Lane, count: usize) -> Result<Vec<Block>> {
        let mut taken = self.space.reserve(self.medium(), count)?;
        while taken.len() < count {
            let slabs = self.space.slab_count();
            let grown = {
                let _growth = self.growth.lock(self.medium());
                // Another thread may have added slabs meanwhile.
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
