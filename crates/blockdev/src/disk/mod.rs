//! The disk as programs use it.

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

/// A block device in a pool, every change of which is atomic.
///
/// ```
/// use remanent_blockdev::Disk;
/// use remanent_pmem::Pool;
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("example.pool");
/// let pool = Pool::options().create(&path)?;
/// let disk = Disk::create(&pool, "disk", 1 << 30)?; // takes space as it is written
/// disk.write(4096, &[7; 8192])?; // durable, and all of it or nothing
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
/// Clones share one disk. All methods may be called by any number of threads.
#[derive(Debug)]
pub struct Disk<M: Medium = Mapped> {
    device: Arc<Device<M>>,
}

impl<M: Medium> Clone for Disk<M> {
    fn clone(&self) -> Self {
        Disk { device: Arc::clone(&self.device) }
    }
}

/// How large a disk is, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes of the pool that it has taken.
    pub allocated: u64,
    /// Bytes of a slab, by which it grows.
    pub slab_len: u64,
}

/// A snapshot of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Bytes of the disk at that time.
    pub size: u64,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
}

/// A part of a disk that was written, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// Whether it has data; else it reads as zeros.
    pub is_mapped: bool,
}

impl<M: Medium> Disk<M> {
    /// Whether the root is a disk.
    pub fn is_one(root: &RootInfo) -> bool {
        root.root_type == <Device<M> as RootObject<M>>::root_type()
    }

    /// Makes an empty disk of `size` bytes under a new root.
    ///
    /// It takes 256 KiB of the pool, and slabs of a 64th of its size (64 KiB to 64 MiB) as it is written. A disk of
    /// 0 bytes is one that is to [grow](Transaction::grow): its slabs are of 1 MiB, enough for 294 GiB.
    ///
    /// # Errors
    ///
    /// When `size` is not a multiple of 512 or more than [`SIZE_MAX`](crate::SIZE_MAX), the root exists, or the pool is
    /// full.
    pub fn create(pool: &Pool<M>, name: &str, size: u64) -> Result<Self> {
        Self::create_with(pool, name, size, Shape::of(size))
    }

    /// As [`create`](Disk::create), with limits other than those of its size.
    ///
    /// # Errors
    ///
    /// As for [`create`](Disk::create); [`Error::Shape`].
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
    /// When there is none, or it is damaged.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self> {
        let disk = Disk { device: pool.open_root::<Device<M>>(name)? };
        disk.device.resume()?;
        Ok(disk)
    }

    /// Bytes of the disk.
    pub fn size(&self) -> u64 {
        self.device.size()
    }

    /// How large it is, and what it takes.
    pub fn info(&self) -> DiskInfo {
        let space = self.device.space();
        let slab_len = space.slab_len();
        DiskInfo { size: self.size(), allocated: space.slab_count() as u64 * slab_len, slab_len }
    }

    /// Reads any range. Takes no lock but to tell damage from a write that is under way, and to find the way to a
    /// block for the first time.
    ///
    /// Each block is read as one write has left it; different blocks may be of different writes.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; [`Error::Checksum`] when a block does not hold what was written to it.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.device.check_range(offset, bytes.len() as u64)?;
        self.device.read(offset, bytes)
    }

    /// Writes any range, as one step that is durable when this returns. Whole blocks of 4 KiB are quickest.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], or when the pool is full; [`Error::Checksum`] when a block is damaged of which a part is to
    /// be kept. Nothing was changed then.
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

    /// Writes zeros, as one step for each 1.75 MiB. They take no space, but for those that share a block with other bytes.
    ///
    /// # Errors
    ///
    /// As for [`write`](Disk::write); a part may have been done.
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

    /// Says that the whole blocks of a range are not needed: they read as zeros, and their space is free. What is asked
    /// for in parts of blocks is left alone.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], or when the pool is full and not even a record of it has room.
    pub fn trim(&self, offset: u64, len: u64) -> Result<()> {
        self.device.check_range(offset, len)?;
        self.device.unmap(Lba(offset.div_ceil(BLOCK_LEN)), (offset + len) / BLOCK_LEN)
    }

    /// Everything that was acknowledged is durable already; reports whether the medium can still be relied on.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn flush(&self) -> Result<()> {
        self.device.verify()
    }

    /// Visits a range in parts that have data, and parts that have none, until told to stop. What a damaged line of the
    /// map led to counts as data.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`], or when a node of the map is damaged that leads to others.
    pub fn extents(
        &self,
        offset: u64,
        len: u64,
        visit: impl FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.device.check_range(offset, len)?;
        self.device.extents(offset, len, visit)
    }

    /// Several writes that happen as one.
    pub fn transaction(&self) -> Transaction<'_, M> {
        Transaction { disk: self, blocks: BTreeMap::new(), end: 0, size_min: 0 }
    }

    /// Gives the disk another size, a multiple of 512.
    ///
    /// What is added reads as zeros. What lies behind a new end is gone, but for snapshots. A crash leaves the one size
    /// or the other. What lies behind a new end is freed after the disk is smaller: where that fails, in a full pool say, the
    /// size holds all the same, and the rest is freed with the next size.
    ///
    /// # Errors
    ///
    /// [`Error::Size`], [`Error::Damaged`], or when the pool is full.
    pub fn resize(&self, size: u64) -> Result<()> {
        self.device.resize(size)
    }

    /// Keeps the disk as it is at one moment, for reading. Costs two lines, whatever is on the disk.
    ///
    /// # Errors
    ///
    /// When the name is taken or too long, or there are [`SNAPSHOT_COUNT`](crate::SNAPSHOT_COUNT) already.
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
    /// When there is none of that name.
    pub fn open_snapshot(&self, name: &str) -> Result<Snapshot<M>> {
        let (snapshot, reader) = self.device.open_snapshot(name)?;
        let device = Arc::clone(&self.device);
        Ok(Snapshot { device, tree: snapshot.tree, size: snapshot.size, _reader: reader })
    }

    /// Removes a snapshot and frees what it alone has. Writers wait meanwhile, and who opens snapshots: as
    /// long as it takes to read the nodes of the map in which it differs from its neighbours.
    ///
    /// # Errors
    ///
    /// When there is none of that name, it is open, or the pool has no room for the record of it.
    pub fn remove_snapshot(&self, name: &str) -> Result<()> {
        self.device.remove_snapshot(name)
    }

    /// Proves that the disk's map and its free space agree, and compares all data with their checksums. Writers wait while the
    /// map is looked at. The first 100 violations are the answer; one more says how many others there are.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the disk is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        let mut told = Told::default();
        let go_on = |_| ControlFlow::Continue(());
        self.check_with(CheckScope::All, go_on, |violation| told.push(violation))?;
        Ok(told.finish())
    }

    /// As [`check`](Disk::check), of a part of it, and handing out each violation as it is found. `progress` gets the bytes of
    /// data read so far, and may break off.
    ///
    /// # Errors
    ///
    /// As for [`check`](Disk::check).
    pub fn check_with(
        &self,
        scope: CheckScope,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
        mut tell: impl FnMut(Violation),
    ) -> Result<()> {
        self.device.check(scope, &mut progress, &mut tell)
    }

    /// Where the disk's lines and blocks are: for tests that damage them.
    ///
    /// # Errors
    ///
    /// When the map is damaged already.
    #[doc(hidden)]
    pub fn lines(&self) -> Result<crate::Lines> {
        self.device.lines()
    }

    /// Reads everything that was written, on the disk and in its snapshots, and compares it with its checksums.
    /// `visit` gets the bytes read so far, and may break off.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What does not hold what was written is the result.
    pub fn scrub(&self, visit: impl FnMut(u64) -> ControlFlow<()>) -> Result<Vec<Violation>> {
        self.device.scrub(visit)
    }
}

