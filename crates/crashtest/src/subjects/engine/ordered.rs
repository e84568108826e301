//! What ordered indexes are asked: ranges of rows, in either order.

use std::ops::{Bound, ControlFlow};

use remanent_engine::{Database, Error, KeyBound, Moment, Order, RowId, Table, Value};

use super::model::Rows;
use super::subject::{M, collect, name};

/// What is wrong with rows that were found.
fn wrong(what: &str, found: impl std::fmt::Debug) -> Error {
    Error::NoSuchColumn { table: what.to_owned(), column: format!("{found:?}") }
}

/// The rows of a range, which have to come in the order of the index's first column, and rows that
/// have the same value there in the order of their numbers.
fn range(
    table: &Table<M>,
    moment: &impl Moment<M>,
    (index, column): (&str, usize),
    bounds: (KeyBound<'_>, KeyBound<'_>),
    order: Order,
) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    let mut last: Option<(Vec<u8>, RowId)> = None;
    let failed = table.prepare_range(index)?.run(moment, bounds, order, |row| {
        let bytes = match row.value(column) {
            Ok(Value::Null) => Vec::new(),
            Ok(Value::Uint(number)) => number.to_be_bytes().to_vec(),
            Ok(Value::Text(text)) => text.as_bytes().to_vec(),
            Ok(other) => return ControlFlow::Break(wrong("no value of these tables", other)),
            Err(error) => return ControlFlow::Break(error),
        };
        let next = (bytes, row.id());
        let is_in_order = last.as_ref().is_none_or(|last| match order {
            Order::Ascending => *last < next,
            Order::Descending => *last > next,
        });
        if !is_in_order {
            return ControlFlow::Break(wrong("a row is not in its order", next));
        }
        last = Some(next);
        collect(&mut rows, row)
    })?;
    failed.map_or(Ok(rows), Err)
}

/// Reads all rows by each index, in both orders: they have to be the same.
pub(super) fn require_ordered(
    table: &Table<M>,
    moment: &impl Moment<M>,
    expected: &Rows,
) -> Result<(), Error> {
    for (index, column) in [("primary", 0), ("by_code", 1), ("by_value", 2)] {
        for order in [Order::Ascending, Order::Descending] {
            let all = (Bound::Unbounded, Bound::Unbounded);
            let found = range(table, moment, (index, column), all, order)?;
            if found != *expected {
                return Err(wrong(index, found));
            }
        }
    }
    Ok(())
}

pub(super) fn of_values(
    database: &Database<M>,
    table: u64,
    [least, greatest]: [u64; 2],
    order: Order,
) -> Result<Rows, Error> {
    let table = database.table(&name(table))?;
    let (least, greatest) = ([least.into()], [greatest.into()]);
    let bounds = (Bound::Included(&least[..]), Bound::Included(&greatest[..]));
    range(&table, &database.snapshot(), ("by_value", 2), bounds, order)
}
