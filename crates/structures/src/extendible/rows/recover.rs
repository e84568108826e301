//! Creating and opening an index, and recovery.
//!
//! Opening looks only at the blocks that the heap has in doubt. There is nothing to be rebuilt.

use remanent_pmem::heap::{Block, Heap, Lane};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::super::directory::Directory;
use super::super::layout::{Hash, Kind, OPTIONS, SEED, SEED_INVERTED, Target, write_segment_head};
use super::Core;
use super::layout::{BLOCK_HASH, Buckets, HEADER_LEN, LAYOUT};
use super::ops::Locks;
use crate::Result;
use crate::shared::{Site, recover};

impl<M: Medium> RootObject<M> for Core<M> {
    fn root_type() -> RootType {
        RootType { name: "RowIndex".to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::create_at(Site::alone(heap), Buckets::MOST)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let core = Self::load(Site::alone(heap))?;
        recover(&core.heap, |block| core.is_linked(block))?;
        Ok(core)
    }
}

impl<M: Medium> Core<M> {
    /// Makes an empty index. Its header exists and is zero.
    pub(super) fn create_at(heap: Site<M>, buckets: Buckets) -> Result<Self, PoolError> {
        let entered = heap.clone();
        let mut lane = entered.enter().prepare_to_write();
        let core = Self::create_in_lane(heap, &mut lane, buckets)?;
        // Fence: segment and header, before the root becomes live.
        lane.fence();
        Ok(core)
    }

    /// As [`create_at`](Core::create_at), in a lane of the caller, who fences.
    pub(super) fn create_in_lane(
        heap: Site<M>,
        lane: &mut Lane<'_, M>,
        buckets: Buckets,
    ) -> Result<Self, PoolError> {
        let seed = xxh3_64_with_seed(&heap.pool().uuid(), heap.header() ^ heap.generation() << 48);
        let core = Self::new(heap, seed, buckets);
        let (medium, header, root) = (core.medium(), core.heap.header(), core.nodes().root_at());
        let len = buckets.segment_len();
        let segment = lane.allocate(len)?.offset;
        medium.write_zeros(segment, len);
        write_segment_head(medium, segment, core.heap.member(), Hash(0), 0);
        // Flush: fenced by the caller.
        medium.flush(segment, len);
        medium.store(root, Target::Segment(segment).seal(root));
        medium.store(header + OPTIONS, buckets.bits());
        medium.store(header + SEED, seed);
        medium.store(header + SEED_INVERTED, !seed);
        // Flush: the header; fenced by the caller.
        medium.flush(header, HEADER_LEN);
        Ok(core)
    }

    /// Reads the header of an existing index.
    pub(super) fn load(heap: Site<M>) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        let seed = medium.load(header + SEED);
        if medium.load(header + SEED_INVERTED) != !seed {
            return Err(PoolError::corrupt(header + SEED, "the seed of an index has changed"));
        }
        let Some(buckets) = Buckets::new(medium.load(header + OPTIONS)) else {
            let what = "the header of an index does not say how long segments are";
            return Err(PoolError::corrupt(header + OPTIONS, what));
        };
        Ok(Self::new(heap, seed, buckets))
    }

    fn new(heap: Site<M>, seed: u64, buckets: Buckets) -> Self {
        Core {
            heap,
            seed,
            buckets,
            directory: Directory::new(),
            shape: PauseMutex::new(()),
            locks: Locks::new(),
        }
    }

    /// Whether the index leads to `block`, whose content may be garbage.
    pub(super) fn is_linked(&self, block: Block) -> Result<bool> {
        let root = self.nodes().root_at();
        for kind in Kind::candidates(self.medium(), block.offset, self.heap.member()) {
            let is_linked = match kind {
                Kind::Record => self.is_linked_in_chain(block)?,
                Kind::Segment if block.len < self.buckets.segment_len() => false,
                Kind::Segment | Kind::Node => self.nodes().leads_to(root, block, kind)?,
            };
            if is_linked {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_linked_in_chain(&self, block: Block) -> Result<bool> {
        let medium = self.medium();
        let hash = Hash(medium.load(block.offset + BLOCK_HASH));
        let segment = self.nodes().segment_pointer(hash)?.target.offset();
        let pair = self.buckets.pair(segment, hash);
        for bucket in pair.buckets() {
            // Flush: what a killed process may have left in the caches alone; fenced by the heap
            // before it forgets that the block was suspect. The same for the blocks below.
            // Redundant: unless a process was killed before and the power fails later.
            medium.flush(bucket.offset, LINE_LEN);
        }
        for (_, word) in self.alike(pair, hash) {
            let mut next = self.first_block(word)?;
            while let Some(found) = next {
                // Flush: as above.
                // Redundant: as above.
                medium.flush(found.offset, LINE_LEN);
                if found.offset == block.offset {
                    return Ok(true);
                }
                next = self.next_block(found)?;
            }
        }
        Ok(false)
    }
}
