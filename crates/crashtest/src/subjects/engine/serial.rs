//! A serializable transaction beside statements of others, which change what it has read.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;

use remanent_crashsim::{Config, Nested, Outcome, Points, Rng, Subject};
use remanent_engine::{
    Database, Error, Isolation, Moment, Table, TableSpec, Transaction, TransactionOptions, Type,
};

use super::rows::{M, Rows, VALUES};
use super::subject::{answer, bool_or_none};
use super::transactions::{by_open, end, patient, resumed};
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::presets::{SIZE_MAX, alone, few_images, killed, prepared};
use crate::scenario::Scenario;

/// One table with few rows, and one open transaction at a time.
#[derive(Clone, Debug)]
struct Readers {
    keys: u64,
    /// Whether it mostly takes back what it has done.
    goes_back: bool,
}

/// A change of a row.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Gives it the value behind its own.
    Next,
    Remove,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Inserts a row, or gives it the value behind its own: beside the open transaction.
    Put(u64),
    Remove(u64),
    /// A change by the open transaction, which begins if there is none.
    Within(u64, Change),
    /// The last statement of the open transaction.
    CommitWith(u64, Change),
    /// The open transaction reads a row, or finds that there is none.
    Read(u64),
    /// It reads all rows.
    ReadAll,
    /// It sees what was committed by now, and makes a statement that says so durably.
    Refresh,
    /// Takes back what it has done behind the statement with this number.
    TakeBack(u32),
    Commit,
    Abort,
    Collect,
}

/// A row that the open transaction alone changes.
const PRIVATE: u64 = 1_000;

/// Values by keys.
type Values = BTreeMap<u64, u64>;

/// What cannot be observed, and makes no state another one.
#[derive(Clone, Copy, Debug, Default)]
struct Hidden<T>(T);

impl<T> PartialEq for Hidden<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Hidden<T> {}

impl<T> Hash for Hidden<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    rows: Values,
    open: Option<OpenModel>,
    /// The commit that has made each row what it is.
    made_by: Hidden<Values>,
    commits: Hidden<u64>,
}

/// The open transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct OpenModel {
    /// Statements that took effect.
    statement: u32,
    /// What it sees.
    rows: Values,
    inside: Hidden<Inside>,
}

/// What it has seen, done and read.
#[derive(Clone, Debug, Default)]
struct Inside {
    /// What it sees of others, and the commits by which that is so.
    seen: Values,
    made_by: Values,
    /// The last commit that it sees.
    since: u64,
    /// Rows that it has changed.
    own: BTreeMap<u64, Option<u64>>,
    /// The same behind each statement that was not taken back.
    history: Vec<(u32, BTreeMap<u64, Option<u64>>)>,
    /// Keys that it has read, and by which commit there was a row.
    read: BTreeSet<(u64, Option<u64>)>,
    /// The database was opened again, and nobody knows what it has read.
    is_lost: bool,
    /// Others had committed when it took a newer snapshot.
    is_older: bool,
}

impl OpenModel {
    fn on(state: &State) -> Self {
        let mut open = OpenModel::default();
        open.inside.0.history.push((0, BTreeMap::new()));
        open.see(state);
        open
    }

    /// Sees what was committed by now.
    fn see(&mut self, state: &State) {
        let inside = &mut self.inside.0;
        inside.is_older |= self.statement > 0 && inside.since < state.commits.0;
        inside.seen = state.rows.clone();
        inside.made_by = state.made_by.0.clone();
        inside.since = state.commits.0;
        self.rows = inside.rows();
    }

    /// Reads the row with a key.
    fn read(&mut self, key: u64) -> Option<u64> {
        let inside = &mut self.inside.0;
        inside.read.insert((key, inside.made_by.get(&key).copied()));
        self.rows.get(&key).copied()
    }

