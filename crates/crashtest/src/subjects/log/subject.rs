//! A log of byte records.

use std::collections::VecDeque;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::Medium;
use remanent_structures::log::Position;
use remanent_structures::{Error, Log, Result};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// A log with few records.
#[derive(Clone, Debug)]
pub(super) struct Logs {
    /// Bytes of a record that exists from the start, or 0 for none.
    pub(super) base_len: u64,
    /// Lengths of records.
    pub(super) lens: &'static [u64],
    /// The operations to draw from.
    pub(super) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// The operations that occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// All.
    All,
    /// Those that threads can run on one log; all records have the same length.
    Shared,
}

/// A record whose bytes are determined by its length and a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Content {
    len: u64,
    stamp: u8,
}

impl Content {
    fn bytes(self) -> Vec<u8> {
        (0..self.len).map(|at| self.stamp.wrapping_add((at / 64) as u8)).collect()
    }

    fn read(bytes: &[u8]) -> Outcome<Self> {
        let stamp = bytes.first().copied().unwrap_or_default();
        let content = Content { len: bytes.len() as u64, stamp };
        if content.bytes() == bytes { Ok(content) } else { Err("a record is torn".into()) }
    }
}

/// One operation; positions count from the end of the base record.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Append(Content),
    AppendMany(Vec<Content>),
    /// Truncates so many of the present records.
    Truncate(usize),
    /// Truncates up to a position.
    TruncateAt(u64),
    ReadAt(u64),
    /// The last record, found by visiting all in several ways.
    Visit,
}

/// The observable state of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// Whether the record from the start is truncated.
    base_is_gone: bool,
    /// Position behind the base record.
    end: u64,
    records: VecDeque<(u64, Content)>,
}

/// Answer of an operation: a position and a count, or a length and a stamp.
type Pair = (u64, u64);

type TestLog = Log<[u8], Arc<Sim>>;

fn record_len(len: u64) -> u64 {
    24 + len.next_multiple_of(8)
}

fn told(content: Content) -> Answer<Pair> {
    Answer::Value((content.len, content.stamp.into()))
}

impl State {
    fn append(&mut self, content: Content) -> u64 {
        let at = self.end;
        self.records.push_back((at, content));
        self.end += record_len(content.len);
        at
    }

    fn truncate(&mut self, first: u64) {
        self.base_is_gone = true;
        self.records.retain(|(at, _)| *at >= first);
    }
}

impl Logs {
    fn base_end(&self) -> u64 {
        if self.base_len == 0 { 0 } else { record_len(self.base_len) }
    }

    fn at(&self, position: u64) -> Position {
        Position::from_u64(self.base_end() + position)
    }

    /// All records but the base, which must be intact, and whether the base is gone; read in
    /// several ways.
    fn records(&self, log: &TestLog) -> Outcome<State> {
        let forward = log.iter().collect::<Result<Vec<_>>>()?;
        let mut backward = log.iter_until(log.end()).rev().collect::<Result<Vec<_>>>()?;
        backward.reverse();
        let mut followed = Vec::new();
        let mut tail = log.tail(log.first());
        while let Some(found) = tail.poll()? {
            followed.push(found);
        }
        if forward != backward || forward != followed {
            return Err("two ways to read a log find different records".into());
        }
        let base_end = self.base_end();
        let mut state = State { base_is_gone: true, ..State::default() };
        for (at, bytes) in forward {
            let content = Content::read(&bytes)?;
            match at.to_u64().checked_sub(base_end) {
                Some(at) => state.records.push_back((at, content)),
                None if content.len == self.base_len => state.base_is_gone = false,
                None => return Err("the first record has changed".into()),
            }
        }
        state.base_is_gone &= base_end > 0;
        state.end = log.end().to_u64() - base_end;
        Ok(state)
    }

    fn truncate(&self, log: &TestLog, count: usize) -> Result<()> {
        let at = match log.iter_from(log.first()).nth(count) {
            Some(record) => record?.0,
            None => log.end(),
        };
        log.truncate_front(at)
    }
}

