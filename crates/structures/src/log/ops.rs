//! Operations that change a log.
//!
//! Records are written behind the end, where no reader looks, then flushed and fenced. Nothing else
//! is written. Recovery finds the end by the records' checksums. A checksum also covers the
//! record's position and term, so that bytes behind the end never pass for a record of this
//! opening.

use std::ops::Range;
use std::sync::atomic::Ordering;

use remanent_pmem::heap::{Heap, Lane};
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use super::core::{Committed, Core};
use super::layout::{CONTENT, CONTENT_MAX, DURABLE, FIRST, Head, SUM, TERM, record_len, slot};
use crate::background::lock_patiently;
use crate::pair::Record;
use crate::segments::{SEGMENT_LEN, Slot, free_in_turns, with_lane};
use crate::stored::Stored;
use crate::{Error, Result};

impl Core {
    /// Adds records, all or none, and passes the position of each to `place`.
    ///
    /// Fences: 1, and some for each segment.
    pub(crate) fn append<M: Medium, V: Stored + ?Sized>(
        &self,
        heap: &Heap<M>,
        contents: &[&V],
        place: impl FnMut(u64),
    ) -> Result<()> {
        let Some(end) = self.write(heap, None, contents, place)? else { return Ok(()) };
        let mut committed = lock_patiently(&self.committed, heap.medium());
        if committed.end < end { self.commit_written(heap, &mut committed) } else { Ok(()) }
    }

    /// Writes records behind the end, where no reader looks yet, and returns where they end. `None`
    /// if there are none.
    pub(super) fn write<M: Medium, V: Stored + ?Sized>(
        &self,
        heap: &Heap<M>,
        step: Option<&mut Lane<'_, M>>,
        contents: &[&V],
        mut place: impl FnMut(u64),
    ) -> Result<Option<u64>> {
        if contents.is_empty() {
            return Ok(None);
        }
        with_lane(heap, step, |lane| self.try_write(heap, lane, contents, &mut place)).map(Some)
    }

    /// The same. `None` if there is no room, and no lane to make it in.
    fn try_write<M: Medium, V: Stored + ?Sized>(
        &self,
        heap: &Heap<M>,
        lane: Option<&mut Lane<'_, M>>,
        contents: &[&V],
        mut place: impl FnMut(u64),
    ) -> Result<Option<u64>> {
        let (len, last) = (records_len(contents)?, contents.len().saturating_sub(1));
        let _reserving = lock_patiently(&self.reserving, heap.medium());
        // Relaxed: it changes only under the lock.
        let first = self.written.load(Ordering::Relaxed);
        let missing = self.missing_segments(first, first + len);
        if !missing.is_empty() {
            let Some(lane) = lane else { return Ok(None) };
            self.segments.take_all(lane, missing, |_| SEGMENT_LEN)?;
        }
        let mut at = first;
        for (index, content) in contents.iter().enumerate() {
            place(at);
            at = content.with_bytes(|bytes| self.write_record(heap, at, bytes, index < last))?;
        }
        // Release: partner of the Acquire in `commit_written`; the records are written.
        self.written.store(at, Ordering::Release);
        Ok(Some(at))
    }

    /// Takes the missing segments for records behind those that were written.
    pub(super) fn make_room<M: Medium, V: Stored + ?Sized>(
        &self,
        step: &mut Lane<'_, M>,
        contents: &[&V],
    ) -> Result<()> {
        let len = records_len(contents)?;
        if len == 0 {
            return Ok(());
        }
        let _reserving = lock_patiently(&self.reserving, step.heap().medium());
        // Relaxed: it changes only under the lock.
        let first = self.written.load(Ordering::Relaxed);
        let missing = self.missing_segments(first, first + len);
        Ok(self.segments.take_all(step, missing, |_| SEGMENT_LEN)?)
    }

    /// The segments that are missing in a range of positions.
    fn missing_segments(&self, from: u64, to: u64) -> Range<u32> {
        let end = slot(to - 1).0 + 1;
        let missing = (slot(from).0..end).find(|&number| self.segments.get(Slot(number)).is_none());
        missing.unwrap_or(end)..end
    }

    /// Stores a record. Returns where it ends.
    fn write_record<M: Medium>(
        &self,
        heap: &Heap<M>,
        at: u64,
        content: &[u8],
        more: bool,
    ) -> Result<u64> {
        let medium = heap.medium();
        let head = Head { len: content.len() as u64, term: self.term, more };
        let end = at + head.record_len();
        let store = |position: u64, word: u64| {
            let offset = self.offset(position).ok_or_else(|| self.no_record(heap, position))?;
            medium.store(offset, word);
            Ok::<_, Error>(())
        };
        store(at, head.to_word())?;
        store(at + SUM, self.sum(at, head, content))?;
        if !content.len().is_multiple_of(WORD_LEN as usize) {
            // The content does not fill its last word.
            store(end - 2 * WORD_LEN, 0)?;
        }
        let mut rest = content;
        let from = at + CONTENT;
        let is_there = self.pieces(from, from + head.len, |offset, len| {
            let (piece, others) = rest.split_at(len as usize);
            medium.write(offset, piece);
            rest = others;
        });
        debug_assert!(is_there, "the segments were taken");
        store(end - WORD_LEN, head.record_len())?;
        Ok(end)
    }

