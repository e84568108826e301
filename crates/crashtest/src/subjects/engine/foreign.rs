//! Parents, and children that refer to them, by a foreign key.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Config, Nested, Outcome, Rng, Sim, Subject};
use remanent_engine::{
    Changes, Database, Durability, Error, ForeignKeys, Moment, NewForeignKey, Placement, Rebuild,
    Row, Table, TableSpec, Transaction, TransactionOptions, Type, Value,
};
use remanent_pmem::Medium;

use super::foreign_model::{Families, Open as OpenModel, RowKey, Side, State, Statement, VALUES};
use super::rows::{M, Rows, answer_number};
use super::subject::{answer, bool_or_none};
use super::transactions::{by_open, end, patient, resumed};
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};
use crate::presets::{
    SIZE_MAX, alone, few_images, interleaved, killed, prepared, together, without_room,
};
use crate::scenario::Scenario;

/// Two tables with few keys and small tiles.
#[derive(Clone, Debug)]
struct Trees {
    keys: u64,
    names: u64,
    /// Whether children are found by an ordered index, of more than their parents.
    is_ordered: bool,
    /// Whether the open transaction looks at foreign keys when it commits.
    checks_at_commit: bool,
    mix: Mix,
}

/// Operations that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    /// One transaction of several statements at a time, and statements beside it.
    Beside,
    /// Mostly batches, and transactions that are durable at their commit.
    Deferred,
    /// Statements and transactions of threads.
    Together,
}

/// One operation.
#[derive(Clone, Debug)]
enum Op {
    /// A statement that is a transaction.
    Alone(Statement),
    /// A statement of the open transaction, which begins if there is none.
    Within(Statement),
    /// Statements of the open transaction that count as one.
    Batch(Vec<Statement>),
    /// The last statement of the open transaction.
    CommitWith(Statement),
    /// Takes back what the open transaction has done behind the statement with this number.
    TakeBack(u32),
    /// Asks whether the open transaction can be committed.
    Check,
    Commit,
    Abort,
    /// A transaction that is durable at its commit, if it commits.
    AtCommit(Vec<Statement>, bool),
    /// A transaction of a thread, and whether its statements are a batch. It commits if all of them
    /// are made.
    Work(Vec<Statement>, Durability, bool),
    /// Adds the foreign key, or drops it.
    SetKey(bool),
    /// Moves the index of a table to DRAM, or to the pool.
    Place(Side, bool),
    Collect,
    Scan,
}

