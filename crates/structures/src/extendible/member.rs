//! Maps in a heap that they share with other structures.

use remanent_pmem::Medium;
use remanent_pmem::heap::Block;

use super::layout::{HEADER_LEN, Kind};
use super::{Core, ExtendibleMap, ExtendibleMultiMap};
use crate::Result;
use crate::shared::{Member, MemberId, Route, shareable_map};
use crate::stored::{Key, Stored};

impl<K, V, M, const MULTI: bool> Member<M> for Core<K, V, M, MULTI>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    fn fixed_blocks(&self) -> Vec<u64> {
        Vec::new()
    }

    fn route(&self) -> Option<Route<M>> {
        let read = |medium: &M, at: u64| Kind::member(medium, at).map(MemberId::get);
        Some(Route { kind: "block of an extendible map", read, key: self.heap.member().get() })
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        self.is_linked(block)
    }
}

shareable_map!(ExtendibleMap, false);
shareable_map!(ExtendibleMultiMap, true);
