//! Segments: space for structures that fill memory from one end to the other.
//!
//! A structure names its segments by *slots*. A directory maps each slot to its segment. It begins
//! in the structure's header and grows by tables, each twice as long as the one before, so that
//! nothing moves.
//!
//! ```text
//! directory, 672 bytes of the header
//! byte    0  20 words: offset of the table of each level; unused for level 0, whose table follows
//!       160  64 slots of level 0
//! slot       offset of the segment, a multiple of 64 KiB; its length in chunks in the low 16 bits
//! level k    64 << k slots
//! ```

use std::collections::HashSet;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use remanent_pmem::heap::{Block, Heap, Lane};
use remanent_pmem::pool::layout::{CHUNK_LEN, ChunkId};
use remanent_pmem::{Error, Medium, Result, WORD_LEN};

use crate::shared::SUSPECTS;

/// Bytes of an ordinary segment.
pub(crate) const SEGMENT_LEN: u64 = 1 << 20;
/// Bytes of a header that the directory takes.
pub(crate) const DIRECTORY_LEN: u64 = (LEVEL_COUNT as u64 + LEVEL_SLOTS) * WORD_LEN;

const LEVEL_COUNT: usize = 20;
/// Slots of level 0.
const LEVEL_SLOTS: u64 = 64;
/// The bits of a slot's word that are the segment's length in chunks.
const CHUNKS: u64 = CHUNK_LEN - 1;
/// Segments that are freed in one lane. An operation has room for 32 suspects.
const FREED_AT_ONCE: usize = 24;

/// A place in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// Slots that a directory can have.
    const COUNT: u64 = LEVEL_SLOTS * ((1 << LEVEL_COUNT) - 1);

    /// Level, and index in the level's table.
    fn place(self) -> (usize, usize) {
        let level = (u64::from(self.0) / LEVEL_SLOTS + 1).ilog2();
        (level as usize, (u64::from(self.0) - LEVEL_SLOTS * ((1 << level) - 1)) as usize)
    }
}

/// A segment, as the word of its slot describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// One word for each slot, in volatile memory. It grows without moving, so that other threads can
/// read meanwhile.
#[derive(Debug, Default)]
pub(crate) struct PerSlot {
    levels: [OnceLock<Box<[AtomicU64]>>; LEVEL_COUNT],
}

impl PerSlot {
    /// The word of a slot; `None` before [`make`](PerSlot::make) was called for a slot of its
    /// level.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<&AtomicU64> {
        let (level, index) = slot.place();
        self.levels.get(level)?.get()?.get(index)
    }

    /// The word of a slot; 0 at first.
    pub(crate) fn make(&self, slot: Slot) -> &AtomicU64 {
        let (level, index) = slot.place();
        &self.level(level)[index]
    }

    fn level(&self, level: usize) -> &[AtomicU64] {
        self.levels[level]
            .get_or_init(|| (0..LEVEL_SLOTS << level).map(|_| AtomicU64::new(0)).collect())
    }
}

/// The segments of one structure: the directory in its header, and a copy of it in volatile memory.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Offset of the directory.
    directory: u64,
    words: PerSlot,
    /// One past the highest slot that was ever taken.
    end: AtomicU32,
}

impl Segments {
    /// The directory of a new structure, whose header is all zeros.
    pub(crate) fn create(directory: u64) -> Self {
        Segments { directory, words: PerSlot::default(), end: AtomicU32::new(0) }
    }

