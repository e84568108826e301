//! Who has which chunk: taking runs of free chunks, giving them back, and growing the file.

use crate::heap::Violation;
use crate::medium::{LINE_LEN, Medium, PAGE_LEN, WORD_LEN};
use crate::pool::Pool;
use crate::pool::layout::{
    BITMAP_LEN, CHUNK_LEN, ChunkId, ChunkKind, ChunkState, DATA_FIRST, RUN_MAX, RootId, ZONE_CHUNKS,
};
use crate::pool::spares::Spares;
use crate::{Error, Result, StorageLimit};

/// Chunks by which a file grows at least: 16 MiB.
const GROW_MIN: u32 = 256;
/// Chunks by which a file grows at most: 1 GiB. Growing only lengthens a sparse file.
const GROW_MAX: u32 = 16_384;

/// Chunks in use from which on the medium is told what will be used next: 8 MiB.
const EXPECT_MIN: u32 = 128;
/// Chunks that it is told of ahead of need at most: 32 MiB.
const EXPECT_AHEAD_MAX: u32 = 512;

/// Chunks of a run of which each page is looked at before it is used.
const PAGES_LOOKED_AT_MAX: u32 = 16;

/// Places where a long run is tried that the file system has no memory for.
const RUN_TRIES: u32 = 8;

/// Where to look for free chunks; volatile.
#[derive(Debug)]
pub(crate) struct Search {
    /// Next chunk to look at.
    next: ChunkId,
    /// Chunks of the longest run that may be free before `next`.
    fits_behind: u32,
    /// One past the last chunk of the file.
    pub(super) end: ChunkId,
    /// Chunks before this one were announced to the medium as used soon.
    expected: ChunkId,
    /// Free chunks with memory behind them.
    pub(super) spares: Spares,
}

impl Search {
    pub(crate) fn new(first: ChunkId, end: ChunkId, spares: Spares) -> Self {
        Search { next: first, fits_behind: u32::MAX, end, expected: ChunkId(0), spares }
    }
}

/// What a chunk is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Blocks of a size class.
    Small(u8),
    /// One allocation of so many chunks; zeroed when asked.
    Large { run: u32, zeroed: bool },
    /// A heap's header and lanes, zeroed.
    Heap,
}

impl Purpose {
    fn run(self) -> u32 {
        match self {
            Purpose::Large { run, .. } => run,
            Purpose::Small(_) | Purpose::Heap => 1,
        }
    }

    fn head_state(self, owner: RootId) -> ChunkState {
        let (kind, class) = match self {
            Purpose::Small(class) => (ChunkKind::Small, class),
            Purpose::Large { .. } => (ChunkKind::LargeHead, 0),
            Purpose::Heap => (ChunkKind::Heap, 0),
        };
        ChunkState { kind, class, owner: owner.0, run: self.run() }
    }
}

impl<M: Medium> Pool<M> {
    /// The state word of a chunk.
    ///
    /// # Errors
    ///
    /// When the word is none that the format knows: its kind, or a field that does not fit the kind.
    pub(crate) fn chunk_state(&self, chunk: ChunkId) -> Result<ChunkState> {
        let word = self.medium().load(chunk.state());
        let damaged =
            |what: String| Error::corrupt(chunk.state(), format!("chunk {} has {what}", chunk.0));
        let state =
            ChunkState::decode(word).map_err(|kind| damaged(format!("unknown kind {kind}")))?;
        match state.misfit(ZONE_CHUNKS - chunk.0 % ZONE_CHUNKS, self.0.version) {
            Some(what) => Err(damaged(format!("{what} as {:?}", state.kind))),
            None => Ok(state),
        }
    }

    /// One past the last chunk of the file.
    pub(crate) fn chunk_end(&self) -> ChunkId {
        self.search().lock(self.medium()).end
    }

