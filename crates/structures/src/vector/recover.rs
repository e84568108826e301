//! Creation and recovery.
//!
//! After a crash, at most one record counts elements that did not all arrive: the newest one. Then
//! its checksum does not match, and the record before it counts. The changes since the record
//! before the newest are repeated from the header, in their order.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::Heap;
use remanent_pmem::persistent::read_shared;
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, Medium, Persistent};

use super::core::{Committed, Core};
use super::layout::{
    CHANGE_INDEX, CHANGE_RECORD, CHANGE_SUM, CHANGE_VALUE, CHANGED_MAX, DIRECTORY, FROM, LEN,
    LENGTH, SUM, Shape,
};
use super::ops::store;
use crate::Result;
use crate::pair::{Record, seed};
use crate::segments::{Segments, Slot};

/// A change in the header whose checksum matches.
struct Change<T> {
    number: u64,
    record: u64,
    index: u64,
    value: T,
}

impl<T: Persistent> Core<T> {
    /// Creates an empty vector whose header, which is all zeros, lies at `header`.
    pub(crate) fn create<M: Medium>(heap: &Heap<M>, header: u64) -> Result<Self> {
        let core = Self::new(heap, header, Segments::create(header + DIRECTORY));
        core.seal(heap)?;
        Ok(core)
    }

    /// The runs of a vector. Must be called before the heap recovers, because recovery calls
    /// [`is_linked`](Core::is_linked).
    pub(crate) fn open_runs<M: Medium>(heap: &Heap<M>, header: u64) -> Result<Segments> {
        Ok(Segments::open(heap, header + DIRECTORY)?)
    }

    /// Opens a vector as a crash may have left it. Must be called after the heap has recovered.
    pub(crate) fn open<M: Medium>(heap: &Heap<M>, header: u64, runs: Segments) -> Result<Self> {
        let core = Self::new(heap, header, runs);
        core.check_runs(heap)?;
        let medium = heap.medium();
        let records = core.pair().read(medium);
        let newest = core.newest(heap, &records)?;
        let number = newest.number;
        let (len, from) = (newest.words[LEN], newest.words[FROM]);
        let is_sealed = records.len() == 2 && records.iter().all(|other| is_seal(other, len));
        let changes = core.changes_written_down(medium);
        let change = changes.last().map_or(0, |change| change.number);
        let is_changed = core.make_again(heap, &changes, &newest)?;
        if is_changed || !is_sealed {
            // Flush: words that a killed process left in the caches; fenced below.
            // Redundant: in a heap of the vector's own, whose header is durable once the heap has
            // recovered.
            medium.flush(header + LENGTH, DIRECTORY);
            core.pieces(heap, from, len, |_, offset, count| {
                // Flush: as above.
                medium.flush(offset, count * Shape::<T>::SIZE);
            })?;
            // Fence: elements and changes, before a new record invalidates what recovery would
            // restore them by.
            medium.fence();
        }
        let mut committed = core.committed.lock(medium);
        *committed = Committed { number, len, from, change, unflushed: None, is_sealed };
        drop(committed);
        core.seal(heap)?;
        // Relaxed: no other thread has the vector yet.
        core.len.store(len, Ordering::Relaxed);
        core.written.store(len, Ordering::Relaxed);
        // A crash may have prevented freeing these, or committing anything in them.
        core.free_unused(heap);
        heap.verify()?;
        Ok(core)
    }

    fn new<M: Medium>(heap: &Heap<M>, header: u64, runs: Segments) -> Self {
        let committed =
            Committed { number: 0, len: 0, from: 0, change: 0, unflushed: None, is_sealed: false };
        Core {
            header,
            seed: seed(heap, header),
            runs,
            reserving: PauseMutex::default(),
            written: AtomicU64::new(0),
            tickets: AtomicU64::new(0),
            tickets_done: AtomicU64::new(0),
            committed: PauseMutex::new(committed),
            len: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            elements: PhantomData,
        }
    }

    /// Refuses runs that are too short for their elements.
    fn check_runs<M: Medium>(&self, heap: &Heap<M>) -> Result<()> {
        let is_short = |run: &Slot, len: u64| len < Shape::<T>::run_len(*run);
        match self.runs.slots().find(|(run, segment)| is_short(run, segment.len)) {
            None => Ok(heap.verify()?),
            Some((run, segment)) => {
                let what = format!("run {} of a vector cannot have {} bytes", run.0, segment.len);
                Err(PoolError::corrupt(segment.offset, what).into())
            }
        }
    }

    /// The newest record whose elements all arrived.
    fn newest<M: Medium>(&self, heap: &Heap<M>, records: &[Record]) -> Result<Record> {
        let corrupt = |what: &str| Err(PoolError::corrupt(self.header, what.to_owned()).into());
        if let [newer, older] = records
            && newer.number != older.number + 1
        {
            return corrupt("the two records of a vector's length do not follow each other");
        }
        for record in records {
            let (len, from) = (record.words[LEN], record.words[FROM]);
            let has_runs =
                |len| (0..Shape::<T>::runs(len)).all(|run| self.runs.get(Slot(run)).is_some());
            if from > len || !has_runs(len) {
                return corrupt("a vector is shorter than its length");
            }
            if self.sum(heap, from, len)? == record.words[SUM] {
                return Ok(*record);
            }
        }
        corrupt("no record of a vector's length is whole")
    }

    /// The changes in the header, the latest last.
    fn changes_written_down<M: Medium>(&self, medium: &M) -> Vec<Change<T>> {
        let mut changes = Vec::new();
        if Shape::<T>::SIZE > CHANGED_MAX {
            return changes;
        }
        for place in 0..2 {
            let at = self.change_at(place);
            let change = Change {
                number: medium.load(at),
                record: medium.load(at + CHANGE_RECORD),
                index: medium.load(at + CHANGE_INDEX),
                value: read_shared(medium, at + CHANGE_VALUE),
            };
            let sum = self.change_sum(change.number, change.record, change.index, &change.value);
            if medium.load(at + CHANGE_SUM) == sum && change.number % 2 == place {
                changes.push(change);
            }
        }
        changes.sort_by_key(|change| change.number);
        changes
    }

    /// Repeats the changes that may not have reached their elements. Returns whether there was one.
    /// The caller fences.
    fn make_again<M: Medium>(
        &self,
        heap: &Heap<M>,
        changes: &[Change<T>],
        newest: &Record,
    ) -> Result<bool> {
        let medium = heap.medium();
        let mut any = false;
        for change in changes {
            if change.record > newest.number {
                let what = "the record of a vector's length is gone in which an element changed";
                return Err(PoolError::corrupt(self.header, what).into());
            }
            // Changes of earlier records were fenced at the latest with the record before the
            // newest.
            if change.record + 1 < newest.number || change.index >= newest.words[LEN] {
                continue;
            }
            let (offset, _) =
                self.offset(change.index).ok_or_else(|| self.no_run(heap, change.index))?;
            store(medium, offset, &change.value);
            // Flush: fenced by the caller, before the change loses its effect.
            medium.flush(offset, Shape::<T>::SIZE);
            any = true;
        }
        Ok(any)
    }
}

/// Whether a record says that there are `len` elements, and its checksum covers none of them.
fn is_seal(record: &Record, len: u64) -> bool {
    record.words[LEN] == len && record.words[FROM] == len
}
