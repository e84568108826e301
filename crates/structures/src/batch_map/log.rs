//! The log under a batch map: records in segments, safe up to a position.
//!
//! A *position* counts the bytes of the log since the map was opened. A writer reserves a range
//! under a lock, fills it without the lock, and publishes it when everything before it is
//! published. So no record is acknowledged behind a hole, where the log would end if the process
//! died. After a crash, checksums tell how far the log got, so a batch costs one fence.

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

/// The log and its segments.
pub(super) struct Log<M: Medium> {
    pub(super) segments: LogSegments<M>,
    tail: PauseMutex<Tail>,
    /// Positions up to which records are complete, and up to which they are safe.
    published: AtomicU64,
    safe: AtomicU64,
    /// Held by the thread that makes a batch safe.
    persisting: PauseMutex<()>,
}

/// The growing end of the log.
struct Tail {
    current: Open,
    next: Next,
    /// Segments with bytes that are not safe, and always the current segment.
    runs: VecDeque<Run>,
    end: u64,
    next_sequence: u64,
    /// Whether compaction is making room in a full log, so that growth must not take any.
    is_relieving: bool,
}

/// A segment to which records are appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) slot: Slot,
    pub(super) offset: u64,
    pub(super) sequence: u64,
    /// Offset in the segment of the next record, and the greatest offset at which a record may end.
    pub(super) used: u64,
    pub(super) capacity: u64,
}

/// The segment after the current one.
#[derive(Clone, Copy, Debug)]
enum Next {
    None,
    /// A thread is making it ready.
    Preparing,
    Ready(Open),
}

/// The part of the log that lies in one segment. It ends where the next one begins.
#[derive(Clone, Copy, Debug)]
struct Run {
    slot: Slot,
    offset: u64,
    sequence: u64,
    start: u64,
}

/// A range of the log that its owner has to fill.
pub(super) struct Reserved {
    slot: Slot,
    /// Offset of the segment.
    offset: u64,
    at: u64,
    sequence: u64,
    /// Positions of the end of the range reserved before, and of the end of this one. An end mark
    /// may lie in between.
    from: u64,
    end: u64,
}

impl<M: Medium> Log<M> {
    /// A log that goes on behind all existing segments. Sequences begin at `next_sequence`.
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

    /// Continues in the segment `current`, where the log was closed. `next` is the segment that was
    /// ready then, if any.
    pub(super) fn resume(&self, current: Open, next: Option<Open>) {
        let Open { slot, offset, sequence, used, .. } = current;
        self.segments.filled.make(slot).store(0, Ordering::Relaxed);
        let end = used - RECORDS;
        let mut tail = self.tail.lock(self.medium());
        tail.runs.push_back(Run { slot, offset, sequence, start: 0 });
        (tail.current, tail.next) = (current, next.map_or(Next::None, Next::Ready));
        tail.end = end;
        // Relaxed: no other thread uses the log yet.
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

    /// Bytes of the log that are not safe.
    #[inline]
    pub(super) fn unsafe_bytes(&self) -> u64 {
        // Acquire: partners of the Release in `fill` and in `persist`. `safe` is loaded second, so
        // that it is not the older of the two.
        let end = self.published.load(Ordering::Acquire);
        end.saturating_sub(self.safe.load(Ordering::Acquire))
    }

    /// Appends a record; it is complete when this returns.
    pub(super) fn append(&self, record: Record<'_>, purpose: Purpose) -> Result<Place> {
        // The caller may have decided on this record, or made it, from zeros that a faulty medium
        // returned.
        self.heap().verify()?;
        let reserved = self.reserve(record.head(), purpose)?;
        Ok(self.fill(&reserved, record))
    }

    /// Reserves a range for a record at the end of the log.
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

    /// Switches to the next segment when the current one has no room and the next one has. Returns
    /// the segment that this seals.
    fn make_room(&self, tail: &mut Tail, len: u64) -> Option<Slot> {
        match tail.next {
            // A segment that was taken for one long record serves no other.
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

    /// Seals the current segment, and makes `next` the current one. Returns the sealed segment.
    fn switch(&self, tail: &mut Tail, next: Open) -> Option<Slot> {
        let Open { slot, offset, sequence, used, capacity } = tail.current;
        let is_first = capacity == 0;
        if !is_first {
            // The end mark is flushed together with the records before it, once they are complete.
            self.medium().store(offset + used, end_mark(self.segments.salted(sequence), used));
            tail.end += END_LEN;
            self.segments.seal(slot, used);
        }
        let Open { slot: next_slot, offset, sequence, .. } = next;
        tail.runs.push_back(Run { slot: next_slot, offset, sequence, start: tail.end });
        tail.current = next;
        (!is_first).then_some(slot)
    }

    /// Writes a record into its range and publishes it. This must not panic, or nothing behind the
    /// record could be published.
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
        // Acquire: a thread that sees this record published also sees those before it. Partner of
        // the Release below.
        while self.published.load(Ordering::Acquire) != from {
            patience.wait(medium);
        }
        // Release: the record is complete. Partner of the Acquire above and in `persist`.
        self.published.store(end, Ordering::Release);
        Place::new(slot, at)
    }

    /// Makes all complete records safe. One fence, however many there are.
    pub(super) fn persist(&self) -> Result<()> {
        let medium = self.medium();
        let _persisting = lock_patiently(&self.persisting, medium);
        // Relaxed: only the holder of the lock `persisting` advances it, except `clear`, which
        // never moves it back.
        let safe = self.safe.load(Ordering::Relaxed);
        let (ranges, target) = {
            let tail = self.tail.lock(medium);
            // Acquire: the records up to `target` are complete. Partner of the Release in `fill`.
            let target = self.published.load(Ordering::Acquire);
            (tail.ranges(safe, target), target)
        };
        for &(offset, len) in &ranges {
            // Flush: complete records and end marks, fenced below.
            medium.flush(offset, len);
        }
        if !ranges.is_empty() {
            // Fence: before the records are reported as safe.
            medium.fence();
        }
        self.heap().verify()?;
        // Release: after the fence. Partner of the Acquire in `unsafe_bytes`, `note_safe` and
        // `sync`.
        self.safe.fetch_max(target, Ordering::Release);
        self.tail.lock(medium).forget_runs(target);
        if target > safe {
            self.note_safe();
        }
        Ok(())
    }

    /// Stores on the medium how far the log is safe, so that recovery can tell damage before that
    /// position from records that a crash has torn.
    pub(super) fn note_safe(&self) {
        let medium = self.medium();
        // Held until the word is stored: once the segment is at rest, it may be used again for
        // something else.
        let tail = self.tail.lock(medium);
        // Acquire: everything before this position is durable. Partner of the Release in `persist`.
        let safe = self.safe.load(Ordering::Acquire);
        if let Some(&Run { offset, sequence, start, .. }) = tail.runs.front() {
            let at = RECORDS + safe.saturating_sub(start);
            medium.store(offset + SAFE, safe_mark(self.segments.salted(sequence), at));
            // Flush: fenced by the next batch, if there is one.
            // Redundant: if this is lost, damage in the last batch passes for its torn end, and
            // crash images contain no damage.
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
                // Another thread is still filling a range that was reserved before.
                patience.wait(self.medium());
            }
        }
        Ok(self.heap().verify()?)
    }

    /// Prepares the next segment ahead of need: once a quarter of the current one is used.
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

    /// Prepares a next segment with room for `len` bytes. The caller has set `next` to `Preparing`.
    fn prepare(&self, len: u64, purpose: Purpose) -> Result<()> {
        let opened = self.open_segment(len, purpose, false);
        let mut tail = self.tail.lock(self.medium());
        tail.next = opened.as_ref().map_or(Next::None, |&open| Next::Ready(open));
        opened.map(drop)
    }

    /// Takes a segment for `len` bytes of records, and gives it the next sequence in the log.
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
        // Relaxed: a thread learns the place of a record in this segment only later, through a
        // lock.
        segments.sequences.make(slot).store(sequence, Ordering::Relaxed);
        // Release: after the other words of the header, in the line's order of stores.
        medium.store(offset + SEQUENCE, sequence);
        // Flush and fence: the segment has its sequence before it has a record.
        medium.persist(offset, LINE_LEN);
        // A record longer than a segment gets a segment of its own.
        let capacity =
            if segment.len > segments.segment_len { RECORDS + len } else { segment.len - END_LEN };
        Ok(Open { slot, offset, sequence, used: RECORDS, capacity })
    }

