//! The medium of a list: the pages that it fills one after the other, and the line that says how
//! far they are safe.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::Heap;
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{Error as PoolError, Medium, Result};

use super::layout::{
    HEAD, ITEM_KIND, LEN_MASK, PADDING, Position, RECORD_LEN, SAFE, SKIPPED, Safe, Shape,
};
use crate::background::lock_patiently;
use crate::line_tx::{self, Form};
use crate::segments::{SEGMENT_LEN, Segments, Slot};

/// The space of one list.
pub struct Stream<M: Medium> {
    pub(crate) heap: Heap<M>,
    pub(crate) segments: Segments,
    /// Held while a segment is taken, by the writer or, ahead of need, by the persister.
    taking: PauseMutex<()>,
    /// Held while a batch is made safe. Contains the last committed state.
    committed: PauseMutex<Committed>,
    /// Bytes written since the list was opened that are safe.
    safe_bytes: AtomicU64,
}

/// The last committed state.
pub(crate) struct Committed {
    /// Version of the line transaction.
    version: u64,
    pub(crate) safe: Safe,
    /// Bytes written up to that commit, since the list was opened.
    pub(crate) written: u64,
}

/// A link: the head's, or that of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Position of its element; `NONE` for the head.
    pub(crate) of: Position,
    /// Pool offset of its word, which is the first word of the element.
    pub(crate) offset: u64,
}

/// State of the writer.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The beginning of free space; the paper's working pointer.
    pub(crate) working: Position,
    /// Link of the last element, where the next one is appended.
    pub(crate) tail: Link,
    /// Elements of the list.
    pub(crate) count: u64,
    /// Bytes written since the list was opened.
    pub(crate) written: u64,
    /// Pool offset of the segment of `working`, minus the position at which that segment begins.
    base: u64,
}

impl End {
    /// The state to commit once everything up to here is durable. The variant sets `mark`.
    pub(crate) fn reached(&self) -> Safe {
        Safe { end: self.working, tail: self.tail.of, mark: 0, count: self.count }
    }
}

