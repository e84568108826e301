//! Rows of the tables, their keys, and statements that change them.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_crashsim::Sim;
use remanent_engine::{Error, Row, Table, Value};

use super::columns;
use crate::answer::Answer;

pub(super) type M = Arc<Sim>;

/// Second key and value of each row, by its first key.
pub(super) type Rows = BTreeMap<u64, (Option<u64>, u64)>;

/// Number of values that rows have.
pub(super) const VALUES: u64 = 3;

/// A statement of a transaction, on the first table.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statement {
    /// Primary key, second key, value.
    Insert(u64, Option<u64>, u64),
    Update(u64, Option<u64>, u64),
    /// As `Insert`; a row that is there gets the value.
    Upsert(u64, Option<u64>, u64),
    Delete(u64),
}

pub(super) fn name(table: u64) -> String {
    format!("table {table}")
}

/// A second key, as text of a length of its own.
pub(super) fn code(number: u64) -> String {
    format!("{number:0len$}", len = 3 + number as usize % 7)
}

fn number_of(code: &str) -> u64 {
    code.parse().expect("a number, as it was written")
}

/// A row with its first key, as [`Rows`] have it.
pub(super) type Keyed = (u64, (Option<u64>, u64));

pub(super) fn row_of(row: &Row<'_, M>) -> Result<Keyed, Error> {
    let code: Option<&str> = row.get(1)?;
    Ok((row.get(0)?, (code.map(number_of), columns::value_of(row)?)))
}

/// The values of a row that is inserted into a table.
pub(super) fn values<'v>(
    table: &Table<M>,
    id: u64,
    code: Option<&'v str>,
    number: u64,
) -> Vec<Value<'v>> {
    let keys = [id.into(), Value::from(code)];
    keys.into_iter().chain(columns::values(table, number)).collect()
}

/// How a statement of a transaction went, as a number.
pub(super) fn answer_number(done: Option<bool>) -> u64 {
    done.map_or(2, u64::from)
}

/// The answer of a statement that has removed a row, and returned it.
pub(super) fn answer_taken(row: Option<Keyed>) -> Answer<Rows> {
    row.map_or(Answer::Bool(false), |row| Answer::Value(Rows::from([row])))
}