    /// Makes a statement; `None` if there is no row, and false if it is refused.
    fn change(&mut self, key: u64, change: Change, made_by: &Values) -> Option<bool> {
        let Some(value) = self.rows.get(&key).copied() else {
            self.read(key);
            return None;
        };
        let inside = &mut self.inside.0;
        if !inside.own.contains_key(&key) && inside.made_by.get(&key) != made_by.get(&key) {
            return Some(false);
        }
        let next = matches!(change, Change::Next).then_some((value + 1) % VALUES);
        inside.own.insert(key, next);
        self.note_statement();
        Some(true)
    }

    fn note_statement(&mut self) {
        self.statement += 1;
        let inside = &mut self.inside.0;
        inside.history.push((self.statement, inside.own.clone()));
        self.rows = inside.rows();
    }

    fn take_back(&mut self, to: u32) {
        if to < self.statement {
            let inside = &mut self.inside.0;
            inside.history.retain(|(statement, _)| *statement <= to);
            let (_, own) = inside.history.last().cloned().unwrap_or_default();
            // It has read those that it has changed.
            for key in inside.own.keys() {
                inside.read.insert((*key, inside.made_by.get(key).copied()));
            }
            inside.own = own;
            self.note_statement();
        }
    }
}

impl Inside {
    /// What it has changed, and what it sees of others.
    fn rows(&self) -> Values {
        let others = self.seen.iter().filter(|(key, _)| !self.own.contains_key(key));
        let others = others.map(|(key, value)| (*key, *value));
        others.chain(self.own.iter().filter_map(|(key, value)| Some((*key, (*value)?)))).collect()
    }

    /// Whether it is as if all of it happened now.
    fn is_serial(&self, state: &State) -> bool {
        let is_same = |(key, by): &(u64, Option<u64>)| state.made_by.0.get(key).copied() == *by;
        match self.is_lost {
            true => !self.is_older && self.since == state.commits.0,
            false => self.read.iter().all(is_same),
        }
    }
}

impl State {
    /// Has a commit give a row this value, or none.
    fn set(&mut self, key: u64, value: Option<u64>) {
        match value {
            Some(value) => {
                self.rows.insert(key, value);
                self.made_by.0.insert(key, self.commits.0);
            }
            None => {
                self.rows.remove(&key);
                self.made_by.0.remove(&key);
            }
        }
    }

    /// Changes a row beside the open transaction.
    fn beside(&mut self, key: u64, value: Option<u64>) -> bool {
        if self.open.as_ref().is_some_and(|open| open.inside.0.own.contains_key(&key)) {
            return false;
        }
        self.commits.0 += 1;
        self.set(key, value);
        true
    }

    /// Commits the open transaction, unless others have changed what it has read.
    fn commit(&mut self) -> bool {
        let Some(open) = self.open.take() else { return false };
        let inside = open.inside.0;
        let is_serial = inside.is_serial(self);
        if is_serial {
            self.commits.0 += 1;
            inside.own.into_iter().for_each(|(key, value)| self.set(key, value));
        }
        is_serial
    }
}

/// Every scenario of serializable transactions.
pub(super) fn scenarios() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    let readers = || Readers { keys: 4, goes_back: false };
    let going_back = || Readers { keys: 2, goes_back: true };
    vec![
        Scenario::new(
            "engine/serializable",
            "a serializable transaction, and statements that change what it has read",
            readers(),
            few_images(prepared(alone(5, 14))),
        )
        .with_weight(6),
        Scenario::new(
            "engine/serializable-back",
            "the same; it takes back what it has done, which it has read nevertheless",
            going_back(),
            Config { points: Points::End, ..few_images(prepared(alone(3, 14))) },
        )
        .with_weight(60),
        Scenario::new(
            "engine/serializable-recovery",
            "the same; crashes inside recovery and after it",
            readers(),
            Config { nested: recovery, after: 8, creation: false, ..few_images(alone(5, 8)) },
        ),
        Scenario::new(
            "engine/serializable-killed",
            "the same; killed, then power lost",
            readers(),
            few_images(killed(alone(5, 5))),
        ),
    ]
}

fn serializable() -> TransactionOptions {
    patient().isolation(Isolation::Serializable)
}

