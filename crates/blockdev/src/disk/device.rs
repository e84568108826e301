//! The device under a [`Disk`](crate::Disk): every operation on it begins here.
//!
//! It checks what is asked for, takes the lanes and locks, and calls down: to a [`Step`] that changes blocks, a
//! [`Reader`], the [`Snapshots`], a [`Resizer`] or a [`Check`]. These call the [`Map`], the map calls its [`Base`], and that
//! the journal and the free space. None of them calls back.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;
use remanent_pmem::sync::PauseMutex;

use super::Extent;
use super::base::Base;
use super::change::{Step, unmap};
use super::check::{Check, CheckScope};
use super::layout::{BLOCK_LEN, Lba, State, Tree};
use super::map::Map;
use super::pieces::{BlockData, Piece};
use super::read::Reader;
use super::resize::{Resizer, check_new_size};
use super::snapshot::{List, Snapshot, Snapshots};
use super::space::Space;
use crate::{Lines, Result};

/// A disk's persistent part, and the volatile part that exists once in a process.
///
/// Locks are taken in this order: `resizing`, a lane, the snapshots, the map's state, stripes of the map in ascending order,
/// stripes of the bits in ascending order, the growth of the space, its free blocks. Whoever has slabs added changes lines
/// that nobody else changes, and so few that they fit a slot: it needs no stripe, and no block for its record.
#[derive(Debug)]
pub(crate) struct Device<M: Medium> {
    map: Map<M>,
    snapshots: Snapshots,
    /// Held by who makes the disk larger or smaller, before any lane.
    resizing: PauseMutex<()>,
}

impl<M: Medium> Device<M> {
    /// A device that was made, or opened to the end: from here on the lanes' records may be written over.
    pub(crate) fn new(base: Base<M>, state: State, snapshots: List) -> Self {
        let map = Map::new(base, state);
        let snapshots = Snapshots::new(&map, snapshots);
        Device { map, snapshots, resizing: PauseMutex::default() }
    }

    pub(crate) fn size(&self) -> u64 {
        self.map.size()
    }

    pub(crate) fn space(&self) -> &Space {
        &self.map.base.space
    }

    /// Whether the range lies on the disk.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        self.map.check_range(offset, len)
    }

    /// Reports a fault of the medium.
    pub(crate) fn verify(&self) -> Result<()> {
        Ok(self.map.base.heap.verify()?)
    }

    /// Reads a range, which lies on the disk.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Reader::new(&self.map).read(offset, bytes)
    }

    /// Reads a range of a tree that nobody changes: a snapshot's.
    pub(crate) fn read_tree(&self, tree: Tree, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Reader::new(&self.map).read_tree(tree, offset, bytes)
    }

    /// Visits a range in parts that have data, and parts that have none.
    pub(crate) fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        Reader::new(&self.map).extents(offset, len, visit)
    }

    /// As [`extents`](Device::extents), of a tree that nobody changes.
    pub(crate) fn extents_of(
        &self,
        tree: Tree,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        Reader::new(&self.map).extents_of(tree, offset, len, visit)
    }

    /// Changes blocks as one step, durable when it returns. `end` is that of the request: the disk must not have become
    /// smaller than that.
    ///
    /// # Errors
    ///
    /// When the pool is full, or a block of which a part is kept is damaged: then nothing was changed.
    pub(crate) fn change(&self, pieces: &[Piece<'_>], end: u64) -> Result<()> {
        self.map.base.in_lane(|lane| {
            self.map.check_range(end, 0)?;
            Step::new(&self.map, lane).change(pieces, &[])
        })
    }

    /// As [`change`](Device::change), of one block that is written as a whole, which is what most changes are.
    pub(crate) fn write_block(&self, lba: Lba, block: &BlockData) -> Result<()> {
        // On its way to the core while the lane is waited for.
        self.map.prefetch(lba)?;
        self.map.base.in_lane(|lane| {
            self.map.check_range(lba.offset() + BLOCK_LEN, 0)?;
            Step::new(&self.map, lane).write_block(lba, block)
        })
    }

    /// As [`write_block`](Device::write_block), of some in a row.
    pub(crate) fn write_blocks(&self, first: Lba, blocks: &[BlockData]) -> Result<()> {
        self.map.base.in_lane(|lane| {
            self.map.check_range(first.offset(), size_of_val(blocks) as u64)?;
            Step::new(&self.map, lane).write_blocks(first, blocks)
        })
    }

    /// As [`change`](Device::change), and in the same step the disk gets a size of at least `size_min`.
    pub(crate) fn change_and_grow(
        &self,
        pieces: &[Piece<'_>],
        end: u64,
        size_min: u64,
    ) -> Result<()> {
        self.resizer().change_and_grow(pieces, end, size_min)
    }

    /// Unmaps the blocks from `first` to before `end`, those of one leaf as one step.
    pub(crate) fn unmap(&self, first: Lba, end: u64) -> Result<()> {
        unmap(&self.map, first, end)
    }

    /// Refuses a size that the disk cannot have.
    pub(crate) fn check_new_size(&self, size: u64) -> Result<()> {
        check_new_size(&self.map.base, size)
    }

    /// Gives the disk another size. Shrinking it drops what lies behind the new end; snapshots keep it.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.check_new_size(size)?;
        self.resizer().resize(size)
    }

    /// Completes what a crash has interrupted, if that can be done.
    pub(crate) fn resume(&self) -> Result<()> {
        self.resizer().resume()
    }

    /// Waits for the turn to give the disk another size.
    fn resizer(&self) -> Resizer<'_, M> {
        Resizer::new(&self.map, &self.resizing)
    }

    /// Keeps the disk as it is now under a name.
    pub(crate) fn make_snapshot(&self, name: &str) -> Result<()> {
        self.snapshots.make(&self.map, name)
    }

    /// Removes a snapshot and frees what it alone has, as one step.
    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<()> {
        self.snapshots.remove(&self.map, name)
    }

    /// All snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.snapshots.all(self.map.medium())
    }

    /// The snapshot of this name, and what keeps it from being removed.
    pub(crate) fn open_snapshot(&self, name: &str) -> Result<(Snapshot, Arc<()>)> {
        self.snapshots.open(self.map.medium(), name)
    }

    /// Tells each violation once, as it is found; `progress` gets the bytes of data read so far, and may break off.
    pub(crate) fn check(
        &self,
        scope: CheckScope,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
        tell: &mut dyn FnMut(Violation),
    ) -> Result<()> {
        Check { map: &self.map, snapshots: &self.snapshots }.run(scope, progress, tell)
    }

    /// Reads all data, and tells of those that do not fit their checksums.
    pub(crate) fn scrub(
        &self,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<Violation>> {
        Check { map: &self.map, snapshots: &self.snapshots }.scrub(progress)
    }

    /// Where everything is that the map leads to.
    pub(crate) fn lines(&self) -> Result<Lines> {
        let snapshots = self.snapshots();
        let trees = snapshots.iter().map(|snapshot| snapshot.tree);
        Lines::of_trees(&self.map.base, trees.chain([self.map.tree()]))
    }
}

impl<M: Medium> Drop for Device<M> {
    /// Leaves no record that opening would have to prove: a block that a damaged medium changes later is one that fails its
    /// checksum, and no write that a crash has torn.
    fn drop(&mut self) {
        if self.map.medium().fault().is_none() && !std::thread::panicking() {
            self.map.base.clear_all_records();
        }
    }
}
