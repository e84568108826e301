//! The block device: writes of any length, transactions, trim, resizing, snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_blockdev::{BLOCK_LEN, Disk, Error, Result, Shape};
use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::pool::Format;

use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// Bytes of a sector, the unit in which the model describes a block.
pub(crate) const SECTOR_LEN: u64 = 512;
pub(crate) const SECTORS: usize = (BLOCK_LEN / SECTOR_LEN) as usize;
/// Blocks of a slab: the minimum.
const SLAB_BLOCKS: u64 = 16;

/// Content of a block: a stamp for each sector, 0 for zeros.
pub(crate) type Sectors = [u64; SECTORS];
pub(crate) type Blocks = BTreeMap<u64, Sectors>;

/// A disk of which some blocks are used.
#[derive(Clone, Debug)]
pub(crate) struct Disks {
    /// Numbers of the used blocks.
    pub(crate) lbas: &'static [std::ops::Range<u64>],
    /// Sizes of the disk in sectors; the first one at the beginning.
    pub(crate) sizes: &'static [u64],
    /// Kinds of operations, and their frequency.
    pub(crate) mix: &'static [(Kind, u64)],
    /// Maximal number of lines in a slot's record; a record of more takes blocks.
    pub(crate) lines_max: u64,
    /// Maximal number of spares of a lane; further replaced blocks are free for all.
    pub(crate) spares_max: u64,
    /// Size beyond which the pool does not grow.
    pub(crate) size_max: u64,
    /// Whether the medium is declared to have write disturbance.
    pub(crate) is_disturbed: bool,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    /// Like `Write`, of more blocks than a record vouches for, or nearly as many.
    Row,
    /// Like `Write`, of more blocks than a slab has.
    Long,
    Part,
    Transact,
    /// Like `Transact`, with growth of the disk.
    Grow,
    Trim,
    Zero,
    Resize,
    Snapshot,
    RemoveSnapshot,
    Read,
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Consecutive blocks from this one on, each with the next stamp.
    Write(u64, u64, u64),
    /// Some sectors of a block, or of two consecutive blocks.
    Part(u64, u64, u64),
    /// Minimal size of the disk in sectors; and blocks with their stamps.
    Transact(u64, Vec<(u64, u64)>),
    Trim(u64, u64),
    /// Zeros in sectors of one block.
    Zero(u64, u64),
    Resize(u64),
    Snapshot(u64),
    RemoveSnapshot(u64),
    Read(u64),
}

/// Content of the disk, and its snapshots by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Size in sectors; `None` for the first size.
    resized: Option<u64>,
    blocks: Blocks,
    snapshots: BTreeMap<u64, (u64, Blocks)>,
}

/// Sets sectors, by their numbers on the disk.
pub(crate) fn set(blocks: &mut Blocks, sectors: std::ops::Range<u64>, stamp: u64) {
    for sector in sectors {
        let block = blocks.entry(sector / SECTORS as u64).or_default();
        block[(sector % SECTORS as u64) as usize] = stamp;
    }
}

/// The words of a sector with a stamp; two stamps differ in each word.
fn word(stamp: u64, index: u64) -> u64 {
    if stamp == 0 { 0 } else { (index + 1) << 32 | stamp }
}

pub(crate) fn sector(stamp: u64) -> [u8; SECTOR_LEN as usize] {
    let mut bytes = [0; SECTOR_LEN as usize];
    for (bytes, index) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(0..) {
        *bytes = word(stamp, index).to_le_bytes();
    }
    bytes
}

pub(crate) fn block(stamp: u64) -> Vec<u8> {
    sector(stamp).repeat(SECTORS)
}

/// The stamps in a block that was read; `None` if a sector is torn.
pub(crate) fn stamps(bytes: &[u8]) -> Option<Sectors> {
    let mut sectors = [0; SECTORS];
    for (stamp, bytes) in sectors.iter_mut().zip(bytes.chunks(SECTOR_LEN as usize)) {
        *stamp = u64::from_le_bytes(*bytes.first_chunk()?) & u64::from(u32::MAX);
        if sector(*stamp) != bytes {
            return None;
        }
    }
    Some(sectors)
}