impl<M: Medium> Stream<M> {
    /// A stream with the committed state `safe`, and the `version` of its line transaction.
    pub(crate) fn new(heap: Heap<M>, segments: Segments, version: u64, safe: Safe) -> Self {
        Stream {
            heap,
            segments,
            taking: PauseMutex::default(),
            committed: PauseMutex::new(Committed { version, safe, written: 0 }),
            safe_bytes: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// The state of a writer that has written nothing yet.
    pub(crate) fn end(&self, working: Position, tail: Link, count: u64) -> End {
        End { working, tail, count, written: 0, base: self.base(working) }
    }

    /// Pool offset of position 0, if all segments continued that of `working`.
    fn base(&self, working: Position) -> u64 {
        self.segments.offset(working.slot()).wrapping_sub(Position::in_slot(working.slot()).0)
    }

    /// The link to the first element.
    #[inline]
    pub(crate) fn head(&self) -> Link {
        Link { of: Position::NONE, offset: self.heap.header() + HEAD }
    }

    /// The link of the element at a position.
    ///
    /// # Errors
    ///
    /// When there is no segment there, since a link is damaged.
    #[inline]
    pub(crate) fn link(&self, of: Position) -> Result<Link> {
        let segment = self.segments.offset(of.slot());
        if segment == 0 || !Shape::PLAIN.is_aligned(of) {
            return Err(leads_nowhere(of));
        }
        Ok(Link { of, offset: segment + of.within() })
    }

    /// As [`link`](Stream::link); the head for `NONE`.
    pub(crate) fn link_or_head(&self, of: Position) -> Result<Link> {
        if of == Position::NONE { Ok(self.head()) } else { self.link(of) }
    }

    /// Allocates `size` bytes for an item at `end`, and returns its link. `fillers` asks to mark
    /// skipped space, for variants that read all items.
    ///
    /// # Errors
    ///
    /// When the pool is full.
    #[inline]
    pub(crate) fn place(&self, end: &mut End, size: u64, fillers: bool) -> Result<Link> {
        let at = end.working;
        // No bytes are left at the beginning of a segment, so this also checks that the segment
        // exists.
        if size > at.left_in_page() {
            return self.place_elsewhere(end, size, fillers);
        }
        end.working = at.plus(size);
        end.written += size;
        Ok(Link { of: at, offset: end.base.wrapping_add(at.0) })
    }

    /// The paper's `checkThreshold`: an item that does not fit into the page begins at the next
    /// one.
    #[cold]
    fn place_elsewhere(&self, end: &mut End, size: u64, fillers: bool) -> Result<Link> {
        let mut at = end.working.page_end();
        if at.within() > 0 && at.within() + size > SEGMENT_LEN {
            at = Position::in_slot(at.next_slot());
        }
        let is_long = size > SEGMENT_LEN;
        let slot = self.require(at.slot(), if is_long { size } else { SEGMENT_LEN })?;
        if slot != at.slot() {
            at = Position::in_slot(slot);
        }
        if fillers {
            self.fill(end.working, at);
        }
        let link = self.link(at)?;
        end.working = if is_long { Position::in_slot(at.next_slot()) } else { at.plus(size) };
        end.written += size;
        end.base = self.base(end.working);
        Ok(link)
    }

    /// Returns a slot with a segment of `len` bytes: `slot` itself, or for a long segment the first
    /// free slot from there on.
    fn require(&self, slot: Slot, len: u64) -> Result<Slot> {
        let is_there = |slot| self.segments.get(slot).is_some();
        if len == SEGMENT_LEN && is_there(slot) {
            return Ok(slot);
        }
        let _taking = lock_patiently(&self.taking, self.medium());
        if len == SEGMENT_LEN {
            if !is_there(slot) {
                self.segments.take(&self.heap, slot, len, |_| {})?;
            }
            return Ok(slot);
        }
        // A long element skips segments that were taken ahead.
        let free = (slot.0..).map(Slot).find(|&slot| !is_there(slot)).expect("slots do not end");
        self.segments.take(&self.heap, free, len, |_| {})?;
        Ok(free)
    }

    /// Takes the next segment before the writer needs it, which saves the writer its fences.
    pub(crate) fn take_ahead(&self, working: Position) -> Result<()> {
        if working.within() < SEGMENT_LEN / 2 {
            return Ok(());
        }
        match self.require(working.next_slot(), SEGMENT_LEN) {
            // The writer will report it when it needs the segment.
            Err(error) if error.is_full() => Ok(()),
            taken => taken.map(drop),
        }
    }

    /// Frees long segments from `end` on, which no element refers to. Ordinary segments there stay,
    /// for later use.
    pub(crate) fn free_long_from(&self, end: Position) {
        let first = if end.within() == 0 { end.slot() } else { end.next_slot() };
        let unused = self.segments.slots().filter(|&(slot, _)| slot >= first);
        let long: Vec<Slot> =
            unused.filter(|(_, segment)| segment.len > SEGMENT_LEN).map(|(slot, _)| slot).collect();
        long.into_iter().for_each(|slot| self.segments.free(&self.heap, slot));
    }

    /// Flushes everything between two positions.
    ///
    /// The caller fences before it commits.
    pub(crate) fn flush(&self, mut from: Position, to: Position) {
        while from < to {
            let Some(segment) = self.segments.get(from.slot()) else { return };
            let end = if from.slot() == to.slot() { to.within() } else { segment.len };
            // Flush: the pages between the positions; fenced by the caller.
            self.medium().flush(segment.offset + from.within(), end - from.within());
            from = Position::in_slot(from.next_slot());
        }
    }

    /// Begins to make a batch safe. Other threads wait until the guard is dropped.
    pub(crate) fn begin_batch(&self) -> PauseGuard<'_, Committed> {
        lock_patiently(&self.committed, self.medium())
    }

    /// Commits `safe`. Everything that it covers was flushed and fenced.
    pub(crate) fn commit(&self, committed: &mut Committed, safe: Safe, written: u64) -> Result<()> {
        let (heap, line) = (&self.heap, self.heap.header() + SAFE);
        let (before, after) = (committed.safe.to_bytes(), safe.to_bytes());
        line_tx::commit(heap.medium(), Form::Line, line, committed.version, &before, &after);
        heap.verify()?;
        *committed = Committed { version: committed.version + 1, safe, written };
        // Relaxed: the number is only a bound, and a hint for the persister.
        self.safe_bytes.store(written, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes written since the list was opened that are safe.
    #[inline(always)]
    pub(crate) fn safe_bytes(&self) -> u64 {
        // Relaxed: the number is only a bound, and a hint for the persister.
        self.safe_bytes.load(Ordering::Relaxed)
    }

    /// Marks the space between the last item and the next one, for variants that read all items.
    /// Every skipped slot has a segment.
    fn fill(&self, mut from: Position, to: Position) {
        while from < to {
            if (1..RECORD_LEN).contains(&from.left_in_page()) {
                // Too short for any item, so readers skip it without a mark.
                from = from.page_end();
            } else if from.slot() == to.slot() {
                self.mark(from, PADDING);
                return;
            } else {
                self.mark(from, SKIPPED);
                from = Position::in_slot(from.next_slot());
            }
        }
    }

    fn mark(&self, at: Position, kind: u64) {
        let offset = self.segments.offset(at.slot()) + at.within();
        self.medium().store(offset + ITEM_KIND, kind);
    }

    /// Bytes of all segments.
    pub(crate) fn capacity(&self) -> u64 {
        self.segments.slots().map(|(_, segment)| segment.len).sum()
    }

    /// Whether an item of `size` bytes can lie at `of`.
    pub(crate) fn holds(&self, of: Position, size: u64) -> bool {
        let segment = self.segments.get(of.slot());
        of >= Position::FIRST
            && segment.is_some_and(|segment| size <= segment.len.saturating_sub(of.within()))
    }

    /// Link and size of the element at `of`, to which `left` leads. An error when no element can
    /// lie there.
    pub(crate) fn element(&self, left: Link, of: Position, shape: Shape) -> Result<(Link, u64)> {
        if shape.is_aligned(of) && self.holds(of, shape.size(0)) {
            let link = self.link(of)?;
            let size = shape.size(self.medium().load(link.offset + shape.len) & LEN_MASK);
            if self.holds(of, size) {
                return Ok((link, size));
            }
        }
        let what = format!("the link of the element at {} leads to {of}, where none lies", left.of);
        Err(PoolError::corrupt(left.offset, what))
    }
}

#[cold]
fn leads_nowhere(of: Position) -> PoolError {
    PoolError::corrupt(of.0, format!("a link leads to {of}, where no element can lie"))
}
