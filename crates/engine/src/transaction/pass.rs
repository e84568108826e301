//! Where steps of collecting stand.

use crate::Error;

/// A look at every row, tile by tile.
#[derive(Debug, Default)]
pub(crate) struct Pass {
    /// The next tile, and the number of its table.
    pub(super) table: u32,
    pub(super) tile: u64,
    /// Slots whose transactions an earlier process has left: their rows say so once they were
    /// looked at.
    pub(super) over: Vec<u32>,
    /// The first error. It tells of a row.
    pub(super) failed: Option<Error>,
}
