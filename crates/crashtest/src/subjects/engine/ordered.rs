//! Reading ranges by an ordered index, in either order.

use std::ops::ControlFlow;

use remanent_engine::{Error, KeyBound, Moment, Order, Row, RowId, Table, Value};
use remanent_pmem::Medium;

/// What is wrong with rows that were found.
pub(super) fn wrong(what: &str, found: impl std::fmt::Debug) -> Error {
    Error::NoSuchColumn { table: what.to_owned(), column: format!("{found:?}") }
}

/// Passes the rows of a range to `visit`. They have to come in the order of the index's columns,
/// and rows with the same values there in the order of their numbers.
pub(super) fn range<M: Medium>(
    table: &Table<M>,
    moment: &impl Moment<M>,
    (index, columns): (&str, &[usize]),
    bounds: (KeyBound<'_>, KeyBound<'_>),
    order: Order,
    mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<Error>,
) -> Result<(), Error> {
    let mut last: Option<(Vec<Vec<u8>>, RowId)> = None;
    let failed = table.prepare_range(index)?.run(moment, bounds, order, |row| {
        let bytes = columns.iter().map(|&column| match row.value(column)? {
            Value::Null => Ok(Vec::new()),
            Value::Uint(number) => Ok(number.to_be_bytes().to_vec()),
            Value::Text(text) => Ok(text.as_bytes().to_vec()),
            other => Err(wrong("no value of these tables", other)),
        });
        let next = match bytes.collect::<Result<_, Error>>() {
            Ok(key) => (key, row.id()),
            Err(error) => return ControlFlow::Break(error),
        };
        let is_in_order = last.as_ref().is_none_or(|last| match order {
            Order::Ascending => *last < next,
            Order::Descending => *last > next,
        });
        if !is_in_order {
            return ControlFlow::Break(wrong("a row is not in its order", next));
        }
        last = Some(next);
        visit(row)
    })?;
    failed.map_or(Ok(()), Err)
}
