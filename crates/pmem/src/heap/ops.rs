//! Allocation, retirement, reclamation.

use std::sync::atomic::Ordering;

use super::layout::{self, Class};
use super::{Block, Cursor, Heap, HeapChunks, LaneState, Reclamation, Retired};
use crate::medium::{LINE_LEN, Medium, WORD_LEN};
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, ChunkState};
use crate::pool::space::purpose::Purpose;
use crate::violation::Violation;
use crate::{Error, Fenceable, Result, fence};

/// A block that threads cannot reach if they announce an epoch after e is unreachable for all
/// threads this many epochs after e.
const EPOCHS: u64 = 2;
/// Free suspect slots at the beginning of an operation; no operation needs more.
const SLOTS_RESERVED: usize = 32;
/// Chunks that one search for a used chunk examines.
const SCAN_MAX: u32 = 256;

/// A thread's place inside a [`Heap`] during one operation.
///
/// Dropping it ends the promise that nothing reachable is freed.
#[derive(Debug)]
pub struct Lane<'h, M: Medium> {
    pub(super) heap: &'h Heap<M>,
    pub(super) index: usize,
    pub(super) state: &'h mut LaneState,
    pub(super) thread: u64,
}

/// A noted block. After a crash recovery asks about it, until it is cancelled, or retired and
/// freed.
#[derive(Debug)]
#[must_use = "a suspect occupies one of the lane's slots until it is retired or cancelled"]
pub struct Suspect {
    offset: u64,
    slot: u16,
}

impl<'h, M: Medium> Lane<'h, M> {
    #[inline(always)]
    pub(super) fn new(
        heap: &'h Heap<M>,
        index: usize,
        state: &'h mut LaneState,
        thread: u64,
    ) -> Self {
        Lane { heap, index, state, thread }
    }