    /// Commits everything that was written, by any thread.
    fn commit_written<M: Medium>(&self, heap: &Heap<M>, committed: &mut Committed) -> Result<()> {
        let medium = heap.medium();
        let end = self.flush_written(medium, committed);
        // Fence: the records, before other threads see them; partner of the checksums that
        // `recover.rs` compares.
        medium.fence();
        heap.verify()?;
        self.conclude(committed, end);
        self.note_segment(heap, committed)
    }

    /// Flushes the records that were written and are not durable. Returns where they end.
    pub(super) fn flush_written<M: Medium>(&self, medium: &M, committed: &Committed) -> u64 {
        // Acquire: partner of the Release in `write`.
        let end = self.written.load(Ordering::Acquire);
        let is_there = self.pieces(committed.end, end, |offset, len| {
            // Flush: fenced by the caller, before other threads see the records.
            medium.flush(offset, len);
        });
        debug_assert!(is_there, "the segments were taken");
        end
    }

    /// Shows readers the records before `end`, which are durable.
    pub(super) fn conclude(&self, committed: &mut Committed, end: u64) {
        committed.end = end;
        committed.is_sealed = false;
        // SeqCst: partner of the load in `end`; and `Arrivals` needs the order.
        self.end.store(end, Ordering::SeqCst);
        self.arrivals.announce();
    }

    /// Notes where the durable records end, if that is another segment than the one noted.
    pub(super) fn note_segment<M: Medium>(
        &self,
        heap: &Heap<M>,
        committed: &mut Committed,
    ) -> Result<()> {
        if slot(committed.end) != slot(committed.noted) {
            // Recovery should not have to read more than one segment.
            self.note(heap, committed, self.first())?;
        }
        Ok(())
    }

    /// Makes two facts durable: where the log begins, and that everything up to its end is durable.
    fn note<M: Medium>(&self, heap: &Heap<M>, committed: &mut Committed, first: u64) -> Result<()> {
        let medium = heap.medium();
        let number = committed.number + 1;
        let mut record = Record { number, words: [0; 6] };
        record.words[DURABLE] = committed.end;
        record.words[TERM] = self.term;
        record.words[FIRST] = first;
        self.pair().store(medium, record);
        // Flush and fence: from here on, neither the record before nor anything before `first` is
        // needed.
        medium.persist(self.pair().line(number), LINE_LEN);
        heap.verify()?;
        committed.number = number;
        committed.noted = committed.end;
        committed.is_sealed = false;
        Ok(())
    }

    /// Removes the records before a position, and frees the segments without records. One fence,
    /// and some for each segment.
    pub(crate) fn truncate_front<M: Medium>(&self, heap: &Heap<M>, first: u64) -> Result<()> {
        let medium = heap.medium();
        let mut committed = lock_patiently(&self.committed, medium);
        let reserving = lock_patiently(&self.reserving, medium);
        if first <= self.first() {
            return Ok(());
        }
        let is_begin = first == committed.end
            || self.with_record(medium, first, committed.end, |_, _| ()).is_some();
        heap.verify()?;
        if !is_begin {
            return Err(self.no_record(heap, first));
        }
        self.note(heap, &mut committed, first)?;
        // Release: partner of the load in `first`. A reader that finds other bytes in place of a
        // record finds the new `first`, too.
        self.first.store(first, Ordering::Release);
        drop((reserving, committed));
        self.free_unused(heap);
        Ok(heap.verify()?)
    }

    /// Frees the segments in which there is no record, and none will be.
    pub(super) fn free_unused<M: Medium>(&self, heap: &Heap<M>) {
        free_in_turns(heap, |lane, count| {
            let _reserving = lock_patiently(&self.reserving, heap.medium());
            // Relaxed: it changes only under the lock.
            let used = slot(self.first())..=slot(self.written.load(Ordering::Relaxed));
            let slots = self.segments.slots().map(|(number, _)| number);
            let unused: Vec<Slot> = slots.filter(|number| !used.contains(number)).collect();
            unused.iter().take(count).for_each(|&number| self.segments.free_in(lane, number));
            unused.len()
        });
    }

    /// Makes both records of the state the same and complete. Then one of them can be lost without
    /// harm, and damage to the last records of the log is detected.
    pub(crate) fn seal<M: Medium>(&self, heap: &Heap<M>) -> Result<()> {
        let mut committed = lock_patiently(&self.committed, heap.medium());
        if !committed.is_sealed {
            self.note(heap, &mut committed, self.first())?;
            self.note(heap, &mut committed, self.first())?;
            committed.is_sealed = true;
        }
        Ok(())
    }
}

/// Bytes that records take.
fn records_len<V: Stored + ?Sized>(contents: &[&V]) -> Result<u64> {
    let mut records_len = 0;
    for content in contents {
        let len = content.stored_len();
        if len > CONTENT_MAX {
            return Err(Error::TooLong { what: "record", len, limit: CONTENT_MAX });
        }
        records_len += record_len(len);
    }
    Ok(records_len)
}

/// More openings than a record can tell apart.
#[cold]
pub(super) fn too_many_openings(term: u64) -> Error {
    Error::Pool(PoolError::TooLarge { needed: term, limit: super::layout::TERM_MAX })
}
