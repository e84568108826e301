//! Creation and recovery.
//!
//! The end of a log is not stored, only a position that is not behind it. From there on, recovery
//! reads one record after the other until one is not intact or has an earlier term. That is a
//! record that this crash has torn, or one that an earlier crash left behind. A new term then makes
//! everything behind the end invalid.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::Heap;
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Medium};

use super::arrivals::Arrivals;
use super::core::{Committed, Core};
use super::layout::{DIRECTORY, DURABLE, FIRST, STATE, TERM, TERM_MAX, slot};
use super::ops::too_many_openings;
use crate::Result;
use crate::pair::{Record, seed};
use crate::segments::{SEGMENT_LEN, Segments, Slot};

impl Core {
    /// Creates an empty log whose header, which is all zeros, lies at `header`.
    pub(crate) fn create<M: Medium>(heap: &Heap<M>, header: u64) -> Result<Self> {
        let core = Self::new(heap, header, Segments::create(header + DIRECTORY));
        core.seal(heap)?;
        Ok(core)
    }

    /// The segments of a log. Must be called before the heap recovers, because recovery calls
    /// [`is_linked`](Core::is_linked).
    pub(crate) fn open_segments<M: Medium>(heap: &Heap<M>, header: u64) -> Result<Segments> {
        Ok(Segments::open(heap, header + DIRECTORY)?)
    }

    /// Opens a log as a crash may have left it. Must be called after the heap has recovered.
    pub(crate) fn open<M: Medium>(heap: &Heap<M>, header: u64, segments: Segments) -> Result<Self> {
        let mut core = Self::new(heap, header, segments);
        let medium = heap.medium();
        core.check_lens(heap)?;
        let state = core.state(heap)?;
        let (durable, first) = (state.words[DURABLE], state.words[FIRST]);
        core.term = state.words[TERM];
        let end = core.find_end(heap, durable)?;
        core.check_segments(heap, first, end)?;
        // Flush: words that a killed process left in the caches; fenced below.
        // Redundant: in a heap of the log's own, whose header is durable once the heap has
        // recovered.
        medium.flush(header + STATE, DIRECTORY);
        let is_there = core.pieces(durable, end, |offset, len| {
            // Flush: as above.
            medium.flush(offset, len);
        });
        debug_assert!(is_there, "the records were read");
        // Fence: records that count, before the state says that recovery need not read them again.
        medium.fence();
        if core.term >= TERM_MAX {
            return Err(too_many_openings(core.term));
        }
        core.term += 1;
        let committed = Committed { number: state.number, noted: end, end, is_sealed: false };
        *core.committed.get_mut() = committed;
        // Relaxed: no other thread has the log yet.
        core.first.store(first, Ordering::Relaxed);
        core.end.store(end, Ordering::Relaxed);
        core.written.store(end, Ordering::Relaxed);
        core.seal(heap)?;
        // A crash may have prevented freeing these, or committing anything in them.
        core.free_unused(heap);
        heap.verify()?;
        Ok(core)
    }

    fn new<M: Medium>(heap: &Heap<M>, header: u64, segments: Segments) -> Self {
        let committed = Committed { number: 0, noted: 0, end: 0, is_sealed: false };
        Core {
            header,
            seed: seed(heap, header),
            segments,
            term: 1,
            reserving: PauseMutex::default(),
            written: AtomicU64::new(0),
            committed: PauseMutex::new(committed),
            end: AtomicU64::new(0),
            first: AtomicU64::new(0),
            arrivals: Arrivals::default(),
        }
    }

    /// The newest record of the state.
    fn state<M: Medium>(&self, heap: &Heap<M>) -> Result<Record> {
        let records = self.pair().read(heap.medium());
        heap.verify()?;
        let what = match records[..] {
            [newer, older] if newer.number != older.number + 1 => {
                "the two records of a log's state do not follow each other"
            }
            [newest, ..] if newest.words[FIRST] > newest.words[DURABLE] => {
                "a log does not begin before its end"
            }
            [newest, ..] => return Ok(newest),
            [] => "no record of a log's state is whole",
        };
        Err(PoolError::corrupt(self.header, what).into())
    }

    /// The end of the last step that arrived completely.
    fn find_end<M: Medium>(&self, heap: &Heap<M>, durable: u64) -> Result<u64> {
        let medium = heap.medium();
        let limit = self.limit(durable);
        let (mut at, mut end) = (durable, durable);
        loop {
            let head = self.with_record(medium, at, limit, |head, _| head);
            heap.verify()?;
            match head {
                Some(head) if head.term == self.term => {
                    at += head.record_len();
                    if !head.more {
                        end = at;
                    }
                }
                Some(head) if head.term > self.term => {
                    let what = "the state of a log is gone in whose term records were written";
                    return Err(PoolError::corrupt(self.header, what).into());
                }
                _ => return Ok(end),
            }
        }
    }

    /// The first position behind `from` that has no segment.
    fn limit(&self, from: u64) -> u64 {
        let first = slot(from).0;
        let missing = (first..self.segments.end().0)
            .find(|&number| self.segments.get(Slot(number)).is_none());
        let missing = u64::from(missing.unwrap_or(self.segments.end().0));
        (missing * SEGMENT_LEN).max(from)
    }

    /// Refuses segments that are too short.
    fn check_lens<M: Medium>(&self, heap: &Heap<M>) -> Result<()> {
        match self.segments.slots().find(|(_, segment)| segment.len < SEGMENT_LEN) {
            None => Ok(heap.verify()?),
            Some((number, segment)) => {
                let what =
                    format!("segment {} of a log cannot have {} bytes", number.0, segment.len);
                Err(PoolError::corrupt(segment.offset, what).into())
            }
        }
    }

    /// Refuses a log that has lost a segment.
    fn check_segments<M: Medium>(&self, heap: &Heap<M>, first: u64, end: u64) -> Result<()> {
        let is_there = |number: u32| self.segments.get(Slot(number)).is_some();
        let after = if end > first { slot(end - 1).0 + 1 } else { slot(first).0 };
        match (slot(first).0..after).find(|&number| !is_there(number)) {
            None => Ok(heap.verify()?),
            Some(number) => {
                let what = format!("segment {number} of a log is missing");
                Err(PoolError::corrupt(self.header + DIRECTORY, what).into())
            }
        }
    }
}
