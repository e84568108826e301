//! Creating and opening objects. There is nothing to repair: opening finds the valid version of
//! each object, and the next transaction overwrites what an unfinished one left in the other copy.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::persistent::{bytes_of, read_shared};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, Persistent};

use super::layout::{COUNT, FIRST, FORM, Form, HEADER_LEN, INSIDE, STRIDE};
use super::ops;
use super::{Objects, State, require_fits};
use crate::shared::Site;

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 1;
/// Objects that are created between two fences.
const CREATE_BATCH: u64 = 1024;

/// Whether objects of `bytes` bytes together lie in the header. In a heap that is shared, the
/// header has room for one object.
fn fits_inside<M: Medium>(site: &Site<M>, bytes: u64, stride: u64) -> bool {
    bytes <= if site.is_alone() { HEADER_LEN - INSIDE } else { stride }
}

fn type_name<T: Persistent>() -> String {
    format!("Tx<{}>", T::TYPE_NAME)
}

impl<T: Persistent, M: Medium> RootObject<M> for Objects<T, M> {
    const SURVIVES_DISTURBANCE: bool = true;

    fn root_type() -> RootType {
        const { require_fits::<T>() };
        RootType { name: type_name::<T>(), layout: T::LAYOUT ^ LAYOUT }
    }

    /// Creates one object of zeros.
    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::create_at(Site::alone(heap))
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let objects = Self::load(Site::alone(heap))?;
        objects.heap.recover(|block: Block| block.offset == objects.first)?;
        objects.heap.verify()?;
        Ok(objects)
    }
}

impl<T: Persistent, M: Medium> Objects<T, M> {
    /// Creates one object of zeros, read from the header, which is zero.
    pub(super) fn create_at(heap: Site<M>) -> Result<Self, PoolError> {
        let zeros = read_shared(heap.medium(), heap.header() + INSIDE);
        Self::fill(heap, 1, |_| zeros)
    }

    /// Reads the header.
    pub(super) fn load(heap: Site<M>) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        let word = |at| medium.load(header + at);
        let (count, first) = (word(COUNT), word(FIRST));
        let len = size_of::<T>() as u64;
        let form = Form::from_word(word(FORM))
            .filter(|form| form.stride(len) == word(STRIDE))
            .ok_or_else(|| {
                let what = format!("no form of transactional objects is {}", word(FORM));
                PoolError::corrupt(header + FORM, what)
            })?;
        if heap.pool().guarantee().write_disturbance && form != Form::Checked {
            return Err(PoolError::Unprotected { structure: type_name::<T>() });
        }
        let bytes = count.saturating_mul(form.stride(len));
        let is_right = if fits_inside(&heap, bytes, form.stride(len)) {
            first == header + INSIDE
        } else {
            heap.has_large(first, bytes)?
        };
        if !is_right {
            let what = format!("{count} objects do not lie at {first:#x}");
            return Err(PoolError::corrupt(header + FIRST, what));
        }
        // Versions are looked up when objects are first used.
        Ok(Self::with_states(heap, form, first, count, State::UNSEEN))
    }

    /// Creates `count` objects. `initial` returns the value of each.
    pub(super) fn fill(
        heap: Site<M>,
        count: u64,
        mut initial: impl FnMut(u64) -> T,
    ) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        let len = size_of::<T>() as u64;
        let form = Form::choose(size_of::<T>(), heap.pool().guarantee().write_disturbance);
        let stride = form.stride(len);
        let bytes = count.saturating_mul(stride);
        let first = if fits_inside(&heap, bytes, stride) {
            header + INSIDE
        } else {
            heap.enter().prepare_to_write().allocate_zeroed(bytes)?.offset
        };
        for (at, word) in [(FORM, form as u64), (COUNT, count), (STRIDE, stride), (FIRST, first)] {
            medium.store(header + at, word);
        }
        // Flush: the header; fenced below, before the root becomes live.
        medium.flush(header, LINE_LEN);
        for index in 0..count {
            let base = first + index * stride;
            ops::place(medium, form, base, bytes_of(&initial(index)));
            if index % CREATE_BATCH == CREATE_BATCH - 1 {
                // Redundant: only bounds how much is flushed without a fence; the fence below
                // covers everything.
                medium.fence();
            }
        }
        // Fence: header and objects, before the root becomes live.
        medium.fence();
        heap.verify()?;
        Ok(Self::with_states(heap, form, first, count, State::of(0, false)))
    }

    fn with_states(heap: Site<M>, form: Form, first: u64, count: u64, state: State) -> Self {
        let states = (0..count).map(|_| AtomicU64::new(state.0)).collect();
        Objects { heap, form, first, states, types: PhantomData }
    }
}