    /// Reads the directory as a crash may have left it. Every slot has a segment or none.
    ///
    /// Must be called before the heap recovers, because recovery calls
    /// [`is_linked`](Segments::is_linked).
    pub(crate) fn open<M: Medium>(heap: &Heap<M>, directory: u64) -> Result<Self> {
        let medium = heap.medium();
        // Flush and fence: words that a killed process left in the caches, before recovery depends
        // on them.
        // Redundant: except when a process is killed and the power fails later.
        medium.persist(directory, DIRECTORY_LEN);
        let segments = Self::create(directory);
        let mut blocks = HashSet::from([directory]);
        for level in 0..LEVEL_COUNT {
            let Some(table) = segments.table(medium, level) else { continue };
            let len = (LEVEL_SLOTS << level) * WORD_LEN;
            if level > 0 {
                segments.check_table(heap, level, table)?;
                // Flush and fence: as above.
                // Redundant: as above.
                medium.persist(table, len);
            }
            for (index, mirrored) in segments.words.level(level).iter().enumerate() {
                let at = table + index as u64 * WORD_LEN;
                let word = medium.load(at);
                if word == 0 {
                    continue;
                }
                let Segment { offset, len } = segment_of(word);
                if len == 0 || !heap.has_large(offset, len)? {
                    let what = format!("no segment of {len} bytes lies at {offset:#x}");
                    return Err(Error::corrupt(at, what));
                }
                if !blocks.insert(offset) {
                    let what = format!("the segment at {offset:#x} has another slot, too");
                    return Err(Error::corrupt(at, what));
                }
                mirrored.store(word, Ordering::Relaxed);
                let slot = LEVEL_SLOTS * ((1 << level) - 1) + index as u64;
                segments.end.fetch_max(slot as u32 + 1, Ordering::Relaxed);
            }
        }
        Ok(segments)
    }

    /// Refuses a table that cannot be that of a level, before it is walked. A table lies inside the
    /// pool, and overlaps neither the directory nor the tables of lower levels.
    fn check_table<M: Medium>(&self, heap: &Heap<M>, level: usize, table: u64) -> Result<()> {
        let medium = heap.medium();
        let len_of = |level: usize| (LEVEL_SLOTS << level) * WORD_LEN;
        let overlaps = |other: u64, len: u64| other < table + len_of(level) && table < other + len;
        let is_inside = table.is_multiple_of(WORD_LEN)
            && ChunkId::containing(table).is_data()
            && table.checked_add(len_of(level)).is_some_and(|end| end <= medium.len());
        let is_apart = || {
            !overlaps(self.directory, DIRECTORY_LEN)
                && (1..level).all(|lower| {
                    let lower_table = self.table(medium, lower);
                    lower_table.is_some_and(|table| !overlaps(table, len_of(lower)))
                })
        };
        if is_inside && is_apart() {
            return Ok(());
        }
        let what = format!("no table of level {level} of a directory can lie at {table:#x}");
        Err(Error::corrupt(self.directory + level as u64 * WORD_LEN, what))
    }

    /// One past the highest slot that was ever taken.
    pub(crate) fn end(&self) -> Slot {
        // Acquire: partner of the Release in `take`; the words of the slots below are stored.
        Slot(self.end.load(Ordering::Acquire))
    }

    /// Every slot that has a segment, ascending.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (Slot, Segment)> + '_ {
        (0..self.end().0).map(Slot).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// The segment of a slot, if it has one.
    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> Option<Segment> {
        let word = self.word(slot);
        (word != 0).then(|| segment_of(word))
    }

    /// Offset of the first byte of a slot's segment; 0 when it has none.
    #[inline]
    pub(crate) fn offset(&self, slot: Slot) -> u64 {
        self.word(slot) & !CHUNKS
    }

