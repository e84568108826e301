//! Tables that are made and filled, and looked up by each of their keys.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_crashsim::{Outcome, Rng, Sim, Steps, Subject};
use remanent_engine::{Database, Error, Row, Table, TableSpec, Type, Value};
use remanent_pmem::{Error as PoolError, Medium};

use crate::answer::{Answer, is_refused};
use crate::pools::{Open, must_be_empty};

type M = Arc<Sim>;

/// Number of tables in operations. The first one is there before they begin.
const TABLES: u64 = 3;

/// Number of values that rows have.
const VALUES: u64 = 3;

/// Tables with few keys and small tiles.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Number of keys in operations.
    pub(super) keys: u64,
    /// Rows of a tile.
    pub(super) tile_rows: u32,
    /// Indexes besides those by which rows are looked up.
    pub(super) more_indexes: u32,
    pub(super) mix: Mix,
    /// Size beyond which the pool does not grow.
    pub(super) size_max: u64,
}

/// Operations that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Mostly inserts into the first table.
    Rows,
    /// The same, by threads: nothing that looks at two moments.
    Together,
    /// Rows get keys that they had before, and are folded.
    Keys,
    /// Tables are made and used.
    Schema,
}

/// One operation.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(u64),
    /// Table, primary key, second key, value.
    Insert(u64, u64, Option<u64>, u64),
    /// Table, primary key, second key, value.
    Update(u64, u64, Option<u64>, u64),
    /// As `Update`; a snapshot sees what was before.
    UpdateBehind(u64, u64, Option<u64>, u64),
    /// Two updates of a row to these values, which has no second key then, and folding while a
    /// snapshot sees the state between them.
    FoldBetween(u64, u64, u64, u64),
    Delete(u64, u64),
    DeleteByCode(u64, u64),
    Collect,
    Get(u64, u64),
    GetByCode(u64, u64),
    FindByValue(u64, u64),
    Scan(u64),
}

/// Second key and value of each row, by its first key.
type Rows = BTreeMap<u64, (Option<u64>, u64)>;

/// The tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    first: Rows,
    others: BTreeMap<u64, Rows>,
}

impl State {
    fn rows(&mut self, table: u64) -> Option<&mut Rows> {
        if table == 0 { Some(&mut self.first) } else { self.others.get_mut(&table) }
    }
}

fn name(table: u64) -> String {
    format!("table {table}")
}

/// A second key, as text of a length of its own.
fn code(number: u64) -> String {
    format!("{number:0len$}", len = 3 + number as usize % 7)
}

fn number_of(code: &str) -> u64 {
    code.parse().expect("a number, as it was written")
}

fn row_of(row: &Row<'_, M>) -> Result<(u64, (Option<u64>, u64)), Error> {
    let code: Option<&str> = row.get(1)?;
    Ok((row.get(0)?, (code.map(number_of), row.get(2)?)))
}