    /// Begins a new segment, and makes all records in earlier ones void. Durable when it returns.
    /// Nobody may append meanwhile: the caller holds every shard.
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
        // Release: as in `fill` and `persist`. Void records need not be made safe.
        self.published.store(start, Ordering::Release);
        self.safe.fetch_max(start, Ordering::Release);
        drop(tail);
        self.segments.balance.clear();
        self.segments.forget_live_but(opened.slot);
        self.segments.balance.compare();
        Ok(self.heap().verify()?)
    }

    /// Sealed segments at rest with a rank below `end`; see [`LogSegments::pick`].
    pub(super) fn pick(&self, end: Rank) -> Vec<Slot> {
        self.segments.pick(end, || self.used_slots())
    }

    /// The segment at rest with the most dead bytes, if these are at least `dead_min`.
    pub(super) fn pick_emptiest(&self, dead_min: u64) -> Option<Slot> {
        self.segments.pick_emptiest(dead_min, |slot| self.is_at_rest(slot))
    }

    /// The segments that are not at rest: those with records that are not safe, the current one and
    /// the next.
    fn used_slots(&self) -> Vec<Slot> {
        let tail = self.tail.lock(self.medium());
        let next = match tail.next {
            Next::Ready(next) => Some(next.slot),
            _ => None,
        };
        tail.runs.iter().map(|run| run.slot).chain(next).collect()
    }

    /// Whether a segment is at rest: all of its records are safe, and no further ones are appended
    /// to it.
    fn is_at_rest(&self, slot: Slot) -> bool {
        let tail = self.tail.lock(self.medium());
        let is_next = matches!(tail.next, Next::Ready(next) if next.slot == slot);
        !is_next && tail.runs.iter().all(|run| run.slot != slot)
    }

    /// Starts or stops reserving all room for compaction.
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
        // Every record begins within the first MiB of its segment.
        self.current.used + len <= self.current.capacity && self.current.used < SEGMENT_LEN_MAX
    }

    /// Reserves a range in the current segment, which has room for it.
    fn take(&mut self, from: u64, len: u64) -> Reserved {
        let Open { slot, offset, used: at, sequence, .. } = self.current;
        self.current.used += len;
        self.end += len;
        Reserved { slot, offset, at, sequence, from, end: self.end }
    }

    /// The pool memory between two positions, as offsets and lengths.
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