fn name(number: u64) -> String {
    format!("snapshot {number}")
}

/// Number of stamps to draw from.
pub(crate) const STAMPS: u64 = 24;

impl Disks {
    fn lba(&self, rng: &mut Rng) -> u64 {
        let range = rng.pick(self.lbas).clone();
        range.start + rng.below(range.end - range.start)
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.lbas.iter().flat_map(Clone::clone)
    }

    fn read_block(
        size: u64,
        lba: u64,
        read: impl Fn(u64, &mut [u8]) -> Result<()>,
    ) -> Result<Option<Sectors>> {
        let mut bytes = [0; BLOCK_LEN as usize];
        let len = size.saturating_sub(lba * BLOCK_LEN).min(BLOCK_LEN) as usize;
        read(lba * BLOCK_LEN, &mut bytes[..len])?;
        Ok(stamps(&bytes))
    }

    fn blocks(&self, size: u64, read: impl Fn(u64, &mut [u8]) -> Result<()>) -> Outcome<Blocks> {
        let mut blocks = Blocks::new();
        for lba in self.all().filter(|lba| lba * BLOCK_LEN < size) {
            match Self::read_block(size, lba, &read)? {
                Some(sectors) if sectors == [0; SECTORS] => {}
                Some(sectors) => drop(blocks.insert(lba, sectors)),
                None => return Err(format!("block {lba} is torn").into()),
            }
        }
        Ok(blocks)
    }

    /// Compares the mapped extents of the disk with its content: data lie nowhere else.
    fn check_extents(&self, disk: &Disk<Arc<Sim>>, blocks: &Blocks) -> Outcome {
        let (mut at, mut holes) = (0, Vec::new());
        disk.extents(0, disk.size(), |extent| {
            if !extent.is_mapped {
                holes.push(at..at + extent.len);
            }
            at += extent.len;
            std::ops::ControlFlow::Continue(())
        })?;
        if at != disk.size() {
            return Err(format!("extents end at {at} of {} bytes", disk.size()).into());
        }
        match blocks.keys().find(|&lba| holes.iter().any(|hole| hole.contains(&(lba * BLOCK_LEN))))
        {
            Some(lba) => Err(format!("block {lba} has data and is no extent's").into()),
            None => Ok(()),
        }
    }

    fn transact(disk: &Disk<Arc<Sim>>, size_min: u64, blocks: &[(u64, u64)]) -> Result<()> {
        let mut transaction = disk.transaction();
        transaction.grow(size_min * SECTOR_LEN)?;
        for &(lba, stamp) in blocks {
            match stamp {
                0 => transaction.trim(lba * BLOCK_LEN, BLOCK_LEN)?,
                _ => transaction.write(lba * BLOCK_LEN, &block(stamp))?,
            }
            // The transaction reads its own last write before anybody else does.
            let mut bytes = [0; BLOCK_LEN as usize];
            let len = (transaction.size() - lba * BLOCK_LEN).min(BLOCK_LEN) as usize;
            transaction.read(lba * BLOCK_LEN, &mut bytes[..len])?;
            assert_eq!(stamps(&bytes), stamps(&block(stamp)), "block {lba} in a transaction");
        }
        transaction.commit()
    }