fn table(database: &Database<M>) -> Result<Table<M>, Error> {
    database.table("things")
}

fn values(database: &Database<M>, moment: &impl Moment<M>) -> Result<Values, Error> {
    let mut values = Values::new();
    let failed = table(database)?.scan(moment, |row| match (row.get(0), row.get(1)) {
        (Ok(key), Ok(value)) => {
            if key != PRIVATE {
                values.insert(key, value);
            }
            ControlFlow::Continue(())
        }
        (Err(error), _) | (_, Err(error)) => ControlFlow::Break(error),
    })?;
    failed.map_or(Ok(values), Err)
}

/// Makes a statement of a transaction. `None` if there is no row.
fn make(
    database: &Database<M>,
    by: &mut Transaction<'_, M>,
    key: u64,
    change: Change,
) -> Result<Option<()>, Error> {
    let things = table(database)?;
    match change {
        Change::Next => things
            .prepare_update("primary")?
            .run_in(by, &[key.into()], |old, new| new.set(1, (old.get::<u64>(1)? + 1) % VALUES)),
        Change::Remove => {
            let is_done = things.prepare_delete("primary")?.run_in(by, &[key.into()])?;
            Ok(is_done.then_some(()))
        }
    }
}

fn put(database: &Database<M>, key: u64) -> Result<Option<()>, Error> {
    let upsert = table(database)?.prepare_upsert("primary")?;
    upsert
        .run(&[key.into(), 0.into()], |old, new| new.set(1, (old.get::<u64>(1)? + 1) % VALUES))?;
    Ok(Some(()))
}

fn commit_with(database: &Database<M>, key: u64, change: Change) -> Result<Option<()>, Error> {
    let Some(mut by) = resumed(database)? else { return Ok(None) };
    let done = by.commit_with(|last| make(database, last, key, change));
    if by.statement() > 0 {
        // Its last statement was refused.
        by.suspend();
    }
    done
}

fn told(rows: Values) -> Answer<Rows> {
    Answer::Value(rows.into_iter().map(|(key, value)| (key, (None, value))).collect())
}

impl Subject for Readers {
    type Op = Op;
    type Ret = Answer<Rows>;
    type State = State;
    type Handle = Open<Database<M>>;

    fn create(&self, medium: M) -> Outcome<Self::Handle> {
        Open::create(medium, SIZE_MAX, Database::create)
    }

    fn prepare(&self, _: &M, open: Self::Handle) -> Outcome<Self::Handle> {
        // It is repeated if a crash has come between it and the operations.
        if table(&open.object).is_err() {
            let spec = TableSpec::new("things")
                .column("key", Type::U32)
                .column("value", Type::U16)
                .primary_key(["key"])
                .tile_rows(3);
            open.object.create_table(&spec)?.insert(&[PRIVATE.into(), 0.into()])?;
        }
        Ok(open)
    }

