//! Changes of the schema as statements of a transaction, beside statements of others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use remanent_crashsim::{Outcome, Rng, Subject};
use remanent_engine::{
    Database, Durability, Error, Moment, NewColumn, NewForeignKey, NewIndex, Table, TableSpec,
    Transaction, Type, Value,
};
use remanent_pmem::Medium;

use super::promises_model::{
    self as model, ADDED_MAX, Change, KEYS, Op, Open as OpenModel, SHARED, State, TABLES, World,
};
use super::rows::{M, Rows};
use super::subject::answer;
use super::transactions::{patient, resumed};
use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};

const INDEX: &str = "by_both";
const KEY: &str = "of_other";
/// Columns that a table is made with: the key, what refers to another row, and the value.
const MADE: usize = 3;
const VALUES: u64 = 4;

/// A transaction that changes the schema.
#[derive(Clone, Debug)]
pub(super) struct Promises {
    /// Transactions that are made from their beginning to their end, beside statements: by several
    /// threads.
    pub(super) is_raced: bool,
    pub(super) size_max: u64,
}

/// Who asks: a transaction, or nobody.
enum By<'t, 'd> {
    Nobody,
    Transaction(&'t mut Transaction<'d, M>),
}

fn name(table: u64) -> String {
    format!("table {table}")
}

fn spec(table: u64) -> TableSpec {
    TableSpec::new(name(table))
        .column("key", Type::U8)
        .nullable("other", Type::U8)
        .column("value", Type::U64)
        .primary_key(["key"])
        .index("by_other", ["other"])
        .tile_rows(3)
}

/// The columns that are added differ in their types.
fn column(number: usize, default: u64) -> NewColumn {
    let name = format!("added {number} {default}");
    let of_type = if default.is_multiple_of(2) { Type::U16 } else { Type::U64 };
    NewColumn::nullable(name, of_type).default(default)
}

/// Whether somebody has refused what is not there, or is there already.
fn done<T>(result: Result<T, Error>) -> Result<bool, Error> {
    match result {
        Err(Error::NoSuchTable { .. } | Error::Schema { .. } | Error::Referenced { .. }) => {
            Ok(false)
        }
        done => done.map(|_| true),
    }
}

impl<'d> By<'_, 'd> {
    fn table(&self, database: &Database<M>, number: u64) -> Result<Table<M>, Error> {
        match self {
            By::Nobody => database.table(&name(number)),
            By::Transaction(by) => database.table_in(by, &name(number)),
        }
    }

    /// Whether a change does something.
    fn apply(&mut self, database: &'d Database<M>, change: Change) -> Result<bool, Error> {
        match change {
            Change::Create(number) => done(match self {
                By::Nobody => database.create_table(&spec(number)),
                By::Transaction(by) => database.create_table_in(by, &spec(number)),
            }),
            Change::Drop(number) => done(match self {
                By::Nobody => database.drop_table(&name(number)),
                By::Transaction(by) => database.drop_table_in(by, &name(number)),
            }),
            Change::Column(..) | Change::Index(_) | Change::Key => self.alter(database, change),
            Change::Put(number, key, value) => {
                let Ok(table) = self.table(database, number) else { return Ok(false) };
                let upsert = table.prepare_upsert("primary")?;
                let mut row = vec![Value::from(key), Value::Null, value.into()];
                row.resize(table.columns().len(), (value + 1).into());
                let set = |changes: &mut remanent_engine::Changes<'_, M>| {
                    (MADE - 1..row.len()).try_for_each(|at| changes.set(at, row[at]))
                };
                done(match self {
                    By::Nobody => upsert.run(&row, |_, changes| set(changes)),
                    By::Transaction(by) => upsert.run_in(by, &row, |_, changes| set(changes)),
                })
            }
            Change::Remove(number, key) => {
                let Ok(table) = self.table(database, number) else { return Ok(false) };
                let delete = table.prepare_delete("primary")?;
                match self {
                    By::Nobody => delete.run(&[key.into()]),
                    By::Transaction(by) => delete.run_in(by, &[key.into()]),
                }
            }
        }
    }

    /// A change of a table that is there.
    fn alter(&mut self, database: &Database<M>, change: Change) -> Result<bool, Error> {
        let number = match change {
            Change::Column(number, _) | Change::Index(number) => number,
            _ => 1,
        };
        let Ok(table) = self.table(database, number) else { return Ok(false) };
        match change {
            Change::Column(_, default) => {
                let count = table.columns().len() - MADE;
                if count == ADDED_MAX {
                    return Ok(false);
                }
                let new = column(count, default);
                done(match self {
                    By::Nobody => database.add_column(&table, &new),
                    By::Transaction(by) => database.add_column_in(by, &table, &new),
                })
            }
            Change::Index(_) => {
                let has_index = table.indexes().iter().any(|index| index.name == INDEX);
                let new = NewIndex::unique(INDEX, ["value", "key"]);
                done(match (self, has_index) {
                    (By::Nobody, true) => database.drop_index(&table, INDEX),
                    (By::Nobody, false) => database.create_index(&table, &new),
                    (By::Transaction(by), true) => database.drop_index_in(by, &table, INDEX),
                    (By::Transaction(by), false) => database.create_index_in(by, &table, &new),
                })
            }
            _ => {
                if self.table(database, 0).is_err() {
                    return Ok(false);
                }
                let has_key = !table.foreign_keys().is_empty();
                let new = NewForeignKey::new(KEY, ["other"], name(0), ["key"]);
                done(match (self, has_key) {
                    (By::Nobody, true) => database.drop_foreign_key(&table, KEY),
                    (By::Nobody, false) => database.add_foreign_key(&table, &new),
                    (By::Transaction(by), true) => database.drop_foreign_key_in(by, &table, KEY),
                    (By::Transaction(by), false) => database.add_foreign_key_in(by, &table, &new),
                })
            }
        }
    }
}

