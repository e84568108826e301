//! Operations that change a vector.
//!
//! Elements are written behind the end, where no reader looks. Then a record says how many there
//! are. Elements and record share a fence: the record has a checksum of the elements that are new
//! with it, so that recovery can tell whether both arrived. For many elements, computing and
//! comparing the checksum would take longer than a fence, so they get a fence of their own.
//!
//! A change of an element is first written to the header. One fence makes it durable there. Then
//! the element is stored in its place, where readers find it at once. The next operation that
//! fences flushes its line first.

use std::ops::Range;
use std::sync::atomic::Ordering;

use remanent_pmem::heap::{Heap, Lane};
use remanent_pmem::persistent::bytes_of;
use remanent_pmem::{LINE_LEN, Medium, Persistent, WORD_LEN};
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use super::core::{Committed, Core};
use super::layout::{
    CHANGE_INDEX, CHANGE_LEN, CHANGE_RECORD, CHANGE_SUM, CHANGE_VALUE, CHANGED_MAX, CHANGES, FROM,
    LEN, SUM, Shape,
};
use crate::Result;
use crate::background::lock_patiently;
use crate::pair::Record;
use crate::segments::{Slot, free_in_turns, with_lane};

/// New elements of more bytes get a fence of their own before the record, and no checksum.
const SUMMED_MAX: u64 = 64 << 10;
/// Bytes that are read at a time for a checksum.
const PIECE_LEN: usize = 512;

/// A record of a length that counts once it is fenced.
pub(super) struct Staged {
    /// The ticket up to which all elements are durable then.
    pub(super) tickets: u64,
    /// What is committed then. `None` when everything was durable already.
    pub(super) record: Option<Committed>,
}

/// A change of an element that is written to the header.
pub(super) struct StagedChange {
    number: u64,
    /// The place of the element.
    offset: u64,
}

impl<T: Persistent> Core<T> {
    /// Adds elements behind the others, all or none. Returns the index of the first.
    ///
    /// Fences: 1 up to 64 KiB, 2 beyond, and some for each run that is taken.
    pub(crate) fn append<M: Medium>(&self, heap: &Heap<M>, elements: &[T]) -> Result<u64> {
        let (first, ticket) = self.write(heap, None, elements)?;
        let mut committed = lock_patiently(&self.committed, heap.medium());
        // Relaxed: it changes only under the lock.
        if self.tickets_done.load(Ordering::Relaxed) < ticket {
            self.commit_written(heap, &mut committed)?;
        }
        Ok(first)
    }

    /// Writes elements behind the end, where no reader looks yet. Returns the index of the first,
    /// and the ticket with which they are committed.
    pub(super) fn write<M: Medium>(
        &self,
        heap: &Heap<M>,
        step: Option<&mut Lane<'_, M>>,
        elements: &[T],
    ) -> Result<(u64, u64)> {
        with_lane(heap, step, |lane| self.try_write(heap, lane, elements))
    }

    /// The same. `None` if there is no room, and no lane to make it in.
    fn try_write<M: Medium>(
        &self,
        heap: &Heap<M>,
        lane: Option<&mut Lane<'_, M>>,
        elements: &[T],
    ) -> Result<Option<(u64, u64)>> {
        let medium = heap.medium();
        let _reserving = lock_patiently(&self.reserving, medium);
        // Relaxed: both change only under the lock.
        let first = self.written.load(Ordering::Relaxed);
        let ticket = self.tickets.load(Ordering::Relaxed) + 1;
        let end = first + elements.len() as u64;
        let missing = self.missing_runs(end);
        if !missing.is_empty() {
            let Some(lane) = lane else { return Ok(None) };
            self.runs.take_all(lane, missing, Shape::<T>::run_len)?;
        }
        self.pieces(heap, first, end, |from, offset, count| {
            let (begin, len) = ((from - first) as usize, count as usize);
            for (offset, element) in
                (offset..).step_by(Shape::<T>::SIZE as usize).zip(&elements[begin..begin + len])
            {
                store(medium, offset, element);
            }
        })?;
        // Release: partner of the Acquire in `commit_written`; the elements are written.
        self.written.store(end, Ordering::Release);
        self.tickets.store(ticket, Ordering::Release);
        Ok(Some((first, ticket)))
    }

