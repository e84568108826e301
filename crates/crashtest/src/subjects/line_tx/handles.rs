//! Other kinds of transactional objects: owned, shared, arrays and values, and the bounded buffer.

use std::collections::VecDeque;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;
use remanent_pmem::sync::PauseMutex;
use remanent_structures::papers::{BoundedBuffer, BoundedBufferHandle};
use remanent_structures::{Result, SharedTx, Transactional, Tx, TxValue};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{create_pool, must_be_empty};

/// An object of each kind, each under a root.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// Two words that an operation changes together.
type Pair = [u64; 2];
/// The same, at the beginning and the end of an object of several lines.
type Long = [u64; 20];

/// The objects, all open.
pub(super) struct Objects {
    owned: PauseMutex<Tx<Pair, Arc<Sim>>>,
    /// Reads the object that the owner changes.
    reader: SharedTx<Pair, Arc<Sim>>,
    shared: SharedTx<Long, Arc<Sim>>,
    cell: TxValue<Pair, Arc<Sim>>,
    buffer: PauseMutex<BoundedBufferHandle<Arc<Sim>>>,
    pool: Pool<Arc<Sim>>,
}

/// One operation; each answers what it found.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// By the owner: commits or aborts.
    Own(u64, bool),
    ReadOwned,
    /// Changes the shared object: commits or aborts.
    Share(u64, bool),
    ReadShared,
    SetCell(u64),
    ReplaceCell(u64),
    /// Adds to the cell.
    UpdateCell(u64),
    ReadCell,
    Add(u8),
    Take,
    /// Takes two bytes atomically, or none if there is only one.
    TakeTwo,
}

/// The content of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    owned: u64,
    shared: u64,
    cell: u64,
    buffer: VecDeque<u8>,
}

fn pair(number: u64) -> Pair {
    [number, !number]
}

fn long(number: u64) -> Long {
    [number; 20]
}

/// The number that a pair represents; `u64::MAX` if it is torn.
fn of_pair([number, other]: Pair) -> u64 {
    if other == !number { number } else { u64::MAX }
}

fn of_long(words: Long) -> u64 {
    if words.iter().all(|word| *word == words[0]) { words[0] } else { u64::MAX }
}

fn two_of(buffer: &mut VecDeque<u8>) -> Option<u64> {
    if buffer.len() < 2 {
        return None;
    }
    let mut take = || buffer.pop_front().map_or(0, u64::from);
    Some(take() << 8 | take())
}

impl Cells {
    fn open_all(pool: Pool<Arc<Sim>>, may_create: bool) -> Result<Objects> {
        let (owned, shared, cell, buffer) = match may_create {
            true => (
                Tx::open_or_create(&pool, "owned", pair(0))?,
                SharedTx::open_or_create(&pool, "shared", long(0))?,
                TxValue::open_or_create(&pool, "cell", pair(0))?,
                BoundedBuffer::new().open_or_create(&pool, "buffer")?,
            ),
            false => (
                Tx::open(&pool, "owned")?,
                // First owned, then shared.
                Tx::open(&pool, "shared")?.share(),
                TxValue::open(&pool, "cell")?,
                BoundedBuffer::open(&pool, "buffer")?,
            ),
        };
        let reader = owned.reader();
        let (owned, buffer) = (PauseMutex::new(owned), PauseMutex::new(buffer));
        Ok(Objects { owned, reader, shared, cell, buffer, pool })
    }

    fn do_op(objects: &Objects, op: &Op) -> Result<Option<u64>> {
        let medium = objects.pool.medium();
        let found = match *op {
            Op::Own(number, commits) => {
                let mut owned = objects.owned.lock(medium);
                let before = owned.get()?;
                if commits && number % 2 == 0 {
                    owned.set(pair(number))?;
                } else {
                    let decide = |value: &mut Pair| {
                        *value = pair(number);
                        commits.then_some(()).ok_or(())
                    };
                    let _ = owned.try_transact(decide)?;
                }
                of_pair(before)
            }
            Op::ReadOwned => of_pair(objects.reader.get()?),
            Op::Share(number, commits) => {
                let mut before = 0;
                let decide = |value: &mut Long| {
                    before = of_long(*value);
                    *value = long(number);
                    commits.then_some(()).ok_or(())
                };
                let _ = objects.shared.try_transact(decide)?;
                before
            }
            Op::ReadShared => of_long(objects.shared.get()?),
            Op::SetCell(number) => {
                objects.cell.set(pair(number))?;
                0
            }
            Op::ReplaceCell(number) => of_pair(objects.cell.replace(pair(number))?),
            Op::UpdateCell(number) => {
                of_pair(objects.cell.update(|value| pair(of_pair(value).wrapping_add(number)))?)
            }
            Op::ReadCell => of_pair(objects.cell.get()?),
            Op::Add(byte) => u64::from(objects.buffer.lock(medium).add(byte)?),
            Op::Take => return Ok(objects.buffer.lock(medium).take()?.map(u64::from)),
            Op::TakeTwo => {
                let mut buffer = objects.buffer.lock(medium);
                return buffer.transact(|buffer| {
                    if buffer.len() < 2 {
                        return None;
                    }
                    let mut take = || buffer.take().map_or(0, u64::from);
                    Some(take() << 8 | take())
                });
            }
        };
        Ok(Some(found))
    }
}

