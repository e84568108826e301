//! The part of a vector that all its handles in a process share, and reading.
//!
//! A vector can lie at any offset of any heap, so its methods take the heap as an argument.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::persistent::read_shared;
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Medium, Persistent};

use super::layout::{LENGTH, Place, Shape};
use crate::pair::Pair;
use crate::segments::Segments;
use crate::{Error, Result};

/// A vector without the heap that it lies in.
pub(crate) struct Core<T> {
    pub(super) header: u64,
    pub(super) seed: u64,
    pub(super) runs: Segments,
    /// Held while elements are written that no reader can see yet. Who holds it does not wait for
    /// `committed`.
    pub(super) reserving: PauseMutex<()>,
    /// Number of written elements, committed or not.
    pub(super) written: AtomicU64,
    /// The last ticket. Each write of elements behind the others takes one.
    pub(super) tickets: AtomicU64,
    /// The last ticket whose elements are durable.
    pub(super) tickets_done: AtomicU64,
    /// Held by the thread that commits, for itself and for the threads that wait meanwhile.
    pub(super) committed: PauseMutex<Committed>,
    /// Number of elements, all of them durable.
    pub(super) len: AtomicU64,
    /// Odd while an element changes. Each change and each truncation adds 2.
    pub(super) changes: AtomicU64,
    pub(super) elements: PhantomData<fn(T) -> T>,
}

/// What was committed last.
pub(super) struct Committed {
    /// Number of the record.
    pub(super) number: u64,
    pub(super) len: u64,
    /// The first element that the record's checksum covers.
    pub(super) from: u64,
    /// Number of the last change.
    pub(super) change: u64,
    /// Offset of the element that changed last, unless it is durable.
    pub(super) unflushed: Option<u64>,
    /// Whether both records say the same, and cover nothing.
    pub(super) is_sealed: bool,
}

impl<T: Persistent> Core<T> {
    pub(super) fn pair(&self) -> Pair {
        Pair::new(self.header + LENGTH, self.seed)
    }

    /// Number of elements.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        // Acquire: partner of the Release in `conclude`; the elements are stored.
        self.len.load(Ordering::Acquire)
    }

    /// Whether `block` belongs to the vector.
    pub(crate) fn is_linked<M: Medium>(runs: &Segments, medium: &M, block: Block) -> bool {
        runs.is_linked(medium, block)
    }

    /// Offsets of all blocks that belong to the vector.
    pub(crate) fn blocks<M: Medium>(&self, medium: &M) -> Vec<u64> {
        self.runs.blocks(medium)
    }

    /// Pool offset of an element, and the number of elements from it to the end of its run. `None`
    /// if the element has no run.
    #[inline(always)]
    pub(super) fn offset(&self, index: u64) -> Option<(u64, u64)> {
        let Place { run, within, left } = Shape::<T>::place(index);
        let run = self.runs.offset(run);
        (run != 0).then_some((run + within, left))
    }

    /// Splits a range into pieces of one run each, and passes first index, offset and number of
    /// elements of each to `use_piece`.
    ///
    /// # Errors
    ///
    /// When a run is missing: the vector is damaged.
    pub(super) fn pieces<M: Medium>(
        &self,
        heap: &Heap<M>,
        mut from: u64,
        to: u64,
        mut use_piece: impl FnMut(u64, u64, u64),
    ) -> Result<()> {
        while from < to {
            let (offset, left) = self.offset(from).ok_or_else(|| self.no_run(heap, from))?;
            let count = left.min(to - from);
            use_piece(from, offset, count);
            from += count;
        }
        Ok(())
    }

    #[cold]
    pub(super) fn no_run<M: Medium>(&self, heap: &Heap<M>, index: u64) -> Error {
        Error::corrupt(heap, self.header, format!("element {index} has no run to lie in"))
    }

    /// An element as it was at one moment. No fence.
    #[inline]
    pub(crate) fn get<M: Medium>(&self, heap: &Heap<M>, index: u64) -> Result<Option<T>> {
        let mut found = None;
        let read = |offset| found = Some(read_shared(heap.medium(), offset));
        if self.stable(heap, index, read)? == 0 {
            return Ok(None);
        }
        heap.verify()?;
        Ok(found)
    }

    /// Copies elements from `index` on, up to the end of the vector or of the run, and at most
    /// `most`. All are as they were at the same moment. Returns how many there are.
    pub(crate) fn read<M: Medium>(
        &self,
        heap: &Heap<M>,
        index: u64,
        most: usize,
        elements: &mut Vec<T>,
    ) -> Result<usize> {
        elements.clear();
        let left = self.stable_many(heap, index, |offset, left| {
            let count = left.min(most as u64) as usize;
            elements.clear();
            let offsets = (offset..).step_by(Shape::<T>::SIZE as usize).take(count);
            elements.extend(offsets.map(|offset| read_shared::<T>(heap.medium(), offset)));
        })?;
        if left == 0 {
            elements.clear();
        }
        heap.verify()?;
        Ok(elements.len())
    }

    #[inline(always)]
    fn stable<M: Medium>(
        &self,
        heap: &Heap<M>,
        index: u64,
        mut read: impl FnMut(u64),
    ) -> Result<u64> {
        self.stable_many(heap, index, |offset, _| read(offset))
    }

    /// Passes to `read` the offset of an element, and the number of elements from it to the end of
    /// its run or of the vector. Calls `read` again if anything changed meanwhile. Returns the
    /// number of elements from `index` on: 0 if `index` is not less than the length.
    #[inline(always)]
    fn stable_many<M: Medium>(
        &self,
        heap: &Heap<M>,
        index: u64,
        mut read: impl FnMut(u64, u64),
    ) -> Result<u64> {
        loop {
            // Acquire: partner of the Release in `conclude_change` and `truncate`; what is read
            // below is not older.
            let before = self.changes.load(Ordering::Acquire);
            let count = self.len().saturating_sub(index);
            if count == 0 {
                return Ok(0);
            }
            let place = self.offset(index);
            if let (Some((offset, left)), 0) = (place, before & 1) {
                read(offset, left.min(count));
            }
            // Relaxed: the loads above acquire, so they come before this one. Partner of the stores
            // in `conclude_change` and `truncate`.
            if self.changes.load(Ordering::Relaxed) == before && before & 1 == 0 {
                return match place {
                    Some(_) => Ok(count),
                    None => Err(self.no_run(heap, index)),
                };
            }
            heap.medium().pause();
        }
    }
}
