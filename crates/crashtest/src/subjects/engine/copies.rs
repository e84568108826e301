//! A database, and a copy of it in the same pool that follows what its gate is told.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::{Config, Nested, Outcome, Rng, Subject};
use remanent_engine::{
    Change, Database, Error, Gate, Moment, NewIndex, OwnedValue, Row, SchemaChange, TableSpec,
    Transaction, Type, WriteSet,
};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Medium, Pool};

use super::rows::M;
use super::subject::answer;
use super::transactions::resumed;
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::presets::{SIZE_MAX, alone, few_images, interleaved, killed, prepared, without_room};
use crate::scenario::Scenario;

/// Name of the root of the copy.
const COPY: &str = "copy";
/// Keys of rows. The row behind them has what the others sum up to.
const KEYS: u64 = 4;
const SUM: u64 = KEYS;
const VALUES: u64 = 5;
const TABLE: &str = "rows";
const OTHER: &str = "other";
const INDEX: &str = "by_value";

/// Transactions and changes of the schema, each of which is applied to the copy before it is
/// acknowledged. Where a crash comes between, the copy gets what it lacks.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// Whether the schema is changed, too.
    pub(super) has_schema: bool,
}

/// An operation on the database.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A transaction: keys, and the values that they get, or `None` if they are removed.
    Change(Vec<(u64, Option<u64>)>),
    /// Makes an index, or drops it.
    Index,
    /// Makes another table, or drops it.
    Other,
}

/// What the database has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    rows: BTreeMap<u64, u64>,
    has_index: bool,
    has_other: bool,
    /// How many transactions there were: the position that each sets.
    position: u64,
}

/// Scenarios of this subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 64, samples: 1 };
    let all = Copies { has_schema: true };
    vec![
        Scenario::new(
            "engine/copies",
            "a copy applies what the gate of a database is told",
            all.clone(),
            few_images(prepared(alone(2, 6))),
        ),
        Scenario::new(
            "engine/copies-recovery",
            "the same; crashes inside recovery and after it",
            all.clone(),
            Config { nested: recovery, after: 2, creation: false, ..few_images(alone(1, 3)) },
        ),
        Scenario::new(
            "engine/copies-killed",
            "the same; killed, then power lost",
            all,
            few_images(killed(alone(1, 2))),
        ),
        Scenario::new(
            "engine/copies-no-room",
            "the same; each call for room fails once",
            Copies { has_schema: true },
            without_room(4, few_images(prepared(alone(2, 5)))),
        ),
        Scenario::new(
            "engine/copies-interleaved",
            "interleavings of three threads whose transactions are applied to a copy",
            Copies { has_schema: false },
            interleaved(3, 1, 2, 900),
        )
        .with_weight(20),
    ]
}

impl State {
    fn change(&mut self, changes: &[(u64, Option<u64>)]) {
        for (key, value) in changes {
            match value {
                Some(value) => drop(self.rows.insert(*key, *value)),
                None => drop(self.rows.remove(key)),
            }
        }
    }

    /// Whether changes of the table have led to this: removals come first.
    fn has_all(&self, changes: &[Change]) -> bool {
        let puts = || changes.iter().filter(|change| matches!(change, Change::Put { .. }));
        let is_put = |key: &[OwnedValue]| {
            puts().any(|put| matches!(put, Change::Put { row, .. } if row[..1] == *key))
        };
        let is_gone = |key: &[OwnedValue]| {
            matches!(key, [OwnedValue::Uint(key)] if !self.rows.contains_key(key)) || is_put(key)
        };
        let mut removals = changes.iter().filter(|change| matches!(change, Change::Remove { .. }));
        puts().all(|put| self.has(put))
            && removals.all(|of| matches!(of, Change::Remove { key, .. } if is_gone(key)))
    }

