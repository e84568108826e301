//! Plain files: synced bytes survive; unsynced words are old or new.
//!
//! The model describes the content by units at a few places of the file. An operation writes some
//! units and syncs. Until it is acknowledged, each unit within the old length may be old or new;
//! the new length comes with all of them, and with what was appended.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_blockdev::file::File;
use remanent_blockdev::{Error, Result};
use remanent_crashsim::{Outcome, Rng, Sim, Steps, Subject};
use remanent_pmem::Medium;
use remanent_pmem::pool::Format;

use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};

const WORD_LEN: u64 = 8;
const LINE_LEN: u64 = 64;
/// Number of stamps to draw from.
const STAMPS: u64 = 24;

/// A file with a few used units.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// Offsets of the units.
    pub(super) places: &'static [u64],
    /// Bytes of a unit: a word, which is never torn; or more, if nothing is overwritten.
    pub(super) unit: u64,
    /// Kinds of operations, and their frequency.
    pub(super) mix: &'static [(Kind, u64)],
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
    /// Whether the medium is declared to have write disturbance.
    pub(super) is_disturbed: bool,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Put,
    Write,
    Append,
    Abandon,
    SetLen,
    Create,
    Delete,
    Read,
}

/// The index of a place, and the stamp of its unit.
type Unit = (usize, u64);

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Writes units, and syncs.
    Write(Vec<Unit>),
    /// Like `Write`, for units behind the end only.
    Append(Vec<Unit>),
    /// Writes units, and deletes the file.
    Abandon(Vec<Unit>),
    /// Sets the length to the end of the unit at this place, or to 0.
    SetLen(Option<usize>),
    SetPresent(bool),
    /// Reads a unit, and syncs: what was read then survives.
    Read(usize),
    /// Atomic: writes a unit if it lies below the end.
    Overwrite(Unit),
}

/// The file. A new file is empty, and present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    is_absent: bool,
    len: u64,
    /// Stamps by place; missing ones are zeros.
    units: BTreeMap<u64, u64>,
}

/// The words of a unit with a stamp; two stamps differ in each word.
fn word(stamp: u64, at: u64) -> u64 {
    if stamp == 0 { 0 } else { (at + 1) << 32 | stamp }
}

impl Files {
    fn bytes(&self, (place, stamp): Unit) -> Vec<u8> {
        let at = self.places[place];
        let words = (at..at + self.unit).step_by(WORD_LEN as usize);
        words.flat_map(|at| word(stamp, at).to_le_bytes()).collect()
    }

    fn end(&self, place: usize) -> u64 {
        self.places[place] + self.unit
    }

    fn units(&self, rng: &mut Rng, count: u64) -> Vec<Unit> {
        let units = (0..count).map(|_| self.unit(rng));
        units.collect::<BTreeMap<usize, u64>>().into_iter().collect()
    }

    fn unit(&self, rng: &mut Rng) -> Unit {
        (rng.below(self.places.len() as u64) as usize, 1 + rng.below(STAMPS - 1))
    }

    fn put(&self, state: &mut State, unit: Unit) {
        state.len = state.len.max(self.end(unit.0));
        state.units.insert(self.places[unit.0], unit.1);
    }

    fn write(&self, file: &File<Arc<Sim>>, units: &[Unit]) -> Result<()> {
        units.iter().try_for_each(|&unit| file.write(self.places[unit.0], &self.bytes(unit)))
    }

    fn do_op(&self, handle: &Open<File<Arc<Sim>>>, op: &Op) -> Result<Answer<u64>> {
        let file = &handle.object;
        // Lets other threads run between two calls.
        let pause = || handle.pool.medium().pause();
        match *op {
            Op::Write(ref units) => {
                self.write(file, units)?;
                pause();
                file.sync()?;
            }
            Op::Append(ref units) => {
                let len = file.len();
                let behind = units.iter().filter(|(place, _)| self.places[*place] >= len);
                self.write(file, &behind.copied().collect::<Vec<Unit>>())?;
                file.sync()?;
            }
            Op::Abandon(ref units) => {
                self.write(file, units)?;
                file.set_present(false)?;
            }
            Op::SetLen(place) => file.set_len(place.map_or(0, |place| self.end(place)))?,
            Op::SetPresent(is_present) => file.set_present(is_present)?,
            Op::Read(place) => {
                let found = self.read(file, self.places[place])?;
                pause();
                file.sync()?;
                return Ok(found.map_or(Answer::None, Answer::Value));
            }
            Op::Overwrite(_) => unreachable!("a step is no operation"),
        }
        Ok(Answer::Bool(true))
    }

    /// The stamp of a unit; `None` behind the end of the file, `u64::MAX` if the unit is torn.
    fn read(&self, file: &File<Arc<Sim>>, at: u64) -> Result<Option<u64>> {
        let mut bytes = vec![0; self.unit as usize];
        if file.read(at, &mut bytes)? < bytes.len() {
            return Ok(None);
        }
        let words = bytes.as_chunks::<{ WORD_LEN as usize }>().0;
        let stamp = u64::from_le_bytes(words[0]) & u64::from(u32::MAX);
        let is_whole = (at..).step_by(WORD_LEN as usize).zip(words).all(|(at, bytes)| {
            let found = u64::from_le_bytes(*bytes);
            found == word(stamp, at)
        });
        Ok(Some(if is_whole { stamp } else { u64::MAX }))
    }

