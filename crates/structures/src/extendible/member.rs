//! Maps in a heap that they share with other structures.

use std::sync::Arc;

use remanent_pmem::heap::Block;
use remanent_pmem::{Error as PoolError, Medium};

use super::layout::{HEADER_LEN, Kind};
use super::{Core, ExtendibleMap, ExtendibleMultiMap};
use crate::Result;
use crate::options::MapOptions;
use crate::shared::{Inspection, Member, MemberId, Route, Shareable, Site};
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

macro_rules! shareable {
    ($map:ident, $multi:literal) => {
        impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Shareable<M> for $map<K, V, M> {
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

shareable!(ExtendibleMap, false);
shareable!(ExtendibleMultiMap, true);
