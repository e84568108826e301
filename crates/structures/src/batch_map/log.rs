//! The log under a batch map: records one after the other in segments, safe up to a position.
//!
//! A *position* counts the bytes of the log since the map was opened. A writer reserves a range under a
//! lock, fills it without, and publishes it when everything before is published: so nothing is acknowledged
//! behind a hole, which the death of the process would make the log's end. Checksums tell after a crash how far
//! the log got, so a batch costs one fence.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::Heap;
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use super::layout::{
    CHECKSUM, CLEARS, END_LEN, HASH, Head, KEY, Place, RECORDS, SAFE, SEGMENT_LEN_MAX, SEQUENCE,
    SUM, TRUSTED_BEFORE, checksum, end_mark, safe_mark,
};
use super::record::Record;
use super::space::{LogSegments, Purpose, Rank};
use crate::Result;
use crate::background::{Patience, lock_patiently};
use crate::segments::Slot;

/// The log, and the segments that it lies in.
pub(super) struct Log<M: Medium> {
    pub(super) segments: LogSegments<M>,
    tail: PauseMutex<Tail>,
    /// How far records are whole, and how far they are safe.
    published: AtomicU64,
    safe: AtomicU64,
    /// Held by who makes a batch safe.
    persisting: PauseMutex<()>,
}

/// Where the log grows.
struct Tail {
    current: Open,
    next: Next,
    /// Segments with bytes that are not safe, and always the current one.
    runs: VecDeque<Run>,
    end: u64,
    next_sequence: u64,
    /// Whether a full log is being relieved, and nobody else may take room.
    is_relieving: bool,
}

/// A segment that records go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) slot: Slot,
    pub(super) offset: u64,
    pub(super) sequence: u64,
    /// Where in the segment the next record goes, and where the last one ends at most.
    pub(super) used: u64,
    pub(super) capacity: u64,
}

/// The segment after the current one.
#[derive(Clone, Copy, Debug)]
enum Next {
    None,
    /// Somebody is making it ready.
    Preparing,
    Ready(Open),
}

/// The part of the log that lies in one segment; it ends where the next begins.
#[derive(Clone, Copy, Debug)]
struct Run {
    slot: Slot,
    offset: u64,
    sequence: u64,
    start: u64,
}

/// A range of the log that is the caller's to fill.
pub(super) struct Reserved {
    slot: Slot,
    /// Of the segment.
    offset: u64,
    at: u64,
    sequence: u64,
    /// The end of what was reserved before, and of this range; an end mark may lie between.
    from: u64,
    end: u64,
}

impl<M: Medium> Log<M> {
    /// A log that goes on after every segment in `segments`; sequences begin at `next_sequence`.
    pub(super) fn new(segments: LogSegments<M>, next_sequence: u64) -> Self {
        let current = Open { slot: Slot(0), offset: 0, sequence: 0, used: 0, capacity: 0 };
        Log {
            segments,
            tail: PauseMutex::new(Tail {
                current,
                next: Next::None,
                runs: VecDeque::new(),
                end: 0,
                next_sequence,
                is_relieving: false,
            }),
            published: AtomicU64::new(0),
            safe: AtomicU64::new(0),
            persisting: PauseMutex::new(()),
        }
    }