impl Subject for Cells {
    type Op = Op;
    type Ret = Answer<u64>;
    type State = State;
    type Handle = Objects;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Objects> {
        let pool = create_pool(medium, &Format::new(self.size_max))?;
        Ok(Self::open_all(pool, true)?)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Objects> {
        Ok(Self::open_all(Pool::recover(medium)?, false)?)
    }

    fn apply(&self, objects: &Objects, op: &Op) -> Answer<u64> {
        let done = Self::do_op(objects, op);
        answer(done, |found| found.map_or(Answer::None, Answer::Value))
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<u64> {
        let value = |found: Option<u64>| found.map_or(Answer::None, Answer::Value);
        value(match *op {
            Op::Own(number, commits) => {
                let after = if commits { number } else { state.owned };
                Some(std::mem::replace(&mut state.owned, after))
            }
            Op::ReadOwned => Some(state.owned),
            Op::Share(number, commits) => {
                let after = if commits { number } else { state.shared };
                Some(std::mem::replace(&mut state.shared, after))
            }
            Op::ReadShared => Some(state.shared),
            Op::SetCell(number) => {
                state.cell = number;
                Some(0)
            }
            Op::ReplaceCell(number) => Some(std::mem::replace(&mut state.cell, number)),
            Op::UpdateCell(number) => {
                state.cell = state.cell.wrapping_add(number);
                Some(state.cell)
            }
            Op::ReadCell => Some(state.cell),
            Op::Add(_) if state.buffer.len() == BoundedBuffer::CAPACITY => Some(0),
            Op::Add(byte) => {
                state.buffer.push_back(byte);
                Some(1)
            }
            Op::Take => state.buffer.pop_front().map(u64::from),
            Op::TakeTwo => two_of(&mut state.buffer),
        })
    }

    fn observe(&self, objects: &Objects) -> Outcome<State> {
        let medium = objects.pool.medium();
        let owned = objects.owned.lock(medium).get()?;
        if objects.reader.get()? != owned {
            return Err("a reader sees something else than the owner".into());
        }
        let mut content = objects.buffer.lock(medium).get()?;
        let is_empty = (content.is_empty(), content.is_full());
        let mut buffer = VecDeque::new();
        while let Some(byte) = content.take() {
            buffer.push_back(byte);
        }
        if is_empty != (buffer.is_empty(), buffer.len() == BoundedBuffer::CAPACITY) {
            return Err("a buffer is wrong about how many bytes it holds".into());
        }
        let (shared, cell) = (of_long(objects.shared.get()?), of_pair(objects.cell.get()?));
        Ok(State { owned: of_pair(owned), shared, cell, buffer })
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (number, commits) = (1 + rng.below(1000), !rng.one_in(4));
        match rng.below(16) {
            0..=1 => Op::Own(number, commits),
            2 => Op::ReadOwned,
            3..=4 => Op::Share(number, commits),
            5 => Op::ReadShared,
            6 => Op::SetCell(number),
            7 => Op::ReplaceCell(number),
            8 => Op::UpdateCell(number),
            9 => Op::ReadCell,
            10..=12 => Op::Add(number as u8),
            13..=14 => Op::Take,
            _ => Op::TakeTwo,
        }
    }

    fn check(&self, objects: &Objects) -> Outcome {
        let medium = objects.pool.medium();
        must_be_empty(objects.owned.lock(medium).check()?)?;
        must_be_empty(objects.shared.check()?)?;
        must_be_empty(objects.cell.check()?)?;
        must_be_empty(objects.buffer.lock(medium).check()?)?;
        must_be_empty(objects.pool.check()?.violations)
    }

    fn is_refused(&self, answer: &Answer<u64>) -> bool {
        is_refused(answer)
    }
}
