//! Recovery of a heap after a crash: corrects the bits of active chunks and suspects. Preparation
//! of a proper close: leaves nothing to recover.

use super::layout::{self, CLASS_COUNT, Class, LANE_COUNT, SUSPECT_COUNT};
use super::ops::bit_word;
use super::{Block, Heap};
use crate::Result;
use crate::medium::{Medium, WORD_LEN};
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind};

impl<M: Medium> Heap<M> {
    /// Corrects the bit of every block that a crash may have left wrong, by asking the structure
    /// whether the block is linked.
    ///
    /// Called once, when the structure is opened and before anyone uses it. The work is bounded by
    /// the lanes that were in use: at most 2 × 32 chunks and 224 suspects for each, which may be
    /// blocks or, of a step that took many, chunks. A crash meanwhile leaves the same work.
    /// `is_linked` gets blocks with whatever they hold, which may be garbage.
    ///
    /// Stores of a killed process may be in the caches alone, and be lost in a later power failure.
    /// So `is_linked` must flush the links that decide its answer. This function makes the
    /// structure's header durable.
    ///
    /// # Errors
    ///
    /// When the medium met a fault; the next opening then does the work again. Chunks with a
    /// damaged state are [set aside](crate::Pool::set_aside).
    pub fn recover(&self, mut is_linked: impl FnMut(Block) -> bool) -> Result<()> {
        let mut any = false;
        self.flush_suspects();
        // Flush and fence: the header, before anything is decided by it. Also after a proper close:
        // this root may not have been opened since the crash.
        // Redundant: but where a process was killed before, and the power fails later.
        self.medium().persist(self.header(), layout::HEADER_LEN);
        for index in 0..LANE_COUNT {
            let lane = layout::lane(self.chunk, index);
            any |= self.recover_active(lane, &mut is_linked);
            any |= self.recover_suspects(lane, &mut is_linked);
        }
        if any {
            // If memory could not be read, the structure's answers are unreliable.
            self.verify()?;
            // Fence: every bit is right before the lanes forget what was in doubt.
            self.medium().fence();
            self.forget();
        }
        Ok(())
    }

    /// Flushes what the lanes have in doubt. `recover` fences before it changes anything: until it
    /// has ended, another crash has to find the same suspects.
    fn flush_suspects(&self) {
        let medium = self.medium();
        let of_lane = |index| {
            let lane = layout::lane(self.chunk, index);
            (0..SUSPECT_COUNT).map(move |slot| layout::suspect(lane, slot))
        };
        for at in (0..LANE_COUNT).flat_map(of_lane).filter(|&at| medium.load(at) != 0) {
            // Flush: fenced by the caller.
            // Redundant: but where a process was killed before, and the power fails later.
            medium.flush(at, WORD_LEN);
        }
    }

    fn recover_active(&self, lane: u64, is_linked: &mut impl FnMut(Block) -> bool) -> bool {
        let medium = self.medium();
        let mut any = false;
        for class in (0..CLASS_COUNT as u8).map(Class) {
            let named = medium.load(layout::active(lane, class));
            for number in [named as u32, (named >> 32) as u32] {
                let chunk = ChunkId(number);
                any |= number != 0;
                // Ignores a chunk that belongs to another heap now. A chunk that changed its class
                // is examined with its present class.
                if number != 0
                    && chunk.is_data()
                    && chunk < self.pool.chunk_end()
                    && let Some(class) = self.class_of(chunk)
                {
                    self.recover_chunk(chunk, class, is_linked);
                }
            }
        }
        any
    }

    fn recover_chunk(
        &self,
        chunk: ChunkId,
        class: Class,
        is_linked: &mut impl FnMut(Block) -> bool,
    ) {
        let len = class.block_len();
        // With the bits below, which the lanes name until both are durable.
        self.pool.drop_seal(chunk, self.pool.usable_state(chunk));
        for word in 0..class.bitmap_words() {
            let mut bits = 0;
            for bit in 0..64.min(class.block_count() - word * 64) {
                let offset = chunk.offset() + u64::from(word * 64 + bit) * len;
                if is_linked(Block { offset, len }) {
                    bits |= 1 << bit;
                }
            }
            self.medium().store(chunk.bitmap() + u64::from(word) * WORD_LEN, bits);
        }
        // Flush: fenced once for all chunks, before the lanes forget them.
        self.medium().flush(chunk.bitmap(), u64::from(class.bitmap_words()) * WORD_LEN);
    }

    fn recover_suspects(&self, lane: u64, is_linked: &mut impl FnMut(Block) -> bool) -> bool {
        let medium = self.medium();
        let mut any = false;
        for slot in 0..SUSPECT_COUNT {
            let (offset, run) = layout::read_suspect(medium.load(layout::suspect(lane, slot)));
            if offset == 0 {
                continue;
            }
            any = true;
            let chunk = ChunkId::containing(offset);
            if !chunk.is_data() || chunk >= self.pool.chunk_end() {
                continue;
            }
            match self.locate(offset) {
                Some((chunk, class, _)) if run != 0 => self.recover_chunk(chunk, class, is_linked),
                Some((chunk, class, index)) => {
                    self.recover_block(chunk, class, index, offset, is_linked);
                }
                None if offset == chunk.offset() => self.recover_large(chunk, run, is_linked),
                None => {}
            }
        }
        any
    }

