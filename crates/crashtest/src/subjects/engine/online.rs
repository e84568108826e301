//! Indexes that are made, dropped and moved among other operations.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use remanent_crashsim::{Outcome, Rng};
use remanent_engine::{
    Database, Error, Moment, NewIndex, Order, Placement, Row, Table, TableSpec, Type,
};

use super::model::Rows;
use super::ordered;
use super::subject::{M, Mix, Op, Statement, Tables, VALUES, code, name};

/// The indexes that are there, or not in the pool: whether they lie in DRAM, by their numbers. The
/// first two are always there.
pub(super) type Indexes = BTreeMap<u64, bool>;

/// Names of indexes, by their numbers.
const NAMES: [&str; 5] = ["primary", "by_code", "by_value", "by_pair", "by_both"];
/// The first number of an index that is made and dropped.
const FIRST: u64 = 2;
/// An index that is unique.
const UNIQUE: u64 = 4;

/// The table: its values are in no index, and so not in the first group of a row's cells.
pub(super) fn spec(tile_rows: u32) -> TableSpec {
    TableSpec::new(name(0))
        .column("id", Type::U32)
        .nullable("code", Type::Text { max: 40 })
        .column("value", Type::U16)
        .primary_key(["id"])
        .unique("by_code", ["code"])
        .tile_rows(tile_rows)
}

/// An operation on the table, or on one of its indexes.
pub(super) fn op(tables: &Tables, rng: &mut Rng) -> Op {
    let (id, number) = (rng.below(tables.keys), rng.below(tables.keys));
    let code = (rng.below(4) != 0).then_some(number);
    let value = rng.below(VALUES);
    let is_alone = tables.mix == Mix::Online;
    match rng.below(20) {
        0..=7 => of_index(rng),
        8 | 9 if is_alone => Op::Within(Statement::Update(id, code, value)),
        10 if is_alone && rng.below(3) != 0 => Op::Within(Statement::Insert(id, code, value)),
        10 if is_alone => Op::Within(Statement::Delete(id)),
        11 if is_alone => Op::Batch(tables.statements(rng)),
        12 if is_alone => Op::AtCommit(tables.statements(rng), rng.below(4) != 0),
        13 if is_alone && rng.below(2) == 0 => Op::Commit,
        13 if is_alone => Op::Abort,
        8 | 9 | 15 => Op::Delete(0, id),
        10..=13 | 17 => Op::Update(0, id, code, value),
        14 => Op::Collect,
        16 => Op::FindOnline(value),
        _ => Op::Insert(0, id, code, value),
    }
}

/// An operation on an index.
fn of_index(rng: &mut Rng) -> Op {
    let (number, is_dram) = (rng.below(NAMES.len() as u64), rng.below(2) == 0);
    match (rng.below(3), number) {
        (0, _) | (_, 0..FIRST) => Op::PlaceIndex(number, is_dram),
        (1, _) => Op::CreateIndex(number, is_dram),
        _ => Op::DropIndex(number),
    }
}

fn placement(is_dram: bool) -> Placement {
    if is_dram { Placement::Dram } else { Placement::Pmem }
}

/// Makes an index. `None` while a transaction is open that may decide whether it is unique.
pub(super) fn create(
    database: &Database<M>,
    number: u64,
    is_dram: bool,
) -> Result<Option<bool>, Error> {
    if number == UNIQUE && !database.open_transactions().is_empty() {
        return Ok(None);
    }
    let of_index = NAMES[number as usize];
    let index = match of_index {
        "by_value" => NewIndex::secondary(of_index, ["value"]),
        "by_pair" => NewIndex::secondary(of_index, ["value", "code"]).ordered(),
        _ => NewIndex::unique(of_index, ["code", "id"]),
    };
    let table = database.table(&name(0))?;
    match database.create_index(&table, &index.place(placement(is_dram))) {
        Err(Error::Index { .. }) => Ok(Some(false)),
        made => made.map(|()| Some(true)),
    }
}

/// Drops an index. Whether it was there.
pub(super) fn drop_index(database: &Database<M>, number: u64) -> Result<bool, Error> {
    let table = database.table(&name(0))?;
    is_there(database.drop_index(&table, NAMES[number as usize]))
}

