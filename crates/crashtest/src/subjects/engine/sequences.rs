//! Sequences, of which each operation takes a handle of its own: so each begins a block.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use remanent_crashsim::{Config, Nested, Outcome, Rng, Subject};
use remanent_engine::{Database, Error, SequenceSpec};
use remanent_pmem::Error as PoolError;

use super::rows::M;
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::presets::{SIZE_MAX, alone, few_images, interleaved, prepared, without_room};
use crate::scenario::Scenario;

/// Sequences of three kinds, by their numbers.
#[derive(Clone, Debug)]
pub(super) struct Sequences;

/// An operation on a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Create(u64),
    Drop(u64),
    /// Numbers are drawn, as many as a block has.
    Draw(u64),
    /// The number with which it goes on.
    Restart(u64, i64),
    Collect,
}

/// What a sequence is, as engine and model have it.
struct Kind {
    range: RangeInclusive<i64>,
    increment: i64,
    is_cycling: bool,
    block_len: u32,
}

const KINDS: u64 = 3;

fn kind(number: u64) -> Kind {
    match number {
        0 => Kind { range: 1..=5, increment: 2, is_cycling: false, block_len: 1 },
        1 => Kind { range: 1..=4, increment: -1, is_cycling: true, block_len: 2 },
        _ => Kind { range: 1..=i64::MAX, increment: 1, is_cycling: false, block_len: 3 },
    }
}

fn name(number: u64) -> String {
    format!("sequence {number}")
}

/// Scenarios of this subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    vec![
        Scenario::new(
            "engine/sequences",
            "sequences are made, dropped, restarted, and give out numbers",
            Sequences,
            prepared(alone(2, 8)),
        ),
        Scenario::new(
            "engine/sequences-recovery",
            "the same; crashes inside recovery and after it",
            Sequences,
            Config { nested: recovery, after: 6, creation: false, ..few_images(alone(4, 4)) },
        ),
        Scenario::new(
            "engine/sequences-no-room",
            "the same; each call for room fails once",
            Sequences,
            without_room(4, prepared(alone(4, 6))),
        ),
        Scenario::new(
            "engine/sequences-interleaved",
            "interleavings of three threads that draw from the same sequences",
            Sequences,
            interleaved(3, 2, 3, 900),
        )
        .with_weight(40),
    ]
}

impl Kind {
    fn spec(self, name: String) -> SequenceSpec {
        let spec = SequenceSpec::new(name).increment(self.increment).range(self.range);
        let spec = spec.block_len(self.block_len);
        if self.is_cycling { spec.cycling() } else { spec }
    }

    fn first(&self) -> i64 {
        if self.increment > 0 { *self.range.start() } else { *self.range.end() }
    }

    /// Draws a block of a sequence that goes on with `next`.
    fn draw(&self, next: &mut Option<i64>) -> Option<Vec<i64>> {
        let mut drawn = Vec::new();
        let mut number = (*next)?;
        for _ in 0..self.block_len {
            drawn.push(number);
            number += self.increment;
            if !self.range.contains(&number) {
                *next = self.is_cycling.then(|| self.first());
                return Some(drawn);
            }
        }
        *next = Some(number);
        Some(drawn)
    }
}

/// The number with which each sequence goes on.
type State = BTreeMap<u64, Option<i64>>;

/// Draws a block by a handle of its own.
fn draw(database: &Database<M>, number: u64) -> Result<Vec<i64>, Error> {
    let sequence = database.sequence(&name(number))?;
    let mut drawn = vec![sequence.next()?];
    // As far as the block goes, which may be short at the end of the range.
    let Kind { range, increment, block_len, .. } = kind(number);
    while drawn.len() < block_len as usize {
        let last = drawn[drawn.len() - 1];
        if !range.contains(&(last + increment)) {
            break;
        }
        drawn.push(sequence.next()?);
    }
    Ok(drawn)
}

fn answer<T>(done: Result<T, Error>, map: impl FnOnce(T) -> Answer<Vec<i64>>) -> Answer<Vec<i64>> {
    match done {
        Ok(value) => map(value),
        Err(Error::NoSuchSequence { .. }) => Answer::None,
        Err(Error::SequenceExhausted { .. } | Error::Sequence { .. }) => Answer::Bool(false),
        Err(error) if error.is_full() => Answer::Refused(error.to_string()),
        Err(error @ Error::Pool(PoolError::Medium(_))) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

impl Subject for Sequences {
    type Op = Op;
    type Ret = Answer<Vec<i64>>;
    type State = State;
    type Handle = Open<Database<M>>;

    fn create(&self, medium: M) -> Outcome<Self::Handle> {
        Open::create(medium, SIZE_MAX, Database::create)
    }

    fn open(&self, medium: M) -> Outcome<Self::Handle> {
        Open::recover(medium, Database::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Self::Ret {
        let database = &open.object;
        match *op {
            Op::Create(number) => {
                let made = database.create_sequence(&kind(number).spec(name(number)));
                answer(made, |_| Answer::Bool(true))
            }
            Op::Drop(number) => {
                answer(database.drop_sequence(&name(number)), |()| Answer::Bool(true))
            }
            Op::Draw(number) => answer(draw(database, number), Answer::Value),
            Op::Restart(number, next) => {
                let sequence = database.sequence(&name(number));
                let restarted = sequence.and_then(|sequence| sequence.restart(next));
                answer(restarted, |()| Answer::Bool(true))
            }
            Op::Collect => answer(database.collect(), |_| Answer::Bool(true)),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Self::Ret {
        match *op {
            Op::Create(number) => {
                let is_new = !state.contains_key(&number);
                state.entry(number).or_insert_with(|| Some(kind(number).first()));
                Answer::Bool(is_new)
            }
            Op::Drop(number) => match state.remove(&number) {
                Some(_) => Answer::Bool(true),
                None => Answer::None,
            },
            Op::Draw(number) => match state.get_mut(&number) {
                None => Answer::None,
                Some(next) => kind(number).draw(next).map_or(Answer::Bool(false), Answer::Value),
            },
            Op::Restart(number, to) => match state.get_mut(&number) {
                None => Answer::None,
                Some(next) => {
                    let is_right = kind(number).range.contains(&to);
                    if is_right {
                        *next = Some(to);
                    }
                    Answer::Bool(is_right)
                }
            },
            Op::Collect => Answer::Bool(true),
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let mut state = State::new();
        for name_of in open.object.sequences()? {
            let number = (0..KINDS).find(|number| name(*number) == name_of);
            let number = number.ok_or_else(|| format!("nobody has made {name_of:?}"))?;
            state.insert(number, open.object.sequence(&name_of)?.unreserved()?);
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let number = rng.below(KINDS);
        match rng.below(10) {
            0 | 1 => Op::Create(number),
            2 => Op::Drop(number),
            3 => Op::Restart(number, rng.below(8) as i64),
            4 => Op::Collect,
            _ => Op::Draw(number),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Self::Ret) -> bool {
        is_refused(answer)
    }
}