    /// Takes the missing runs for `elements` more elements than were written.
    pub(super) fn make_room<M: Medium>(&self, step: &mut Lane<'_, M>, elements: u64) -> Result<()> {
        let _reserving = lock_patiently(&self.reserving, step.heap().medium());
        // Relaxed: it changes only under the lock.
        let end = self.written.load(Ordering::Relaxed) + elements;
        Ok(self.runs.take_all(step, self.missing_runs(end), Shape::<T>::run_len)?)
    }

    /// The runs that are missing for `len` elements.
    fn missing_runs(&self, len: u64) -> Range<u32> {
        let end = Shape::<T>::runs(len);
        let mut missing = end;
        while missing > 0 && self.runs.get(Slot(missing - 1)).is_none() {
            missing -= 1;
        }
        missing..end
    }

    /// Commits everything that was written, by any thread.
    fn commit_written<M: Medium>(&self, heap: &Heap<M>, committed: &mut Committed) -> Result<()> {
        let staged = self.stage_written(heap, committed)?;
        if let Some(staged) = staged.record {
            // Fence: length and elements, before other threads see them; partner of the checksum
            // that `recover.rs` compares.
            heap.medium().fence();
            heap.verify()?;
            self.conclude(committed, staged);
        }
        // Relaxed: under the lock.
        self.tickets_done.store(staged.tickets, Ordering::Relaxed);
        Ok(())
    }

    /// Stores and flushes a record of everything that was written. The record counts once it is
    /// fenced.
    pub(super) fn stage_written<M: Medium>(
        &self,
        heap: &Heap<M>,
        committed: &Committed,
    ) -> Result<Staged> {
        // Acquire: partner of the Release in `write`. The elements of these tickets lie before
        // `end`.
        let tickets = self.tickets.load(Ordering::Acquire);
        let end = self.written.load(Ordering::Acquire);
        if end <= committed.len {
            return Ok(Staged { tickets, record: None });
        }
        let medium = heap.medium();
        self.pieces(heap, committed.len, end, |_, offset, count| {
            // Flush: fenced here or with the record, before other threads see the elements.
            medium.flush(offset, count * Shape::<T>::SIZE);
        })?;
        let is_summed = (end - committed.len) * Shape::<T>::SIZE <= SUMMED_MAX;
        if !is_summed {
            // Fence: elements that no checksum covers, before a record counts them.
            medium.fence();
        }
        let from = if is_summed { committed.len } else { end };
        Ok(Staged { tickets, record: Some(self.stage(heap, committed, end, from)?) })
    }

    /// Commits a length, and everything that was flushed before. `from` is the first element that
    /// may not be durable yet.
    pub(super) fn commit<M: Medium>(
        &self,
        heap: &Heap<M>,
        committed: &mut Committed,
        len: u64,
        from: u64,
    ) -> Result<()> {
        let staged = self.stage(heap, committed, len, from)?;
        // Fence: length and elements, before other threads see them; partner of the checksum that
        // `recover.rs` compares.
        heap.medium().fence();
        heap.verify()?;
        self.conclude(committed, staged);
        Ok(())
    }

    /// Stores and flushes the record of a length.
    fn stage<M: Medium>(
        &self,
        heap: &Heap<M>,
        committed: &Committed,
        len: u64,
        from: u64,
    ) -> Result<Committed> {
        let medium = heap.medium();
        let number = committed.number + 1;
        let mut record = Record { number, words: [0; 6] };
        record.words[LEN] = len;
        record.words[FROM] = from;
        record.words[SUM] = self.sum(heap, from, len)?;
        self.pair().store(medium, record);
        // Flush: fenced by the caller.
        medium.flush(self.pair().line(number), LINE_LEN);
        self.flush_changed(medium, committed);
        let change = committed.change;
        Ok(Committed { number, len, from, change, unflushed: None, is_sealed: false })
    }

