//! Reading ranges by an ordered index, in either order.

use std::ops::ControlFlow;

use remanent_engine::{Error, KeyBound, Moment, Order, Row, RowId, Table, Value};
use remanent_pmem::Medium;

/// What is wrong with rows that were found.
pub(super) fn wrong(what: &str, found: impl std::fmt::Debug) -> Error {
    Error::NoSuchColumn { table: what.to_owned(), column: format!("{found:?}") }
}

/// Passes the rows of a range to `visit`. They have to come in the order of the index's first
/// column, and rows with the same value there in the order of their numbers.
pub(super) fn range<M: Medium>(
    table: &Table<M>,
    moment: &impl Moment<M>,
    (index, column): (&str, usize),
    bounds: (KeyBound<'_>, KeyBound<'_>),
    order: Order,
    mut visit: impl FnMut(&Row<'_, M>) -> ControlFlow<Error>,
) -> Result<(), Error> {
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
        visit(row)
    })?;
    failed.map_or(Ok(()), Err)
}