impl Subject for Logs {
    type Op = Op;
    type Ret = Answer<Pair>;
    type State = State;
    type Handle = Open<TestLog>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, TestLog::create)
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        if self.base_len > 0 {
            open.object.append(&Content { len: self.base_len, stamp: 1 }.bytes())?;
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, TestLog::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Pair> {
        let log = &open.object;
        let behind = |at: Position| at.to_u64() - self.base_end();
        match op {
            Op::Append(content) => {
                answer(log.append(&content.bytes()), |at| Answer::Value((behind(at), 1)))
            }
            Op::AppendMany(contents) => {
                let contents: Vec<Vec<u8>> =
                    contents.iter().map(|content| content.bytes()).collect();
                let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
                answer(log.append_many(&contents), |positions| match positions.first() {
                    None => Answer::None,
                    Some(&at) => Answer::Value((behind(at), positions.len() as u64)),
                })
            }
            Op::Truncate(count) => answer(self.truncate(log, *count), |()| Answer::Bool(true)),
            Op::TruncateAt(position) => match log.truncate_front(self.at(*position)) {
                Err(Error::Corrupt { .. }) => Answer::Bool(false),
                truncated => answer(truncated, |()| Answer::Bool(true)),
            },
            Op::ReadAt(position) => {
                let read = log.read_with(self.at(*position), Content::read);
                answer(read, |found| match found {
                    None => Answer::None,
                    Some(Ok(content)) => told(content),
                    Some(Err(torn)) => Answer::Failed(torn.to_string()),
                })
            }
            Op::Visit => match self.records(log) {
                Ok(state) => {
                    state.records.back().map_or(Answer::None, |&(_, content)| told(content))
                }
                Err(error) if open.pool.medium().fault().is_some() => {
                    Answer::Refused(error.to_string())
                }
                Err(error) => Answer::Failed(error.to_string()),
            },
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Pair> {
        match op {
            Op::Append(content) => Answer::Value((state.append(*content), 1)),
            Op::AppendMany(contents) => {
                let first = state.end;
                for content in contents {
                    state.append(*content);
                }
                match contents.len() {
                    0 => Answer::None,
                    count => Answer::Value((first, count as u64)),
                }
            }
            Op::Truncate(count) => {
                let has_base = self.base_len > 0 && !state.base_is_gone;
                if let Some(count) = count.checked_sub(usize::from(has_base)) {
                    let first = state.records.get(count).map_or(state.end, |record| record.0);
                    state.truncate(first);
                    state.base_is_gone = self.base_len > 0;
                }
                Answer::Bool(true)
            }
            Op::TruncateAt(position) => {
                let has_base = self.base_len > 0 && !state.base_is_gone;
                let first = state.records.front().map_or(state.end, |record| record.0);
                let is_begin = *position == state.end
                    || state.records.iter().any(|record| record.0 == *position);
                if is_begin && (has_base || *position > first) {
                    state.truncate(*position);
                    state.base_is_gone = self.base_len > 0;
                }
                Answer::Bool(is_begin || (*position <= first && !has_base))
            }
            Op::ReadAt(position) => {
                let found = state.records.iter().find(|record| record.0 == *position);
                found.map_or(Answer::None, |&(_, content)| told(content))
            }
            Op::Visit => state.records.back().map_or(Answer::None, |&(_, content)| told(content)),
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let state = self.records(&open.object)?;
        for &(at, content) in &state.records {
            let read = open.object.read(self.at(at))?;
            if read != Some(content.bytes()) {
                return Err(format!("the record at {at} is visited but not read").into());
            }
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let content = |rng: &mut Rng| {
            let len = *rng.pick(self.lens);
            Content { len, stamp: if len == 0 { 0 } else { 1 + rng.below(255) as u8 } }
        };
        let index = rng.below(6);
        // For records that all have the same length.
        let position = index * record_len(self.lens[0]);
        let kinds: &[u64] = match self.mix {
            Mix::All => &[0, 0, 0, 0, 1, 1, 2, 5],
            Mix::Shared => &[0, 0, 0, 1, 3, 4, 4],
        };
        match *rng.pick(kinds) {
            0 => Op::Append(content(rng)),
            1 => Op::AppendMany((0..rng.below(4)).map(|_| content(rng)).collect()),
            2 => Op::Truncate(index as usize),
            3 => Op::TruncateAt(position),
            4 => Op::ReadAt(position),
            _ => Op::Visit,
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Pair>) -> bool {
        is_refused(answer)
    }
}