    /// The heap this lane belongs to.
    #[inline(always)]
    pub fn heap(&self) -> &'h Heap<M> {
        self.heap
    }

    /// Number of this lane, below [`LANE_COUNT`](layout::LANE_COUNT). No other thread has it
    /// meanwhile.
    #[inline(always)]
    pub fn index(&self) -> usize {
        self.index
    }

    #[inline(always)]
    pub(super) fn medium(&self) -> &'h M {
        self.heap.medium()
    }

    #[inline(always)]
    fn lane_offset(&self) -> u64 {
        layout::lane(self.heap.chunk, self.index)
    }

    /// Prepares the lane for writing: makes room for suspects. Waits for readers if too many blocks
    /// are retired, which happens only if a reader is stopped in the middle of an operation.
    #[inline]
    pub fn prepare_to_write(self) -> Self {
        self.prepare_for(SLOTS_RESERVED)
    }

    /// The same, with room for `suspects` suspects: at least as many as any operation finds, and at
    /// most [`SUSPECT_COUNT`](layout::SUSPECT_COUNT).
    #[inline]
    pub fn prepare_for(mut self, suspects: usize) -> Self {
        debug_assert!(
            (SLOTS_RESERVED..=layout::SUSPECT_COUNT as usize).contains(&suspects),
            "room for {suspects} suspects is never found"
        );
        if self.state.retired.len() >= self.state.attempt_at {
            self.reclaim();
            let Reclamation { batch, attempt } = self.heap.reclamation;
            self.state.attempt_at = batch.max(self.state.retired.len() + attempt);
        }
        // Large blocks do not wait for a batch, because they may be gigabytes; nor does this thread
        // wait for their readers.
        let mut rounds_left = if self.state.retired_large > 0 { EPOCHS + 1 } else { 0 };
        while self.state.free_slots.len() < suspects || rounds_left > 0 {
            rounds_left =
                if self.state.retired_large > 0 { rounds_left.saturating_sub(1) } else { 0 };
            // This thread's own announcement may hold the epoch back: leave the lane, and enter
            // again.
            let (heap, thread, index) = (self.heap, self.thread, self.index);
            drop(self);
            heap.medium().pause();
            heap.try_advance();
            self = heap.wait_for(index, thread);
            self.reclaim();
        }
        self
    }

    /// Whether [`prepare_to_write`](Lane::prepare_to_write) has nothing to do.
    #[inline(always)]
    pub(super) fn is_prepared(&self) -> bool {
        self.state.retired.len() < self.state.attempt_at
            && self.state.free_slots.len() >= SLOTS_RESERVED
            && self.state.retired_large == 0
    }

    /// Allocates at least `len` bytes with unspecified content.
    ///
    /// After a crash the block is free unless the structure links it: nothing needs to be undone.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] or [`Error::TooLarge`]; nothing was changed.
    #[inline]
    pub fn allocate(&mut self, len: u64) -> Result<Block> {
        match Class::for_len(len) {
            Some(class) => self.allocate_small(class),
            None => self.allocate_large(len, false),
        }
    }

    /// Allocates whole chunks of zeros, aligned to 64 KiB, even if `len` is small.
    ///
    /// # Errors
    ///
    /// Those of [`allocate`](Lane::allocate).
    pub fn allocate_zeroed(&mut self, len: u64) -> Result<Block> {
        self.allocate_large(len, true)
    }

    #[inline]
    fn allocate_small(&mut self, class: Class) -> Result<Block> {
        loop {
            let cursor = &mut self.state.cursors[class.0 as usize];
            if let (Some(chunk), true) = (cursor.chunk, cursor.available != 0) {
                let bit = cursor.available.trailing_zeros();
                cursor.available &= cursor.available - 1;
                let word = cursor.word - 1;
                let at = chunk.bitmap() + u64::from(word) * WORD_LEN;
                // Not flushed: after a crash the bits of an active chunk are unreliable anyway.
                self.medium().fetch_or(at, 1 << bit);
                let index = u64::from(word * 64 + bit);
                let len = class.block_len();
                return Ok(Block { offset: chunk.offset() + index * len, len });
            }
            self.refill(class)?;
        }
    }

    /// Loads the next bitmap word with free bits, from the active chunk or from a new one.
    fn refill(&mut self, class: Class) -> Result<()> {
        let medium = self.medium();
        let cursor = &mut self.state.cursors[class.0 as usize];
        if let Some(chunk) = cursor.chunk {
            while cursor.word < class.bitmap_words() {
                let word = cursor.word;
                cursor.word += 1;
                let used = medium.load(chunk.bitmap() + u64::from(word) * WORD_LEN);
                cursor.available = !used & class.valid_bits(word);
                if cursor.available != 0 {
                    return Ok(());
                }
            }
        }
        self.activate(class)
    }

    /// Takes a chunk to allocate from, and records it durably before the first block is handed out.
    #[cold]
    fn activate(&mut self, class: Class) -> Result<()> {
        let medium = self.medium();
        let chunk = match self.heap.pick_chunk(class) {
            Err(error) if error.is_full() => match self.pick_when_full(class) {
                Some(chunk) => chunk,
                None if self.begins_anew(class) => return Ok(()),
                None => return Err(error),
            },
            picked => picked?,
        };
        let previous = self.state.cursors[class.0 as usize].chunk;
        if let Some(previous) = previous {
            // Flush: the fence below makes the bits of the old chunk durable. Until then the lane
            // names both chunks.
            medium.flush(previous.bitmap(), u64::from(class.bitmap_words()) * WORD_LEN);
        }
        let at = layout::active(self.lane_offset(), class);
        let named = medium.load(at);
        self.announce_blocks(class, ChunkId((named >> 32) as u32));
        medium.store(at, named << 32 | u64::from(chunk.0));
        medium.flush(at, WORD_LEN);
        // Fence: from here on recovery asks about every block of the chunk, so its bits need no
        // flush.
        self.fence();
        self.state.cursors[class.0 as usize] = Cursor { chunk: Some(chunk), word: 0, available: 0 };
        if let Some(previous) = previous {
            self.heap.leave_chunk(previous, class);
        }
        Ok(())
    }

    /// Makes a chunk suspect that the lane is about to name no more, if the operation in progress
    /// may have blocks there that nothing leads to yet: a step can take blocks of many chunks.
    fn announce_blocks(&mut self, class: Class, chunk: ChunkId) {
        let of_class = 1 << class.0;
        if self.state.activated & of_class != 0 && chunk.0 != 0 {
            let suspect = self.suspect(layout::suspected_run(chunk, 1));
            // Fence: recovery asks about the chunk's blocks before the lane ceases to name it.
            self.fence();
            self.state.announced.push(suspect.slot);
        }
        self.state.activated |= of_class;
    }

    /// In a full pool: frees retired blocks, and takes any chunk with a free block.
    #[cold]
    fn pick_when_full(&mut self, class: Class) -> Option<ChunkId> {
        self.reclaim();
        self.heap.scan_all();
        let pick = || self.heap.pick_chunk(class).or_else(|_| self.heap.pick_scarce(class)).ok();
        pick().or_else(|| {
            self.heap.take_from_lanes(class, self.thread);
            pick()
        })
    }

    /// Leaves the chunk of a class to other lanes, unless it is full.
    #[cold]
    fn leave_active(&mut self, class: Class) {
        let cursor = &mut self.state.cursors[class.0 as usize];
        let Some(chunk) = cursor.chunk.filter(|&chunk| self.heap.free_count(chunk, class) > 0)
        else {
            return;
        };
        *cursor = Cursor::default();
        // The lane names the chunk until it has had two others, and it fences for each of them.
        let len = u64::from(class.bitmap_words()) * WORD_LEN;
        for line in (0..len).step_by(LINE_LEN as usize) {
            self.flush_later(chunk.bitmap() + line);
        }
        self.heap.leave_chunk(chunk, class);
    }

    /// In a full pool: restarts allocation at the beginning of the active chunk, if a block was
    /// freed there.
    #[cold]
    fn begins_anew(&mut self, class: Class) -> bool {
        let cursor = &mut self.state.cursors[class.0 as usize];
        let has_room = cursor.chunk.is_some_and(|chunk| self.heap.free_count(chunk, class) > 0);
        if has_room {
            (cursor.word, cursor.available) = (0, 0);
        }
        has_room
    }

    #[cold]
    fn allocate_large(&mut self, len: u64, zeroed: bool) -> Result<Block> {
        let limit = u64::from(crate::pool::layout::RUN_MAX) * CHUNK_LEN;
        if len > limit {
            return Err(Error::TooLarge { needed: len, limit });
        }
        let run = len.div_ceil(CHUNK_LEN) as u32;
        let purpose = Purpose::Large { run, zeroed };
        let chunk = match self.take_run(purpose, run) {
            Err(error) if error.is_full() => {
                // The scan gives back chunks that an earlier process left without blocks.
                self.reclaim();
                self.heap.scan_all();
                self.take_run(purpose, run)?
            }
            taken => taken?,
        };
        // Fence: the state words, before anything is written to chunks that count as zeros.
        self.fence();
        Ok(Block { offset: chunk.offset(), len: u64::from(run) * CHUNK_LEN })
    }

    fn take_run(&mut self, purpose: Purpose, run: u32) -> Result<ChunkId> {
        let (pool, owner) = (self.heap.pool.clone(), self.heap.owner);
        pool.take_chunks_announced(purpose, owner, |chunk| {
            let suspect = self.suspect(layout::suspected_run(chunk, run));
            // Fence: recovery knows where to look before a state word says that the run is taken.
            self.fence();
            self.state.announced.push(suspect.slot);
        })
    }

    /// Says that the block that this lane allocated last is linked, durably. A large one need not
    /// be a suspect until the lane is left, then.
    pub fn note_linked(&mut self, block: Block) {
        let is_large = Class::for_len(block.len).is_none();
        if let Some(slot) = self.state.announced.pop_if(|_| is_large) {
            self.state.free_slots.push_back(slot);
        }
    }

    /// Frees a block that was never published.
    pub fn give_back(&mut self, block: Block) {
        match self.heap.locate(block.offset) {
            Some((chunk, class, index)) => {
                let Some(at) = self.heap.free_small(block.offset, chunk, class, index) else {
                    return;
                };
                let cursor = &mut self.state.cursors[class.0 as usize];
                if cursor.chunk != Some(chunk) {
                    // Flush and fence: the bit says durably that the block is used, and recovery
                    // will not ask about it once the lane has forgotten the chunk.
                    self.medium().flush(at, WORD_LEN);
                    self.fence();
                    self.heap.consider_all(vec![(chunk, class)]);
                } else if cursor.word == index / 64 + 1 {
                    cursor.available |= 1 << (index % 64);
                }
            }
            None => self.heap.free_large(block.offset),
        }
    }

    /// Offsets of blocks that are unlinked and not yet free.
    pub(super) fn retired(&self) -> impl Iterator<Item = u64> {
        self.state.retired.iter().map(|retired| retired.offset)
    }

    /// Number of suspects that this operation may still note.
    #[inline]
    pub fn suspects_left(&self) -> usize {
        self.state.free_slots.len()
    }

    /// Notes that `offset` is about to be unlinked. Before the block becomes unreachable, the note
    /// must be durable, by this lane's [`fence`](Lane::fence), [`fence_with`](Lane::fence_with), or
    /// [`flush_noted`](Lane::flush_noted) and a fence.
    #[inline]
    pub fn suspect(&mut self, offset: u64) -> Suspect {
        let slot = self.state.free_slots.pop_front().expect("an operation finds slots reserved");
        let at = layout::suspect(self.lane_offset(), slot);
        self.medium().store(at, offset);
        self.flush_later(at);
        Suspect { offset, slot }
    }

    /// Withdraws a suspect: the block stays linked, or another thread retires it.
    #[inline]
    pub fn cancel(&mut self, suspect: Suspect) {
        // The word may stay: recovery asks the structure, which answers that the block is linked.
        self.state.free_slots.push_back(suspect.slot);
    }

    /// Hands over a block that new operations cannot reach any more. It is freed when no thread can
    /// see it.
    #[inline]
    pub fn retire(&mut self, suspect: Suspect) {
        // SeqCst: not older than the epoch when this lane was announced. The unlinking may become
        // visible later than this load, but before the lane is left. Until then the epoch advances
        // once at most, and who announces a later one cannot see the block.
        let epoch = self.heap.epoch.load(Ordering::SeqCst) + 1;
        let Suspect { offset, slot } = suspect;
        debug_assert!(
            !self
                .state
                .unflushed
                .contains(&(layout::suspect(self.lane_offset(), slot) & !(LINE_LEN - 1))),
            "block {offset:#x} was unlinked before it was a suspect for good"
        );
        self.state.retired.push_back(Retired { offset, slot, epoch });
        if offset.is_multiple_of(CHUNK_LEN) && self.heap.locate(offset).is_none() {
            self.state.retired_large += 1;
        }
        if self.state.retired.len() >= self.state.advance_at {
            self.heap.try_advance();
            self.state.advance_at =
                self.state.retired.len() + self.heap.reclamation.third_of_batch();
        }
    }

    /// Notes that the line at `offset` is to be flushed before this lane's next fence, perhaps in
    /// another operation. Flushing it at once would delay the next locked instruction until the
    /// flush is done.
    #[inline]
    pub fn flush_later(&mut self, offset: u64) {
        let line = offset & !(LINE_LEN - 1);
        // Suspects share lines, and a lost attempt notes its lines again.
        if self.medium().needs_flush() && self.state.unflushed.last() != Some(&line) {
            self.state.unflushed.push(line);
        }
    }

    /// Flushes the noted lines. The caller fences before it leaves the lane.
    #[inline(always)]
    #[track_caller]
    pub fn flush_noted(&mut self) {
        if !self.state.unflushed.is_empty() {
            self.flush_all();
        }
    }

    #[track_caller]
    fn flush_all(&mut self) {
        for &line in &self.state.unflushed {
            // Flush: fenced by the caller.
            self.heap.medium().flush(line, LINE_LEN);
        }
        self.state.unflushed.clear();
    }

    /// Flushes the noted lines, and makes all flushes of this thread durable.
    #[inline]
    #[track_caller]
    pub fn fence(&mut self) {
        self.flush_noted();
        self.medium().fence();
    }

    /// Like [`fence`](crate::fence), and also for the noted lines.
    #[inline(always)]
    #[track_caller]
    pub fn fence_with<F: Fenceable>(&mut self, blocks: F) -> F::Durable {
        self.flush_noted();
        fence(blocks)
    }

    /// Frees what was retired long enough ago. Two fences for a batch of any size.
    pub(super) fn reclaim(&mut self) {
        self.heap.try_advance();
        // Relaxed: an old value frees less.
        let epoch = self.heap.epoch.load(Ordering::Relaxed);
        let ready = self.state.retired.iter().take_while(|r| r.epoch + EPOCHS <= epoch).count();
        if ready == 0 {
            return;
        }
        if !self.state.unflushed.is_empty() {
            // Flush and fence: the unlinking is durable before the block counts as free.
            self.fence();
        }
        let mut emptied: Vec<(ChunkId, Class)> = Vec::with_capacity(ready);
        let freed: Vec<Retired> = self.state.retired.drain(..ready).collect();
        self.state.advance_at = self.state.retired.len() + self.heap.reclamation.third_of_batch();
        self.prefetch_bits(&freed);
        let mut cleared: Vec<u64> = Vec::with_capacity(ready);
        for retired in &freed {
            match self.heap.locate(retired.offset) {
                Some((chunk, class, index)) => {
                    if let Some(at) = self.heap.free_small(retired.offset, chunk, class, index) {
                        cleared.push(at);
                        emptied.push((chunk, class));
                    }
                }
                None => {
                    self.heap.free_large(retired.offset);
                    self.state.retired_large = self.state.retired_large.saturating_sub(1);
                }
            }
        }
        for at in cleared {
            // Flush: fenced below, before the suspect's slot is reused. Not before all bits are
            // cleared, because each locked instruction would wait for the flush before it.
            self.medium().flush(at, WORD_LEN);
        }
        // Fence: the bits are durable before anything forgets that the blocks were suspects.
        // Redundant: slots are used in turn, so that an operation's fence comes before these are
        // used again, unless a reader that stands still has left but a few free.
        self.fence();
        self.state.free_slots.extend(freed.iter().map(|retired| retired.slot));
        self.heap.consider_all(emptied);
    }

    /// Has the lines fetched that have the bits of blocks: locked instructions do not overlap their
    /// misses.
    fn prefetch_bits(&self, blocks: &[Retired]) {
        let located = blocks.iter().filter_map(|retired| self.heap.locate(retired.offset));
        for (chunk, _, index) in located {
            self.medium().prefetch(bit_word(chunk, index));
        }
    }
}

