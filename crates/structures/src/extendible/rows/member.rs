//! An index in a heap that it shares with other structures.

use std::sync::Arc;

use remanent_pmem::heap::Block;
use remanent_pmem::{Error as PoolError, Medium};

use super::super::layout::Kind;
use super::layout::{Buckets, HEADER_LEN};
use super::{Core, RowIndex};
use crate::Result;
use crate::shared::{Inspection, Member, MemberId, Route, Shareable, Site};

impl<M: Medium> Member<M> for Core<M> {
    fn fixed_blocks(&self) -> Vec<u64> {
        Vec::new()
    }

    fn route(&self) -> Option<Route<M>> {
        let read = |medium: &M, at: u64| Kind::member(medium, at).map(MemberId::get);
        // The same blocks as those of a map.
        Some(Route { kind: "block of an extendible map", read, key: self.heap.member().get() })
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        self.is_linked(block)
    }
}

impl<M: Medium> Shareable<M> for RowIndex<M> {
    type Member = Core<M>;

    fn header_len() -> u64 {
        HEADER_LEN
    }

    fn create_in(site: Site<M>) -> Result<Self, PoolError> {
        Ok(RowIndex { core: Arc::new(Core::create_at(site, Buckets::MOST)?) })
    }

    fn find(site: Site<M>) -> Result<Self::Member, PoolError> {
        Core::load(site)
    }

    fn finish(core: Arc<Self::Member>) -> Result<Self, PoolError> {
        Ok(RowIndex { core })
    }

    fn inspect(&self) -> Result<Inspection> {
        self.core.inspect()
    }
}
