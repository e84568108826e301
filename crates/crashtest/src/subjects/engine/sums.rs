//! Counting and summing up rows.

use remanent_engine::{Error, Moment, Table};
use remanent_pmem::Medium;

use super::ordered::wrong;
use super::rows::{Rows, VALUES};

/// Counts and sums up the rows that a moment has, all of them and those with an even key: it has to
/// be what these are.
pub(super) fn require<M: Medium>(
    table: &Table<M>,
    moment: &impl Moment<M>,
    expected: &Rows,
) -> Result<(), Error> {
    let scan = table.prepare_scan(["value", "id"])?;
    let even = scan.filter(|row| Ok(row.get::<u64>(1)? % 2 == 0));
    let all = || expected.values().map(|(_, value)| *value % VALUES);
    let found = (scan.count(moment)?, scan.sum(moment, 0)?);
    let total = (expected.len() as u64, all().reduce(|sum, value| sum + value));
    if found != total {
        return Err(wrong("counted and summed up", (found, total)));
    }
    let found = (scan.min(moment, 0)?, scan.max(moment, 0)?);
    if found != (all().min(), all().max()) {
        return Err(wrong("least and greatest", found));
    }
    let of_even =
        expected.iter().filter(|(id, _)| *id % 2 == 0).map(|(_, (_, value))| *value % VALUES);
    let found = even.sum(moment, 0)?;
    if found != of_even.reduce(|sum, value| sum + value) {
        return Err(wrong("summed up those with even keys", found));
    }
    Ok(())
}