    /// Whether the bytes beside the units, in their lines, are zeros.
    fn is_zero_beside(&self, file: &File<Arc<Sim>>) -> Result<bool> {
        for line in self.places.iter().map(|at| at & !(LINE_LEN - 1)) {
            let mut bytes = [0; LINE_LEN as usize];
            let count = file.read(line, &mut bytes)?;
            let is_unit =
                |at: u64| self.places.iter().any(|from| (*from..from + self.unit).contains(&at));
            let mut beside = (line..).zip(&bytes[..count]).filter(|(at, _)| !is_unit(*at));
            if beside.any(|(_, byte)| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Subject for Files {
    type Op = Op;
    type Ret = Answer<u64>;
    type State = State;
    type Handle = Open<File<Arc<Sim>>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let mut format = Format::new(self.size_max);
        format.guarantee.write_disturbance = self.is_disturbed;
        Open::create_in(medium, &format, File::create)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, File::open)
    }

    fn apply(&self, handle: &Self::Handle, op: &Op) -> Answer<u64> {
        match self.do_op(handle, op) {
            Ok(answer) => answer,
            Err(error) if error.is_full() => Answer::Refused(error.to_string()),
            Err(error @ Error::Pool(remanent_pmem::Error::Medium(_))) => {
                Answer::Refused(error.to_string())
            }
            Err(error) => Answer::Failed(error.to_string()),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<u64> {
        match *op {
            Op::Write(ref units) => units.iter().for_each(|&unit| self.put(state, unit)),
            Op::Append(ref units) => {
                let len = state.len;
                let behind = units.iter().filter(|(place, _)| self.places[*place] >= len);
                behind.for_each(|&unit| self.put(state, unit));
            }
            Op::SetLen(place) => {
                state.len = place.map_or(0, |place| self.end(place));
                state.units.retain(|at, _| *at < state.len);
            }
            Op::SetPresent(true) => state.is_absent = false,
            Op::SetPresent(false) | Op::Abandon(_) => {
                *state = State { is_absent: true, ..State::default() };
            }
            Op::Read(place) if self.end(place) > state.len => return Answer::None,
            Op::Read(place) => {
                let stamp = state.units.get(&self.places[place]).copied();
                return Answer::Value(stamp.unwrap_or_default());
            }
            Op::Overwrite(unit) if self.end(unit.0) <= state.len => self.put(state, unit),
            Op::Overwrite(_) => {}
        }
        Answer::Bool(true)
    }

    fn steps(&self, op: &Op) -> Steps<Op> {
        match op {
            // Writes below the end may survive before the sync, one without the other. For one
            // thread only, because the oracle would have the steps of two threads overwrite each
            // other without end.
            Op::Write(units) | Op::Abandon(units)
                if units.len() > 1 || matches!(op, Op::Abandon(_)) =>
            {
                let below = units.iter().copied().map(Op::Overwrite);
                Steps::AnyOrder(below.chain([op.clone()]).collect())
            }
            _ => Steps::One,
        }
    }

    fn observe(&self, handle: &Self::Handle) -> Outcome<State> {
        let file = &handle.object;
        let mut units = BTreeMap::new();
        for &at in self.places {
            match self.read(file, at)? {
                Some(u64::MAX) => return Err(format!("the unit at {at} is torn").into()),
                Some(0) | None => {}
                Some(stamp) => drop(units.insert(at, stamp)),
            }
        }
        if !self.is_zero_beside(file)? {
            return Err("there is something beside the units".into());
        }
        Ok(State { is_absent: !file.is_present(), len: file.len(), units })
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let total = self.mix.iter().map(|(_, weight)| weight).sum();
        let mut drawn = rng.below(total);
        let kind = self.mix.iter().find(|(_, weight)| {
            let is_drawn = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_drawn
        });
        let (place, _) = self.unit(rng);
        let count = 1 + rng.below(4);
        match kind.expect("drawn below the total").0 {
            Kind::Put => Op::Write(self.units(rng, 1)),
            Kind::Write => Op::Write(self.units(rng, count)),
            Kind::Append => Op::Append(self.units(rng, count)),
            Kind::Abandon => Op::Abandon(self.units(rng, count)),
            Kind::SetLen => Op::SetLen((rng.below(3) > 0).then_some(place)),
            Kind::Create => Op::SetPresent(true),
            Kind::Delete => Op::SetPresent(false),
            Kind::Read => Op::Read(place),
        }
    }

    fn check(&self, handle: &Self::Handle) -> Outcome {
        must_be_empty(handle.object.check()?)?;
        handle.check()
    }

    fn is_refused(&self, answer: &Answer<u64>) -> bool {
        is_refused(answer)
    }
}
