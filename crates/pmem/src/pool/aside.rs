//! Chunks with contradictory metadata: nothing is allocated from them, and they are not given back.
//!
//! The content of such a chunk stays readable for its structure, and the damage does not affect
//! anything else in the pool. A chunk is found to be damaged when it is needed; the list is
//! volatile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::medium::Medium;
use crate::pool::Pool;
use crate::pool::layout::{ChunkId, ChunkState};
use crate::sync::PauseMutex;
use crate::violation::Violation;

/// Maximal number of reasons that are kept; further chunks are only counted.
const TOLD_MAX: usize = 100;

/// The chunks set aside since the pool was opened; volatile.
#[derive(Debug, Default)]
pub(super) struct Aside {
    count: AtomicU64,
    known: PauseMutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    chunks: BTreeSet<ChunkId>,
    told: Vec<Violation>,
}

impl<M: Medium> Pool<M> {
    /// What is wrong with the chunks that this process does not use, because their metadata are
    /// contradictory: the first hundred of [`set_aside_count`](Pool::set_aside_count). They are
    /// found as chunks are needed; [`check`](Pool::check) looks at all.
    pub fn set_aside(&self) -> Vec<Violation> {
        self.0.aside.known.lock(self.medium()).told.clone()
    }

    /// Number of chunks that this process does not use, because their metadata are contradictory.
    pub fn set_aside_count(&self) -> u64 {
        // Relaxed: a number for a report.
        self.0.aside.count.load(Ordering::Relaxed)
    }

    /// From now on nobody takes the chunk, allocates from it, or gives it back.
    #[cold]
    pub(crate) fn put_aside(&self, chunk: ChunkId, what: Violation) {
        let mut known = self.0.aside.known.lock(self.medium());
        if known.chunks.insert(chunk) {
            if known.told.len() < TOLD_MAX {
                known.told.push(what);
            }
            // Release: partner of the Acquire in `is_aside`.
            self.0.aside.count.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn is_aside(&self, chunk: ChunkId) -> bool {
        // Acquire: partner of the Release in `put_aside`.
        self.0.aside.count.load(Ordering::Acquire) > 0
            && self.0.aside.known.lock(self.medium()).chunks.contains(&chunk)
    }

    /// The state of a chunk for a search of usable chunks: `SET_ASIDE` if the chunk was set aside.
    pub(crate) fn usable_state(&self, chunk: ChunkId) -> ChunkState {
        if self.is_aside(chunk) {
            return ChunkState::SET_ASIDE;
        }
        self.chunk_state(chunk).unwrap_or_else(|error| {
            self.put_aside(chunk, Violation::new(chunk.state(), error.to_string()));
            ChunkState::SET_ASIDE
        })
    }
}
