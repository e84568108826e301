//! Finding runs of free chunks.

use super::search::Search;
use crate::error::Result;
use crate::medium::Medium;
use crate::pool::Pool;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ZONE_CHUNKS};

impl<M: Medium> Pool<M> {
    /// First fit from the end of the last search; from the beginning if that fails and a run may be
    /// there.
    pub(super) fn find_run(&self, search: &mut Search, run: u32) -> Option<ChunkId> {
        let from = self.free_before(search.next, run - 1);
        if let Some(found) = self.scan(from, search.end, run) {
            return Some(found);
        }
        if run > search.fits_behind {
            return None;
        }
        let found = self.scan(ChunkId(0).next_data(), search.end, run);
        if found.is_none() {
            search.fits_behind = run - 1;
        }
        found
    }

    /// The first of the free chunks, at most `count`, that end at `end`: a run may begin with them.
    fn free_before(&self, end: ChunkId, count: u32) -> ChunkId {
        let mut first = end.next_data();
        for _ in 0..count {
            let before = ChunkId(first.0 - 1);
            if !before.is_data() || !self.usable_state(before).is_free() {
                break;
            }
            first = before;
        }
        first
    }

    pub(super) fn scan(&self, from: ChunkId, end: ChunkId, run: u32) -> Option<ChunkId> {
        let mut at = from.next_data();
        let mut first = at;
        while at < end {
            let state = self.usable_state(at);
            if !state.is_free() {
                let taken = state.span();
                at = ChunkId(at.0.saturating_add(taken)).next_data();
                first = at;
                continue;
            }
            if at.0 - first.0 + 1 == run {
                return Some(first);
            }
            let next = ChunkId(at.0 + 1);
            at = next.next_data();
            if at != next {
                // A run does not cross the metadata of the next zone.
                first = at;
            }
        }
        None
    }

    /// Refuses a request for `count` runs of `run` chunks if there is no room for them.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub(crate) fn check_room(&self, run: u32, count: u64) -> Result<()> {
        let end = self.chunk_end();
        // The possible growth of the file is usually enough, and quickly counted.
        if self.count_free(end, end, run, count) < count
            && self.count_free(ChunkId(0), end, run, count) < count
        {
            let needed = count.saturating_mul(u64::from(run) * CHUNK_LEN);
            return Err(self.full(needed, end));
        }
        Ok(())
    }

    /// Number of free runs of `run` chunks from `from` on, including those in the possible growth
    /// behind the file's end `end`. Counting stops at `wanted`.
    fn count_free(&self, from: ChunkId, end: ChunkId, run: u32, wanted: u64) -> u64 {
        let limit = ChunkId((self.size_max() / CHUNK_LEN) as u32);
        let mut at = from.next_data();
        let (mut count, mut free) = (0, 0);
        while at < limit && count + u64::from(free / run) < wanted {
            let (is_free, span) = if at < end {
                let state = self.usable_state(at);
                (state.is_free(), state.span())
            } else {
                (true, (ZONE_CHUNKS - at.0 % ZONE_CHUNKS).min(limit.0 - at.0))
            };
            let next = ChunkId(at.0.saturating_add(span));
            at = next.next_data();
            free += if is_free { span } else { 0 };
            // A run does not cross the metadata of the next zone.
            if !is_free || at != next {
                count += u64::from(free / run);
                free = 0;
            }
        }
        count + u64::from(free / run)
    }
}
