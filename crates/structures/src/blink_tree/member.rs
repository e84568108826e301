//! A tree in a heap that it shares with other structures.

use std::sync::Arc;

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};

use super::layout::Kind;
use super::{BlinkTree, Core};
use crate::Result;
use crate::options::MapOptions;
use crate::shared::{Inspection, Member, MemberId, Route, Shareable, Site};
use crate::stored::{OrderedKey, Stored};

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BlinkTree<K, V, M> {
    /// Makes an empty tree in a lane of its owner, who makes other things in the same lane and
    /// fences before anything leads to them. The header exists and is zero. If the owner cannot
    /// finish, it [gives the tree back](BlinkTree::abandon).
    ///
    /// # Errors
    ///
    /// When the pool is full: nothing has to be given back but the header.
    pub fn create_in_lane(site: Site<M>, lane: &mut Lane<'_, M>) -> Result<Self> {
        let core = Core::create_in_lane(site, lane, &MapOptions::new())?;
        Ok(BlinkTree { core: Arc::new(core) })
    }

    /// The number of the tree that an allocated block belongs to, in a heap that trees share with
    /// tables' blocks and [`RowIndex`](crate::RowIndex): `None` for a block of anything else.
    ///
    /// Ask this before [`RowIndex::owner_of`](crate::RowIndex::owner_of): a record has key bytes
    /// where a segment has its tag.
    pub fn owner_of(medium: &M, block: Block) -> Option<MemberId> {
        let (kind, member) = Kind::read(medium, block.offset)?;
        // The first word of a leaf is an offset. A chain of an index has its tag there, and any
        // pointer where a leaf has its tag.
        let is_certain = kind != Kind::Leaf || medium.load(block.offset) >> OFFSET_BITS == 0;
        is_certain.then_some(member)
    }

    /// Gives the blocks of a tree back, but its header: for an owner that could not finish what it
    /// made the tree for. Nothing durable may lead to the tree, and nobody else may have it.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn abandon(self, lane: &mut Lane<'_, M>) -> Result<()> {
        for offset in self.core.reached()?.into_iter().flatten() {
            lane.give_back(Block { offset, len: 0 });
        }
        Ok(())
    }
}

/// Bits of an offset in a pool.
const OFFSET_BITS: u32 = 48;

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Member<M> for Core<K, V, M> {
    fn fixed_blocks(&self) -> Vec<u64> {
        Vec::new()
    }

    fn route(&self) -> Option<Route<M>> {
        let read = |medium: &M, at: u64| Kind::read(medium, at).map(|(_, member)| member.get());
        Some(Route { kind: "block of a tree", read, key: self.heap.member().get() })
    }

    fn is_linked(&self, block: Block) -> Result<bool> {
        self.is_linked(block)
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Shareable<M> for BlinkTree<K, V, M> {
    type Member = Core<K, V, M>;

    fn header_len() -> u64 {
        LINE_LEN
    }

    fn create_in(site: Site<M>) -> Result<Self, PoolError> {
        Ok(BlinkTree { core: Arc::new(Core::create_at(site, &MapOptions::new())?) })
    }

    fn find(site: Site<M>) -> Result<Self::Member, PoolError> {
        Core::load(site)
    }

    fn finish(core: Arc<Self::Member>) -> Result<Self, PoolError> {
        core.take_count()?;
        Ok(BlinkTree { core })
    }

    fn inspect(&self) -> Result<Inspection> {
        self.core.inspect()
    }
}
