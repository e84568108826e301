//! The public interface of a disk.

pub(crate) mod base;
mod change;
mod check;
mod device;
mod journal;
pub(crate) mod layout;
mod map;
pub(crate) mod pieces;
mod read;
mod record;
mod recover;
mod resize;
mod slabs;
mod snapshot;
mod space;
mod stripes;
pub(crate) mod tree;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::pool::{RootInfo, RootObject};
use remanent_pmem::{Mapped, Medium, Pool};

use self::check::Told;
use self::device::Device;
use self::layout::{Lba, Tree};
use self::pieces::{Part, Piece, Pieces, What, pieces};
use crate::{Error, Result};

pub use self::check::CheckScope;
pub use self::layout::{BLOCK_LEN, SIZE_MAX, SNAPSHOT_COUNT, Shape};
pub use self::snapshot::SNAPSHOT_NAME_LEN;

/// A block device in a pool. Every change is atomic.
///
/// ```
/// use remanent_blockdev::Disk;
/// use remanent_pmem::Pool;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let disk = Disk::create(&pool, "disk", 1 << 30)?; // takes space when it is written
/// disk.write(4096, &[7; 8192])?; // atomic and durable
/// disk.snapshot("before")?;
///
/// let mut transaction = disk.transaction();
/// transaction.write(0, b"these two change")?;
/// transaction.write(1 << 20, b"together")?;
/// transaction.commit()?;
///
/// let mut bytes = [0; 8];
/// disk.read(1 << 20, &mut bytes)?;
/// assert_eq!(&bytes, b"together");
/// disk.open_snapshot("before")?.read(1 << 20, &mut bytes)?;
/// assert_eq!(bytes, [0; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Clones share one disk. Any number of threads may call all methods.
#[derive(Debug)]
pub struct Disk<M: Medium = Mapped> {
    device: Arc<Device<M>>,
}

impl<M: Medium> Clone for Disk<M> {
    fn clone(&self) -> Self {
        Disk { device: Arc::clone(&self.device) }
    }
}

/// Size of a disk, and the space that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes of the pool that the disk has taken.
    pub allocated: u64,
    /// Bytes of a slab, the unit in which the disk takes space.
    pub slab_len: u64,
}

/// A snapshot of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Bytes of the disk at that time.
    pub size: u64,
    /// Time when it was made, in seconds since 1970.
    pub created_unix_s: u64,
}

/// A range of a disk that has data throughout, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// Whether the range has data. If not, it reads as zeros.
    pub is_mapped: bool,
}

impl<M: Medium> Disk<M> {
    /// Whether the root is a disk.
    pub fn is_one(root: &RootInfo) -> bool {
        root.root_type == <Device<M> as RootObject<M>>::root_type()
    }

