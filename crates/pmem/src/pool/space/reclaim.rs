//! Giving free chunks back to the file system, and finding free chunks that an earlier process
//! left.

use super::reserve::chunks_of;
use super::search::Search;
use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, ChunkState};

/// Number of state words of an earlier process that are read with each chunk that is taken or given
/// back.
const SURVEY_STEP: u32 = 64;

impl<M: Medium> Pool<M> {
    /// Changes how much free space keeps its memory; see
    /// [`Options::reserve_bytes`](crate::Options::reserve_bytes). A surplus goes back to the file
    /// system when something is freed next.
    pub fn set_reserve_bytes(&self, bytes: u64) {
        self.search().lock(self.medium()).reserve.max = chunks_of(bytes);
    }

    /// Gives chunks of the reserve back to the file system if there are too many.
    pub(crate) fn trim_reserve(&self, search: &mut Search) {
        let reserve = &mut search.reserve;
        if reserve.known.len() <= reserve.max || reserve.is_refused {
            return;
        }
        // The last ones, because a short file that is full at its beginning takes the least space.
        let excess = reserve.known.len() - reserve.max / 2;
        let chunks: Vec<ChunkId> = reserve.known.iter().rev().take(excess).rev().copied().collect();
        self.release_reserved(search, &chunks);
    }

    /// Punches reserved chunks, in ascending order, and records durably that they hold zeros.
    /// Returns whether any was punched.
    fn release_reserved(&self, search: &mut Search, chunks: &[ChunkId]) -> bool {
        let medium = self.medium();
        let mut released = Vec::with_capacity(chunks.len());
        for run in chunks.chunk_by(|a, b| a.0 + 1 == b.0) {
            if medium.release(run[0].offset(), run.len() as u64 * CHUNK_LEN) {
                released.extend_from_slice(run);
            } else {
                search.reserve.is_refused = true;
            }
        }
        if released.is_empty() {
            return false;
        }
        // Sync: they read as zeros durably before a state word says so.
        if medium.sync_file().is_err() {
            return true;
        }
        let free = ChunkState::FREE.encode();
        self.store_own(released.iter().map(|chunk| (chunk.state(), free)));
        for run in released.chunk_by(|a, b| a.0 + 1 == b.0) {
            // Flush: fenced by the thread that takes the chunk next, before anything is written to
            // it.
            // Redundant: a chunk that is said to hold old bytes may hold zeros.
            medium.flush(run[0].state(), run.len() as u64 * WORD_LEN);
        }
        for chunk in &released {
            search.reserve.known.remove(chunk);
        }
        true
    }

    /// Reads some more of the state words that an earlier process left.
    pub(crate) fn survey_some(&self, search: &mut Search) {
        self.survey(search, SURVEY_STEP);
    }

    fn survey(&self, search: &mut Search, steps: u32) {
        for _ in 0..steps {
            let at = search.reserve.surveyed.next_data();
            if at >= search.end {
                return;
            }
            let state = self.usable_state(at);
            if state.kind == ChunkKind::FreeDirty {
                search.reserve.known.insert(at);
            }
            search.reserve.surveyed = ChunkId(at.0 + state.span());
        }
    }

    /// Gives everything that no chunk in use needs back to the file system, which is full. Returns
    /// whether this may have made room.
    #[cold]
    pub(crate) fn release_free(&self, search: &mut Search) -> bool {
        if search.reserve.is_refused {
            return false;
        }
        let chunks: Vec<ChunkId> = search.reserve.known.iter().copied().collect();
        let has_released = self.release_announced(search);
        self.release_reserved(search, &chunks) || has_released
    }

    /// Takes back the memory that was made ahead of need for chunks without content. They still
    /// read as before.
    fn release_announced(&self, search: &mut Search) -> bool {
        if search.reserve.announced.take().is_none() {
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

    /// Reads all state words that an earlier process left, because the file system is full.
    #[cold]
    pub(crate) fn survey_all(&self, search: &mut Search) {
        self.survey(search, u32::MAX);
    }
}