    /// Takes a run of free chunks. Its state words are flushed; the caller's fence makes them durable,
    /// and must come before anything durable refers to the run, and before anything is written to it: a
    /// chunk whose state is `Free` holds zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] when there is no such run and the file cannot grow, [`Error::StorageFull`] when its file system
    /// gives nothing more; then nothing was changed.
    pub(crate) fn take_chunks(&self, purpose: Purpose, owner: RootId) -> Result<ChunkId> {
        self.take_chunks_announced(purpose, owner, |_| {})
    }

    /// As [`take_chunks`](Pool::take_chunks), and calls `announce` with the run before any state word
    /// says that it is taken.
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
        // Bodies first: a head that is durable describes a run that recovery can give back whole.
        let bodies = (1..run).rev().map(|index| (ChunkId(first.0 + index).state(), body.encode()));
        let head = (first.state(), purpose.head_state(owner).encode());
        self.store_own(bodies.chain([head]));
        medium.flush(first.state(), u64::from(run) * WORD_LEN);
        search.spares.forget(first, run);
        self.expect_next(&mut search, first, run);
        Ok(first)
    }

    /// Finds a run and brings its bytes to what the purpose needs.
    fn provide(&self, search: &mut Search, purpose: Purpose) -> Result<ChunkId> {
        let run = purpose.run();
        if run == 1
            && let Some(spare) = self.commit_spares(search, 1)
        {
            self.prepare(spare, purpose);
            return Ok(spare);
        }
        match self.provide_any(search, purpose) {
            Err(refused @ Error::StorageFull { .. }) => {
                self.survey_all(search);
                let backed = self.commit_spares(search, run);
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

    /// Spares in a row, with memory behind them for certain.
    fn commit_spares(&self, search: &Search, run: u32) -> Option<ChunkId> {
        let first = search.spares.find(run)?;
        self.commit(first.offset(), u64::from(run) * CHUNK_LEN).ok().map(|()| first)
    }

    /// A free run for which the medium has made memory ahead of need, or for as much of it as the file system lacks.
    #[cold]
    fn commit_announced(&self, search: &mut Search, run: u32) -> Option<ChunkId> {
        // A long run is tried where memory was announced last: trying costs as much as it is long.
        let known = search.spares.announced?;
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
                search.spares.announced = Some(from);
            }
        }
        if run == 1 {
            search.spares.announced = None;
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
            // It may have passed over free chunks that were too few for it.
            search.fits_behind = search.fits_behind.max(run - 1);
        }
        search.next = ChunkId(first.0 + run).next_data();
        Ok(first)
    }

    /// Tells the medium what will be used next: the run just taken, and as much ahead as the pool's size
    /// makes likely. Small pools are left alone.
    fn expect_next(&self, search: &mut Search, first: ChunkId, run: u32) {
        let used = first.0.saturating_sub(DATA_FIRST);
        if used < EXPECT_MIN {
            return;
        }
        let ahead = (used / 16).clamp(EXPECT_MIN, EXPECT_AHEAD_MAX);
        let wanted = ChunkId((first.0 + run + ahead).min(search.end.0));
        let from = search.expected.max(first);
        if wanted > from && (wanted.0 - from.0 >= ahead / 2 || run > ahead) {
            self.medium().expect_use(from.offset(), wanted.offset() - from.offset());
            search.expected = wanted;
            search.spares.note_announced(self.guarantee().backing);
        }
    }

    /// Fills the holes of a range.
    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        self.medium().commit(offset, len).map_err(|error| self.refused_by_medium(error))
    }

    /// A medium that is no file has no name for its limit.
    fn refused_by_medium(&self, error: Error) -> Error {
        match error {
            Error::Full { needed, .. } => Error::StorageFull {
                needed,
                path: self.path().to_owned(),
                limit: StorageLimit::FileSystem,
            },
            other => other,
        }
    }

    /// Whether the free chunks of a run that are said to hold zeros seem to: a line of each page is looked at, or of each
    /// chunk of a long run. One that does not is set aside: its state is damaged, and it may be in use.
    fn reads_as_stated(&self, first: ChunkId, run: u32) -> bool {
        const ZEROS: [u8; LINE_LEN as usize] = [0; LINE_LEN as usize];
        let step = if run <= PAGES_LOOKED_AT_MAX { PAGE_LEN } else { CHUNK_LEN };
        for chunk in (first.0..first.0 + run).map(ChunkId) {
            if self.usable_state(chunk).kind != ChunkKind::Free {
                continue;
            }
            let mut lines = (chunk.offset()..chunk.offset() + CHUNK_LEN).step_by(step as usize);
            if let Some(at) = lines.find(|&at| !self.medium().equals(at, &ZEROS)) {
                let what = format!("chunk {} is said to be unused and zero, and is not", chunk.0);
                self.put_aside(chunk, Violation::new(at, what));
                return false;
            }
        }
        true
    }

    /// Brings the bytes of a run, which has no holes any more, to what the purpose needs.
    fn prepare(&self, first: ChunkId, purpose: Purpose) {
        let medium = self.medium();
        if let Purpose::Small(_) = purpose {
            self.clear_bitmap(first.bitmap());
            return;
        }
        if let Purpose::Large { zeroed: false, .. } = purpose {
            return;
        }
        for index in 0..purpose.run() {
            let chunk = ChunkId(first.0 + index);
            if self.usable_state(chunk).kind == ChunkKind::FreeDirty {
                medium.write_zeros(chunk.offset(), CHUNK_LEN);
                medium.flush(chunk.offset(), CHUNK_LEN);
            }
        }
    }

    /// Zeroes a bitmap that the chunk's last owner left behind when its root was dropped.
    fn clear_bitmap(&self, bitmap: u64) {
        let medium = self.medium();
        let mut words = (0..BITMAP_LEN / WORD_LEN).map(|word| bitmap + word * WORD_LEN);
        if words.any(|at| medium.load(at) != 0) {
            medium.write_zeros(bitmap, BITMAP_LEN);
            // Flush and fence: no old bit may meet the new state word after a crash.
            medium.persist(bitmap, BITMAP_LEN);
        }
    }

    /// First fit from where the last search ended; from the start when that fails and there may be one.
    fn find_run(&self, search: &mut Search, run: u32) -> Option<ChunkId> {
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

    /// The first of the free chunks, `count` of them at most, that end at `end`: a run may begin with them.
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

    /// Refuses what there is no room for: `count` runs of `run` chunks.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub(crate) fn check_room(&self, run: u32, count: u64) -> Result<()> {
        let end = self.chunk_end();
        // What the file may grow by is enough as a rule, and quickly counted.
        if self.count_free(end, end, run, count) < count
            && self.count_free(ChunkId(0), end, run, count) < count
        {
            let needed = count.saturating_mul(u64::from(run) * CHUNK_LEN);
            return Err(self.full(needed, end));
        }
        Ok(())
    }

    /// Free runs of `run` chunks from `from` on, also where the file, which ends at `end`, may grow to; it is enough to
    /// find `wanted`.
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

    fn scan(&self, from: ChunkId, end: ChunkId, run: u32) -> Option<ChunkId> {
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

    /// Lengthens the file so that a run of `run` chunks fits behind its end.
    fn grow(&self, search: &mut Search, run: u32) -> Result<()> {
        let medium = self.medium();
        let limit = ChunkId((self.size_max() / CHUNK_LEN) as u32);
        let step = (search.end.0 / 8).clamp(GROW_MIN, GROW_MAX).max(run);
        let start = search.end.next_data();
        let wanted = start.0.saturating_add(step);
        let zone_end = start.0 - start.0 % ZONE_CHUNKS + ZONE_CHUNKS;
        let end = ChunkId(if run <= zone_end - start.0 {
            wanted.min(zone_end)
        } else {
            // The run needs a zone of its own: the rest of this one is found by smaller runs.
            ChunkId(zone_end).next_data().0 + step
        })
        .min(limit);
        if end <= search.end {
            return Err(self.full(u64::from(run) * CHUNK_LEN, search.end));
        }
        medium.grow(end.offset()).map_err(|error| self.refused_by_medium(error))?;
        self.commit_metadata(search.end, end)?;
        // Sync: the length is durable before the superblock counts on it.
        medium.sync_file()?;
        let first_chunk = search.next.0;
        self.update_superblock(|superblock| {
            superblock.size = end.offset();
            superblock.first_chunk = first_chunk;
        });
        search.end = end;
        Ok(())
    }

    /// Fills the holes under the state words and bitmaps of the chunks `from .. to`.
    pub(crate) fn commit_metadata(&self, from: ChunkId, to: ChunkId) -> Result<()> {
        let mut at = from.next_data();
        while at < to {
            let zone_end = ChunkId(at.0 - at.0 % ZONE_CHUNKS + ZONE_CHUNKS);
            let count = u64::from(zone_end.min(to).0 - at.0);
            self.commit(at.state(), count * WORD_LEN)?;
            self.commit(at.bitmap(), count * BITMAP_LEN)?;
            at = zone_end.next_data();
        }
        Ok(())
    }

    fn full(&self, needed: u64, end: ChunkId) -> Error {
        Error::Full { needed, size: end.offset(), size_max: self.size_max() }
    }

    /// Gives the run that begins at `first` back, durably when it returns.
    ///
    /// Runs of several chunks go back to the file system at once, and single ones as [`Spares`] says. A crash on the
    /// way leaves a run that giving back again completes.
    pub(crate) fn give_back_chunks(&self, first: ChunkId, run: u32) {
        let medium = self.medium();
        let len = u64::from(run) * CHUNK_LEN;
        let punched = run > 1 && medium.release(first.offset(), len);
        // `Free` promises zeros. A hole is durable only after a sync of the file, which costs more than to write zeros
        // when they are asked for: so where flushes are needed, a chunk that was in use never becomes `Free` again.
        let has_zeros = punched && !medium.needs_flush();
        let kind = if has_zeros { ChunkKind::Free } else { ChunkKind::FreeDirty };
        let free = ChunkState { kind, ..ChunkState::FREE }.encode();
        // Held from here on: who looks for chunks meets all of the run or nothing, and takes none
        // of it before it is noted.
        let mut search = self.search().lock(medium);
        if run > 1 {
            self.store_own((1..run).map(|index| (ChunkId(first.0 + index).state(), free)));
            // Flush and fence: the head goes last, it is what says how long the run is.
            medium.persist(ChunkId(first.0 + 1).state(), u64::from(run - 1) * WORD_LEN);
        }
        self.store_own([(first.state(), free)]);
        // Flush and fence: free for good before anyone may take it.
        medium.persist(first.state(), WORD_LEN);
        if first < search.next {
            search.fits_behind = u32::MAX;
        }
        if !punched {
            (first.0..first.0 + run).for_each(|number| search.spares.add(ChunkId(number)));
        }
        self.survey_some(&mut search);
        self.trim_spares(&mut search);
    }

    /// Whether a run is as its head says, or was given back in part; else the head is damaged, and is set aside.
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

    /// Frees the bodies, any of them, of a run of `run` chunks at `first` whose head never became durable.
    /// Recovery's fence makes it durable.
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
                // Flush: fenced by recovery, before it forgets where to look.
                medium.flush(at.state(), WORD_LEN);
                search.spares.add(at);
            }
            // Runs that were taken here since are passed over: they have a head.
            at.0 += state.span();
        }
        search.fits_behind = u32::MAX;
    }

    /// Gives back every chunk of a root, which is being dropped or was never finished, but for those whose state is
    /// damaged.
    pub(crate) fn give_back_all(&self, owner: RootId) {
        let end = self.chunk_end();
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.usable_state(at);
            let run = state.span();
            let is_owned = !state.is_free() && state.owner == owner.0;
            if is_owned && self.is_whole_run(at, run, owner) {
                self.give_back_chunks(at, run);
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
    }
}
