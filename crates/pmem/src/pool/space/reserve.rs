//! The reserve: free chunks that still have memory of the file system behind them.
//!
//! A chunk that is freed keeps its memory at first: the next one that is needed is taken from the reserve, which neither
//! asks the file system nor can be refused by it. When the reserve is larger than the pool is to keep
//! ([`Options::reserve_bytes`](crate::Options::reserve_bytes)), half of that stays and the others go back to the file
//! system, all for one sync of the file. So what is free for long returns, and a chunk that changes hands often does not.
//!
//! When the file system refuses more, the reserve serves long runs as well, where enough of it lies in a row. Else it all goes
//! back to it, and the request is made again: a hole can be filled wherever it lies, so that long runs find room
//! although what was freed is scattered.
//!
//! Which chunks are in the reserve is volatile. After opening it is found out step by step: each taking and giving back
//! looks at some state words that a former process left.

use std::collections::BTreeSet;

use crate::medium::backing::Backing;
use crate::pool::layout::{CHUNK_LEN, ChunkId};

/// Default of [`Options::reserve_bytes`](crate::Options::reserve_bytes): 64 chunks.
pub(crate) const RESERVE_BYTES_DEFAULT: u64 = 4 << 20;

/// Which free chunks have memory behind them; volatile.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(super) known: BTreeSet<ChunkId>,
    /// Chunks above which some go back to the file system.
    pub(super) max: usize,
    /// Chunks before this one were looked at since the pool was opened.
    pub(super) surveyed: ChunkId,
    /// Chunks from this one on that hold nothing may have memory all the same: the medium may have made it ahead of need,
    /// where it was announced. None when no such chunk was found.
    pub(super) announced: Option<ChunkId>,
    /// Whether the medium has refused to take memory back.
    pub(super) is_refused: bool,
}

impl Reserve {
    /// None is known yet in a pool that lies on `backing`.
    pub(crate) fn new(backing: Backing) -> Self {
        let mut reserve = Reserve {
            known: BTreeSet::new(),
            max: chunks_of(RESERVE_BYTES_DEFAULT),
            surveyed: ChunkId(0).next_data(),
            announced: None,
            is_refused: false,
        };
        // By the process before, perhaps.
        reserve.note_announced(backing);
        reserve
    }

    /// The first of `run` reserved chunks in a row.
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

    /// Chunks that are in use now.
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

    /// Only memory makes pages ahead of need.
    pub(crate) fn note_announced(&mut self, backing: Backing) {
        if backing == Backing::Memory {
            self.announced = Some(ChunkId(0));
        }
    }
}

pub(super) fn chunks_of(bytes: u64) -> usize {
    (bytes / CHUNK_LEN) as usize
}