/// Offset of the word that has the bit of a block.
pub(super) fn bit_word(chunk: ChunkId, index: u32) -> u64 {
    chunk.bitmap() + u64::from(index / 64) * WORD_LEN
}

impl<M: Medium> Drop for Lane<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.state.activated != 0 || !self.state.announced.is_empty() {
            // Blocks of this operation are linked by now, or were given back.
            self.state.free_slots.extend(self.state.announced.drain(..));
            self.state.activated = 0;
        }
        let lane = &self.heap.lanes[self.index];
        // Relaxed: only the holder counts.
        let left = lane.left.load(Ordering::Relaxed);
        // Release: partner of the Acquire in `Heap::wait_for_lanes`.
        lane.left.store(left + 1, Ordering::Release);
        // Release: partner of the SeqCst in `Heap::try_enter`; hands the lane's state to the next
        // holder.
        lane.announced.store(0, Ordering::Release);
    }
}

impl<M: Medium> Heap<M> {
    /// Frees the retired blocks of every lane that no reader can see. For a structure that found
    /// the pool full; called outside of any lane.
    #[cold]
    pub fn relieve(&self) {
        let thread = self.medium().thread();
        for _ in 0..=EPOCHS {
            self.try_advance();
            // Relaxed: a lane that is entered for the first time meanwhile holds nothing yet.
            for index in 0..self.lanes_used.load(Ordering::Relaxed) {
                if let Some(mut lane) = self.try_enter(index, thread) {
                    lane.reclaim();
                }
            }
        }
    }