    fn open(&self, medium: M) -> Outcome<Self::Handle> {
        Open::recover(medium, Database::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Rows> {
        let database = &open.object;
        let done = match *op {
            Op::Put(key) => put(database, key),
            Op::Remove(key) => table(database)
                .and_then(|things| things.prepare_delete("primary")?.run(&[key.into()]))
                .map(|is_done| is_done.then_some(())),
            Op::Within(key, change) => {
                let by = match resumed(database) {
                    Ok(Some(by)) => Ok(by),
                    Ok(None) => database.begin_with(&serializable()),
                    Err(error) => Err(error),
                };
                by.and_then(|mut by| {
                    let done = make(database, &mut by, key, change);
                    if by.statement() > 0 {
                        by.suspend();
                    }
                    done
                })
            }
            Op::CommitWith(key, change) => commit_with(database, key, change),
            Op::Read(key) => {
                let read = by_open(database, |by| {
                    let get = table(database)?.prepare_get("primary")?;
                    let found = get.run(by, &[key.into()], |row| row.get(1))?;
                    Ok(found.map(|value| (key, value)).into_iter().collect())
                });
                return answer(read, |read| read.map_or(Answer::None, told));
            }
            Op::ReadAll => {
                let read = by_open(database, |by| values(database, by));
                return answer(read, |read| read.map_or(Answer::None, told));
            }
            Op::Refresh => by_open(database, |by| {
                by.refresh()?;
                make(database, by, PRIVATE, Change::Next).map(drop)
            }),
            Op::TakeBack(to) => by_open(database, |by| by.take_back_to(to)),
            Op::Commit | Op::Abort => {
                match end(database, matches!(op, Op::Commit)) {
                    Err(Error::NotSerializable { .. }) => return Answer::Bool(false),
                    ended => return answer(ended, Answer::Bool),
                };
            }
            Op::Collect => database.collect().map(|_| None),
        };
        match done {
            Err(Error::NotSerializable { .. }) => Answer::Bool(false),
            done => answer(done, bool_or_none),
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Rows> {
        let done = match *op {
            Op::Put(key) => {
                let next = state.rows.get(&key).map_or(0, |value| (value + 1) % VALUES);
                Some(state.beside(key, Some(next)))
            }
            // One that the open transaction has removed is there for others.
            Op::Remove(key) if !state.rows.contains_key(&key) => None,
            Op::Remove(key) => Some(state.beside(key, None)),
            Op::Within(key, change) => {
                let mut open = state.open.take().unwrap_or_else(|| OpenModel::on(state));
                let done = open.change(key, change, &state.made_by.0);
                state.open = (open.statement > 0).then_some(open);
                done
            }
            Op::CommitWith(key, change) => match state.open.as_mut() {
                None => None,
                Some(open) => match open.change(key, change, &state.made_by.0) {
                    Some(false) => Some(false),
                    done if state.commit() => done,
                    _ => Some(false),
                },
            },
            Op::Read(key) => {
                let Some(open) = state.open.as_mut() else { return Answer::None };
                let found = open.read(key).map(|value| (key, value));
                return told(found.into_iter().collect());
            }
            Op::ReadAll => {
                let Some(open) = state.open.as_mut() else { return Answer::None };
                (0..self.keys).for_each(|key| {
                    open.read(key);
                });
                return told(open.rows.clone());
            }
            Op::Refresh => state.open.take().map(|mut open| {
                open.see(state);
                open.note_statement();
                state.open = Some(open);
                true
            }),
            Op::TakeBack(to) => state.open.as_mut().map(|open| {
                open.take_back(to);
                true
            }),
            Op::Commit => Some(state.commit()),
            Op::Abort => Some(state.open.take().is_some()),
            Op::Collect => None,
        };
        done.map_or(Answer::None, Answer::Bool)
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let database = &open.object;
        let rows = values(database, &database.snapshot())?;
        let of_open = by_open(database, |by| {
            let rows = values(database, by)?;
            Ok(OpenModel { statement: by.statement(), rows, ..OpenModel::default() })
        });
        Ok(State { rows, open: of_open?, ..State::default() })
    }

    fn go_on_from(&self, of_model: &State, _: State) -> State {
        let mut state = of_model.clone();
        if let Some(open) = &mut state.open {
            open.inside.0.is_lost = true;
        }
        state
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let key = rng.below(self.keys);
        let change = if rng.below(4) == 0 { Change::Remove } else { Change::Next };
        match rng.below(21) {
            10..=13 if self.goes_back => Op::TakeBack(rng.below(2) as u32),
            0..=4 => Op::Put(key),
            5 => Op::Remove(key),
            6..=9 => Op::Within(key, change),
            10..=12 => Op::Read(key),
            13 => Op::ReadAll,
            14 => Op::TakeBack(rng.below(4) as u32),
            19 => Op::Refresh,
            15 | 16 => Op::Commit,
            17 => Op::CommitWith(key, change),
            18 => Op::Abort,
            _ => Op::Collect,
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Rows>) -> bool {
        is_refused(answer)
    }
}