/// The tables that somebody sees.
fn world_of(moment: &impl Moment<M>, table_of: impl Fn(u64) -> Option<Table<M>>) -> Outcome<World> {
    let mut world = World::default();
    for number in 0..TABLES {
        let Some(table) = table_of(number) else { continue };
        let added = table.columns()[MADE..].iter();
        let default = |name: &str| name.rsplit(' ').next().and_then(|text| text.parse().ok());
        let added = added.map(|column| default(&column.name)).collect::<Option<Vec<u64>>>();
        let added = added.ok_or("a column has another name than it was given")?;
        let has_index = table.indexes().iter().any(|index| index.name == INDEX);
        let mut rows = BTreeMap::new();
        let mut failed = None;
        table.scan(moment, |row| {
            let values = (MADE - 1..MADE + added.len()).map(|at| row.get::<u64>(at));
            match (row.get::<u64>(0), values.collect::<Result<Vec<u64>, _>>()) {
                (Ok(key), Ok(values)) => drop(rows.insert(key, values)),
                (Err(error), _) | (_, Err(error)) => failed = Some(error),
            }
            ControlFlow::<()>::Continue(())
        })?;
        failed.map_or(Ok(()), Err)?;
        if has_index {
            let get = table.prepare_get(INDEX)?;
            for (key, values) in &rows {
                let found = get.run(moment, &[values[0].into(), (*key).into()], |_| Ok(()))?;
                found.ok_or_else(|| format!("the index does not lead to row {key}"))?;
            }
        }
        let has_key = !table.foreign_keys().is_empty();
        let of = model::Table::found(added, [has_index, has_key], rows);
        world.0.insert(number, of);
    }
    Ok(world)
}

fn within(database: &Database<M>, change: Change) -> Result<bool, Error> {
    let mut transaction = match resumed(database)? {
        Some(transaction) => transaction,
        None => database.begin_with(&patient())?,
    };
    let done = By::Transaction(&mut transaction).apply(database, change);
    if transaction.statement() > 0 {
        transaction.suspend();
    }
    done
}

impl Promises {
    /// A transaction from its beginning to its end.
    fn once(
        &self,
        database: &Database<M>,
        (changes, is_at_commit, is_commit): (&[Change], bool, bool),
    ) -> Result<bool, Error> {
        let durability =
            if is_at_commit { Durability::AtCommit } else { Durability::EachStatement };
        let mut transaction = database.begin_with(&patient().durability(durability))?;
        for change in changes {
            if !By::Transaction(&mut transaction).apply(database, *change)? {
                transaction.abort()?;
                return Ok(false);
            }
        }
        match is_commit {
            true => transaction.commit()?,
            false => transaction.abort()?,
        }
        Ok(true)
    }

    /// As often as another thread is in the way; or if there is none, whether nobody is.
    fn patiently(
        &self,
        medium: &M,
        mut statement: impl FnMut() -> Result<bool, Error>,
    ) -> Result<bool, Error> {
        loop {
            match statement() {
                Err(error) if self.is_raced && is_in_the_way(&error) => medium.pause(),
                // The open transaction has changed the schema; or it has dropped a foreign key,
                // whose name is free once it has ended.
                Err(Error::SchemaBusy { .. } | Error::ForeignKey { .. }) => return Ok(false),
                done => return done,
            }
        }
    }

