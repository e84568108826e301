//! The batch-optimized lists: the paper's evaluation; inserts compared with a plain copy; and
//! stores on a real disk with the same guarantees.

mod copy;
mod paper;
mod rivals;

use anyhow::Result;

use super::bench::Bench;
use crate::report::Report;
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "batch-list",
    "Durable and batched puts on a real disk, beside LMDB, SQLite, RocksDB and redb",
    run,
);

/// Measures all of it.
///
/// # Errors
///
/// When a store cannot be opened, or answers wrongly.
fn run(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("batch-list")?;
    copy::run(setup, &mut report)?;
    paper::run(setup, &mut report)?;
    rivals::run(setup, &mut report)?;
    Ok(report)
}
