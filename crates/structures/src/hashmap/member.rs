//! A hash map in a heap that it shares with other structures.

use std::sync::atomic::Ordering;

use remanent_pmem::Medium;
use remanent_pmem::heap::Block;

use super::layout::{HEADER_LEN, TAG};
use super::seal::tag_member;
use super::{Core, HashMap, HashMultiMap};
use crate::Result;
use crate::shared::{Member, Route, shareable_map};
use crate::stored::{Key, Stored};

impl<K, V, M, const MULTI: bool> Member<M> for Core<K, V, M, MULTI>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    fn fixed_blocks(&self) -> Vec<u64> {
        // Relaxed: recovery and `inspect` call this while no operation is in progress.
        let segments = self.segments.iter().map(|segment| segment.load(Ordering::Relaxed));
        segments.filter(|&segment| segment != 0).collect()
    }

    fn route(&self) -> Option<Route<M>> {
        // The tag of an entry has room only for the lowest byte of the map's number.
        let read = |medium: &M, at: u64| Some(tag_member(at, medium.load(at + TAG)).into());
        Some(Route { kind: "entry of a hash map", read, key: self.heap.member().low_byte().into() })
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        Ok(self.is_linked(block))
    }
}

shareable_map!(HashMap, false);
shareable_map!(HashMultiMap, true);