    #[inline]
    fn word(&self, slot: Slot) -> u64 {
        // Acquire: partner of the Release in `take`; what `fill` wrote is visible.
        self.words.get(slot).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Gives a segment of at least `len` bytes to a slot that has none. The segment's content is
    /// unspecified, except for what `fill` stores, which it must flush. Only one thread at a time
    /// may take slots.
    ///
    /// # Errors
    ///
    /// When the pool is full; nothing was changed then.
    pub(crate) fn take<M: Medium>(
        &self,
        heap: &Heap<M>,
        slot: Slot,
        len: u64,
        fill: impl FnOnce(u64),
    ) -> Result<Segment> {
        self.take_in(&mut heap.enter().prepare_to_write(), slot, len, fill)
    }

    /// The same, in a lane that the caller has entered.
    pub(crate) fn take_in<M: Medium>(
        &self,
        lane: &mut Lane<'_, M>,
        slot: Slot,
        len: u64,
        fill: impl FnOnce(u64),
    ) -> Result<Segment> {
        let (level, index) = slot.place();
        if u64::from(slot.0) >= Slot::COUNT {
            return Err(Error::TooLarge { needed: u64::from(slot.0), limit: Slot::COUNT });
        }
        let medium = lane.heap().medium();
        let table = self.make_table(lane, level)?;
        // Even a short segment is a run of chunks, so that the low 16 bits of its offset can hold
        // its length.
        let block = lane.allocate(len.max(CHUNK_LEN))?;
        fill(block.offset);
        // Fence: what `fill` stored, before the directory leads to it.
        // Redundant: unless the link alone is written back before the fence that follows, which no
        // seed of the simulator has produced.
        lane.fence();
        let word = block.offset | (block.len / CHUNK_LEN);
        let at = table + index as u64 * WORD_LEN;
        medium.store(at, word);
        // Flush and fence: the link to the segment is durable before anything in the segment is.
        // Redundant fence: when the thread that takes a segment is also the first that fences its
        // content, as in nearly all runs of the simulator.
        medium.persist(at, WORD_LEN);
        lane.note_linked(block);
        // Release: partner of the Acquire in `word` and `end`.
        self.words.make(slot).store(word, Ordering::Release);
        self.end.fetch_max(slot.0 + 1, Ordering::Release);
        Ok(segment_of(word))
    }

    /// Unlinks a slot's segment and frees it. No thread may still use the segment.
    pub(crate) fn free<M: Medium>(&self, heap: &Heap<M>, slot: Slot) {
        self.free_in(&mut heap.enter().prepare_to_write(), slot);
    }

    /// The same, in a lane that the caller has entered.
    pub(crate) fn free_in<M: Medium>(&self, lane: &mut Lane<'_, M>, slot: Slot) {
        let (level, index) = slot.place();
        let medium = lane.heap().medium();
        let (Some(segment), Some(table)) = (self.get(slot), self.table(medium, level)) else {
            return;
        };
        let suspect = lane.suspect(segment.offset);
        // Fence: the suspect, before the segment is unlinked; recovery asks about the segment from
        // here on.
        lane.fence();
        let at = table + index as u64 * WORD_LEN;
        medium.store(at, 0);
        // Flush and fence: the segment is durably unlinked before it is free.
        medium.persist(at, WORD_LEN);
        // Relaxed: no thread looks for the segment of this slot.
        self.words.make(slot).store(0, Ordering::Relaxed);
        lane.retire(suspect);
    }

    /// Whether `block` is a segment or a table of the directory.
    pub(crate) fn is_linked<M: Medium>(&self, medium: &M, block: Block) -> bool {
        (1..LEVEL_COUNT).any(|level| self.table(medium, level) == Some(block.offset))
            || block.offset.is_multiple_of(CHUNK_LEN)
                && self.slots().any(|(_, segment)| segment.offset == block.offset)
    }

    /// Offsets of all segments and tables.
    pub(crate) fn blocks<M: Medium>(&self, medium: &M) -> Vec<u64> {
        let tables = (1..LEVEL_COUNT).filter_map(|level| self.table(medium, level));
        tables.chain(self.slots().map(|(_, segment)| segment.offset)).collect()
    }

    /// Offset of the table of a level, if there is one.
    fn table<M: Medium>(&self, medium: &M, level: usize) -> Option<u64> {
        if level == 0 {
            return Some(self.directory + LEVEL_COUNT as u64 * WORD_LEN);
        }
        let table = medium.load(self.directory + level as u64 * WORD_LEN);
        (table != 0).then_some(table)
    }

    fn make_table<M: Medium>(&self, lane: &mut Lane<'_, M>, level: usize) -> Result<u64> {
        let medium = lane.heap().medium();
        if let Some(table) = self.table(medium, level) {
            return Ok(table);
        }
        let len = (LEVEL_SLOTS << level) * WORD_LEN;
        let block = lane.allocate(len)?;
        let table = block.offset;
        medium.write_zeros(table, len);
        // Flush and fence: an empty table, before the directory leads to it.
        medium.flush(table, len);
        lane.fence();
        let at = self.directory + level as u64 * WORD_LEN;
        medium.store(at, table);
        // Flush and fence: the link to the table is durable before a slot in the table is.
        medium.persist(at, WORD_LEN);
        lane.note_linked(block);
        Ok(table)
    }

    /// Takes segments for slots that have none: all of them, or an error. In a full pool, some of
    /// them may stay for later use, if the lane has no room to free them.
    pub(crate) fn take_all<M: Medium>(
        &self,
        lane: &mut Lane<'_, M>,
        slots: Range<u32>,
        len_of: impl Fn(Slot) -> u64,
    ) -> Result<()> {
        for slot in slots.clone().map(Slot) {
            if let Err(error) = self.take_in(lane, slot, len_of(slot), |_| {}) {
                // Those that a step has promised to its operations are kept.
                let count = lane.suspects_left().saturating_sub(SUSPECTS);
                let vain = (slots.start..slot.0).rev().map(Slot);
                vain.take(count).for_each(|slot| self.free_in(lane, slot));
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Runs `action`, which takes segments, in the lane of a step, or else in a lane of its own once it
/// asks for one by returning `None`.
///
/// The lane is entered before `action` takes locks: a thread that holds one of these never waits
/// for a lane, so that a step may wait for the lock.
pub(crate) fn with_lane<M: Medium, R>(
    heap: &Heap<M>,
    step: Option<&mut Lane<'_, M>>,
    mut action: impl FnMut(Option<&mut Lane<'_, M>>) -> crate::Result<Option<R>>,
) -> crate::Result<R> {
    let asked = "it has a lane";
    if let Some(lane) = step {
        return Ok(action(Some(lane))?.expect(asked));
    }
    if let Some(done) = action(None)? {
        return Ok(done);
    }
    let mut in_own_lane = || action(Some(&mut heap.enter().prepare_to_write()));
    let done = match in_own_lane() {
        Err(error) if error.is_full() => {
            // Memory of truncated segments may be held back for readers.
            heap.relieve();
            in_own_lane()
        }
        done => done,
    };
    Ok(done?.expect(asked))
}

/// Has `some`, which frees at most so many segments as it is passed, free all that are unused. It
/// returns how many it found. Each time the lane is entered before `some` takes locks.
pub(crate) fn free_in_turns<M: Medium>(
    heap: &Heap<M>,
    mut some: impl FnMut(&mut Lane<'_, M>, usize) -> usize,
) {
    while some(&mut heap.enter().prepare_to_write(), FREED_AT_ONCE) > FREED_AT_ONCE {}
}

fn segment_of(word: u64) -> Segment {
    Segment { offset: word & !CHUNKS, len: (word & CHUNKS) * CHUNK_LEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_level_after_level() {
        for (slot, place) in [
            (0, (0, 0)),
            (63, (0, 63)),
            (64, (1, 0)),
            (191, (1, 127)),
            (192, (2, 0)),
            (Slot::COUNT as u32 - 1, (LEVEL_COUNT - 1, (64 << 19) - 1)),
        ] {
            assert_eq!(Slot(slot).place(), place, "{slot}");
        }
    }

    #[test]
    fn a_word_holds_the_longest_segment() {
        let word = (1 << 40) | CHUNKS;
        assert_eq!(segment_of(word), Segment { offset: 1 << 40, len: CHUNKS << 16 });
    }
}
