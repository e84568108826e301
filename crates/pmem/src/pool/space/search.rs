//! Where the pool looks for free chunks.

use super::reserve::Reserve;
use crate::pool::layout::ChunkId;

/// Where to look for free chunks; volatile.
#[derive(Debug)]
pub(crate) struct Search {
    /// Next chunk to look at.
    pub(super) next: ChunkId,
    /// Chunks of the longest run that may be free before `next`.
    pub(super) fits_behind: u32,
    /// One past the last chunk of the file.
    pub(crate) end: ChunkId,
    /// Chunks before this one were announced to the medium as used soon.
    pub(super) expected: ChunkId,
    /// Free chunks with memory behind them.
    pub(super) reserve: Reserve,
}

impl Search {
    pub(crate) fn new(first: ChunkId, end: ChunkId, reserve: Reserve) -> Self {
        Search { next: first, fits_behind: u32::MAX, end, expected: ChunkId(0), reserve }
    }
}