    fn apply_op(&self, open: &Open<Database<M>>, op: &Op) -> Result<Option<bool>, Error> {
        let (database, medium) = (&open.object, open.pool.medium());
        match op {
            Op::Within(change) => self.patiently(medium, || within(database, *change)).map(Some),
            Op::Alone(change) => {
                self.patiently(medium, || By::Nobody.apply(database, *change)).map(Some)
            }
            Op::End(is_commit) => {
                let Some(transaction) = resumed(database)? else { return Ok(None) };
                match is_commit {
                    true => transaction.commit()?,
                    false => transaction.abort()?,
                }
                Ok(Some(true))
            }
            Op::Back(to) => {
                let Some(mut transaction) = resumed(database)? else { return Ok(None) };
                transaction.take_back_to(*to)?;
                transaction.suspend();
                Ok(Some(true))
            }
            Op::Once(..) if !self.is_raced && !database.open_transactions().is_empty() => Ok(None),
            Op::Once(changes, is_at_commit, is_commit) => {
                let once = (&changes[..], *is_at_commit, *is_commit);
                self.patiently(medium, || self.once(database, once)).map(Some)
            }
        }
    }

    fn draw_change(rng: &mut Rng, keys: std::ops::Range<u64>) -> Change {
        let (table, key) = (rng.below(TABLES), keys.start + rng.below(keys.end - keys.start));
        match rng.below(12) {
            0..5 => Change::Put(table, key, rng.below(VALUES)),
            5 => Change::Remove(table, key),
            _ => Self::draw_of_schema(rng, table),
        }
    }

    fn draw_of_schema(rng: &mut Rng, table: u64) -> Change {
        match rng.below(7) {
            0 | 1 => Change::Create(table),
            2 => Change::Drop(table),
            3 => Change::Column(table, 10 + rng.below(9)),
            4 => Change::Key,
            _ => Change::Index(table),
        }
    }

    /// A transaction of a thread: once it has changed the schema, nobody else does, and what it
    /// finds does not depend on when it has begun.
    fn draw_raced(rng: &mut Rng) -> Op {
        let keys = |rng: &mut Rng| SHARED + rng.below(KEYS - SHARED);
        match rng.below(2) {
            0 => {
                let table = rng.below(TABLES);
                let first = Self::draw_of_schema(rng, table);
                let mut changes = vec![first];
                if let Change::Create(table) | Change::Column(table, _) | Change::Index(table) =
                    first
                {
                    changes.push(Change::Put(table, rng.below(SHARED), rng.below(VALUES)));
                }
                Op::Once(changes, rng.below(2) == 0, rng.below(4) != 0)
            }
            _ => Op::Alone(Change::Put(rng.below(TABLES), keys(rng), rng.below(VALUES))),
        }
    }
}

/// Another thread has a row, or has changed the schema: also since this one has looked at it.
fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict { .. }
            | Error::Overtaken { .. }
            | Error::SchemaBusy { .. }
            | Error::Index { .. }
            | Error::NoSuchIndex { .. }
            | Error::Column { .. }
            | Error::ForeignKey { .. }
            | Error::NoSuchForeignKey { .. }
    )
}

impl Subject for Promises {
    type Op = Op;
    type Ret = Answer<Rows>;
    type State = State;
    type Handle = Open<Database<M>>;

    fn create(&self, medium: M) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, Database::create)
    }

    fn open(&self, medium: M) -> Outcome<Self::Handle> {
        Open::recover(medium, Database::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Self::Ret {
        answer(self.apply_op(open, op), |done| done.map_or(Answer::None, Answer::Bool))
    }

    fn model(&self, state: &mut State, op: &Op) -> Self::Ret {
        state.apply(op).map_or(Answer::None, Answer::Bool)
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let database = &open.object;
        let committed =
            world_of(&database.snapshot(), |number| database.table(&name(number)).ok())?;
        let Some(transaction) = resumed(database)? else {
            return Ok(State { committed, open: None });
        };
        let table_of = |number| database.table_in(&transaction, &name(number)).ok();
        let world = world_of(&transaction, table_of)?;
        let count = database.tables_in(&transaction)?.len();
        if count != world.0.len() {
            return Err(format!("{count} tables have names, and not those of {world:?}").into());
        }
        let statement = transaction.statement();
        transaction.suspend();
        Ok(State { committed, open: Some(OpenModel::found(statement, world)) })
    }

    fn go_on_from(&self, of_model: &State, _: State) -> State {
        of_model.clone()
    }

    fn op(&self, rng: &mut Rng) -> Op {
        if self.is_raced {
            return Self::draw_raced(rng);
        }
        match rng.below(16) {
            0..8 => Op::Within(Self::draw_change(rng, 0..SHARED)),
            8..11 => Op::Alone(Self::draw_change(rng, SHARED..KEYS)),
            11 => Op::Back(rng.below(4) as u32),
            12 => {
                let count = 1 + rng.below(3);
                let changes = (0..count).map(|_| Self::draw_change(rng, 0..SHARED)).collect();
                // Otherwise a crash leaves it open, as if its statements were those of the other.
                let is_at_commit = true;
                Op::Once(changes, is_at_commit, rng.below(4) != 0)
            }
            13 => Op::End(false),
            _ => Op::End(true),
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