    /// Chunk, class and index of a small block of this heap; `None` for anything else.
    #[inline]
    pub(super) fn locate(&self, offset: u64) -> Option<(ChunkId, Class, u32)> {
        let chunk = ChunkId::containing(offset);
        let class = self.class_of(chunk)?;
        let index = (offset - chunk.offset()) / class.block_len();
        Some((chunk, class, index as u32))
    }

    /// Clears the bit of a small block; returns the place of its word. If the block is already free
    /// or does not exist, its chunk is set aside, because its allocations are unreliable.
    #[inline]
    pub(super) fn free_small(
        &self,
        offset: u64,
        chunk: ChunkId,
        class: Class,
        index: u32,
    ) -> Option<u64> {
        let at = bit_word(chunk, index);
        let bit = 1 << (index % 64);
        let begins = chunk.offset() + u64::from(index) * class.block_len();
        let is_block = begins == offset && index < class.block_count();
        if self.is_sealed(chunk) && !self.break_seal(chunk) {
            return None;
        }
        if !is_block || self.medium().fetch_and(at, !bit) & bit == 0 {
            self.refuse_to_free(chunk, offset);
            return None;
        }
        Some(at)
    }

    #[inline]
    fn is_sealed(&self, chunk: ChunkId) -> bool {
        ChunkState::decode(self.medium().load(chunk.state())).is_ok_and(ChunkState::is_sealed)
    }

