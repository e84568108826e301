//! A log with a heap of its own, under a root.

use std::marker::PhantomData;

use remanent_pmem::heap::{Block, Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium};

use super::core::Core;
use crate::Result;
use crate::stored::Stored;

/// Version of the layout, part of the root's type: changed with `layout.rs`.
const LAYOUT: u64 = 1;

/// The log of a root.
pub(super) struct Root<V: ?Sized, M: Medium> {
    pub(super) core: Core,
    pub(super) heap: Heap<M>,
    content: PhantomData<fn(&V)>,
}

impl<V: ?Sized, M: Medium> Root<V, M> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let mut violations = self.core.check(&self.heap)?;
        violations.extend(self.heap.check(self.core.blocks(self.heap.medium()).into_iter())?);
        self.heap.verify()?;
        Ok(violations)
    }
}

impl<V: Stored + ?Sized + 'static, M: Medium> RootObject<M> for Root<V, M> {
    fn root_type() -> RootType {
        RootType { name: format!("Log<{}>", V::type_name()), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let core = Core::create(&heap, heap.header()).map_err(crate::Error::into_pool)?;
        Ok(Root { core, heap, content: PhantomData })
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let header = heap.header();
        let segments = Core::open_segments(&heap, header).map_err(crate::Error::into_pool)?;
        heap.recover(|block: Block| Core::is_linked(&segments, heap.medium(), block))?;
        let core = Core::open(&heap, header, segments).map_err(crate::Error::into_pool)?;
        Ok(Root { core, heap, content: PhantomData })
    }
}

impl<V: ?Sized, M: Medium> Drop for Root<V, M> {
    fn drop(&mut self) {
        // What was acknowledged is durable without it; opening finds out by itself what is missing.
        let _ = self.core.seal(&self.heap);
    }
}
