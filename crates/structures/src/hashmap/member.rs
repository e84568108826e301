//! A hash map in a heap that it shares with other structures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use remanent_pmem::heap::Block;
use remanent_pmem::{Error as PoolError, Medium};

use super::layout::{HEADER_LEN, TAG};
use super::seal::tag_member;
use super::{Core, HashMap, HashMultiMap};
use crate::Result;
use crate::options::MapOptions;
use crate::shared::{Inspection, Member, Route, Shareable, Site};
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

macro_rules! shareable {
    ($map:ident, $multi:literal) => {
        impl<K, V, M> Shareable<M> for $map<K, V, M>
        where
            K: Key + ?Sized,
            V: Stored + ?Sized,
            M: Medium,
        {
            type Member = Core<K, V, M, $multi>;

            fn header_len() -> u64 {
                HEADER_LEN
            }

            fn create_in(site: Site<M>) -> Result<Self, PoolError> {
                Ok($map { core: Arc::new(Core::create_at(site, &MapOptions::new())?) })
            }

            fn find(site: Site<M>) -> Result<Self::Member, PoolError> {
                Core::load(site)
            }

            fn finish(core: Arc<Self::Member>) -> Result<Self, PoolError> {
                core.take_count()?;
                Ok($map { core })
            }

            fn inspect(&self) -> Result<Inspection> {
                self.core.inspect()
            }
        }
    };
}

shareable!(HashMap, false);
shareable!(HashMultiMap, true);