    #[cold]
    pub(super) fn break_seal(&self, chunk: ChunkId) -> bool {
        // One at a time: nobody changes bits before the seal was compared.
        let _chunks = self.chunks.lock(self.medium());
        self.pool.break_seal(chunk)
    }

    #[cold]
    fn refuse_to_free(&self, chunk: ChunkId, offset: u64) {
        let what = "a block was freed here that is not allocated";
        self.pool.put_aside(chunk, Violation::new(offset, what));
    }

    /// Gives back the large block at `offset`. If there is none, the chunk is set aside.
    fn free_large(&self, offset: u64) {
        let chunk = ChunkId::containing(offset);
        let state = self.pool.usable_state(chunk);
        let is_ours = state.kind == ChunkKind::LargeHead && state.owner == self.owner.0;
        if !is_ours || chunk.offset() != offset {
            self.refuse_to_free(chunk, offset);
        } else if self.pool.is_whole_run(chunk, state.run, self.owner) {
            self.pool.give_back_chunks(chunk, state.run);
        }
    }

    /// A chunk with free blocks: a used one if it has enough of them, else a fresh one.
    fn pick_chunk(&self, class: Class) -> Result<ChunkId> {
        let mut chunks = self.chunks.lock(self.medium());
        if chunks.partial[class.0 as usize].is_empty() {
            self.scan_some(&mut chunks);
        }
        while let Some(chunk) = chunks.partial[class.0 as usize].pop() {
            // A chunk that was given back since is not listed any more, or is listed again, perhaps
            // for another class.
            if self.class_of(chunk) == Some(class)
                && chunks.listed.remove(&chunk)
                && self.pool.break_seal(chunk)
            {
                chunks.active.insert(chunk);
                return Ok(chunk);
            }
        }
        let chunk = self.pool.take_chunks(Purpose::Small(class.0), self.owner)?;
        chunks.active.insert(chunk);
        Ok(chunk)
    }

