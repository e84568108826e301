//! The reserve: free chunks that still have memory of the file system.
//!
//! A freed chunk keeps its memory at first, and the next chunk is taken from the reserve: this
//! neither asks the file system nor can it be refused. When the reserve exceeds its limit
//! ([`Options::reserve_bytes`](crate::Options::reserve_bytes)), half of the limit stays, and the
//! rest goes back to the file system, for one sync of the file. So space that is free for long goes
//! back, and a chunk that changes hands often does not.
//!
//! When the file system refuses more space, the reserve also serves long runs, if enough of its
//! chunks are consecutive. If not, all of it goes back to the file system, and the request is made
//! again. The file system can fill a hole anywhere, so a long run finds room even if the freed
//! chunks are scattered.
//!
//! The list of reserved chunks is volatile. After opening it is built step by step: each time a
//! chunk is taken or given back, some state words that an earlier process left are read.

use std::collections::BTreeSet;

use crate::medium::backing::Backing;
use crate::pool::layout::{CHUNK_LEN, ChunkId};

/// Default of [`Options::reserve_bytes`](crate::Options::reserve_bytes): 64 chunks.
pub(crate) const RESERVE_BYTES_DEFAULT: u64 = 4 << 20;

/// The free chunks that have memory; volatile.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(super) known: BTreeSet<ChunkId>,
    /// Number of chunks above which some go back to the file system.
    pub(super) max: usize,
    /// All chunks before this one were read since the pool was opened.
    pub(super) surveyed: ChunkId,
    /// Unused chunks from this one on may have memory all the same, because the medium may have
    /// made it ahead of need, where it was announced. `None` if there is no such chunk.
    pub(super) announced: Option<ChunkId>,
    /// Whether the medium has refused to take memory back.
    pub(super) is_refused: bool,
}

impl Reserve {
    /// An empty list, in a pool on `backing`.
    pub(crate) fn new(backing: Backing) -> Self {
        let mut reserve = Reserve {
            known: BTreeSet::new(),
            max: chunks_of(RESERVE_BYTES_DEFAULT),
            surveyed: ChunkId(0).next_data(),
            announced: None,
            is_refused: false,
        };
        // The earlier process may have announced chunks.
        reserve.note_announced(backing);
        reserve
    }

    /// The first of `run` consecutive reserved chunks.
    pub(crate) fn find(&self, run: u32) -> Option<ChunkId> {
        let (mut first, mut count) = (ChunkId(0), 0);
        for &chunk in &self.known {
            if count == 0 || chunk.0 != first.0 + count {
                (first, count) = (chunk, 0);
            }
            count += 1;
            if count == run {
                return Some(first);
            }
        }
        None
    }

    /// Removes chunks that are now in use.
    pub(crate) fn forget(&mut self, first: ChunkId, run: u32) {
        if !self.known.is_empty() {
            (first.0..first.0 + run).for_each(|number| {
                self.known.remove(&ChunkId(number));
            });
        }
    }

    pub(crate) fn add(&mut self, chunk: ChunkId) {
        self.known.insert(chunk);
    }

    /// Only a medium in memory makes pages ahead of need.
    pub(crate) fn note_announced(&mut self, backing: Backing) {
        if backing == Backing::Memory {
            self.announced = Some(ChunkId(0));
        }
    }
}

pub(super) fn chunks_of(bytes: u64) -> usize {
    (bytes / CHUNK_LEN) as usize
}
