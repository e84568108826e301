//! The bounded buffer of "Cache-line transactions": its scenarios, and the contenders written in
//! Rust.

use std::hint::black_box;
use std::path::Path;

use anyhow::{Result, ensure};
use remanent_pmem::{Durability, Emulated, Emulation, Latency, Mapped, Medium, Pool};
use remanent_structures::Transactional;
use remanent_structures::papers::{BoundedBuffer, BoundedBufferHandle};

use crate::report::Ground;

/// Consecutive calls that add, or that take: one for each place of the paper's buffer.
pub(crate) const CALLS: usize = 29;
/// Bytes that so many calls store: one place stays empty, so the last call is refused.
pub(crate) const CAPACITY: usize = CALLS - 1;

/// The bytes that are added. The first one changes with every repetition.
pub(crate) const SOURCE: [u8; CALLS] = {
    let mut source = [0; CALLS];
    let mut at = 0;
    while at < CALLS {
        source[at] = 3 * at as u8 + 1;
        at += 1;
    }
    source
};

/// A scenario, as in section 5.2 of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Scenario {
    /// 29 adds, each a transaction; and one transaction that empties the buffer before.
    Add = 1,
    /// 29 adds and then 29 takes, each a transaction.
    AddTake = 2,
    /// 29 adds in one transaction, then 29 takes in one.
    FillDrain = 3,
}

impl Scenario {
    /// All, in the paper's order.
    pub(crate) const ALL: [Scenario; 3] = [Scenario::Add, Scenario::AddTake, Scenario::FillDrain];
}

/// An empty buffer under test.
pub(crate) trait Buffer {
    /// Runs a scenario `repetitions` times on the empty buffer, and leaves it empty. Returns how
    /// often every call succeeded and every byte was returned.
    ///
    /// # Errors
    ///
    /// Those of the buffer.
    fn run(&mut self, scenario: Scenario, repetitions: u64) -> Result<u64>;
}

/// Runs a scenario, and refuses wrong answers.
///
/// # Errors
///
/// Those of the buffer; a repetition was wrong.
pub(crate) fn run_right(
    buffer: &mut dyn Buffer,
    scenario: Scenario,
    repetitions: u64,
) -> Result<()> {
    let right = buffer.run(scenario, repetitions)?;
    ensure!(
        right == repetitions,
        "wrong answers in {} of {repetitions} repetitions of {scenario:?}",
        repetitions - right
    );
    Ok(())
}

/// The plain struct, in ordinary memory.
pub(crate) fn plain() -> Box<dyn Buffer> {
    Box::new(Held(BoundedBuffer::new()))
}

/// Our buffer in a new pool in `directory`, with real flushes and fences.
///
/// # Errors
///
/// When the pool cannot be made.
pub(crate) fn nvram(directory: &Path) -> Result<(Box<dyn Buffer>, Ground)> {
    let options = Pool::options().size_max(SIZE_MAX).durability(Durability::Process);
    let pool = options.emulation(Emulation::Nvram).create(directory.join("buffer.pool"))?;
    let handle: BoundedBufferHandle<Mapped> = BoundedBuffer::new().create(&pool, "buffer")?;
    Ok((Box::new(Held(handle)), Ground::of_pool(&pool)))
}

/// Our buffer in a new pool in `directory`, on DRAM that is as slow as phase-change memory.
///
/// # Errors
///
/// When the pool cannot be made.
pub(crate) fn pcm(directory: &Path) -> Result<(Box<dyn Buffer>, Ground)> {
    let options = Pool::options().size_max(SIZE_MAX).durability(Durability::Process);
    let options = options.emulation(Emulation::Latency(Latency::PCM));
    let pool = options.create_emulated(directory.join("buffer-pcm.pool"))?;
    let handle: BoundedBufferHandle<Emulated> = BoundedBuffer::new().create(&pool, "buffer")?;
    Ok((Box::new(Held(handle)), Ground::of_pool(&pool)))
}

