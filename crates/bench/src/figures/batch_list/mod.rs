//! The batch-optimized lists: the paper's evaluation, inserts beside a plain copy, and what stores on a real
//! disk take for the same promises.

mod copy;
mod paper;
mod rivals;

use anyhow::Result;

use crate::Setup;
use crate::report::Report;

/// Measures all of it.
///
/// # Errors
///
/// When a store cannot be opened, or answers wrongly.
pub(crate) fn run(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("batch-list")?;
    copy::run(setup, &mut report)?;
    paper::run(setup, &mut report)?;
    rivals::run(setup, &mut report)?;
    Ok(report)
}