/// Every scenario of foreign keys.
pub(super) fn scenarios() -> Vec<Scenario> {
    let trees = |mix| Trees { keys: 3, names: 2, is_ordered: false, checks_at_commit: false, mix };
    let at_commit = Trees { checks_at_commit: true, ..trees(Mix::Beside) };
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    vec![
        Scenario::new(
            "engine/foreign",
            "a foreign key; a transaction of several statements, and statements beside it",
            trees(Mix::Beside),
            few_images(prepared(alone(5, 14))),
        )
        .with_weight(3),
        Scenario::new(
            "engine/foreign-deferred",
            "a foreign key; batches, and transactions that are durable at their commit",
            Trees { is_ordered: true, ..trees(Mix::Deferred) },
            few_images(prepared(alone(4, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/foreign-recovery",
            "a foreign key; crashes inside recovery and after it",
            trees(Mix::Beside),
            Config { nested: recovery, after: 8, creation: false, ..few_images(alone(5, 6)) },
        ),
        Scenario::new(
            "engine/foreign-killed",
            "a foreign key; killed, then power lost",
            trees(Mix::Beside),
            few_images(killed(alone(5, 5))),
        ),
        Scenario::new(
            "engine/foreign-at-commit",
            "a foreign key; a transaction whose durable statements are checked at its commit",
            at_commit.clone(),
            few_images(prepared(alone(5, 10))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/foreign-at-commit-recovery",
            "the same; crashes inside recovery and after it",
            at_commit,
            Config { nested: recovery, after: 8, creation: false, ..few_images(alone(5, 6)) },
        ),
        Scenario::new(
            "engine/foreign-no-room",
            "a foreign key; each call for room fails once",
            trees(Mix::Beside),
            without_room(4, few_images(prepared(alone(5, 8)))),
        ),
        Scenario::new(
            "engine/foreign-threads",
            "a foreign key; two threads that insert and remove both ends of it",
            trees(Mix::Together),
            Config { creation: false, ..few_images(together(2, 3, 3)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/foreign-interleaved",
            "interleavings of two threads that insert and remove both ends of a foreign key",
            Trees { keys: 2, ..trees(Mix::Together) },
            interleaved(2, 3, 2, 500),
        )
        .with_weight(600),
    ]
}

fn name_of(side: Side) -> &'static str {
    match side {
        Side::Parents => "parents",
        Side::Children => "children",
    }
}

/// The index by which the rows of a table are found by the foreign key.
fn index_of(side: Side) -> &'static str {
    match side {
        Side::Parents => "by_name",
        Side::Children => "by_parent",
    }
}

const SIDES: [Side; 2] = [Side::Parents, Side::Children];

impl Trees {
    fn spec(&self, side: Side) -> TableSpec {
        let spec = TableSpec::new(name_of(side))
            .column("id", Type::U32)
            .nullable("name", Type::U16)
            .column("value", Type::U16)
            .primary_key(["id"])
            .tile_rows(3);
        match side {
            Side::Parents => spec.unique("by_name", ["name"]),
            Side::Children => {
                let spec = match self.is_ordered {
                    true => spec.index("by_parent", ["name", "value"]).ordered(["by_parent"]),
                    false => spec.index("by_parent", ["name"]),
                };
                spec.foreign_key("of_parent", ["name"], "parents", ["name"])
            }
        }
    }
}

fn row_of(row: &Row<'_, M>) -> Result<(u64, (Option<u64>, u64)), Error> {
    Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))
}

/// Makes a statement. `None` if there is no row.
fn make(
    database: &Database<M>,
    transaction: Option<&mut Transaction<'_, M>>,
    statement: Statement,
) -> Result<Option<()>, Error> {
    let (Statement::Insert(row, _) | Statement::Rename(row, _) | Statement::Delete(row)) =
        statement;
    let (table, id) = (database.table(name_of(row.0))?, [row.1.into()]);
    match statement {
        Statement::Insert(_, name) => {
            let values = [row.1.into(), Value::from(name), 0.into()];
            let inserted = match transaction {
                Some(transaction) => table.insert_in(transaction, &values),
                None => table.insert(&values),
            };
            inserted.map(|_| Some(()))
        }
        Statement::Rename(_, name) => {
            let update = table.prepare_update("primary")?;
            let change = |old: &Row<'_, M>, new: &mut Changes<'_, M>| {
                new.set(1, name)?;
                new.set(2, (old.get::<u64>(2)? + 1) % VALUES)
            };
            match transaction {
                Some(transaction) => update.run_in(transaction, &id, change),
                None => update.run(&id, change),
            }
        }
        Statement::Delete(_) => {
            let delete = table.prepare_delete("primary")?;
            let is_done = match transaction {
                Some(transaction) => delete.run_in(transaction, &id)?,
                None => delete.run(&id)?,
            };
            Ok(is_done.then_some(()))
        }
    }
}

/// The open transaction, or one that begins like this, is passed on, and left if it has done
/// something.
fn in_open<R>(
    database: &Database<M>,
    options: &TransactionOptions,
    make: impl FnOnce(&mut Transaction<'_, M>) -> Result<R, Error>,
) -> Result<R, Error> {
    let mut transaction = match resumed(database)? {
        Some(transaction) => transaction,
        None => database.begin_with(options)?,
    };
    let result = make(&mut transaction);
    if transaction.statement() > 0 {
        transaction.suspend();
    }
    result
}

fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Unique { .. }
            | Error::NoParent { .. }
            | Error::HasChildren { .. }
            | Error::Conflict { .. }
            | Error::Overtaken { .. }
    )
}

/// A transaction that is durable at its commit, and how its statements went.
fn at_commit(
    database: &Database<M>,
    statements: &[Statement],
    is_commit: bool,
) -> Result<Rows, Error> {
    let how = patient().durability(Durability::AtCommit);
    let mut transaction = database.begin_with(&how)?;
    let mut answers = Rows::new();
    for (number, &statement) in (0..).zip(statements) {
        let done = match make(database, Some(&mut transaction), statement) {
            Err(error) if is_refusal(&error) => Some(false),
            made => made?.map(|()| true),
        };
        answers.insert(number, (None, answer_number(done)));
    }
    match is_commit {
        true => transaction.commit()?,
        false => transaction.abort()?,
    }
    Ok(answers)
}

/// The error by which a batch is taken back that finds one of its rows not there.
fn no_row() -> Error {
    Error::NoToken { text: "a row is not there".to_owned() }
}

/// A transaction of a thread. `None` if one of its rows is not there: then nothing is changed.
fn work(
    database: &Database<M>,
    statements: &[Statement],
    durability: Durability,
    is_batch: bool,
) -> Result<Option<()>, Error> {
    let mut transaction = database.begin_with(&patient().durability(durability))?;
    let all = |by: &mut Transaction<'_, M>| {
        for &statement in statements {
            if make(database, Some(&mut *by), statement)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    };
    let done = match is_batch {
        true => transaction.batch(|batch| all(batch)?.map_or_else(|| Err(no_row()), Ok)).map(Some),
        false => all(&mut transaction),
    };
    let done = match done {
        Err(Error::NoToken { .. }) => None,
        done => done?,
    };
    match done {
        Some(()) => transaction.commit()?,
        None => transaction.abort()?,
    }
    Ok(done)
}

fn set_key(database: &Database<M>, is_there: bool) -> Result<bool, Error> {
    let children = database.table("children")?;
    let changed = match is_there {
        true => {
            let key = NewForeignKey::new("of_parent", ["name"], "parents", ["name"]);
            database.add_foreign_key(&children, &key)
        }
        false => database.drop_foreign_key(&children, "of_parent"),
    };
    match changed {
        Err(Error::ForeignKey { .. } | Error::NoSuchForeignKey { .. }) => Ok(false),
        changed => changed.map(|()| true),
    }
}

/// The rows of both tables. Each is found by its name, too.
fn families(database: &Database<M>, moment: &impl Moment<M>) -> Result<Families, Error> {
    let mut rows = Families::new();
    for side in SIDES {
        let table = database.table(name_of(side))?;
        let failed = table.scan(moment, |row| match row_of(row) {
            Ok((id, cells)) => match rows.insert((side, id), cells) {
                None => ControlFlow::Continue(()),
                Some(_) => ControlFlow::Break(twice(&table, id)),
            },
            Err(error) => ControlFlow::Break(error),
        })?;
        failed.map_or(Ok(()), Err)?;
    }
    Ok(rows)
}

fn twice(table: &Table<M>, id: u64) -> Error {
    let table = format!("a row of {} comes twice", table.name());
    Error::NoSuchColumn { table, column: id.to_string() }
}

/// Each row has to be found by its primary key.
fn require_found(database: &Database<M>, moment: &impl Moment<M>, rows: &Families) -> Outcome {
    for (&(side, id), cells) in rows {
        let get = database.table(name_of(side))?.prepare_get("primary")?;
        let found = get.run(moment, &[id.into()], row_of)?;
        if found != Some((id, *cells)) {
            return Err(format!("row {id} of {} is found as {found:?}", name_of(side)).into());
        }
    }
    Ok(())
}

impl Trees {
    /// Repeats a transaction of a thread that others are in the way of.
    fn patiently<T>(
        &self,
        open: &Open<Database<M>>,
        mut call: impl FnMut() -> Result<T, Error>,
    ) -> Result<T, Error> {
        loop {
            match call() {
                Err(Error::Conflict { .. } | Error::Overtaken { .. })
                    if self.mix == Mix::Together =>
                {
                    open.pool.medium().pause();
                }
                result => return result,
            }
        }
    }

    /// How the open transaction begins.
    fn options(&self) -> TransactionOptions {
        match self.checks_at_commit {
            true => patient().foreign_keys(ForeignKeys::AtCommit),
            false => patient(),
        }
    }

    fn statements(&self, rng: &mut Rng, count: u64) -> Vec<Statement> {
        (0..count).map(|_| Statement::draw(rng, self.keys, self.names)).collect()
    }
}

impl Subject for Trees {
    type Op = Op;
    type Ret = Answer<Rows>;
    type State = State;
    type Handle = Open<Database<M>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, SIZE_MAX, Database::create)
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        // It is repeated if a crash has come between it and the operations.
        for side in SIDES {
            if open.object.table(name_of(side)).is_err() {
                open.object.create_table(&self.spec(side))?;
            }
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let options = Database::options().rebuild(Rebuild::Steps);
        let open = Open::recover(medium, |pool, name| options.open(pool, name))?;
        if self.mix == Mix::Together {
            // Those of threads, which nobody goes on with.
            while let Some(transaction) = resumed(&open.object)? {
                transaction.abort()?;
            }
        }
        Ok(open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Rows> {
        let database = &open.object;
        let done = match *op {
            Op::Alone(statement) => self.patiently(open, || make(database, None, statement)),
            Op::Within(statement) => {
                in_open(database, &self.options(), |by| make(database, Some(by), statement))
            }
            Op::Batch(ref statements) => in_open(database, &self.options(), |by| {
                by.batch(|batch| {
                    statements.iter().try_for_each(|statement| {
                        make(database, Some(&mut *batch), *statement).map(drop)
                    })
                })
                .map(Some)
            }),
            Op::CommitWith(statement) => match resumed(database) {
                Ok(Some(mut by)) => {
                    let done = by.commit_with(|last| make(database, Some(last), statement));
                    if done.is_err() {
                        by.suspend();
                    }
                    done
                }
                none => none.map(|_| None),
            },
            Op::TakeBack(to) => by_open(database, |by| by.take_back_to(to)),
            Op::Check => by_open(database, |by| by.check_foreign_keys()),
            Op::Commit | Op::Abort => {
                let ended = end(database, matches!(op, Op::Commit));
                return answer(ended, Answer::Bool);
            }
            Op::AtCommit(ref statements, is_commit) => {
                return answer(at_commit(database, statements, is_commit), Answer::Value);
            }
            Op::Work(ref statements, durability, is_batch) => {
                self.patiently(open, || work(database, statements, durability, is_batch))
            }
            Op::SetKey(is_there) => return answer(set_key(database, is_there), Answer::Bool),
            Op::Place(side, is_dram) => {
                let placement = if is_dram { Placement::Dram } else { Placement::Pmem };
                let table = database.table(name_of(side));
                let moved =
                    table.and_then(|table| database.place_index(&table, index_of(side), placement));
                moved.map(Some)
            }
            Op::Collect => database.rebuild_step().and_then(|_| database.collect()).map(|_| None),
            Op::Scan => {
                let scanned = families(database, &database.snapshot());
                let rows = |rows: Families| {
                    let key = |(side, id): RowKey| id * 2 + u64::from(side == Side::Children);
                    Answer::Value(rows.into_iter().map(|(row, cells)| (key(row), cells)).collect())
                };
                return answer(scanned, rows);
            }
        };
        answer(done, bool_or_none)
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Rows> {
        let done = match *op {
            Op::Alone(statement) => state.alone(statement),
            Op::Within(statement) => state.within(statement, self.checks_at_commit),
            Op::Batch(ref statements) => Some(state.batch(statements, self.checks_at_commit)),
            Op::CommitWith(statement) => state.commit_with(statement),
            Op::TakeBack(to) => state.take_back(to),
            Op::Check => state.is_allowed(),
            Op::Commit if self.checks_at_commit => Some(state.commit_checked()),
            Op::Commit => Some(state.end(true)),
            Op::Abort => Some(state.end(false)),
            Op::AtCommit(ref statements, is_commit) => {
                let Some(answers) = state.at_commit(statements, is_commit) else {
                    return Answer::Bool(false);
                };
                let numbers = answers.into_iter().map(|done| (None, answer_number(done)));
                return Answer::Value((0..).zip(numbers).collect());
            }
            Op::Work(ref statements, durability, is_batch) => {
                let is_together = is_batch || durability == Durability::AtCommit;
                state.work(statements, is_together)
            }
            Op::SetKey(is_there) => Some(state.set_key(is_there)),
            Op::Place(side, is_dram) => {
                match is_dram {
                    true => state.in_dram.insert(side),
                    false => state.in_dram.remove(&side),
                };
                Some(true)
            }
            Op::Collect => None,
            Op::Scan => {
                let key = |(side, id): RowKey| id * 2 + u64::from(side == Side::Children);
                let rows = state.rows.iter().map(|(row, cells)| (key(*row), *cells));
                return Answer::Value(rows.collect());
            }
        };
        done.map_or(Answer::None, Answer::Bool)
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let database = &open.object;
        let now = database.snapshot();
        let mut state = State { rows: families(database, &now)?, ..State::default() };
        require_found(database, &now, &state.rows)?;
        state.is_dropped = database.table("children")?.foreign_keys().is_empty();
        for side in SIDES {
            if database.table(name_of(side))?.placement(index_of(side))? == Placement::Dram {
                state.in_dram.insert(side);
            }
        }
        if let Some(transaction) = resumed(database)? {
            let rows = families(database, &transaction)?;
            require_found(database, &transaction, &rows)?;
            state.open = Some(OpenModel::observed(transaction.statement(), rows));
            transaction.suspend();
        }
        Ok(state)
    }

    fn go_on_from(&self, of_model: &State, _observed: State) -> State {
        of_model.clone()
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let statement = Statement::draw(rng, self.keys, self.names);
        let side = SIDES[rng.below(2) as usize];
        match (self.mix, rng.below(24)) {
            (Mix::Together, 0..=9) => {
                let how = [Durability::EachStatement, Durability::AtCommit];
                let (how, count) = (how[rng.below(2) as usize], 1 + rng.below(3));
                Op::Work(self.statements(rng, count), how, rng.below(2) == 0)
            }
            (Mix::Together, 10..=22) => Op::Alone(statement),
            (Mix::Together, _) => Op::Scan,
            (Mix::Deferred, 0..=5) => Op::Batch(self.statements(rng, 4)),
            (Mix::Deferred, 6..=9) => Op::AtCommit(self.statements(rng, 4), rng.below(4) != 0),
            (_, 0..=3) => Op::Alone(statement),
            (_, 4..=9) => Op::Within(statement),
            (_, 10..=12) => Op::Batch(self.statements(rng, 3)),
            (_, 13) => Op::AtCommit(self.statements(rng, 3), rng.below(4) != 0),
            // Two steps, between which a crash may come.
            (_, 14) if self.checks_at_commit => Op::Check,
            (_, 14) => Op::CommitWith(statement),
            (_, 15) => Op::TakeBack(rng.below(5) as u32),
            (_, 16 | 17) => Op::Commit,
            (_, 18) => Op::Abort,
            (_, 19) => Op::Collect,
            (_, 20) => Op::Place(side, rng.below(2) == 0),
            (_, 21) => Op::SetKey(rng.below(3) != 0),
            _ => Op::Alone(statement),
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
