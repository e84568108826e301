//! Chunks whose metadata contradict themselves: nothing is allocated from them, nor are they given back.
//!
//! What lies in such a chunk stays readable for the structure that has it, and whatever else the pool holds is not
//! touched by the damage. Which chunks these are is found out when somebody wants to use them, and is volatile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::medium::Medium;
use crate::pool::Pool;
use crate::pool::layout::{ChunkId, ChunkState};
use crate::sync::PauseMutex;
use crate::violation::Violation;

/// Reasons that are kept; of further chunks there is only the number.
const TOLD_MAX: usize = 100;

/// What was set aside since the pool was opened; volatile.
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
    /// What is wrong with the chunks that are not used in this process because their metadata contradict themselves: the
    /// first hundred of [`set_aside_count`](Pool::set_aside_count). Found out as chunks are needed;
    /// [`check`](Pool::check) looks at all.
    pub fn set_aside(&self) -> Vec<Violation> {
        self.0.aside.known.lock(self.medium()).told.clone()
    }

    /// Chunks that are not used in this process because their metadata contradict themselves.
    pub fn set_aside_count(&self) -> u64 {
        // Relaxed: a number to be told.
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
            // Release: pairs with the Acquire in `is_aside`.
            self.0.aside.count.fetch_add(1, Ordering::Release);
        }
    }

    pub(crate) fn is_aside(&self, chunk: ChunkId) -> bool {
        // Acquire: pairs with the Release in `put_aside`.
        self.0.aside.count.load(Ordering::Acquire) > 0
            && self.0.aside.known.lock(self.medium()).chunks.contains(&chunk)
    }

    /// The state of a chunk for who looks for one to use: of those that are set aside, one that nobody may.
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
