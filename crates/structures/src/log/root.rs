//! A log and its heap, which is the log's own under a root, or shared with other structures.

use std::marker::PhantomData;
use std::sync::Arc;

use remanent_pmem::heap::{Block, Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Medium};

use super::Log;
use super::core::Core;
use super::layout::HEADER_LEN;
use crate::Result;
use crate::segments::Segments;
use crate::shared::{Inspection, Member, Route, Shareable, Site};
use crate::stored::Stored;

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 1;

/// The log of a root.
pub(super) struct Root<V: ?Sized, M: Medium> {
    pub(super) core: Core,
    pub(super) heap: Site<M>,
    content: PhantomData<fn(&V)>,
}

impl<V: ?Sized, M: Medium> Root<V, M> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let Inspection { mut violations, blocks } = self.inspect()?;
        violations.extend(self.heap.check(blocks.into_iter().flatten())?);
        self.heap.verify()?;
        Ok(violations)
    }

    fn inspect(&self) -> Result<Inspection> {
        let violations = self.core.check(&self.heap)?;
        let blocks = self.core.blocks(self.heap.medium());
        Ok(Inspection { violations, blocks: Some(blocks) })
    }

    fn create_at(site: Site<M>) -> Result<Self, PoolError> {
        let core = Core::create(&site, site.header()).map_err(crate::Error::into_pool)?;
        Ok(Root { core, heap: site, content: PhantomData })
    }

    fn open_at(site: Site<M>, segments: Segments) -> Result<Self, PoolError> {
        let core = Core::open(&site, site.header(), segments).map_err(crate::Error::into_pool)?;
        Ok(Root { core, heap: site, content: PhantomData })
    }
}

/// The segments of a log whose heap has not recovered yet.
#[doc(hidden)]
pub struct FoundSegments<M: Medium> {
    segments: Segments,
    site: Site<M>,
}

impl<M: Medium> FoundSegments<M> {
    fn find(site: Site<M>) -> Result<Self, PoolError> {
        let header = site.header();
        let segments = Core::open_segments(&site, header).map_err(crate::Error::into_pool)?;
        Ok(FoundSegments { segments, site })
    }
}

impl<M: Medium> Member<M> for FoundSegments<M> {
    fn fixed_blocks(&self) -> Vec<u64> {
        self.segments.blocks(self.site.medium())
    }

    fn route(&self) -> Option<Route<M>> {
        None
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        Ok(Core::is_linked(&self.segments, self.site.medium(), block))
    }
}

impl<V: Stored + ?Sized, M: Medium> Shareable<M> for Log<V, M> {
    type Member = FoundSegments<M>;

    fn header_len() -> u64 {
        HEADER_LEN
    }

    fn create_in(site: Site<M>) -> Result<Self, PoolError> {
        Ok(Log { root: Arc::new(Root::create_at(site)?) })
    }

    fn find(site: Site<M>) -> Result<Self::Member, PoolError> {
        FoundSegments::find(site)
    }

    fn finish(found: Arc<Self::Member>) -> Result<Self, PoolError> {
        // Recovery shared the segments until now, so they are read again.
        let FoundSegments { segments, site } = FoundSegments::find(found.site.clone())?;
        Ok(Log { root: Arc::new(Root::open_at(site, segments)?) })
    }

    fn inspect(&self) -> Result<Inspection> {
        self.root.inspect()
    }
}

impl<V: Stored + ?Sized + 'static, M: Medium> RootObject<M> for Root<V, M> {
    fn root_type() -> RootType {
        RootType { name: format!("Log<{}>", V::type_name()), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::create_at(Site::alone(heap))
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let FoundSegments { segments, site } = FoundSegments::find(Site::alone(heap))?;
        site.recover(|block: Block| Core::is_linked(&segments, site.medium(), block))?;
        Self::open_at(site, segments)
    }
}

impl<V: ?Sized, M: Medium> Drop for Root<V, M> {
    fn drop(&mut self) {
        // Acknowledged records are durable without the seal; without it, opening searches for the
        // end.
        let _ = self.core.seal(&self.heap);
    }
}
