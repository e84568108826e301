//! Giving chunks back.

use crate::medium::{Medium, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, ChunkState, RootId};
use crate::violation::Violation;

impl<M: Medium> Pool<M> {
    /// Gives back the run that begins at `first`, durably when it returns.
    ///
    /// Runs of several chunks go back to the file system at once;
    /// [`Reserve`](super::reserve::Reserve) decides about single ones. A crash meanwhile leaves a
    /// run that can be given back again.
    pub(crate) fn give_back_chunks(&self, first: ChunkId, run: u32) {
        let medium = self.medium();
        let len = u64::from(run) * CHUNK_LEN;
        let punched = run > 1 && medium.release(first.offset(), len);
        // `Free` promises zeros. A hole is durable only after a sync of the file, which costs more
        // than writing zeros when they are asked for. So where flushes are needed, a chunk that was
        // in use never becomes `Free` again.
        let has_zeros = punched && !medium.needs_flush();
        let kind = if has_zeros { ChunkKind::Free } else { ChunkKind::FreeDirty };
        let free = ChunkState { kind, ..ChunkState::FREE }.encode();
        // Held from here on: a search for chunks finds all of the run or nothing, and takes none of
        // it before it is noted.
        let mut search = self.search().lock(medium);
        if run > 1 {
            self.store_own((1..run).map(|index| (ChunkId(first.0 + index).state(), free)));
            // Flush and fence: the bodies before the head, because the head has the length of the
            // run.
            medium.persist(ChunkId(first.0 + 1).state(), u64::from(run - 1) * WORD_LEN);
        }
        self.store_own([(first.state(), free)]);
        // Flush and fence: durably free before anyone may take it.
        medium.persist(first.state(), WORD_LEN);
        if first < search.next {
            search.fits_behind = u32::MAX;
        }
        if !punched {
            (first.0..first.0 + run).for_each(|number| search.reserve.add(ChunkId(number)));
        }
        self.survey_some(&mut search);
        self.trim_reserve(&mut search);
    }

    /// Whether a run is as its head says, or was partly given back. If not, the head is damaged,
    /// and is set aside.
    pub(crate) fn is_whole_run(&self, first: ChunkId, run: u32, owner: RootId) -> bool {
        let end = self.chunk_end();
        let is_part = |chunk: ChunkId| {
            let state = self.usable_state(chunk);
            let is_body = state.kind == ChunkKind::LargeBody && state.owner == owner.0;
            chunk < end && (is_body || state.is_free())
        };
        let other = (1..run).map(|index| ChunkId(first.0 + index)).find(|&chunk| !is_part(chunk));
        if let Some(other) = other {
            let what =
                format!("a run of {run} chunks begins here, and chunk {} is no part", other.0);
            self.put_aside(first, Violation::new(first.state(), what));
        }
        other.is_none()
    }

    /// Frees the bodies, all or some of them, of a run of `run` chunks at `first` whose head never
    /// became durable. Recovery's fence makes it durable.
    pub(crate) fn give_back_orphans(&self, first: ChunkId, run: u32, owner: RootId) {
        let medium = self.medium();
        let mut search = self.search().lock(medium);
        let end = ChunkId(first.0.saturating_add(run)).min(search.end);
        let mut at = first;
        while at < end {
            let state = self.usable_state(at);
            if state.kind == ChunkKind::LargeBody && state.owner == owner.0 {
                let free = ChunkState { kind: ChunkKind::FreeDirty, ..ChunkState::FREE };
                self.store_own([(at.state(), free.encode())]);
                // Flush: fenced by recovery, before it forgets the suspect.
                medium.flush(at.state(), WORD_LEN);
                search.reserve.add(at);
            }
            // Skips runs that were taken here since: they have a head.
            at.0 += state.span();
        }
        search.fits_behind = u32::MAX;
    }

    /// Gives back every chunk of a root that is being dropped or was not completely created, except
    /// for chunks with a damaged state.
    pub(crate) fn give_back_all(&self, owner: RootId) {
        let end = self.chunk_end();
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.usable_state(at);
            let run = state.span();
            // The owner field of a directory chunk is not a root.
            let is_roots = !state.is_free() && state.kind != ChunkKind::Directory;
            let is_owned = is_roots && state.owner == owner.0;
            if is_owned && self.is_whole_run(at, run, owner) {
                self.give_back_chunks(at, run);
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
    }
}
