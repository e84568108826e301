//! Taking runs of free chunks: from the reserve, from the rest of the file, or from its growth.

use super::purpose::Purpose;
use super::search::Search;
use crate::error::{Error, Result};
use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, ChunkState, RUN_MAX, RootId};

/// Maximal number of places that are tried for a long run if the file system has no memory for it.
const RUN_TRIES: u32 = 8;

impl<M: Medium> Pool<M> {
    /// One past the last chunk of the file.
    pub(crate) fn chunk_end(&self) -> ChunkId {
        self.search().lock(self.medium()).end
    }

    /// Takes a run of free chunks, and flushes its state words. The caller's fence makes them
    /// durable. It must come before anything durable refers to the run, and before anything is
    /// written to the run, because a chunk in state `Free` holds zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] when there is no such run and the file cannot grow; [`Error::StorageFull`]
    /// when its file system gives no more space. In both cases nothing was changed.
    pub(crate) fn take_chunks(&self, purpose: Purpose, owner: RootId) -> Result<ChunkId> {
        self.take_chunks_announced(purpose, owner, |_| {})
    }

    /// Like [`take_chunks`](Pool::take_chunks), and calls `announce` with the run before any state
    /// word says that it is taken.
    pub(crate) fn take_chunks_announced(
        &self,
        purpose: Purpose,
        owner: RootId,
        announce: impl FnOnce(ChunkId),
    ) -> Result<ChunkId> {
        let run = purpose.run();
        if run > RUN_MAX {
            return Err(Error::TooLarge {
                needed: u64::from(run) * CHUNK_LEN,
                limit: u64::from(RUN_MAX) * CHUNK_LEN,
            });
        }
        let mut search = self.search().lock(self.medium());
        self.survey_some(&mut search);
        let first = self.provide(&mut search, purpose)?;
        announce(first);
        let medium = self.medium();
        let body = ChunkState { kind: ChunkKind::LargeBody, owner: owner.0, class: 0, run: 0 };
        // Bodies first: a durable head then describes a run that recovery can give back completely.
        let bodies = (1..run).rev().map(|index| (ChunkId(first.0 + index).state(), body.encode()));
        let head = (first.state(), purpose.head_state(owner).encode());
        self.store_own(bodies.chain([head]));
        medium.flush(first.state(), u64::from(run) * WORD_LEN);
        search.reserve.forget(first, run);
        self.expect_next(&mut search, first, run);
        Ok(first)
    }

    /// Finds a run, and brings its bytes to the content that the purpose needs.
    fn provide(&self, search: &mut Search, purpose: Purpose) -> Result<ChunkId> {
        let run = purpose.run();
        if run == 1
            && let Some(reserved) = self.commit_reserved(search, 1)
        {
            self.prepare(reserved, purpose);
            return Ok(reserved);
        }
        match self.provide_any(search, purpose) {
            Err(refused @ Error::StorageFull { .. }) => {
                self.survey_all(search);
                let backed = self.commit_reserved(search, run);
                if let Some(first) = backed.or_else(|| self.commit_announced(search, run)) {
                    self.prepare(first, purpose);
                    return Ok(first);
                }
                if !self.release_free(search) {
                    return Err(refused);
                }
                self.provide_any(search, purpose)
            }
            done => done,
        }
    }

    /// Consecutive reserved chunks that certainly have memory.
    fn commit_reserved(&self, search: &Search, run: u32) -> Option<ChunkId> {
        let first = search.reserve.find(run)?;
        self.commit(first.offset(), u64::from(run) * CHUNK_LEN).ok().map(|()| first)
    }

    /// A free run for which the medium has made memory ahead of need, completely or except for what
    /// the file system can give.
    #[cold]
    fn commit_announced(&self, search: &mut Search, run: u32) -> Option<ChunkId> {
        // A long run is tried only where memory was announced last, because trying costs time in
        // proportion to its length.
        let known = search.reserve.announced?;
        let (mut from, tries) = if run == 1 { (known, u32::MAX) } else { (search.next, RUN_TRIES) };
        for _ in 0..tries {
            let Some(first) = self.scan(from, search.end, run) else { break };
            from = ChunkId(first.0 + run);
            if self.commit(first.offset(), u64::from(run) * CHUNK_LEN).is_ok()
                && self.reads_as_stated(first, run)
            {
                return Some(first);
            }
            if run == 1 {
                search.reserve.announced = Some(from);
            }
        }
        if run == 1 {
            search.reserve.announced = None;
        }
        None
    }

    fn provide_any(&self, search: &mut Search, purpose: Purpose) -> Result<ChunkId> {
        let run = purpose.run();
        let first = loop {
            let Some(first) = self.find_run(search, run) else {
                self.grow(search, run)?;
                continue;
            };
            self.commit(first.offset(), u64::from(run) * CHUNK_LEN)?;
            if self.reads_as_stated(first, run) {
                break first;
            }
        };
        self.prepare(first, purpose);
        if first != search.next {
            // The search may have skipped groups of free chunks that were too small.
            search.fits_behind = search.fits_behind.max(run - 1);
        }
        search.next = ChunkId(first.0 + run).next_data();
        Ok(first)
    }
}