    /// Shows readers the elements of a durable record.
    pub(super) fn conclude(&self, committed: &mut Committed, staged: Committed) {
        let len = staged.len;
        *committed = staged;
        // Release: partner of the Acquire in `len`.
        self.len.store(len, Ordering::Release);
    }

    /// Flushes the element that was changed last.
    fn flush_changed<M: Medium>(&self, medium: &M, committed: &Committed) {
        if let Some(offset) = committed.unflushed {
            // Flush: fenced by the caller, before the change in the header loses its effect.
            medium.flush(offset, Shape::<T>::SIZE);
        }
    }

    /// The checksum of a range of elements.
    pub(super) fn sum<M: Medium>(&self, heap: &Heap<M>, from: u64, to: u64) -> Result<u64> {
        let medium = heap.medium();
        let mut piece = [0; PIECE_LEN];
        let len = to.saturating_sub(from) * Shape::<T>::SIZE;
        if len <= Shape::<T>::SIZE.min(PIECE_LEN as u64) {
            let bytes = &mut piece[..len as usize];
            self.pieces(heap, from, to, |_, offset, _| medium.read(offset, bytes))?;
            return Ok(xxh3_64_with_seed(bytes, self.seed));
        }
        let mut sum = Xxh3::with_seed(self.seed);
        self.pieces(heap, from, to, |_, offset, count| {
            let end = offset + count * Shape::<T>::SIZE;
            for offset in (offset..end).step_by(PIECE_LEN) {
                let bytes = &mut piece[..(end - offset).min(PIECE_LEN as u64) as usize];
                medium.read(offset, bytes);
                sum.update(bytes);
            }
        })?;
        Ok(sum.digest())
    }

    /// Replaces an element atomically. False if `index` is not less than the length.
    ///
    /// Fences: 1, and another one if the element was new with the last record.
    pub(crate) fn set<M: Medium>(&self, heap: &Heap<M>, index: u64, value: &T) -> Result<bool> {
        const {
            assert!(
                Shape::<T>::SIZE <= CHANGED_MAX,
                "an element that changes has 224 bytes at most"
            )
        };
        let mut committed = lock_patiently(&self.committed, heap.medium());
        let Some(staged) = self.stage_change(heap, &mut committed, index, value)? else {
            return Ok(false);
        };
        // Fence: the change can be repeated after a crash, whatever happens to the element; and the
        // change before it is durable in its element.
        heap.medium().fence();
        heap.verify()?;
        self.conclude_change(heap.medium(), &mut committed, &staged, value);
        Ok(true)
    }

    /// Writes the change of an element to the header and flushes it. `None` if `index` is not less
    /// than the length.
    pub(super) fn stage_change<M: Medium>(
        &self,
        heap: &Heap<M>,
        committed: &mut Committed,
        index: u64,
        value: &T,
    ) -> Result<Option<StagedChange>> {
        let medium = heap.medium();
        if index >= committed.len {
            return Ok(None);
        }
        let (offset, _) = self.offset(index).ok_or_else(|| self.no_run(heap, index))?;
        if index >= committed.from {
            // A checksum covers its bytes: commit a record whose checksum does not.
            let len = committed.len;
            self.commit(heap, committed, len, len)?;
        }
        let number = committed.change + 1;
        let at = self.change_at(number);
        medium.store(at, number);
        medium.store(at + CHANGE_RECORD, committed.number);
        medium.store(at + CHANGE_INDEX, index);
        store(medium, at + CHANGE_VALUE, value);
        medium.store(at + CHANGE_SUM, self.change_sum(number, committed.number, index, value));
        // Flush: fenced by the caller.
        medium.flush(at, CHANGE_VALUE + Shape::<T>::SIZE);
        self.flush_changed(medium, committed);
        Ok(Some(StagedChange { number, offset }))
    }