    fn do_op(disk: &Disk<Arc<Sim>>, op: &Op) -> Result<Answer<Sectors>> {
        match *op {
            Op::Write(lba, count, stamp) => {
                let bytes: Vec<u8> = (0..count).flat_map(|index| block(stamp + index)).collect();
                disk.write(lba * BLOCK_LEN, &bytes)?;
            }
            Op::Part(first, count, stamp) => {
                disk.write(first * SECTOR_LEN, &sector(stamp).repeat(count as usize))?;
            }
            Op::Transact(size_min, ref blocks) => Self::transact(disk, size_min, blocks)?,
            Op::Trim(lba, count) => disk.trim(lba * BLOCK_LEN, count * BLOCK_LEN)?,
            Op::Zero(first, count) => {
                disk.write_zeros(first * SECTOR_LEN, count * SECTOR_LEN)?;
            }
            Op::Resize(sectors) => disk.resize(sectors * SECTOR_LEN)?,
            Op::Snapshot(number) => disk.snapshot(&name(number))?,
            Op::RemoveSnapshot(number) => disk.remove_snapshot(&name(number))?,
            Op::Read(lba) => {
                let size = disk.size();
                if lba * BLOCK_LEN > size {
                    return Ok(Answer::Bool(false));
                }
                let read = |offset, bytes: &mut [u8]| disk.read(offset, bytes);
                return Ok(match Self::read_block(size, lba, read)? {
                    Some(sectors) => Answer::Value(sectors),
                    None => Answer::Failed(format!("block {lba} is torn")),
                });
            }
        }
        Ok(Answer::Bool(true))
    }
}

