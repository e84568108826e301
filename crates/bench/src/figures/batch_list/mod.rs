//! The batch-optimised list, and what stores on a real disk take for the same promises.

mod rivals;

use anyhow::Result;

use crate::Setup;
use crate::report::Report;

/// Measures puts on a real disk.
///
/// # Errors
///
/// When a store cannot be opened, or answers wrongly.
pub(crate) fn run(setup: &Setup) -> Result<Report> {
    let mut report = Report::new("batch-list")?;
    rivals::run(setup, &mut report)?;
    Ok(report)
}