    /// Creates an empty disk of `size` bytes under a new root.
    ///
    /// The disk takes 256 KiB of the pool at once. When it is written it takes slabs of a 64th of
    /// its size (64 KiB to 64 MiB). Create a disk of 0 bytes if it is to [grow](Transaction::grow):
    /// its slabs have 1 MiB, enough for 294 GiB.
    ///
    /// # Errors
    ///
    /// When `size` is not a multiple of 512 or is more than [`SIZE_MAX`](crate::SIZE_MAX), the root
    /// exists, or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str, size: u64) -> Result<Self> {
        Self::create_with(pool, name, size, Shape::of(size))
    }

    /// Like [`create`](Disk::create), with limits that do not follow from the size.
    ///
    /// # Errors
    ///
    /// Those of [`create`](Disk::create); [`Error::Shape`].
    pub fn create_with(pool: &Pool<M>, name: &str, size: u64, shape: Shape) -> Result<Self> {
        self::resize::check_size(size)?;
        self::recover::check_shape(shape)?;
        let fill = |heap| Device::format_in(heap, size, shape);
        Ok(Disk { device: pool.create_root_with(name, fill)? })
    }

    /// Opens the disk under a root.
    ///
    /// # Errors
    ///
    /// When there is no disk under this root, or it is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        let disk = Disk { device: pool.open_root::<Device<M>>(name)? };
        disk.device.resume()?;
        Ok(disk)
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// Size of the disk, and the space that it takes.
    pub fn info(&self) -> DiskInfo {
        let space = self.device.space();
        let slab_len = space.slab_len();
        DiskInfo { size: self.size(), allocated: space.slab_count() as u64 * slab_len, slab_len }
    }

    /// Reads any range.
    ///
    /// Each block is read as one write left it; different blocks may be of different writes.
    /// Reading takes a lock in two cases only: to distinguish damage from a concurrent write, and
    /// to find the leaf of a block for the first time.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; [`Error::Checksum`] when a block does not hold what was written to
    /// it.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        self.device.read(offset, bytes)
    }

    /// Writes any range, atomically. The write is durable when this returns. Whole blocks of 4 KiB
    /// are quickest.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; the pool is full; [`Error::Checksum`] when a block is damaged and
    /// only a part of it is written. In each case nothing was changed.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        let (blocks, part) = bytes.as_chunks();
        if offset.is_multiple_of(BLOCK_LEN) && part.is_empty() {
            let first = Lba::containing(offset);
            return match blocks {
                [] => self.flush(),
                [block] => self.device.write_block(first, block),
                _ => self.device.write_blocks(first, blocks),
            };
        }
        self.device.change(&pieces(offset, bytes), offset + bytes.len() as u64)
    }

    /// Writes zeros, atomically for each 1.75 MiB. Whole blocks of zeros take no space.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Disk::write). A part may have been written.
    pub fn write_zeros(&self, offset: u64, len: u64) -> Result<()> {
        self.device.check_range(offset, len)?;
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(BLOCK_LEN).min(end), end - end % BLOCK_LEN);
        let edges =
            if first < last { [(offset, first), (last, end)] } else { [(offset, end), (end, end)] };
        for (from, to) in edges.into_iter().filter(|(from, to)| from < to) {
            let zeros = vec![0; (to - from) as usize];
            self.write(from, &zeros)?;
        }
        self.trim(offset, len)
    }

    /// Discards the whole blocks in a range: they read as zeros, and their space is free. Blocks
    /// that are only partly in the range stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; the pool is so full that even the record does not fit.
    pub fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.device.check_range(offset, len)?;
        self.device.unmap(Lba(offset.div_ceil(BLOCK_LEN)), (offset + len) / BLOCK_LEN)
    }

    /// Reports whether the medium met a fault. There is nothing to flush: everything acknowledged
    /// is durable already.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn flush(&self) -> Result<()> {
        self.device.verify()
    }

    /// Visits a range in parts that have data and parts that have none, until `visit` breaks off.
    /// Whatever a damaged line of the map leads to counts as data.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; a damaged node above the leaves of the map.
    pub fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.device.check_range(offset, len)?;
        self.device.extents(offset, len, visit)
    }

    /// Begins a transaction: several writes that take effect atomically.
    pub fn transaction(&self) -> Transaction<'_, M> {
        Transaction { disk: self, blocks: BTreeMap::new(), end: 0, size_min: 0 }
    }

    /// Changes the size of the disk, to a multiple of 512.
    ///
    /// Added space reads as zeros. Data behind a new end are gone, except in snapshots. The change
    /// is atomic. The disk frees the blocks behind a new end after it has become smaller. If that
    /// fails, because the pool is full, for example, the new size holds nevertheless, and the next
    /// resize frees the rest.
    ///
    /// # Errors
    ///
    /// [`Error::Size`], [`Error::Damaged`], or the pool is full.
    pub fn resize(&self, size: u64) -> Result<()> {
        self.device.resize(size)
    }

    /// Makes a snapshot: keeps the present content of the disk for reading. This changes two lines,
    /// whatever the disk holds.
    ///
    /// # Errors
    ///
    /// When the name is taken or too long, or there are already
    /// [`SNAPSHOT_COUNT`](crate::SNAPSHOT_COUNT) snapshots.
    pub fn snapshot(&self, name: &str) -> Result<()> {
        self.device.make_snapshot(name)
    }

    /// The snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let infos = self.device.snapshots().into_iter().map(|snapshot| SnapshotInfo {
            name: snapshot.name,
            size: snapshot.size,
            created_unix_s: snapshot.created_unix_s,
        });
        infos.collect()
    }

    /// Opens a snapshot for reading.
    ///
    /// # Errors
    ///
    /// When there is no snapshot of that name.
    pub fn open_snapshot(&self, name: &str) -> Result<Snapshot<M>> {
        let (snapshot, reader) = self.device.open_snapshot(name)?;
        let device = Arc::clone(&self.device);
        Ok(Snapshot { device, tree: snapshot.tree, size: snapshot.size, _reader: reader })
    }

    /// Removes a snapshot, and frees the blocks that only this snapshot has.
    ///
    /// Meanwhile writers wait, and threads that open snapshots: for as long as it takes to read the
    /// nodes of the map in which the snapshot differs from its neighbours.
    ///
    /// # Errors
    ///
    /// When there is no snapshot of that name, it is open, or the record does not fit into the
    /// pool.
    pub fn remove_snapshot(&self, name: &str) -> Result<()> {
        self.device.remove_snapshot(name)
    }

    /// Proves that the disk's map and its free space agree, and compares all data with their
    /// checksums. Returns the first 100 violations; one more says how many others there are.
    /// Writers wait while the map is checked.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. Damage of the disk is in the result, and not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        let mut told = Told::default();
        let go_on = |_| ControlFlow::Continue(());
        self.check_with(CheckScope::All, go_on, |violation| told.push(violation))?;
        Ok(told.finish())
    }

    /// Like [`check`](Disk::check), for a part of the disk, and hands out each violation as it is
    /// found. `progress` gets the bytes of data read so far, and may break off.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Disk::check).
    pub fn check_with(
        &self,
        scope: CheckScope,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
        mut tell: impl FnMut(Violation),
    ) -> Result<()> {
        self.device.check(scope, &mut progress, &mut tell)
    }

    /// Places of the disk's lines and blocks, for tests that damage them.
    ///
    /// # Errors
    ///
    /// When the map is already damaged.
    #[doc(hidden)]
    pub fn lines(&self) -> Result<crate::Lines> {
        self.device.lines()
    }

    /// Compares all data of the disk and its snapshots with their checksums. `visit` gets the bytes
    /// read so far, and may break off.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. Damaged data are in the result, and not an error.
    pub fn scrub(&self, visit: impl FnMut(u64) -> ControlFlow<()>) -> Result<Vec<Violation>> {
        self.device.scrub(visit)
    }
}