    /// A chunk of this heap with any free block. Searches the whole pool; after a search without
    /// result, not again before a block was freed.
    #[cold]
    fn pick_scarce(&self, class: Class) -> Result<ChunkId> {
        let end = self.pool.chunk_end();
        let mut chunks = self.chunks.lock(self.medium());
        let number = class.0 as usize;
        if chunks.exhausted & 1 << number == 0 {
            let from = chunks.scarce[number];
            let found = self.find_scarce(&chunks, class, from, end);
            let found = found.or_else(|| self.find_scarce(&chunks, class, ChunkId(0), from));
            if let Some(chunk) = found {
                chunks.scarce[number] = chunk;
                chunks.listed.remove(&chunk);
                chunks.active.insert(chunk);
                return Ok(chunk);
            }
            chunks.exhausted |= 1 << number;
        }
        let size = end.offset();
        Err(Error::Full { needed: class.block_len(), size, size_max: self.pool.size_max() })
    }

    fn find_scarce(
        &self,
        chunks: &HeapChunks,
        class: Class,
        from: ChunkId,
        end: ChunkId,
    ) -> Option<ChunkId> {
        let mut at = from.next_data();
        while at < end {
            let run = self.pool.usable_state(at).span();
            if self.class_of(at) == Some(class)
                && !chunks.active.contains(&at)
                && self.free_count(at, class) > 0
                && self.pool.break_seal(at)
            {
                return Some(at);
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        None
    }

    /// In a full pool: makes lanes without a thread leave their chunk of a class, if it has free
    /// blocks.
    #[cold]
    fn take_from_lanes(&self, class: Class, thread: u64) {
        // Relaxed: a lane that is entered for the first time meanwhile has no chunk yet.
        for index in 0..self.lanes_used.load(Ordering::Relaxed) {
            if let Some(mut lane) = self.try_enter(index, thread) {
                lane.leave_active(class);
            }
        }
    }

    /// Examines all chunks that were filled before the heap was opened.
    #[cold]
    fn scan_all(&self) {
        let mut chunks = self.chunks.lock(self.medium());
        while chunks.scanned.next_data() < self.pool.chunk_end() {
            self.scan_some(&mut chunks);
        }
    }

    /// Examines a few chunks that were filled before the heap was opened.
    fn scan_some(&self, chunks: &mut HeapChunks) {
        let end = self.pool.chunk_end();
        for _ in 0..SCAN_MAX {
            let chunk = chunks.scanned.next_data();
            if chunk >= end {
                return;
            }
            chunks.scanned = ChunkId(chunk.0 + self.pool.usable_state(chunk).span());
            if let Some(class) = self.class_of(chunk) {
                self.consider(chunks, chunk, class);
            }
        }
    }

    /// Lists a chunk with room, and gives back an empty one.
    fn consider(&self, chunks: &mut HeapChunks, chunk: ChunkId, class: Class) {
        if chunks.active.contains(&chunk) || self.pool.is_aside(chunk) {
            return;
        }
        let free = self.free_count(chunk, class);
        let used = class.block_count() - free;
        chunks.look_again_after(chunk, used.min(class.worthwhile().div_ceil(2)));
        if used == 0 {
            chunks.listed.remove(&chunk);
            if self.pool.break_seal(chunk) {
                self.pool.give_back_chunks(chunk, 1);
            }
        } else if free >= class.worthwhile() && chunks.listed.insert(chunk) {
            chunks.partial[class.0 as usize].push(chunk);
        }
    }

    pub(super) fn free_count(&self, chunk: ChunkId, class: Class) -> u32 {
        (0..class.bitmap_words())
            .map(|word| {
                let used = self.medium().load(chunk.bitmap() + u64::from(word) * WORD_LEN);
                (!used & class.valid_bits(word)).count_ones()
            })
            .sum()
    }

    /// Called when a lane allocates from another chunk.
    pub(super) fn leave_chunk(&self, chunk: ChunkId, class: Class) {
        let mut chunks = self.chunks.lock(self.medium());
        chunks.active.remove(&chunk);
        // Blocks freed in it meanwhile were not available to other lanes.
        chunks.exhausted &= !(1 << class.0);
        self.consider(&mut chunks, chunk, class);
    }

    /// Called when a block of each of these chunks became free. Counting the free blocks of a chunk
    /// reads its whole bitmap, so this is done only when enough blocks have become free, or all.
    pub(super) fn consider_all(&self, emptied: Vec<(ChunkId, Class)>) {
        let mut chunks = self.chunks.lock(self.medium());
        for (chunk, class) in emptied {
            chunks.exhausted &= !(1 << class.0);
            if let Some(frees_left) = chunks.frees_left.get_mut(chunk.0 as usize) {
                *frees_left = frees_left.saturating_sub(1);
                if *frees_left > 0 {
                    continue;
                }
            }
            // Another lane may have given the chunk back meanwhile.
            if self.class_of(chunk) == Some(class) {
                self.consider(&mut chunks, chunk, class);
            }
        }
    }
}