/// Moves an index. Whether it is there.
pub(super) fn place(database: &Database<M>, number: u64, is_dram: bool) -> Result<bool, Error> {
    let table = database.table(&name(0))?;
    is_there(database.place_index(&table, NAMES[number as usize], placement(is_dram)))
}

fn is_there(done: Result<(), Error>) -> Result<bool, Error> {
    match done {
        Err(Error::NoSuchIndex { .. }) => Ok(false),
        done => done.map(|()| true),
    }
}

/// What operations make of the model's indexes. `None` if they are others.
pub(super) fn apply(indexes: &mut Indexes, is_open: bool, op: &Op) -> Option<Option<bool>> {
    Some(match *op {
        Op::CreateIndex(UNIQUE, _) if is_open => None,
        Op::CreateIndex(number, is_dram) => {
            let is_new = !indexes.contains_key(&number);
            if is_new {
                indexes.insert(number, is_dram);
            }
            Some(is_new)
        }
        Op::DropIndex(number) => Some(indexes.remove(&number).is_some()),
        Op::PlaceIndex(number, is_dram) => {
            let is_there = number < FIRST || indexes.contains_key(&number);
            if is_there {
                indexes.insert(number, is_dram);
            }
            if number < FIRST && !is_dram {
                indexes.remove(&number);
            }
            Some(is_there)
        }
        _ => return None,
    })
}

/// Whether rows are found by their values.
pub(super) fn has_values(indexes: &Indexes) -> bool {
    indexes.contains_key(&FIRST)
}

/// The indexes that a table has.
pub(super) fn observed(table: &Table<M>) -> Outcome<Indexes> {
    let mut found = Indexes::new();
    for index in table.indexes() {
        let number = NAMES.iter().position(|name| *name == index.name);
        let number = number.ok_or_else(|| format!("nobody has made index {}", index.name))? as u64;
        let is_dram = index.placement == Placement::Dram;
        if number >= FIRST || is_dram {
            found.insert(number, is_dram);
        }
    }
    Ok(found)
}

/// Reads all rows by each index that is there, as of one moment.
pub(super) fn require_exact(
    table: &Table<M>,
    moment: &impl Moment<M>,
    rows: &Rows,
    row_of: impl Fn(&Row<'_, M>) -> Result<(u64, (Option<u64>, u64)), Error>,
) -> Result<(), Error> {
    for index in table.indexes() {
        let mut found = Rows::new();
        let mut visit = |row: &Row<'_, M>| match row_of(row) {
            Ok((id, others)) => match found.insert(id, others) {
                None => ControlFlow::Continue(()),
                Some(_) => ControlFlow::Break(ordered::wrong("a row comes twice", id)),
            },
            Err(error) => ControlFlow::Break(error),
        };
        let mut failed = None;
        match &index.name[..] {
            "by_value" => {
                let find = table.prepare_find("by_value")?;
                for value in 0..VALUES {
                    failed = failed.or(find.run(moment, &[value.into()], &mut visit)?);
                }
            }
            "by_pair" => {
                let (pair, all) = (("by_pair", 2), (Bound::Unbounded, Bound::Unbounded));
                let range = table.prepare_range(pair.0)?;
                failed = range.run(moment, all, Order::Ascending, visit)?;
            }
            by_code => {
                let find = table.prepare_find(by_code)?;
                for (&id, &(number, _)) in rows {
                    let text = number.map(code);
                    let keys = match by_code {
                        "primary" => vec![id.into()],
                        "by_code" => vec![text.as_ref().into()],
                        _ => vec![text.as_ref().into(), id.into()],
                    };
                    failed = failed.or(find.run(moment, &keys, &mut visit)?);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let has_code = |row: &(&u64, &(Option<u64>, u64))| row.1.0.is_some();
        let needs_code = matches!(&index.name[..], "by_code" | "by_both");
        let expected = rows.iter().filter(|row| !needs_code || has_code(row));
        if !found.iter().eq(expected) {
            return Err(ordered::wrong(&index.name, found));
        }
    }
    Ok(())
}