/// Writes to a [`Disk`] that take effect atomically, however many and wherever they are.
///
/// A transaction takes one fence for up to 64 blocks in at most some 20 places, and two for more;
/// two more if leaves of the map have to be made.
///
/// The writes are kept in memory until [`commit`](Transaction::commit). After a crash all of them
/// are there, or none. Concurrent readers find each block as it was or as it is. Dropping the
/// transaction discards it. Bytes that the transaction does not write keep the values that others
/// give them before the commit. If two transactions write the same bytes, the one that commits
/// later counts.
#[derive(Debug)]
pub struct Transaction<'d, M: Medium = Mapped> {
    disk: &'d Disk<M>,
    blocks: BTreeMap<Lba, BlockChange>,
    /// End of the write that reaches furthest.
    end: u64,
    /// Minimal size of the disk after the commit.
    size_min: u64,
}

/// The change of one block.
#[derive(Debug)]
enum BlockChange {
    Data(Vec<u8>),
    Parts(Vec<Part>),
    Nothing,
}

impl BlockChange {
    /// Adds a part on top of this change.
    fn write(&mut self, start: usize, bytes: &[u8]) {
        match self {
            BlockChange::Data(data) => data[start..start + bytes.len()].copy_from_slice(bytes),
            BlockChange::Parts(parts) => parts.push((start, bytes.to_vec())),
            BlockChange::Nothing => {
                let mut data = vec![0; BLOCK_LEN as usize];
                data[start..start + bytes.len()].copy_from_slice(bytes);
                *self = BlockChange::Data(data);
            }
        }
    }

    /// Applies this change to `data`, the present content of the block from `start` on.
    fn apply(&self, start: usize, data: &mut [u8]) {
        let mut put = |from: usize, bytes: &[u8]| {
            let (begin, end) = (from.max(start), (from + bytes.len()).min(start + data.len()));
            if begin < end {
                data[begin - start..end - start].copy_from_slice(&bytes[begin - from..end - from]);
            }
        };
        match self {
            BlockChange::Data(bytes) => put(0, bytes),
            BlockChange::Parts(parts) => parts.iter().for_each(|(from, bytes)| put(*from, bytes)),
            BlockChange::Nothing => data.fill(0),
        }
    }
}