    /// Goes on in a segment that the log was closed in, and has the next one ready if there was one.
    pub(super) fn resume(&self, current: Open, next: Option<Open>) {
        let Open { slot, offset, sequence, used, .. } = current;
        self.segments.filled.make(slot).store(0, Ordering::Relaxed);
        let end = used - RECORDS;
        let mut tail = self.tail.lock(self.medium());
        tail.runs.push_back(Run { slot, offset, sequence, start: 0 });
        (tail.current, tail.next) = (current, next.map_or(Next::None, Next::Ready));
        tail.end = end;
        // Relaxed: nobody else is here yet.
        self.published.store(end, Ordering::Relaxed);
        self.safe.store(end, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn heap(&self) -> &Heap<M> {
        &self.segments.heap
    }

    #[inline(always)]
    pub(super) fn medium(&self) -> &M {
        self.segments.medium()
    }

    /// Bytes that are in the log and not safe.
    #[inline]
    pub(super) fn unsafe_bytes(&self) -> u64 {
        // Acquire: partner of the Release in `persist`; read second, so that it is not older.
        let end = self.published.load(Ordering::Acquire);
        end.saturating_sub(self.safe.load(Ordering::Acquire))
    }

    /// Appends a record; it is complete when this returns.
    pub(super) fn append(&self, record: Record<'_>, purpose: Purpose) -> Result<Place> {
        // What was read to decide on this record, or to make it, may have been zeros for a fault.
        self.heap().verify()?;
        let reserved = self.reserve(record.head(), purpose)?;
        Ok(self.fill(&reserved, record))
    }

    /// A range for a record at the end of the log.
    fn reserve(&self, head: Head, purpose: Purpose) -> Result<Reserved> {
        let (medium, len) = (self.medium(), head.record_len());
        let mut patience = Patience::default();
        loop {
            let mut tail = self.tail.lock(medium);
            if (tail.is_relieving || self.segments.is_low()) && purpose == Purpose::Growth {
                return Err(self.full(len).into());
            }
            let from = tail.end;
            let sealed = self.make_room(&mut tail, len);
            if tail.has_room(len) {
                let reserved = tail.take(from, len);
                self.segments.balance.append(head);
                drop(tail);
                sealed.into_iter().for_each(|slot| self.segments.consider(slot));
                return Ok(reserved);
            }
            let next = tail.next;
            if !matches!(next, Next::Preparing) {
                tail.next = Next::Preparing;
                drop(tail);
                if let Next::Ready(short) = next {
                    self.segments.recycle(short.slot);
                }
                self.prepare(len, purpose)?;
            } else {
                drop(tail);
                patience.wait(medium);
            }
        }
    }

    /// Goes on to the next segment when the current one has no room and the next one has; the segment that
    /// is sealed then.
    fn make_room(&self, tail: &mut Tail, len: u64) -> Option<Slot> {
        match tail.next {
            // A segment for one long record is for no other.
            Next::Ready(next)
                if !tail.has_room(len)
                    && next.used + len <= next.capacity
                    && (next.capacity <= self.segments.segment_len
                        || len > self.segments.segment_len - RECORDS) =>
            {
                tail.next = Next::None;
                self.switch(tail, next)
            }
            _ => None,
        }
    }

    /// Ends the current segment and makes another one current.
    fn switch(&self, tail: &mut Tail, next: Open) -> Option<Slot> {
        let Open { slot, offset, sequence, used, capacity } = tail.current;
        let is_first = capacity == 0;
        if !is_first {
            // Flushed with the records before it, once they are complete.
            self.medium().store(offset + used, end_mark(self.segments.salted(sequence), used));
            tail.end += END_LEN;
            self.segments.seal(slot, used);
        }
        let Open { slot: next_slot, offset, sequence, .. } = next;
        tail.runs.push_back(Run { slot: next_slot, offset, sequence, start: tail.end });
        tail.current = next;
        (!is_first).then_some(slot)
    }

    /// Writes a record into its range, and publishes it. Nothing in here may panic: nobody could publish
    /// anything behind it.
    #[inline]
    fn fill(&self, reserved: &Reserved, record: Record<'_>) -> Place {
        let medium = self.medium();
        let head = record.head();
        let Reserved { slot, offset, at, sequence, from, end } = *reserved;
        let start = offset + at;
        medium.store(start, head.word());
        medium.store(start + HASH, record.hash);
        medium.write(start + KEY, record.key);
        medium.write(start + head.value(), record.value);
        let salted = self.segments.salted(sequence);
        let sum = checksum(salted, at, head, record.hash, record.key, record.value);
        medium.store(start + CHECKSUM, sum);
        self.segments.live.make(slot).fetch_add(head.record_len(), Ordering::Relaxed);
        let mut patience = Patience::default();
        // Acquire: partner of the Release below; whoever sees this record published sees those before.
        while self.published.load(Ordering::Acquire) != from {
            patience.wait(medium);
        }
        // Release: partner of the Acquire above and in `persist`; the record is whole.
        self.published.store(end, Ordering::Release);
        Place::new(slot, at)
    }

    /// Makes safe what is complete. One fence, whatever it is.
    pub(super) fn persist(&self) -> Result<()> {
        let medium = self.medium();
        let _persisting = lock_patiently(&self.persisting, medium);
        // Relaxed: only who holds the lock moves it on.
        let safe = self.safe.load(Ordering::Relaxed);
        let (ranges, target) = {
            let tail = self.tail.lock(medium);
            // Acquire: partner of the Release in `fill`.
            let target = self.published.load(Ordering::Acquire);
            (tail.ranges(safe, target), target)
        };
        for &(offset, len) in &ranges {
            // Flush: complete records and end marks, fenced below.
            medium.flush(offset, len);
        }
        if !ranges.is_empty() {
            // Fence: safe before anybody is told so.
            medium.fence();
        }
        self.heap().verify()?;
        // Release: partner of the Acquire in `unsafe_bytes` and `sync`.
        self.safe.fetch_max(target, Ordering::Release);
        self.tail.lock(medium).forget_runs(target);
        if target > safe {
            self.note_safe();
        }
        Ok(())
    }

    /// Notes on the medium how far the log is safe, so that what has changed up to there is told from what a crash has
    /// torn.
    pub(super) fn note_safe(&self) {
        let medium = self.medium();
        // Held until it is stored: the segment may be used for something else once it is at rest.
        let tail = self.tail.lock(medium);
        // Acquire: partner of the Release in `persist`; what it says is durable.
        let safe = self.safe.load(Ordering::Acquire);
        if let Some(&Run { offset, sequence, start, .. }) = tail.runs.front() {
            let at = RECORDS + safe.saturating_sub(start);
            medium.store(offset + SAFE, safe_mark(self.segments.salted(sequence), at));
            // Flush: fenced by the next batch, or never.
            // Redundant: where this is lost, damage of the last batch is taken for its torn end, and no image has any.
            medium.flush(offset + SAFE, WORD_LEN);
        }
    }

    /// Waits until everything that was appended before the call is safe.
    pub(super) fn sync(&self) -> Result<()> {
        let target = self.tail.lock(self.medium()).end;
        let mut patience = Patience::default();
        // Acquire: partner of the Release in `persist`.
        while self.safe.load(Ordering::Acquire) < target {
            self.persist()?;
            if self.safe.load(Ordering::Acquire) < target {
                // Somebody is still filling what was reserved before.
                patience.wait(self.medium());
            }
        }
        Ok(self.heap().verify()?)
    }

    /// Makes the next segment ready ahead of need: once a quarter of the present one is used.
    pub(super) fn prepare_ahead(&self) -> Result<()> {
        {
            let mut tail = self.tail.lock(self.medium());
            let is_due = tail.current.used * 4 >= tail.current.capacity;
            if !matches!(tail.next, Next::None) || tail.is_relieving || !is_due {
                return Ok(());
            }
            tail.next = Next::Preparing;
        }
        self.prepare(0, Purpose::Growth)
    }

    /// Makes a next segment with room for `len` bytes ready; the caller has announced it.
    fn prepare(&self, len: u64, purpose: Purpose) -> Result<()> {
        let opened = self.open_segment(len, purpose, false);
        let mut tail = self.tail.lock(self.medium());
        tail.next = opened.as_ref().map_or(Next::None, |&open| Next::Ready(open));
        opened.map(drop)
    }

    /// Takes a segment for `len` bytes of records, and gives it the next place in the log's order.
    fn open_segment(&self, len: u64, purpose: Purpose, clears: bool) -> Result<Open> {
        let (medium, segments) = (self.medium(), &self.segments);
        let (slot, segment) = segments.take_segment(RECORDS + len + END_LEN, purpose)?;
        let (sequence, trusted_before) = {
            let mut tail = self.tail.lock(medium);
            let sequence = tail.next_sequence;
            tail.next_sequence += 1;
            let oldest = tail.runs.front().map_or(sequence, |run| run.sequence);
            (sequence, if clears { sequence } else { oldest })
        };
        let offset = segment.offset;
        let sum = segments.sum(offset, [sequence, u64::from(clears), trusted_before]);
        medium.store(offset + TRUSTED_BEFORE, trusted_before);
        medium.store(offset + CLEARS, u64::from(clears));
        medium.store(offset + SAFE, safe_mark(segments.salted(sequence), RECORDS));
        medium.store(offset + SUM, sum);
        // Relaxed: whoever finds a record in it was told of that later.
        segments.sequences.make(slot).store(sequence, Ordering::Relaxed);
        // Release: after the other words, in this line's order of stores.
        medium.store(offset + SEQUENCE, sequence);
        // Flush and fence: the segment has its place before it has a record.
        medium.persist(offset, LINE_LEN);
        // What is longer than a segment has one of its own.
        let capacity =
            if segment.len > segments.segment_len { RECORDS + len } else { segment.len - END_LEN };
        Ok(Open { slot, offset, sequence, used: RECORDS, capacity })
    }

    /// Begins a new segment, and makes void what the earlier ones hold. Durable when it returns. Nobody
    /// appends meanwhile: the caller holds every shard.
    pub(super) fn clear(&self) -> Result<()> {
        let medium = self.medium();
        let mut patience = Patience::default();
        let ready = loop {
            let mut tail = self.tail.lock(medium);
            let next = tail.next;
            if !matches!(next, Next::Preparing) {
                tail.next = Next::Preparing;
                break next;
            }
            drop(tail);
            patience.wait(medium);
        };
        if let Next::Ready(unused) = ready {
            self.segments.recycle(unused.slot);
        }
        let opened = self.open_segment(0, Purpose::Relief, true);
        let mut tail = self.tail.lock(medium);
        tail.next = Next::None;
        let opened = opened?;
        self.segments.clear_before(opened.sequence);
        self.switch(&mut tail, opened);
        let start = tail.end;
        tail.forget_runs(start);
        // Release: as in `fill` and `persist`. What is void need not be made safe.
        self.published.store(start, Ordering::Release);
        self.safe.fetch_max(start, Ordering::Release);
        drop(tail);
        self.segments.balance.clear();
        self.segments.forget_live_but(opened.slot);
        self.segments.balance.compare();
        Ok(self.heap().verify()?)
    }

    /// Sealed segments at rest below a rank; see [`LogSegments::pick`].
    pub(super) fn pick(&self, end: Rank) -> Vec<Slot> {
        self.segments.pick(end, || self.used_slots())
    }

    /// The segment at rest with the most dead bytes, if they are at least `dead_min`.
    pub(super) fn pick_emptiest(&self, dead_min: u64) -> Option<Slot> {
        self.segments.pick_emptiest(dead_min, |slot| self.is_at_rest(slot))
    }

    /// Segments that are not at rest: those with records that are not safe, the current one and the next.
    fn used_slots(&self) -> Vec<Slot> {
        let tail = self.tail.lock(self.medium());
        let next = match tail.next {
            Next::Ready(next) => Some(next.slot),
            _ => None,
        };
        tail.runs.iter().map(|run| run.slot).chain(next).collect()
    }

    /// Whether a segment is at rest: everything in it is safe, and nothing more goes there.
    fn is_at_rest(&self, slot: Slot) -> bool {
        let tail = self.tail.lock(self.medium());
        let is_next = matches!(tail.next, Next::Ready(next) if next.slot == slot);
        !is_next && tail.runs.iter().all(|run| run.slot != slot)
    }

    /// Keeps room for what relieves the log, or ends that.
    pub(super) fn set_relieving(&self, is_relieving: bool) {
        self.tail.lock(self.medium()).is_relieving = is_relieving;
    }

    fn full(&self, needed: u64) -> PoolError {
        let size_max = self.heap().pool().size_max();
        PoolError::Full { needed, size: size_max, size_max }
    }
}

impl Tail {
    fn has_room(&self, len: u64) -> bool {
        // Every record begins within the first MiB.
        self.current.used + len <= self.current.capacity && self.current.used < SEGMENT_LEN_MAX
    }

    /// Takes a range in the current segment, which has room for it.
    fn take(&mut self, from: u64, len: u64) -> Reserved {
        let Open { slot, offset, used: at, sequence, .. } = self.current;
        self.current.used += len;
        self.end += len;
        Reserved { slot, offset, at, sequence, from, end: self.end }
    }

    /// Pool memory from one position to another: offset and length.
    fn ranges(&self, from: u64, to: u64) -> Vec<(u64, u64)> {
        let ends = self.runs.iter().skip(1).map(|run| run.start).chain([self.end]);
        let clipped = self.runs.iter().zip(ends).map(|(run, end)| {
            let (first, last) = (run.start.max(from), end.min(to));
            (run.offset + RECORDS + (first.saturating_sub(run.start)), last.saturating_sub(first))
        });
        clipped.filter(|&(_, len)| len > 0).collect()
    }

    /// Forgets the runs that end before a position.
    fn forget_runs(&mut self, safe: u64) {
        while self.runs.len() > 1 && self.runs[1].start <= safe {
            self.runs.pop_front();
        }
    }
}
