//! The block device of the nvramdisk paper: writes of blocks and of parts of them.

use std::sync::Arc;

use remanent_blockdev::papers::nvramdisk::{Nvramdisk, Policy};
use remanent_blockdev::{BLOCK_LEN, Error, Result};
use remanent_crashsim::{Outcome, Rng, Sim, Steps, Subject};
use remanent_pmem::PAGE_LEN;

use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::subjects::disk::subject::{
    Blocks, SECTOR_LEN, SECTORS, STAMPS, Sectors, block, sector, set, stamps,
};

/// A disk with a few blocks.
#[derive(Clone, Debug)]
pub(super) struct Nvramdisks {
    /// Blocks of the disk.
    pub(super) lbas: u64,
    /// Number of used blocks, which are the first ones.
    pub(super) used: u64,
    pub(super) policy: Policy,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Consecutive blocks from this one on, each with the next stamp.
    Write(u64, u64, u64),
    /// Some sectors of a block, or of two consecutive blocks.
    Part(u64, u64, u64),
    Read(u64),
}

impl Nvramdisks {
    fn read_block(disk: &Nvramdisk<Arc<Sim>>, lba: u64) -> Result<Option<Sectors>> {
        let mut bytes = [0; BLOCK_LEN as usize];
        disk.read(lba * BLOCK_LEN, &mut bytes)?;
        Ok(stamps(&bytes))
    }

    fn do_op(disk: &Nvramdisk<Arc<Sim>>, op: &Op) -> Result<Answer<Sectors>> {
        match *op {
            Op::Write(lba, count, stamp) => {
                let bytes: Vec<u8> = (0..count).flat_map(|index| block(stamp + index)).collect();
                disk.write(lba * BLOCK_LEN, &bytes)?;
            }
            Op::Part(first, count, stamp) => {
                disk.write(first * SECTOR_LEN, &sector(stamp).repeat(count as usize))?;
            }
            Op::Read(lba) => {
                return Ok(match Self::read_block(disk, lba)? {
                    Some(sectors) => Answer::Value(sectors),
                    None => Answer::Failed(format!("block {lba} is torn")),
                });
            }
        }
        Ok(Answer::Bool(true))
    }
}

impl Subject for Nvramdisks {
    type Op = Op;
    type Ret = Answer<Sectors>;
    type State = Blocks;
    type Handle = Open<Nvramdisk<Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let size = self.lbas * BLOCK_LEN;
        Open::create(medium, self.size_max, |pool, name| {
            Nvramdisk::create(pool, name, size, self.policy)
        })
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, |pool, name| Nvramdisk::open(pool, name, self.policy))
    }

    fn apply(&self, handle: &Self::Handle, op: &Op) -> Answer<Sectors> {
        match Self::do_op(&handle.object, op) {
            Ok(answer) => answer,
            Err(Error::OutOfRange { .. }) => Answer::Bool(false),
            Err(error @ Error::Pool(remanent_pmem::Error::Medium(_))) => {
                Answer::Refused(error.to_string())
            }
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    fn model(&self, state: &mut Blocks, op: &Op) -> Answer<Sectors> {
        let whole = SECTORS as u64;
        let end = match *op {
            Op::Write(lba, count, _) => (lba + count) * whole,
            Op::Part(first, count, _) => first + count,
            Op::Read(lba) => (lba + 1) * whole,
        };
        if end > self.lbas * whole {
            return Answer::Bool(false);
        }
        match *op {
            Op::Write(lba, count, stamp) => {
                for index in 0..count {
                    let first = (lba + index) * whole;
                    set(state, first..first + whole, stamp + index);
                }
            }
            Op::Part(first, count, stamp) => set(state, first..first + count, stamp),
            Op::Read(lba) => {
                return Answer::Value(state.get(&lba).copied().unwrap_or_default());
            }
        }
        Answer::Bool(true)
    }

    fn observe(&self, handle: &Self::Handle) -> Outcome<Blocks> {
        let mut blocks = Blocks::new();
        for lba in 0..self.lbas {
            match Self::read_block(&handle.object, lba)? {
                Some(sectors) if sectors == [0; SECTORS] => {}
                Some(sectors) => drop(blocks.insert(lba, sectors)),
                None => return Err(format!("block {lba} is torn").into()),
            }
        }
        Ok(blocks)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (lba, stamp) = (rng.below(self.used), 1 + rng.below(STAMPS - 1));
        match rng.below(7) {
            0..4 => Op::Write(lba, 1 + rng.below(4) / 2, stamp),
            4 | 5 => Op::Part(lba * SECTORS as u64 + rng.below(8), 1 + rng.below(6), stamp),
            _ => Op::Read(lba),
        }
    }

    fn check(&self, handle: &Self::Handle) -> Outcome {
        must_be_empty(handle.object.check()?)?;
        // The pool around the disk does not survive garbage, which may have destroyed one copy of
        // its superblock.
        let mut violations = handle.pool.check()?.violations;
        violations.retain(|violation| violation.offset >= 2 * PAGE_LEN);
        must_be_empty(violations)
    }

    fn is_refused(&self, answer: &Answer<Sectors>) -> bool {
        is_refused(answer)
    }

    /// One step for each block.
    fn steps(&self, op: &Op) -> Steps<Op> {
        let whole = SECTORS as u64;
        let steps: Vec<Op> = match *op {
            Op::Write(lba, count, _) if lba + count > self.lbas => return Steps::One,
            Op::Write(lba, count, stamp) => {
                (0..count).map(|index| Op::Write(lba + index, 1, stamp + index)).collect()
            }
            Op::Part(first, count, _) if first + count > self.lbas * whole => return Steps::One,
            Op::Part(first, count, stamp) => {
                let (end, edge) = (first + count, (first / whole + 1) * whole);
                let head = Op::Part(first, end.min(edge) - first, stamp);
                let tail = (end > edge).then(|| Op::Part(edge, end - edge, stamp));
                [head].into_iter().chain(tail).collect()
            }
            Op::Read(_) => return Steps::One,
        };
        if steps.len() == 1 { Steps::One } else { Steps::InOrder(steps) }
    }

    /// All writes answer the same.
    fn answer_for_effects(&self, _: &Op, _: u64) -> Option<Answer<Sectors>> {
        Some(Answer::Bool(true))
    }
}