impl<M: Medium> Transaction<'_, M> {
    /// Makes the disk at least `size` bytes long, a multiple of 512, in the same atomic step and
    /// without a further fence. Added space that the transaction does not write reads as zeros. If
    /// the disk is as large already, its size stays.
    ///
    /// ```
    /// # use remanent_blockdev::Disk;
    /// # use remanent_pmem::Pool;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let disk = Disk::create(&pool, "database", 0)?;
    /// let mut transaction = disk.transaction();
    /// transaction.grow(8192)?;
    /// transaction.write(4096, b"the second page")?;
    /// assert_eq!(disk.size(), 0);
    /// transaction.commit()?;
    /// assert_eq!(disk.size(), 8192);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Size`].
    pub fn grow(&mut self, size: u64) -> Result<()> {
        self.disk.device.check_new_size(size)?;
        self.size_min = self.size_min.max(size);
        Ok(())
    }

    /// Size of the disk as if the transaction had been committed.
    pub fn size(&self) -> u64 {
        self.disk.size().max(self.size_min)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.size();
        match offset.checked_add(len) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size }),
        }
    }

    /// Adds a write.
    ///
    /// # Errors
    ///
    /// As for [`Disk::write`].
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        self.end = self.end.max(offset + bytes.len() as u64);
        for piece in pieces(offset, bytes) {
            match piece.what {
                What::Whole(data) => {
                    self.blocks.insert(piece.lba, BlockChange::Data(data.to_vec()));
                }
                What::Part(start, part) => {
                    let empty = || BlockChange::Parts(Vec::new());
                    self.blocks.entry(piece.lba).or_insert_with(empty).write(start, part);
                }
                What::Parts(_) | What::Nothing => unreachable!("no piece of contiguous bytes"),
            }
        }
        Ok(())
    }

    /// Adds a discard of the whole blocks in a range, which then read as zeros.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`].
    pub fn trim(&mut self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        self.end = self.end.max(offset + len);
        for lba in offset.div_ceil(BLOCK_LEN)..(offset + len) / BLOCK_LEN {
            self.blocks.insert(Lba(lba), BlockChange::Nothing);
        }
        Ok(())
    }

    /// Reads as if the transaction had been committed.
    ///
    /// # Errors
    ///
    /// As for [`Disk::read`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        let end = offset + bytes.len() as u64;
        let there = self.disk.size().clamp(offset, end) - offset;
        let (old, added) = bytes.split_at_mut(there as usize);
        if !old.is_empty() {
            self.disk.read(offset, old)?;
        }
        added.fill(0);
        for (lba, change) in self.blocks.range(Lba::containing(offset)..) {
            if lba.offset() >= end {
                break;
            }
            let (from, to) = (lba.offset().max(offset), (lba.offset() + BLOCK_LEN).min(end));
            let target = &mut bytes[(from - offset) as usize..(to - offset) as usize];
            change.apply((from - lba.offset()) as usize, target);
        }
        Ok(())
    }

    /// Commits the transaction, atomically. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// When the pool is full, the disk has become too small, or a block is damaged and only a part
    /// of it is written. In each case nothing was changed.
    pub fn commit(self) -> Result<()> {
        let pieces: Pieces<'_> = self
            .blocks
            .iter()
            .map(|(&lba, change)| match change {
                BlockChange::Data(data) => Piece { lba, what: What::Whole(data) },
                BlockChange::Parts(parts) => Piece { lba, what: What::Parts(parts) },
                BlockChange::Nothing => Piece { lba, what: What::Nothing },
            })
            .collect();
        if self.size_min > self.disk.size() {
            return self.disk.device.change_and_grow(&pieces, self.end, self.size_min);
        }
        // If the disk has become smaller than this meanwhile, nothing is changed.
        self.disk.device.change(&pieces, self.end.max(self.size_min))
    }
}

/// A read-only view of a disk as it was at one moment.
#[derive(Debug)]
pub struct Snapshot<M: Medium = Mapped> {
    device: Arc<Device<M>>,
    tree: Tree,
    size: u64,
    /// Prevents the removal of the snapshot.
    _reader: Arc<()>,
}

impl<M: Medium> Snapshot<M> {
    /// Bytes of the disk at that time.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads any range.
    ///
    /// # Errors
    ///
    /// As for [`Disk::read`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check_range(offset, bytes.len() as u64)?;
        self.device.read_tree(self.tree, offset, bytes)
    }

    /// Like [`Disk::extents`].
    ///
    /// # Errors
    ///
    /// Those of [`Disk::extents`].
    pub fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.check_range(offset, len)?;
        self.device.extents_of(self.tree, offset, len, visit)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Error::OutOfRange { offset, len, size: self.size }),
        }
    }
}