/// Writes to a [`Disk`] that happen as one step, however many and wherever they are: one fence in all for up to 64 blocks
/// in not more than some 20 places, and two for more. Two more where leaves of the map have to be made.
///
/// They are kept in memory until [`commit`](Transaction::commit). Who opens the disk after a crash finds all of them or
/// none; who reads meanwhile finds each block as it was or as it is. Dropping the transaction does nothing. Bytes that are
/// not written stay as others leave them until then; of two transactions that write the same bytes the one that commits
/// later counts.
#[derive(Debug)]
pub struct Transaction<'d, M: Medium = Mapped> {
    disk: &'d Disk<M>,
    blocks: BTreeMap<Lba, BlockChange>,
    /// End of the furthest write.
    end: u64,
    /// Bytes that the disk has at least, once this is committed.
    size_min: u64,
}

/// What becomes of a block.
#[derive(Debug)]
enum BlockChange {
    Data(Vec<u8>),
    Parts(Vec<Part>),
    Nothing,
}

impl BlockChange {
    /// The same, with a part on top.
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

    /// Brings `data`, what the disk has of the block from `start` on, to what it will have.
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
    /// Bytes that the disk is to have at least, a multiple of 512: it becomes larger in the same step, for no fence more,
    /// unless it is as large by then. What is added, and not written, reads as zeros.
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

    /// Bytes of the disk, as if the transaction had been committed.
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

    /// Adds that the whole blocks of a range are to read as zeros.
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

    /// Makes everything happen, durably when it returns.
    ///
    /// # Errors
    ///
    /// When the pool is full, the disk has become too small, or a block is damaged of which a part is to be kept: then
    /// nothing happened.
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
        // Should the disk have become smaller than that meanwhile, nothing happens.
        self.disk.device.change(&pieces, self.end.max(self.size_min))
    }
}

/// A disk as it was, for reading.
#[derive(Debug)]
pub struct Snapshot<M: Medium = Mapped> {
    device: Arc<Device<M>>,
    tree: Tree,
    size: u64,
    /// Keeps it from being removed.
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

    /// As [`Disk::extents`].
    ///
    /// # Errors
    ///
    /// As for [`Disk::extents`].
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