impl Subject for Disks {
    type Op = Op;
    type Ret = Answer<Sectors>;
    type State = State;
    type Handle = Open<Disk<Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let mut format = Format::new(self.size_max);
        format.guarantee.write_disturbance = self.is_disturbed;
        let size = self.sizes[0] * SECTOR_LEN;
        let Disks { lines_max, spares_max, .. } = *self;
        let shape = Shape { slab_blocks: SLAB_BLOCKS, lines_max, spares_max };
        Open::create_in(medium, &format, |pool, name| Disk::create_with(pool, name, size, shape))
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, Disk::open)
    }

    fn apply(&self, handle: &Self::Handle, op: &Op) -> Answer<Sectors> {
        match Self::do_op(&handle.object, op) {
            Ok(answer) => answer,
            Err(Error::OutOfRange { .. } | Error::Snapshot { .. }) => Answer::Bool(false),
            Err(error) if error.is_full() => Answer::Refused(error.to_string()),
            Err(error @ Error::Pool(remanent_pmem::Error::Medium(_))) => {
                Answer::Refused(error.to_string())
            }
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Sectors> {
        let mut size = state.resized.unwrap_or(self.sizes[0]);
        let whole = SECTORS as u64;
        if let Op::Transact(size_min, _) = *op {
            size = size.max(size_min);
        }
        let end = match *op {
            Op::Write(lba, count, _) | Op::Trim(lba, count) => (lba + count) * whole,
            Op::Part(first, count, _) | Op::Zero(first, count) => first + count,
            Op::Transact(_, ref blocks) => {
                blocks.iter().map(|(lba, _)| (lba + 1) * whole).max().unwrap_or(0)
            }
            Op::Read(lba) => size.min((lba + 1) * whole).max(lba * whole),
            _ => 0,
        };
        if end > size {
            return Answer::Bool(false);
        }
        match *op {
            Op::Write(lba, count, stamp) => {
                for index in 0..count {
                    let first = (lba + index) * whole;
                    set(&mut state.blocks, first..first + whole, stamp + index);
                }
            }
            Op::Part(first, count, stamp) => {
                set(&mut state.blocks, first..first + count, stamp);
            }
            Op::Transact(_, ref blocks) => {
                state.resized = (size != self.sizes[0]).then_some(size);
                for &(lba, stamp) in blocks {
                    set(&mut state.blocks, lba * whole..(lba + 1) * whole, stamp);
                }
            }
            Op::Trim(lba, count) => {
                set(&mut state.blocks, lba * whole..(lba + count) * whole, 0);
            }
            Op::Zero(first, count) => set(&mut state.blocks, first..first + count, 0),
            Op::Resize(sectors) => {
                state.blocks.retain(|lba, _| lba * whole < sectors);
                if sectors < size {
                    set(&mut state.blocks, sectors..sectors.next_multiple_of(whole), 0);
                }
                state.resized = (sectors != self.sizes[0]).then_some(sectors);
            }
            Op::Snapshot(number) if state.snapshots.contains_key(&number) => {
                return Answer::Bool(false);
            }
            Op::Snapshot(number) => {
                state.snapshots.insert(number, (size, state.blocks.clone()));
            }
            Op::RemoveSnapshot(number) => {
                return Answer::Bool(state.snapshots.remove(&number).is_some());
            }
            Op::Read(lba) => {
                return Answer::Value(state.blocks.get(&lba).copied().unwrap_or_default());
            }
        }
        let is_observed = |lba: &u64| self.lbas.iter().any(|range| range.contains(lba));
        state.blocks.retain(|lba, sectors| is_observed(lba) && *sectors != [0; SECTORS]);
        Answer::Bool(true)
    }

    fn observe(&self, handle: &Self::Handle) -> Outcome<State> {
        let disk = &handle.object;
        let mut snapshots = BTreeMap::new();
        for info in disk.snapshots() {
            let number = info.name.trim_start_matches("snapshot ").parse()?;
            let snapshot = disk.open_snapshot(&info.name)?;
            let read = |offset, bytes: &mut [u8]| snapshot.read(offset, bytes);
            let blocks = self.blocks(snapshot.size(), read)?;
            snapshots.insert(number, (info.size / SECTOR_LEN, blocks));
        }
        let read = |offset, bytes: &mut [u8]| disk.read(offset, bytes);
        let blocks = self.blocks(disk.size(), read)?;
        self.check_extents(disk, &blocks)?;
        let size = disk.size() / SECTOR_LEN;
        Ok(State { resized: (size != self.sizes[0]).then_some(size), blocks, snapshots })
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let total = self.mix.iter().map(|(_, weight)| weight).sum();
        let mut drawn = rng.below(total);
        let kind = self.mix.iter().find(|(_, weight)| {
            let is_drawn = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_drawn
        });
        let (lba, stamp) = (self.lba(rng), 1 + rng.below(STAMPS - 1));
        let count = 1 + rng.below(3);
        match kind.expect("drawn below the total").0 {
            Kind::Write => Op::Write(lba, count, stamp),
            Kind::Row => Op::Write(lba, 6 + rng.below(6), stamp),
            Kind::Long => Op::Write(lba, SLAB_BLOCKS + rng.below(2 * SLAB_BLOCKS), stamp),
            Kind::Part => Op::Part(lba * SECTORS as u64 + rng.below(8), 1 + rng.below(6), stamp),
            Kind::Transact => {
                let blocks = (0..1 + rng.below(4)).map(|_| (self.lba(rng), rng.below(STAMPS)));
                Op::Transact(0, blocks.collect())
            }
            Kind::Grow => {
                let size_min = *rng.pick(self.sizes);
                let blocks = (0..rng.below(3)).map(|_| (self.lba(rng), rng.below(STAMPS)));
                Op::Transact(size_min, blocks.collect())
            }
            // Within one leaf, so that it is atomic.
            Kind::Trim => Op::Trim(lba, count.min(448 - lba % 448)),
            Kind::Zero => {
                let first = rng.below(8);
                Op::Zero(lba * SECTORS as u64 + first, 1 + rng.below(8 - first))
            }
            Kind::Resize => Op::Resize(*rng.pick(self.sizes)),
            Kind::Snapshot => Op::Snapshot(rng.below(2)),
            Kind::RemoveSnapshot => Op::RemoveSnapshot(rng.below(2)),
            Kind::Read => Op::Read(lba),
        }
    }

    fn check(&self, handle: &Self::Handle) -> Outcome {
        must_be_empty(handle.object.check()?)?;
        handle.check()
    }

    fn is_refused(&self, answer: &Answer<Sectors>) -> bool {
        is_refused(answer)
    }
}