    /// Makes a change that is durable in the header.
    pub(super) fn conclude_change<M: Medium>(
        &self,
        medium: &M,
        committed: &mut Committed,
        staged: &StagedChange,
        value: &T,
    ) {
        // Relaxed: it changes only under the lock.
        let changes = self.changes.load(Ordering::Relaxed);
        // Relaxed: the stores to the element release it. Partner of the loads in `stable_many`.
        self.changes.store(changes + 1, Ordering::Relaxed);
        store(medium, staged.offset, value);
        // Release: partner of the Acquire in `stable_many`; the element is complete again.
        self.changes.store(changes + 2, Ordering::Release);
        committed.change = staged.number;
        committed.unflushed = Some(staged.offset);
        committed.is_sealed = false;
    }

    /// Place of a change in the header.
    pub(super) fn change_at(&self, number: u64) -> u64 {
        self.header + CHANGES + number % 2 * CHANGE_LEN
    }

    pub(super) fn change_sum(&self, number: u64, record: u64, index: u64, value: &T) -> u64 {
        let words = [number, record, index].map(u64::to_le_bytes);
        let seed = xxh3_64_with_seed(words.as_flattened(), self.seed);
        xxh3_64_with_seed(bytes_of(value), seed)
    }

    /// Removes the elements from `len` on, and frees the runs without elements. One fence, and some
    /// for each run.
    pub(crate) fn truncate<M: Medium>(&self, heap: &Heap<M>, len: u64) -> Result<()> {
        let medium = heap.medium();
        let mut committed = lock_patiently(&self.committed, medium);
        let reserving = lock_patiently(&self.reserving, medium);
        self.commit_written(heap, &mut committed)?;
        if len >= committed.len {
            return Ok(());
        }
        self.commit(heap, &mut committed, len, len)?;
        // Release: partner of the loads in `stable_many`. A reader that finds other bytes in place
        // of an element finds this, too, and reads again.
        self.changes.fetch_add(2, Ordering::Release);
        // Relaxed: it changes only under the lock.
        self.written.store(len, Ordering::Relaxed);
        drop((reserving, committed));
        self.free_unused(heap);
        Ok(heap.verify()?)
    }

    /// Frees the runs that no element needs.
    pub(super) fn free_unused<M: Medium>(&self, heap: &Heap<M>) {
        free_in_turns(heap, |lane, count| {
            let _reserving = lock_patiently(&self.reserving, heap.medium());
            // Relaxed: it changes only under the lock.
            let used = Shape::<T>::runs(self.written.load(Ordering::Relaxed));
            let runs = self.runs.slots().map(|(run, _)| run);
            let unused: Vec<Slot> = runs.filter(|run| run.0 >= used).collect();
            unused.iter().rev().take(count).for_each(|&run| self.runs.free_in(lane, run));
            unused.len()
        });
    }

    /// Makes both records the same, with no elements for a checksum to cover. Then damage to one of
    /// them is detected or has no effect.
    pub(crate) fn seal<M: Medium>(&self, heap: &Heap<M>) -> Result<()> {
        let mut committed = lock_patiently(&self.committed, heap.medium());
        if !committed.is_sealed {
            let len = committed.len;
            self.commit(heap, &mut committed, len, len)?;
            self.commit(heap, &mut committed, len, len)?;
            committed.is_sealed = true;
        }
        Ok(())
    }
}

/// Stores an element, word by word.
#[inline(always)]
pub(super) fn store<M: Medium, T: Persistent>(medium: &M, offset: u64, value: &T) {
    let words = bytes_of(value).as_chunks::<8>().0;
    for (offset, word) in (offset..).step_by(WORD_LEN as usize).zip(words) {
        medium.store(offset, u64::from_ne_bytes(*word));
    }
}
