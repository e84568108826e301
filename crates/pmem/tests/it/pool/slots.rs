//! The smallest structure that owns a heap: a table of slots, each with a block or none.
//!
//! ```text
//! header of the heap    0  offset of the table
//!                       8  number of slots
//! table                 a word a slot: offset of its block, or 0
//! block                 0  number of its slot      16  content
//!                       8  bytes of content
//! ```
//!
//! A block names its slot, so that recovery learns in constant time whether it is linked. Each slot
//! is written by one thread at a time.

use remanent_pmem::heap::{Block, Heap, Violation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error, Medium, Result};

/// Slots of a table.
pub(crate) const SLOT_COUNT: u64 = 1 << 16;
/// Fences that [`Slots::put`] and [`Slots::clear`] execute themselves, beside the allocator's.
pub(crate) const OWN_FENCES: u64 = 2;

const TABLE: u64 = 0;
const COUNT: u64 = 8;
const INDEX: u64 = 0;
const LEN: u64 = 8;
const CONTENT: u64 = 16;

/// A table of slots in a pool.
#[derive(Debug)]
pub(crate) struct Slots<M: Medium> {
    heap: Heap<M>,
    table: u64,
}

impl<M: Medium> RootObject<M> for Slots<M> {
    fn root_type() -> RootType {
        RootType { name: "Slots".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<M>) -> Result<Self> {
        let table = heap.enter().prepare_to_write().allocate_zeroed(SLOT_COUNT * 8)?.offset;
        let medium = heap.medium();
        medium.store(heap.header() + TABLE, table);
        medium.store(heap.header() + COUNT, SLOT_COUNT);
        medium.persist(heap.header(), 16);
        Ok(Slots { heap, table })
    }

    fn open(heap: Heap<M>) -> Result<Self> {
        let table = heap.medium().load(heap.header() + TABLE);
        let count = heap.medium().load(heap.header() + COUNT);
        if count != SLOT_COUNT {
            return Err(Error::corrupt(heap.header() + COUNT, format!("a table of {count} slots")));
        }
        let slots = Slots { heap, table };
        slots.heap.recover(|block| slots.is_linked(block))?;
        slots.heap.verify()?;
        Ok(slots)
    }
}

impl<M: Medium> Slots<M> {
    /// Puts `content` into a slot, durably, in place of what was there.
    pub(crate) fn put(&self, index: u64, content: &[u8]) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        let medium = self.heap.medium();
        let block = lane.allocate(CONTENT + content.len() as u64)?;
        medium.store(block.offset + INDEX, index);
        medium.store(block.offset + LEN, content.len() as u64);
        medium.write(block.offset + CONTENT, content);
        medium.flush(block.offset, CONTENT + content.len() as u64);
        self.replace(lane, index, block.offset)
    }

    /// As [`put`](Slots::put), with content of which the first and the last word alone are written.
    pub(crate) fn put_sparse(&self, index: u64, len: u64) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        let medium = self.heap.medium();
        let block = lane.allocate(CONTENT + len)?;
        medium.store(block.offset + INDEX, index);
        medium.store(block.offset + LEN, len);
        medium.flush(block.offset, CONTENT);
        for at in [CONTENT, CONTENT + len - 8] {
            medium.store(block.offset + at, !index);
            medium.flush(block.offset + at, 8);
        }
        self.replace(lane, index, block.offset)
    }

    /// Empties a slot, durably.
    pub(crate) fn clear(&self, index: u64) -> Result<()> {
        self.replace(self.heap.enter().prepare_to_write(), index, 0)
    }

    fn replace(
        &self,
        mut lane: remanent_pmem::heap::Lane<'_, M>,
        index: u64,
        new: u64,
    ) -> Result<()> {
        let old = self.block(index);
        let suspect = old.map(|offset| lane.suspect(offset));
        // Fence: the new block, and the suspicion against the old one, before the slot.
        lane.fence();
        self.heap.medium().store(self.slot(index), new);
        lane.flush_later(self.slot(index));
        // Fence: the slot, before this is acknowledged.
        lane.fence();
        if let Some(suspect) = suspect {
            lane.retire(suspect);
        }
        drop(lane);
        self.heap.verify()
    }

    /// Content of a slot.
    pub(crate) fn get(&self, index: u64) -> Option<Vec<u8>> {
        let (offset, len) = self.content(index)?;
        let mut content = vec![0; len as usize];
        self.heap.medium().read(offset, &mut content);
        Some(content)
    }

    /// Pool offset and length of a slot's content; nothing when a block is said to exceed the pool.
    pub(crate) fn content(&self, index: u64) -> Option<(u64, u64)> {
        let block = self.block(index)?;
        // Wrapping: in a damaged pool the offset may be any number.
        let len = self.heap.medium().load(block.wrapping_add(LEN));
        (len <= self.heap.medium().len()).then_some((block.wrapping_add(CONTENT), len))
    }

    /// The heap.
    pub(crate) fn heap(&self) -> &Heap<M> {
        &self.heap
    }

    /// Allocated = reachable?
    pub(crate) fn check(&self) -> Result<Vec<Violation>> {
        let blocks = (0..SLOT_COUNT).filter_map(|index| self.block(index));
        self.heap.check(std::iter::once(self.table).chain(blocks))
    }

    fn block(&self, index: u64) -> Option<u64> {
        let offset = self.heap.medium().load(self.slot(index));
        (offset != 0).then_some(offset)
    }

    fn slot(&self, index: u64) -> u64 {
        assert!(index < SLOT_COUNT);
        self.table.wrapping_add(index * 8) & !7
    }

    fn is_linked(&self, block: Block) -> bool {
        let index = self.heap.medium().load(block.offset + INDEX);
        block.offset == self.table || index < SLOT_COUNT && self.block(index) == Some(block.offset)
    }
}