fn answer<T>(result: Result<T, Error>, map: impl FnOnce(T) -> Answer<Rows>) -> Answer<Rows> {
    match result {
        Ok(value) => map(value),
        Err(Error::Unique { .. }) => Answer::Bool(false),
        Err(Error::NoSuchTable { .. }) => Answer::None,
        Err(error) if error.is_full() => Answer::Refused(error.to_string()),
        Err(error @ Error::Pool(PoolError::Medium(_))) => Answer::Refused(error.to_string()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

impl Tables {
    fn create(&self, database: &Database<M>, table: u64) -> Result<(), Error> {
        let spec = TableSpec::new(name(table))
            .column("id", Type::U32)
            .nullable("code", Type::Text { max: 12 })
            .column("value", Type::U16)
            .primary_key(["id"])
            .unique("by_code", ["code"])
            .index("by_value", ["value"])
            .tile_rows(self.tile_rows);
        let spec = (0..self.more_indexes)
            .fold(spec, |spec, number| spec.unique(format!("more {number}"), ["id"]));
        database.create_table(&spec).map(drop)
    }
}

/// Changes a row unless another one has its second key.
fn update_model(rows: &mut Rows, id: u64, code: Option<u64>, value: u64) -> bool {
    let is_taken =
        code.is_some() && rows.iter().any(|(other, (of, _))| *other != id && *of == code);
    if !is_taken {
        rows.insert(id, (code, value));
    }
    !is_taken
}

fn insert(
    database: &Database<M>,
    table: u64,
    id: u64,
    code_number: Option<u64>,
    value: u64,
) -> Result<(), Error> {
    let table = database.table(&name(table))?;
    let code = code_number.map(code);
    let values = [id.into(), Value::from(code.as_ref()), value.into()];
    table.insert(&values).map(drop)
}

fn update(
    database: &Database<M>,
    table: u64,
    id: u64,
    code_number: Option<u64>,
    value: u64,
) -> Result<Option<()>, Error> {
    let update = database.table(&name(table))?.prepare_update("primary")?;
    let code = code_number.map(code);
    update.run(&[id.into()], |_, row| {
        row.set(1, code.as_ref())?;
        row.set(2, value)
    })
}

/// The rows with a key, as an index finds them.
fn get(database: &Database<M>, table: u64, index: &str, key: Value<'_>) -> Result<Rows, Error> {
    let get = database.table(&name(table))?.prepare_get(index)?;
    let found = get.run(&database.snapshot(), &[key], row_of)?;
    Ok(found.into_iter().collect())
}

/// Collects rows, none of which may come twice.
fn collect(rows: &mut Rows, row: &Row<'_, M>) -> ControlFlow<Error> {
    match row_of(row) {
        Ok((id, others)) => match rows.insert(id, others) {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(Error::NoSuchColumn {
                table: "a row comes twice".to_owned(),
                column: id.to_string(),
            }),
        },
        Err(error) => ControlFlow::Break(error),
    }
}

fn scan(table: &Table<M>, database: &Database<M>) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    let failed = table.scan(&database.snapshot(), |row| collect(&mut rows, row))?;
    failed.map_or(Ok(rows), Err)
}

fn find_by_value(database: &Database<M>, table: u64, value: u64) -> Result<Rows, Error> {
    let find = database.table(&name(table))?.prepare_find("by_value")?;
    let mut rows = Rows::new();
    let visit = |row: &Row<'_, M>| collect(&mut rows, row);
    let failed = find.run(&database.snapshot(), &[value.into()], visit)?;
    failed.map_or(Ok(rows), Err)
}

/// Removes the row with a key.
fn delete(
    open: &Open<Database<M>>,
    table: u64,
    index: &str,
    key: Value<'_>,
) -> Result<bool, Error> {
    let delete = open.object.table(&name(table))?.prepare_delete(index)?;
    loop {
        match delete.run(&[key]) {
            Err(error) if error.is_conflict() => open.pool.medium().pause(),
            deleted => return deleted,
        }
    }
}

impl Subject for Tables {
    type Op = Op;
    type Ret = Answer<Rows>;
    type State = State;
    type Handle = Open<Database<M>>;

    fn create(&self, medium: M) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, Database::create)
    }

    fn prepare(&self, _: &M, open: Self::Handle) -> Outcome<Self::Handle> {
        // It is repeated if a crash has come between it and the operations.
        if open.object.tables().is_empty() {
            self.create(&open.object, 0)?;
        }
        Ok(open)
    }

    fn open(&self, medium: M) -> Outcome<Self::Handle> {
        Open::recover(medium, Database::open)
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Rows> {
        let database = &open.object;
        match *op {
            Op::Create(table) => match self.create(database, table) {
                Err(Error::Schema { .. }) => Answer::Bool(false),
                made => answer(made, |()| Answer::Bool(true)),
            },
            Op::Insert(table, id, code, value) => loop {
                let inserted = insert(database, table, id, code, value);
                if inserted.as_ref().is_err_and(Error::is_conflict) {
                    open.pool.medium().pause();
                    continue;
                }
                return answer(inserted, |()| Answer::Bool(true));
            },
            Op::Update(table, id, code, value) => loop {
                let updated = update(database, table, id, code, value);
                if updated.as_ref().is_err_and(Error::is_conflict) {
                    open.pool.medium().pause();
                    continue;
                }
                return answer(updated, |found| {
                    found.map_or(Answer::None, |()| Answer::Bool(true))
                });
            },
            Op::UpdateBehind(table, id, code, value) => {
                let before = database.snapshot();
                let updated = update(database, table, id, code, value).and_then(|_| {
                    let get = database.table(&name(table))?.prepare_get("primary")?;
                    get.run(&before, &[id.into()], row_of)
                });
                answer(updated, |row| Answer::Value(row.into_iter().collect()))
            }
            Op::FoldBetween(table, id, first, second) => {
                let done = update(database, table, id, None, first).and_then(|_| {
                    let _between = database.snapshot();
                    update(database, table, id, None, second)?;
                    database.collect()
                });
                answer(done, |_| Answer::None)
            }
            Op::Delete(table, id) => {
                answer(delete(open, table, "primary", id.into()), Answer::Bool)
            }
            Op::DeleteByCode(table, number) => {
                let code = code(number);
                answer(delete(open, table, "by_code", (&code).into()), Answer::Bool)
            }
            Op::Collect => answer(database.collect(), |_| Answer::None),
            Op::Get(table, id) => answer(get(database, table, "primary", id.into()), Answer::Value),
            Op::GetByCode(table, number) => {
                let code = code(number);
                answer(get(database, table, "by_code", (&code).into()), Answer::Value)
            }
            Op::FindByValue(table, value) => {
                answer(find_by_value(database, table, value), Answer::Value)
            }
            Op::Scan(table) => {
                let scanned = database.table(&name(table)).and_then(|table| scan(&table, database));
                answer(scanned, Answer::Value)
            }
        }
    }

    fn model(&self, state: &mut State, op: &Op) -> Answer<Rows> {
        if let Op::Create(table) = *op {
            let is_new = state.rows(table).is_none();
            if is_new {
                state.others.insert(table, Rows::new());
            }
            return Answer::Bool(is_new);
        }
        if let Op::Collect = op {
            return Answer::None;
        }
        let (Op::Create(table)
        | Op::Insert(table, ..)
        | Op::Update(table, ..)
        | Op::UpdateBehind(table, ..)
        | Op::FoldBetween(table, ..)
        | Op::Delete(table, _)
        | Op::DeleteByCode(table, _)
        | Op::Get(table, _)
        | Op::GetByCode(table, _)
        | Op::FindByValue(table, _)
        | Op::Scan(table)) = *op
        else {
            unreachable!("answered above");
        };
        let Some(rows) = state.rows(table) else { return Answer::None };
        let only = |keep: &dyn Fn(u64, Option<u64>, u64) -> bool| {
            let kept = rows.iter().filter(|(id, (code, value))| keep(**id, *code, *value));
            Answer::Value(kept.map(|(id, others)| (*id, *others)).collect())
        };
        match *op {
            Op::Create(_) | Op::Collect => unreachable!("answered above"),
            Op::Update(_, id, code, value) => match rows.contains_key(&id) {
                true => Answer::Bool(update_model(rows, id, code, value)),
                false => Answer::None,
            },
            Op::UpdateBehind(_, id, code, value) => {
                let before = rows.get(&id).map(|others| (id, *others));
                match before.is_none() || update_model(rows, id, code, value) {
                    true => Answer::Value(before.into_iter().collect()),
                    false => Answer::Bool(false),
                }
            }
            Op::FoldBetween(_, id, _, second) => {
                if rows.contains_key(&id) {
                    update_model(rows, id, None, second);
                }
                Answer::None
            }
            Op::Delete(_, id) => Answer::Bool(rows.remove(&id).is_some()),
            Op::DeleteByCode(_, number) => {
                let with_code =
                    |(_, (code, _)): &(&u64, &(Option<u64>, u64))| *code == Some(number);
                let id = rows.iter().find(with_code).map(|(id, _)| *id);
                Answer::Bool(id.is_some_and(|id| rows.remove(&id).is_some()))
            }
            Op::Insert(_, id, code, value) => {
                let is_taken = rows.contains_key(&id)
                    || code.is_some() && rows.values().any(|(other, _)| *other == code);
                if !is_taken {
                    rows.insert(id, (code, value));
                }
                Answer::Bool(!is_taken)
            }
            Op::Get(_, wanted) => only(&|id, _, _| id == wanted),
            Op::GetByCode(_, wanted) => only(&|_, code, _| code == Some(wanted)),
            Op::FindByValue(_, wanted) => only(&|_, _, value| value == wanted),
            Op::Scan(_) => only(&|_, _, _| true),
        }
    }

    fn steps(&self, op: &Op) -> Steps<Op> {
        let Op::FoldBetween(table, id, first, second) = *op else { return Steps::One };
        let update = |value| Op::Update(table, id, None, value);
        Steps::InOrder(vec![update(first), update(second)])
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<State> {
        let mut state = State::default();
        for table in 0..TABLES {
            let Ok(found) = open.object.table(&name(table)) else { continue };
            let rows = scan(&found, &open.object)?;
            for (&id, &(number, _)) in &rows {
                let by_id = get(&open.object, table, "primary", id.into())?;
                if by_id.keys().ne([&id]) {
                    return Err(format!("row {id} is found by its key as {by_id:?}").into());
                }
                let Some(code) = number.map(code) else { continue };
                let by_code = get(&open.object, table, "by_code", (&code).into())?;
                if by_code.keys().ne([&id]) {
                    return Err(format!("row {id} is found by {code} as {by_code:?}").into());
                }
            }
            for value in 0..VALUES {
                let of_value = find_by_value(&open.object, table, value)?;
                let expected = rows.iter().filter(|(_, (_, of))| *of == value);
                if !of_value.iter().eq(expected) {
                    return Err(format!("the rows with {value} are found as {of_value:?}").into());
                }
            }
            match table {
                0 => state.first = rows,
                _ => drop(state.others.insert(table, rows)),
            }
        }
        Ok(state)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let (id, number) = (rng.below(self.keys), rng.below(self.keys));
        let table = match self.mix {
            Mix::Rows | Mix::Together | Mix::Keys => 0,
            Mix::Schema => rng.below(TABLES),
        };
        let code = (rng.below(4) != 0).then_some(number);
        let value = rng.below(VALUES);
        match (self.mix, rng.below(20)) {
            (Mix::Schema, 0..=5) => Op::Create(1 + rng.below(TABLES - 1)),
            (Mix::Keys, 10..=12) => Op::FoldBetween(table, id, value, rng.below(VALUES)),
            (Mix::Keys, 3..=9) => Op::Update(table, id, Some(number), value),
            (Mix::Together, 7) => Op::Update(table, id, code, value),
            (_, 0..=5) => Op::Insert(table, id, code, value),
            (_, 6) => Op::Update(table, id, code, value),
            (_, 7) => Op::UpdateBehind(table, id, code, value),
            (_, 8..=9) => Op::Update(table, id, None, value),
            (_, 10..=11) => Op::Delete(table, id),
            (_, 12) => Op::DeleteByCode(table, number),
            (_, 13..=14) => Op::Collect,
            (_, 15) => Op::FindByValue(table, rng.below(VALUES)),
            (_, 16) => Op::Get(table, id),
            (_, 17) => Op::GetByCode(table, number),
            _ => Op::Scan(table),
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
