//! The part of a vector that exists once a process, and what reads it.
//!
//! It lies at any offset of any heap: what is called takes the heap along.

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

/// A vector, but for the heap that it lies in.
pub(crate) struct Core<T> {
    pub(super) header: u64,
    pub(super) seed: u64,
    pub(super) runs: Segments,
    /// Held while elements are written that nobody can see yet. Taken before `committed`.
    pub(super) reserving: PauseMutex<()>,
    /// Elements that were written, committed or not.
    pub(super) written: AtomicU64,
    /// How often elements were written behind the others.
    pub(super) tickets: AtomicU64,
    /// How many of those times are durable.
    pub(super) tickets_done: AtomicU64,
    /// Held by the thread that commits, for itself and for those that wait meanwhile.
    pub(super) committed: PauseMutex<Committed>,
    /// Elements, all of them durable.
    pub(super) len: AtomicU64,
    /// Odd while an element changes; even numbers count changes and truncations, twice.
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
    /// Offset of the element that it was of, unless that is durable.
    pub(super) unflushed: Option<u64>,
    /// Whether both records say the same, and cover nothing.
    pub(super) is_sealed: bool,
}

impl<T: Persistent> Core<T> {
    pub(super) fn pair(&self) -> Pair {
        Pair::new(self.header + LENGTH, self.seed)
    }

    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        // Acquire: partner of the Release in `publish`; the elements are there.
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

    /// Pool offset of an element, and how many lie in its run from there on; `None` where there is no run.
    #[inline(always)]
    pub(super) fn offset(&self, index: u64) -> Option<(u64, u64)> {
        let Place { run, within, left } = Shape::<T>::place(index);
        let run = self.runs.offset(run);
        (run != 0).then_some((run + within, left))
    }

    /// Splits a range into pieces that lie in one run each: first index, offset, number of elements.
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

    /// An element, as it was at one moment. No fence.
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

    /// Copies elements from `index` on, until the end of the vector, of the run or of what `most` asks for. Each is as it
    /// was at one moment, all of them at the same. How many there were.
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

    /// Passes the offset of an element, and how many are there from it on, to `read`; again if anything changed
    /// meanwhile. The number that it was, 0 when the vector is not so long.
    #[inline(always)]
    fn stable_many<M: Medium>(
        &self,
        heap: &Heap<M>,
        index: u64,
        mut read: impl FnMut(u64, u64),
    ) -> Result<u64> {
        loop {
            // Acquire: what is read below is as new as that.
            let before = self.changes.load(Ordering::Acquire);
            let count = self.len().saturating_sub(index);
            if count == 0 {
                return Ok(0);
            }
            let place = self.offset(index);
            if let (Some((offset, left)), 0) = (place, before & 1) {
                read(offset, left.min(count));
            }
            // Relaxed: the loads above acquire, so they come before it. Partner of the Release in `set` and `truncate`.
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
