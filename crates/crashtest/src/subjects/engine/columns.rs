//! Columns that are added among other operations, and what rows have in them.
//!
//! A row has the default in an added column, or one other thing. Its value stands for all of that:
//! the number in the column `value`, and a bit for each added column. A statement is given a number
//! that says which of them it sets.

use remanent_crashsim::Rng;
use remanent_engine::{Changes, Database, Error, NewColumn, Row, Table, Type, Value};

use super::rows::{M, VALUES, name};

/// Columns that are added at the most.
const COLUMNS: u64 = 3;
/// Columns that the table is made with.
const MADE: usize = 3;
/// What a statement may do with an added column.
const CHOICES: u64 = 3;
const LEAVE: u64 = 0;
const DEFAULT: u64 = 1;
const OTHER: u64 = 2;

/// Name of the first added column, and what it may have.
pub(super) const FIRST: &str = "added 0";
pub(super) const FIRST_VALUES: [Value<'static>; 2] = [Value::Uint(300), Value::Uint(0)];

/// What an added column has by default, or otherwise.
fn cell(column: usize, is_default: bool) -> Value<'static> {
    match (column, is_default) {
        (0, true) => FIRST_VALUES[0],
        (0, false) => FIRST_VALUES[1],
        (1, true) => Value::Null,
        // More than a line.
        (1, false) => "other text, which needs as many bytes as a line of the medium has".into(),
        (_, true) => true.into(),
        (_, false) => Value::Null,
    }
}

fn new_column(column: usize) -> NewColumn {
    let name = format!("added {column}");
    match column {
        0 => NewColumn::new(name, Type::U16).default(cell(0, true)),
        1 => NewColumn::nullable(name, Type::Text { max: 80 }),
        _ => NewColumn::nullable(name, Type::Bool).default(cell(column, true)),
    }
}

/// What a statement's number says of added columns.
fn choices(number: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut left = number / VALUES;
    (0..COLUMNS as usize).map(move |column| {
        let choice = left % CHOICES;
        left /= CHOICES;
        (column, choice)
    })
}

/// A statement's number.
pub(super) fn draw(rng: &mut Rng) -> u64 {
    let value = rng.below(VALUES);
    match rng.below(3) {
        0 => value,
        _ => value + VALUES * rng.below(CHOICES.pow(COLUMNS as u32)),
    }
}

/// The value of a row that had another one before a statement with this number.
pub(super) fn changed(before: u64, number: u64) -> u64 {
    let mut bits = before / VALUES;
    for (column, choice) in choices(number) {
        match choice {
            LEAVE => {}
            DEFAULT => bits &= !(1 << column),
            _ => bits |= 1 << column,
        }
    }
    number % VALUES + VALUES * bits
}

/// The value of a row that is inserted by a statement with this number.
pub(super) fn inserted(number: u64) -> u64 {
    changed(0, number)
}

/// Number of added columns that a statement with this number needs.
pub(super) fn needed(number: u64) -> u64 {
    let set = choices(number).filter(|(_, choice)| *choice != LEAVE);
    set.last().map_or(0, |(column, _)| column as u64 + 1)
}

/// Number of columns that were added to a table.
pub(super) fn count(table: &Table<M>) -> u64 {
    (table.columns().len() - MADE) as u64
}

/// What the model makes of adding one.
pub(super) fn add_to_model(count: &mut u64) -> bool {
    let is_possible = *count < COLUMNS;
    *count += u64::from(is_possible);
    is_possible
}

/// Whether the first table has fewer added columns than are needed.
pub(super) fn are_missing(database: &Database<M>, needed: u64) -> bool {
    needed > 0 && database.table(&name(0)).is_ok_and(|table| needed > count(&table))
}

/// Adds the next column to the first table; false if there are all.
pub(super) fn add(database: &Database<M>) -> Result<bool, Error> {
    loop {
        let table = database.table(&name(0))?;
        if count(&table) == COLUMNS {
            return Ok(false);
        }
        match database.add_column(&table, &new_column(count(&table) as usize)) {
            // Another thread has added it.
            Err(Error::Column { .. }) => {}
            added => return added.map(|_| true),
        }
    }
}

/// Values for the columns that a handle knows, behind the first two.
pub(super) fn values<'v>(table: &Table<M>, number: u64) -> impl Iterator<Item = Value<'v>> {
    let added = choices(number).take(count(table) as usize);
    let cells = added.map(|(column, choice)| cell(column, choice != OTHER));
    std::iter::once((number % VALUES).into()).chain(cells)
}

/// Changes a row as a statement's number says.
pub(super) fn set(row: &mut Changes<'_, M>, number: u64) -> Result<(), Error> {
    row.set(2, number % VALUES)?;
    for (column, choice) in choices(number).filter(|(_, choice)| *choice != LEAVE) {
        row.set(MADE + column, cell(column, choice == DEFAULT))?;
    }
    Ok(())
}

/// The value of a row.
pub(super) fn value_of(row: &Row<'_, M>) -> Result<u64, Error> {
    let mut value = row.get(2)?;
    for column in 0..COLUMNS as usize {
        let found = match row.value(MADE + column) {
            Err(Error::NoSuchColumn { .. }) => break,
            found => found?,
        };
        let is = |is_default: bool| found == cell(column, is_default);
        if !is(true) && !is(false) {
            return Err(super::ordered::wrong("no cell of an added column", found));
        }
        value += u64::from(is(false)) * (VALUES << column);
    }
    Ok(value)
}
