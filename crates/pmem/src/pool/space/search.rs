//! State of the search for free chunks.

use super::reserve::Reserve;
use crate::pool::layout::ChunkId;

/// Where to search for free chunks; volatile.
#[derive(Debug)]
pub(crate) struct Search {
    /// Next chunk to examine.
    pub(super) next: ChunkId,
    /// Longest run that may be free before `next`.
    pub(super) fits_behind: u32,
    /// One past the last chunk of the file.
    pub(crate) end: ChunkId,
    /// All chunks before this one were announced to the medium.
    pub(super) expected: ChunkId,
    /// Free chunks that have memory.
    pub(super) reserve: Reserve,
}

impl Search {
    pub(crate) fn new(first: ChunkId, end: ChunkId, reserve: Reserve) -> Self {
        Search { next: first, fits_behind: u32::MAX, end, expected: ChunkId(0), reserve }
    }
}
