//! The device under a [`Disk`](crate::Disk): every operation on it begins here.
//!
//! The device checks the request, takes the lanes and locks, and calls down: to a [`Step`] that
//! changes blocks, a [`Reader`], the [`Snapshots`], a [`Resizer`] or a [`Check`]. These call the
//! [`Map`], the map calls its [`Base`], and the base calls the journal and the free space. No call
//! goes back up.

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
/// Lock order: `resizing`; a lane; the snapshots; the map's state; stripes of the map, ascending;
/// stripes of the bits, ascending; the growth of the space; its free blocks. Adding slabs needs no
/// stripe and no block for its record: it changes lines that nobody else changes, and they fit a
/// slot.
#[derive(Debug)]
pub(crate) struct Device<M: Medium> {
    map: Map<M>,
    snapshots: Snapshots,
    /// Held by the thread that resizes the disk; taken before any lane.
    resizing: PauseMutex<()>,
}

impl<M: Medium> Device<M> {
    /// The device of a disk that was just created, or opened to the end. From here on the lanes'
    /// records may be overwritten.
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

    /// Reads a range of an immutable tree: a snapshot's.
    pub(crate) fn read_tree(&self, tree: Tree, offset: u64, bytes: &mut [u8]) -> Result<()> {
        Reader::new(&self.map).read_tree(tree, offset, bytes)
    }

    /// Visits a range in parts that have data and parts that have none.
    pub(crate) fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        Reader::new(&self.map).extents(offset, len, visit)
    }

    /// Like [`extents`](Device::extents), for an immutable tree.
    pub(crate) fn extents_of(
        &self,
        tree: Tree,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        Reader::new(&self.map).extents_of(tree, offset, len, visit)
    }

    /// Changes blocks atomically; durable when it returns. `end` is the end of the request: if the
    /// disk has become smaller than that, nothing is changed.
    ///
    /// # Errors
    ///
    /// When the pool is full, or a block is damaged of which a part is kept. In both cases nothing
    /// was changed.
    pub(crate) fn change(&self, pieces: &[Piece<'_>], end: u64) -> Result<()> {
        self.map.base.in_lane(|lane| {
            self.map.check_range(end, 0)?;
            Step::new(&self.map, lane).change(pieces, &[])
        })
    }

    /// Like [`change`](Device::change), for one whole block, the most frequent change.
    pub(crate) fn write_block(&self, lba: Lba, block: &BlockData) -> Result<()> {
        // Fetches the entry while this thread waits for the lane.
        self.map.prefetch(lba)?;
        self.map.base.in_lane(|lane| {
            self.map.check_range(lba.offset() + BLOCK_LEN, 0)?;
            Step::new(&self.map, lane).write_block(lba, block)
        })
    }

    /// Like [`write_block`](Device::write_block), for consecutive blocks.
    pub(crate) fn write_blocks(&self, first: Lba, blocks: &[BlockData]) -> Result<()> {
        self.map.base.in_lane(|lane| {
            self.map.check_range(first.offset(), size_of_val(blocks) as u64)?;
            Step::new(&self.map, lane).write_blocks(first, blocks)
        })
    }

    /// Like [`change`](Device::change); the same atomic step gives the disk a size of at least
    /// `size_min`.
    pub(crate) fn change_and_grow(
        &self,
        pieces: &[Piece<'_>],
        end: u64,
        size_min: u64,
    ) -> Result<()> {
        self.resizer().change_and_grow(pieces, end, size_min)
    }

    /// Unmaps the blocks from `first` to before `end`, atomically for each leaf.
    pub(crate) fn unmap(&self, first: Lba, end: u64) -> Result<()> {
        unmap(&self.map, first, end)
    }

    /// Refuses a size that the disk cannot have.
    pub(crate) fn check_new_size(&self, size: u64) -> Result<()> {
        check_new_size(&self.map.base, size)
    }

    /// Changes the size of the disk. Shrinking drops the data behind the new end; snapshots keep
    /// them.
    pub(crate) fn resize(&self, size: u64) -> Result<()> {
        self.check_new_size(size)?;
        self.resizer().resize(size)
    }

    /// Completes what a crash has interrupted, as far as possible.
    pub(crate) fn resume(&self) -> Result<()> {
        self.resizer().resume()
    }

    /// Waits for the turn to resize the disk.
    fn resizer(&self) -> Resizer<'_, M> {
        Resizer::new(&self.map, &self.resizing)
    }

    /// Makes a snapshot of the present content.
    pub(crate) fn make_snapshot(&self, name: &str) -> Result<()> {
        self.snapshots.make(&self.map, name)
    }

    /// Removes a snapshot, and frees the blocks that only it has, atomically.
    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<()> {
        self.snapshots.remove(&self.map, name)
    }

    /// All snapshots, oldest first.
    pub(crate) fn snapshots(&self) -> Vec<Snapshot> {
        self.snapshots.all(self.map.medium())
    }

    /// The snapshot of this name, and a guard against its removal.
    pub(crate) fn open_snapshot(&self, name: &str) -> Result<(Snapshot, Arc<()>)> {
        self.snapshots.open(self.map.medium(), name)
    }

    /// Reports each violation once, as it is found. `progress` gets the bytes of data read so far,
    /// and may break off.
    pub(crate) fn check(
        &self,
        scope: CheckScope,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
        tell: &mut dyn FnMut(Violation),
    ) -> Result<()> {
        Check { map: &self.map, snapshots: &self.snapshots }.run(scope, progress, tell)
    }

    /// Reads all data, and reports those that do not match their checksums.
    pub(crate) fn scrub(
        &self,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Vec<Violation>> {
        Check { map: &self.map, snapshots: &self.snapshots }.scrub(progress)
    }

    /// Places of everything that the map leads to.
    pub(crate) fn lines(&self) -> Result<Lines> {
        let snapshots = self.snapshots();
        let trees = snapshots.iter().map(|snapshot| snapshot.tree);
        Lines::of_trees(&self.map.base, trees.chain([self.map.tree()]))
    }
}

impl<M: Medium> Drop for Device<M> {
    /// Leaves no record that the next opening would have to prove. A block that decays later then
    /// fails its checksum, instead of looking like a write that a crash has torn.
    fn drop(&mut self) {
        if self.map.medium().fault().is_none() && !std::thread::panicking() {
            self.map.base.clear_all_records();
        }
    }
}
