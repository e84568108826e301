//! A vector with a heap of its own, under a root.

use remanent_pmem::heap::{Block, Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium, Persistent};

use super::core::Core;
use crate::{Error, Result};

/// Version of the layout, part of the root's type: changed with `layout.rs`.
const LAYOUT: u64 = 1;

/// The vector of a root; `CHANGES` says whether its elements may.
pub(super) struct Root<T: Persistent, M: Medium, const CHANGES: bool> {
    pub(super) core: Core<T>,
    pub(super) heap: Heap<M>,
}

impl<T: Persistent, M: Medium, const CHANGES: bool> Root<T, M, CHANGES> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let mut violations = self.core.check(&self.heap)?;
        violations.extend(self.heap.check(self.core.blocks(self.heap.medium()).into_iter())?);
        self.heap.verify()?;
        Ok(violations)
    }
}

impl<T: Persistent, M: Medium, const CHANGES: bool> RootObject<M> for Root<T, M, CHANGES> {
    fn root_type() -> RootType {
        let kind = if CHANGES { "Vector" } else { "AppendVector" };
        RootType { name: format!("{kind}<{}>", T::TYPE_NAME), layout: T::LAYOUT ^ LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let core = Core::create(&heap, heap.header()).map_err(Error::into_pool)?;
        Ok(Root { core, heap })
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let runs = Core::<T>::open_runs(&heap, heap.header()).map_err(Error::into_pool)?;
        heap.recover(|block: Block| Core::<T>::is_linked(&runs, heap.medium(), block))?;
        let core = Core::open(&heap, heap.header(), runs).map_err(Error::into_pool)?;
        Ok(Root { core, heap })
    }
}

impl<T: Persistent, M: Medium, const CHANGES: bool> Drop for Root<T, M, CHANGES> {
    fn drop(&mut self) {
        // What was acknowledged is durable without it; opening finds out by itself what is missing.
        let _ = self.core.seal(&self.heap);
    }
}
