//! Free chunks that still have memory of the file system behind them, which are *spares*.
//!
//! A chunk that is freed keeps its memory at first: the next one that is needed is taken from the spares, which neither
//! asks the file system nor can be refused by it. When there are more spares than the pool is to keep
//! ([`Options::spare_bytes`](crate::Options::spare_bytes)), half of these stay and the others go back to the file
//! system, all for one sync of the file. So what is free for long returns, and a chunk that changes hands often does not.
//!
//! When the file system refuses more, spares serve long runs as well, where enough of them lie in a row. Else they all go
//! back to it, and the request is made again: a hole can be filled wherever it lies, so that long runs find room
//! although what was freed is scattered.
//!
//! Which chunks are spares is volatile. After opening it is found out step by step: each taking and giving back
//! looks at some state words that a former process left.

use std::collections::BTreeSet;

use crate::Backing;
use crate::medium::{Medium, WORD_LEN};
use crate::pool::chunks::Search;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, ChunkState};
use crate::pool::{Guarantee, Pool};

/// Default of [`Options::spare_bytes`](crate::Options::spare_bytes): 64 chunks.
pub(crate) const SPARE_BYTES_DEFAULT: u64 = 4 << 20;
/// State words of a former process that are looked at with each chunk that is taken or given back.
const SURVEY_STEP: u32 = 64;

/// Which free chunks have memory behind them; volatile.
#[derive(Debug)]
pub(crate) struct Spares {
    known: BTreeSet<ChunkId>,
    /// Spares above which some go back to the file system.
    max: usize,
    /// Chunks before this one were looked at since the pool was opened.
    surveyed: ChunkId,
    /// Chunks from this one on that hold nothing may have memory all the same: the medium may have made it ahead of need,
    /// where it was announced. None when no such chunk was found.
    pub(super) announced: Option<ChunkId>,
    /// Whether the medium has refused to take memory back.
    is_refused: bool,
}

impl Spares {
    /// None is known yet in a pool on `guarantee`'s medium.
    pub(crate) fn new(guarantee: &Guarantee) -> Self {
        let mut spares = Spares {
            known: BTreeSet::new(),
            max: chunks_of(SPARE_BYTES_DEFAULT),
            surveyed: ChunkId(0).next_data(),
            announced: None,
            is_refused: false,
        };
        // By the process before, perhaps.
        spares.note_announced(guarantee.backing);
        spares
    }

    /// The first of `run` spares in a row.
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

fn chunks_of(bytes: u64) -> usize {
    (bytes / CHUNK_LEN) as usize
}

impl<M: Medium> Pool<M> {
    /// Changes how much free space keeps its memory; see [`Options::spare_bytes`](crate::Options::spare_bytes). What is
    /// more than that now goes back to the file system when something is freed next.
    pub fn set_spare_bytes(&self, bytes: u64) {
        self.search().lock(self.medium()).spares.max = chunks_of(bytes);
    }

    /// Gives spares back to the file system when there are too many.
    pub(crate) fn trim_spares(&self, search: &mut Search) {
        let spares = &mut search.spares;
        if spares.known.len() <= spares.max || spares.is_refused {
            return;
        }
        // The last ones: a file that is short, and full at its beginning, needs the least.
        let excess = spares.known.len() - spares.max / 2;
        let chunks: Vec<ChunkId> = spares.known.iter().rev().take(excess).rev().copied().collect();
        self.release_spares(search, &chunks);
    }

    /// Punches spares, which are in order, and says durably that they hold zeros. Returns whether any was punched.
    fn release_spares(&self, search: &mut Search, chunks: &[ChunkId]) -> bool {
        let medium = self.medium();
        let mut released = Vec::with_capacity(chunks.len());
        for run in chunks.chunk_by(|a, b| a.0 + 1 == b.0) {
            if medium.release(run[0].offset(), run.len() as u64 * CHUNK_LEN) {
                released.extend_from_slice(run);
            } else {
                search.spares.is_refused = true;
            }
        }
        if released.is_empty() {
            return false;
        }
        // Sync: they read as zeros for good, before a state word says so.
        if medium.sync_file().is_err() {
            return true;
        }
        let free = ChunkState::FREE.encode();
        self.store_own(released.iter().map(|chunk| (chunk.state(), free)));
        for run in released.chunk_by(|a, b| a.0 + 1 == b.0) {
            // Flush: fenced by who takes the chunk next, before anything is written to it.
            // Redundant: a chunk that is said to hold old bytes may hold zeros.
            medium.flush(run[0].state(), run.len() as u64 * WORD_LEN);
        }
        for chunk in &released {
            search.spares.known.remove(chunk);
        }
        true
    }

    /// Looks at some more of the state words that a former process left.
    pub(crate) fn survey_some(&self, search: &mut Search) {
        self.survey(search, SURVEY_STEP);
    }

    fn survey(&self, search: &mut Search, steps: u32) {
        for _ in 0..steps {
            let at = search.spares.surveyed.next_data();
            if at >= search.end {
                return;
            }
            let state = self.usable_state(at);
            if state.kind == ChunkKind::FreeDirty {
                search.spares.known.insert(at);
            }
            search.spares.surveyed = ChunkId(at.0 + state.span());
        }
    }

    /// The file system is full: gives it all back that no chunk in use needs. Returns whether that may have made room.
    #[cold]
    pub(crate) fn release_free(&self, search: &mut Search) -> bool {
        if search.spares.is_refused {
            return false;
        }
        let chunks: Vec<ChunkId> = search.spares.known.iter().copied().collect();
        let has_released = self.release_announced(search);
        self.release_spares(search, &chunks) || has_released
    }

    /// Takes back the memory that was made ahead of need for chunks that hold nothing. What they
    /// read as stays the same.
    fn release_announced(&self, search: &mut Search) -> bool {
        if search.spares.announced.take().is_none() {
            return false;
        }
        let mut has_released = false;
        let mut at = ChunkId(0).next_data();
        while at < search.end {
            let first = at;
            while at < search.end && at.is_data() && self.usable_state(at).kind == ChunkKind::Free {
                at = ChunkId(at.0 + 1);
            }
            if at > first {
                let len = u64::from(at.0 - first.0) * CHUNK_LEN;
                has_released |= self.medium().release(first.offset(), len);
            } else {
                at = ChunkId(at.0.saturating_add(self.usable_state(at).span()));
            }
            at = at.next_data();
        }
        has_released
    }

    /// The file system is full: learns of all spares that a former process left.
    #[cold]
    pub(crate) fn survey_all(&self, search: &mut Search) {
        self.survey(search, u32::MAX);
    }
}