/// More than a pool with one root needs.
pub(crate) const SIZE_MAX: u64 = 64 << 20;

/// The calls of a scenario, one transaction each; plain calls without persistence.
trait Calls {
    fn add(&mut self, byte: u8) -> Result<bool>;
    fn take(&mut self) -> Result<Option<u8>>;
    fn group<R>(&mut self, calls: impl FnOnce(&mut BoundedBuffer) -> R) -> Result<R>;
}

impl Calls for BoundedBuffer {
    fn add(&mut self, byte: u8) -> Result<bool> {
        Ok(BoundedBuffer::add(self, byte))
    }

    fn take(&mut self) -> Result<Option<u8>> {
        Ok(BoundedBuffer::take(self))
    }

    fn group<R>(&mut self, calls: impl FnOnce(&mut BoundedBuffer) -> R) -> Result<R> {
        Ok(calls(self))
    }
}

impl<M: Medium> Calls for BoundedBufferHandle<M> {
    fn add(&mut self, byte: u8) -> Result<bool> {
        Ok(BoundedBufferHandle::add(self, byte)?)
    }

    fn take(&mut self) -> Result<Option<u8>> {
        Ok(BoundedBufferHandle::take(self)?)
    }

    fn group<R>(&mut self, calls: impl FnOnce(&mut BoundedBuffer) -> R) -> Result<R> {
        Ok(self.transact(calls)?)
    }
}

/// A contender written in Rust.
struct Held<C>(C);

impl<C: Calls> Buffer for Held<C> {
    fn run(&mut self, scenario: Scenario, repetitions: u64) -> Result<u64> {
        let mut bytes = SOURCE;
        let mut right = 0;
        for turn in 0..repetitions {
            bytes[0] = turn as u8;
            // The compiler knows neither the buffer nor the bytes, as in the other languages.
            right += u64::from(run_once(black_box(&mut self.0), scenario, black_box(&bytes))?);
        }
        if scenario == Scenario::Add {
            clear(&mut self.0)?;
        }
        Ok(right)
    }
}

/// Whether every call of the scenario did what it should.
fn run_once<C: Calls>(buffer: &mut C, scenario: Scenario, bytes: &[u8; CALLS]) -> Result<bool> {
    let mut found = [0; CALLS];
    let (stored, taken) = match scenario {
        Scenario::Add => {
            clear(buffer)?;
            return Ok(add_one_by_one(buffer, bytes)? == CAPACITY);
        }
        Scenario::AddTake => (add_one_by_one(buffer, bytes)?, take_one_by_one(buffer, &mut found)?),
        Scenario::FillDrain => {
            let stored =
                buffer.group(|buffer| bytes.iter().filter(|&&byte| buffer.add(byte)).count())?;
            (stored, buffer.group(|buffer| drain(buffer, &mut found))?)
        }
    };
    Ok(stored == CAPACITY && taken == CAPACITY && found[..CAPACITY] == bytes[..CAPACITY])
}

fn clear(buffer: &mut impl Calls) -> Result<()> {
    buffer.group(|buffer| *buffer = BoundedBuffer::new())
}

fn add_one_by_one(buffer: &mut impl Calls, bytes: &[u8; CALLS]) -> Result<usize> {
    let mut stored = 0;
    for &byte in bytes {
        stored += usize::from(buffer.add(byte)?);
    }
    Ok(stored)
}

fn take_one_by_one(buffer: &mut impl Calls, found: &mut [u8; CALLS]) -> Result<usize> {
    let mut taken = 0;
    for _ in 0..CALLS {
        if let Some(byte) = buffer.take()? {
            found[taken] = byte;
            taken += 1;
        }
    }
    Ok(taken)
}

fn drain(buffer: &mut BoundedBuffer, found: &mut [u8; CALLS]) -> usize {
    let mut taken = 0;
    for _ in 0..CALLS {
        if let Some(byte) = buffer.take() {
            found[taken] = byte;
            taken += 1;
        }
    }
    taken
}