    fn recover_block(
        &self,
        chunk: ChunkId,
        class: Class,
        index: u32,
        offset: u64,
        is_linked: &mut impl FnMut(Block) -> bool,
    ) {
        let len = class.block_len();
        // The suspect may be old, and the chunk of another class by now; then no block begins
        // there.
        if chunk.offset() + u64::from(index) * len != offset || index >= class.block_count() {
            return;
        }
        self.pool.drop_seal(chunk, self.pool.usable_state(chunk));
        let at = bit_word(chunk, index);
        let bit = 1 << (index % 64);
        if is_linked(Block { offset, len }) {
            self.medium().fetch_or(at, bit);
        } else {
            self.medium().fetch_and(at, !bit);
        }
        // Flush: fenced once for all suspects, before the lanes forget them.
        self.medium().flush(at, WORD_LEN);
    }

    fn recover_large(&self, chunk: ChunkId, run: u32, is_linked: &mut impl FnMut(Block) -> bool) {
        let state = self.pool.usable_state(chunk);
        match state.kind {
            ChunkKind::LargeHead if state.owner == self.owner.0 => {
                let len = u64::from(state.run) * CHUNK_LEN;
                if !is_linked(Block { offset: chunk.offset(), len })
                    && self.pool.is_whole_run(chunk, state.run, self.owner)
                {
                    // Fence: the structure may just have unlinked it; this must be durable before
                    // the bytes are gone.
                    self.medium().fence();
                    self.pool.give_back_chunks(chunk, state.run);
                }
            }
            ChunkKind::Free | ChunkKind::FreeDirty => {
                self.pool.give_back_orphans(chunk, run, self.owner);
            }
            _ => {}
        }
    }

    /// Clears the chunks and suspects that the lanes name, durably.
    fn forget(&self) {
        let medium = self.medium();
        for index in 0..LANE_COUNT {
            let lane = layout::lane(self.chunk, index);
            let words = (0..CLASS_COUNT as u8)
                .map(|class| layout::active(lane, Class(class)))
                .chain((0..SUSPECT_COUNT).map(|slot| layout::suspect(lane, slot)));
            for at in words.filter(|&at| medium.load(at) != 0).collect::<Vec<_>>() {
                medium.store(at, 0);
                // Flush: fenced once, below.
                // Redundant: asked again, the structure answers the same; but the next open is to
                // be short.
                medium.flush(at, WORD_LEN);
            }
        }
        // Fence: the next open finds nothing to do.
        // Redundant: as the flush.
        medium.fence();
    }

    /// Seals every unsealed chunk of small blocks, so that damage to its bitmap at rest is
    /// detected.
    fn seal_all(&self) {
        let _chunks = self.chunks.lock(self.medium());
        let end = self.pool.chunk_end();
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.pool.usable_state(at);
            let is_ours = state.kind == ChunkKind::Small && state.owner == self.owner.0;
            if is_ours && !state.is_sealed() {
                self.pool.seal(at, state);
            }
            at = ChunkId(at.0.saturating_add(state.span())).next_data();
        }
    }

    /// Runs `action` while no operation is in progress: all lanes are held, and new operations
    /// wait.
    ///
    /// `action` gets one of the lanes, and the number of blocks that are unlinked and not yet free.
    pub fn quiesced<R>(&self, action: impl FnOnce(&mut super::Lane<'_, M>, u64) -> R) -> R {
        let thread = self.medium().thread();
        let mut first = self.wait_for(0, thread);
        let others: Vec<_> = (1..LANE_COUNT).map(|index| self.wait_for(index, thread)).collect();
        let retired = |lane: &super::Lane<'_, M>| lane.state.retired.len() as u64;
        let unlinked = retired(&first) + others.iter().map(retired).sum::<u64>();
        action(&mut first, unlinked)
    }

    pub(super) fn wait_for(&self, index: usize, thread: u64) -> super::Lane<'_, M> {
        loop {
            match self.try_enter(index, thread) {
                Some(lane) => return lane,
                None => self.medium().pause(),
            }
        }
    }

    /// Frees everything retired and makes every bit durable, so that the next opening has nothing
    /// to recover. Only while no operation is in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: the pool is then left for recovery.
    pub fn quiesce(&self) -> Result<()> {
        self.verify()?;
        for index in 0..LANE_COUNT {
            let thread = self.medium().thread();
            self.wait_for(index, thread).finish();
        }
        self.seal_all();
        // Fence: bits that the lanes flushed are durable before the lanes forget their chunks.
        self.medium().fence();
        self.forget();
        self.verify()
    }
}

impl<M: Medium> super::Lane<'_, M> {
    /// Frees retired blocks and flushes the bits of the active chunks.
    fn finish(mut self) {
        while !self.state.retired.is_empty() {
            let (heap, index, thread) = (self.heap, self.index, self.thread);
            drop(self.prepare_to_write());
            heap.medium().pause();
            self = heap.wait_for(index, thread);
            self.reclaim();
        }
        self.flush_noted();
        for class in (0..CLASS_COUNT as u8).map(Class) {
            let cursor = std::mem::take(&mut self.state.cursors[class.0 as usize]);
            if let Some(chunk) = cursor.chunk {
                let len = u64::from(class.bitmap_words()) * WORD_LEN;
                // Flush: fenced in `Heap::quiesce`, before the lane forgets the chunk.
                self.medium().flush(chunk.bitmap(), len);
                self.heap.leave_chunk(chunk, class);
            }
        }
    }
}