    /// Whether it has a row that was put.
    fn has(&self, change: &Change) -> bool {
        match change {
            Change::Put { row, .. } => match row[..] {
                [OwnedValue::Uint(SUM), OwnedValue::Uint(sum)] => sum == self.sum(),
                [OwnedValue::Uint(key), OwnedValue::Uint(value)] => {
                    self.rows.get(&key) == Some(&value)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Sums up so that no two states have one sum.
    fn sum(&self) -> u64 {
        self.rows.iter().map(|(key, value)| (value + 1) << (8 * key)).sum()
    }
}

/// Has the copy apply what it is told, by who waits: [`Gate::take`] must be quick.
struct ToCopy {
    pool: Pool<M>,
    copy: Database<M>,
    told: PauseMutex<Vec<(u64, WriteSet)>>,
    applying: PauseMutex<()>,
}

impl Gate for ToCopy {
    fn take(&self, stamp: u64, write_set: Result<WriteSet, Error>) {
        // Nothing is confirmed if the medium is faulty.
        if let Ok(write_set) = write_set {
            self.told.lock(self.pool.medium()).push((stamp, write_set));
        }
    }

    fn wait(&self, of: u64) -> bool {
        let _applying = self.applying.lock(self.pool.medium());
        let told = std::mem::take(&mut *self.told.lock(self.pool.medium()));
        let is_applied = |(stamp, write_set): &(u64, WriteSet)| {
            matches!(self.copy.apply(*stamp, write_set), Ok(true))
                && matches!(self.copy.apply(*stamp, write_set), Ok(false))
        };
        told.iter().all(is_applied) && self.copy.applied().is_ok_and(|stamp| stamp >= of)
    }
}

/// A database and its copy.
pub(super) struct Both {
    main: Database<M>,
    gate: Arc<ToCopy>,
    /// The last stamp that the gate is not told.
    told_from: u64,
}

impl Both {
    fn of(pool: &Pool<M>, main: Database<M>, copy: Database<M>) -> Self {
        let (told, applying) = (PauseMutex::default(), PauseMutex::default());
        let gate = Arc::new(ToCopy { pool: pool.clone(), copy, told, applying });
        let told_from = main.set_gate(Some(Arc::clone(&gate) as Arc<dyn Gate>));
        Both { main, gate, told_from }
    }

    fn create(pool: &Pool<M>, name: &str) -> Result<Self, Error> {
        // The copy is first: where the database is, the copy is.
        let has_copy = pool.roots()?.iter().any(|root| root.name == COPY);
        let copy = if has_copy { Database::open(pool, COPY) } else { Database::create(pool, COPY) };
        let copy = copy?;
        Ok(Self::of(pool, Database::create(pool, name)?, copy))
    }

    fn open(pool: &Pool<M>, name: &str) -> Result<Self, Error> {
        let main = Database::open(pool, name)?;
        Ok(Self::of(pool, main, Database::open(pool, COPY)?))
    }

    /// Gives the copy what it lacks of commits that a crash has kept from the gate.
    fn catch_up(self) -> Outcome<Self> {
        let [main, copy] = [&self.main, &self.gate.copy].map(state_of);
        let (main, copy) = (main?, copy?);
        if main != copy {
            self.gate.copy.apply(self.told_from, &difference(&main, &copy))?;
        }
        Ok(self)
    }

    fn change(&self, changes: &[(u64, Option<u64>)]) -> Result<(), Error> {
        let table = self.main.table(TABLE)?;
        let (delete, upsert) = (table.prepare_delete("primary")?, table.prepare_upsert("primary")?);
        let mut transaction = self.main.begin()?;
        let put = |transaction: &mut Transaction<'_, M>, key: u64, value: u64| {
            let row = [key.into(), value.into()];
            upsert.run_in(transaction, &row, |_, new| new.set(1, value)).map(drop)
        };
        for (key, value) in changes {
            match value {
                Some(value) => put(&mut transaction, *key, *value)?,
                None => drop(delete.run_in(&mut transaction, &[(*key).into()])?),
            }
        }
        let (rows, _) = rows_of(&self.main, &transaction)?;
        let state = State { rows, ..State::default() };
        put(&mut transaction, SUM, state.sum())?;
        let agreed = transaction.write_set()?;
        assert!(state.has_all(&agreed.changes), "{agreed:?}, {state:?}");
        // Others have it by now: nothing may refuse it any more.
        loop {
            match self.main.set_applied_in(&mut transaction, self.main.applied()? + 1) {
                Ok(true) => return transaction.commit(),
                // Another thread has set it meanwhile, or is about to commit its own.
                Ok(false) | Err(Error::Conflict { .. }) => self.gate.pool.medium().pause(),
                Err(error) => return Err(error),
            }
        }
    }

    fn apply(&self, op: &Op) -> Result<(), Error> {
        let main = &self.main;
        match op {
            Op::Change(changes) => loop {
                match self.change(changes) {
                    Err(Error::Conflict { .. } | Error::Overtaken { .. }) => {
                        self.gate.pool.medium().pause();
                    }
                    done => return done,
                }
            },
            Op::Index => {
                let table = main.table(TABLE)?;
                match table.indexes().iter().any(|index| index.name == INDEX) {
                    true => main.drop_index(&table, INDEX),
                    false => main.create_index(&table, &index()),
                }
            }
            Op::Other if main.table(OTHER).is_ok() => main.drop_table(OTHER),
            Op::Other => main.create_table(&spec(OTHER)).map(drop),
        }
    }
}

fn spec(name: &str) -> TableSpec {
    let columns = TableSpec::new(name).column("key", Type::U8).column("value", Type::U64);
    columns.primary_key(["key"]).tile_rows(3)
}

fn index() -> NewIndex {
    NewIndex::secondary(INDEX, ["value"])
}

/// The rows, and what they should sum up to.
fn rows_of(
    database: &Database<M>,
    moment: &impl Moment<M>,
) -> Result<(BTreeMap<u64, u64>, u64), Error> {
    let get = database.table(TABLE)?.prepare_get("primary")?;
    let value = |key: u64| get.run(moment, &[key.into()], |row: &Row<'_, M>| row.get::<u64>(1));
    let mut rows = BTreeMap::new();
    for key in 0..KEYS {
        rows.extend(value(key)?.map(|value| (key, value)));
    }
    Ok((rows, value(SUM)?.unwrap_or(0)))
}

/// What a database has. Transactions are there as a whole, or not at all.
fn state_of(database: &Database<M>) -> Outcome<State> {
    let mut state = State { has_other: database.table(OTHER).is_ok(), ..State::default() };
    let Ok(table) = database.table(TABLE) else { return Ok(state) };
    state.has_index = table.indexes().iter().any(|index| index.name == INDEX);
    let sum;
    (state.rows, sum) = rows_of(database, &database.snapshot())?;
    match sum == state.sum() {
        true => Ok(state),
        false => Err(format!("a transaction is there in part: {state:?}, sum {sum}").into()),
    }
}

/// The database hands out what it has.
fn require_exported(main: &Database<M>, state: &State) -> Outcome {
    let mut rows = 0;
    let stamp = main.export(|part| {
        for change in &part.changes {
            rows += usize::from(matches!(change, Change::Put { .. }) && state.has(change));
        }
        Ok::<(), Error>(())
    })?;
    // None of them twice, as there are as many; and the sum, unless nothing was written.
    let expected = state.rows.len();
    match (expected..=expected + 1).contains(&rows) && stamp == main.snapshot().stamp() {
        true => Ok(()),
        false => Err(format!("of {state:?}, {rows} rows were handed out").into()),
    }
}

/// What makes a copy of what it lacks.
fn difference(main: &State, copy: &State) -> WriteSet {
    let row = |key: u64, value: u64| Change::Put {
        table: TABLE.to_owned(),
        row: [key, value].map(OwnedValue::Uint).into(),
    };
    let lost = copy.rows.keys().filter(|key| !main.rows.contains_key(key));
    let remove =
        |key: &u64| Change::Remove { table: TABLE.to_owned(), key: vec![OwnedValue::Uint(*key)] };
    let mut changes: Vec<_> = lost.map(remove).collect();
    changes.extend(main.rows.iter().map(|(key, value)| row(*key, *value)));
    changes.push(row(SUM, main.sum()));
    // Those that the copy has do nothing.
    changes.push(Change::Schema(SchemaChange::CreateTable(spec(TABLE))));
    let (table, index_name) = (TABLE.to_owned(), INDEX.to_owned());
    changes.push(Change::Schema(match main.has_index {
        true => SchemaChange::CreateIndex { table, index: index() },
        false => SchemaChange::DropIndex { table, index: index_name },
    }));
    changes.push(Change::Schema(match main.has_other {
        true => SchemaChange::CreateTable(spec(OTHER)),
        false => SchemaChange::DropTable { table: OTHER.to_owned() },
    }));
    WriteSet { schema_version: 0, changes }
}

impl Subject for Copies {
    type Op = Op;
    type Ret = Answer<super::rows::Rows>;
    type State = State;
    type Handle = Open<Both>;

    fn create(&self, medium: M) -> Outcome<Self::Handle> {
        let Open { object, pool } = Open::create(medium, SIZE_MAX, Both::create)?;
        Ok(Open { object: object.catch_up()?, pool })
    }

    fn prepare(&self, _: &M, open: Self::Handle) -> Outcome<Self::Handle> {
        // It is repeated if a crash has come between it and the operations.
        if open.object.main.tables().is_empty() {
            open.object.main.create_table(&spec(TABLE))?;
        }
        Ok(open)
    }

    fn open(&self, medium: M) -> Outcome<Self::Handle> {
        let Open { object, pool } = Open::recover(medium, Both::open)?;
        // Nobody goes on with them.
        while let Some(transaction) = resumed(&object.main)? {
            transaction.abort()?;
        }
        Ok(Open { object: object.catch_up()?, pool })
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Self::Ret {
        answer(open.object.apply(op), |()| Answer::Bool(true))
    }

    fn model(&self, state: &mut State, op: &Op) -> Self::Ret {
        match op {
            Op::Change(changes) => {
                state.change(changes);
                state.position += 1;
            }
            Op::Index => state.has_index = !state.has_index,
            Op::Other => state.has_other = !state.has_other,
        }
        Answer::Bool(true)
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let [main, copy] = [&open.object.main, &open.object.gate.copy].map(state_of);
        let (main, copy) = (main?, copy?);
        require_exported(&open.object.main, &main)?;
        match main == copy {
            true => Ok(State { position: open.object.main.applied()?, ..main }),
            false => Err(format!("{main:?} was copied as {copy:?}").into()),
        }
    }

    fn op(&self, rng: &mut Rng) -> Op {
        match rng.below(8) {
            0 if self.has_schema => Op::Index,
            1 if self.has_schema => Op::Other,
            _ => {
                let changes = (0..=rng.below(3))
                    .map(|_| (rng.below(KEYS), Some(rng.below(VALUES)).filter(|value| *value > 0)));
                Op::Change(changes.collect())
            }
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        must_be_empty(open.object.main.check()?)?;
        must_be_empty(open.object.gate.copy.check()?)?;
        open.check()
    }

    fn is_refused(&self, answer: &Self::Ret) -> bool {
        is_refused(answer)
    }
}
