//! Making a map, and finding it again.

use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Link, Medium};

use super::Core;
use super::iterate::{Sweep, UNKNOWN};
use super::layout::{
    COUNT, DUMMY, GENERATION, Order, SEED, SEGMENT_COUNT, SEGMENTS, SWEPT, TAG, dummy_of, redirect,
    tag_order, target,
};
use crate::stored::{Key, Stored};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Version of the layout, part of the root's type: changed with `layout.rs`.
const LAYOUT: u64 = 1;

/// The count in the header when nobody knows it: always while the map is open.
const COUNT_UNKNOWN: u64 = u64::MAX;

impl<K, V, M, const MULTI: bool> RootObject<M> for Core<K, V, M, MULTI>
where
    K: Key + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    M: Medium,
{
    fn root_type() -> RootType {
        let kind = if MULTI { "HashMultiMap" } else { "HashMap" };
        let name = format!("{kind}<{}, {}>", K::type_name(), V::type_name());
        RootType { name, layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        let medium = heap.medium();
        let header = heap.header();
        // Clients cannot guess the pool's random identity, so they cannot aim at one bucket.
        let seed = xxh3_64_with_seed(&heap.pool().uuid(), u64::from(heap.owner().0));
        medium.store(header + SEED, seed);
        medium.store(header + GENERATION, 1);
        medium.store(header + SWEPT, 1);
        medium.store(header + COUNT, COUNT_UNKNOWN);
        let segment = {
            let mut lane = heap.enter().prepare_to_write();
            lane.allocate_zeroed(8 << K::BUCKET_BITS)?.offset
        };
        medium.store(header + SEGMENTS, segment);
        // Flush: fenced below, together with the first segment.
        medium.flush(header, SEGMENTS + 8);
        let core = Self::load(heap)?;
        core.link_first_segment();
        core.base.store(0, Ordering::Relaxed);
        // Fence: header and slots, before the root becomes live.
        core.medium().fence();
        Ok(core)
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let mut core = Self::load(heap)?;
        core.heap.recover(|block| core.is_linked(block))?;
        let count_at = core.heap.header() + COUNT;
        let count = core.medium().load(count_at);
        if count != COUNT_UNKNOWN {
            core.base.store(count as i64, Ordering::Relaxed);
            core.base_estimate = count as i64;
            core.medium().store(count_at, COUNT_UNKNOWN);
            // Flush and fence: from the first change on the count in the header is not to be believed.
            core.medium().persist(count_at, 8);
        }
        core.heap.verify()?;
        Ok(core)
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Reads the header.
    fn load(heap: Heap<M>) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        let mut segments = [0; SEGMENT_COUNT];
        for (index, segment) in segments.iter_mut().enumerate() {
            *segment = medium.load(header + SEGMENTS + index as u64 * 8);
        }
        let count = segments.iter().take_while(|&&segment| segment != 0).count() as u32;
        if count == 0 {
            let what = "a hash map's header has no segment of buckets".to_owned();
            return Err(PoolError::corrupt(header + SEGMENTS, what));
        }
        let bits = K::BUCKET_BITS + count - 1;
        Ok(Core {
            seed: medium.load(header + SEED),
            generation: AtomicU64::new(medium.load(header + GENERATION)),
            swept: AtomicU64::new(medium.load(header + SWEPT)),
            bits: AtomicU32::new(bits),
            segments: segments.map(AtomicU64::new),
            next_group: AtomicU64::new(Self::first_group(bits)),
            groups_done: AtomicU64::new(0),
            growing: Mutex::new(()),
            sweep: Mutex::new(Sweep::default()),
            deltas: Self::new_deltas(),
            base: AtomicI64::new(UNKNOWN),
            // After a crash nobody knows; between two doublings it is this on average.
            base_estimate: if bits == K::BUCKET_BITS { 0 } else { (1 << bits) / 4 * 3 },
            types: PhantomData,
            heap,
        })
    }

    /// Whether the list, or the header, leads to `block`, whose content may be garbage. A marked node is
    /// unlinked instead: nobody else will. Every link on the way is flushed: it may lie in the caches alone,
    /// and a link that was lost later would lead to a block that is free, or to none.
    fn is_linked(&self, block: Block) -> bool {
        let medium = self.medium();
        // Relaxed: nobody else is here yet.
        if self.segments.iter().any(|s| s.load(Ordering::Relaxed) == block.offset) {
            return true;
        }
        let tag = medium.load(block.offset + TAG);
        if tag == 0 {
            // Generations begin at 1: no node was ever here.
            return false;
        }
        let order = tag_order(tag);
        let (_, mut at, mut link) = self.start(order);
        loop {
            // Flush: fenced by the heap, before it forgets that the block was doubtful.
            // Redundant: but where a process was killed before, which the simulator does not know.
            medium.flush(at, 8);
            if link.has(DUMMY) {
                if Order::of_bucket(dummy_of(link)) > order {
                    return false;
                }
                at = self.slot(dummy_of(link));
                link = Link::at(medium, at).load();
                continue;
            }
            let node = link.offset();
            if link.is_null() || tag_order(medium.load(node + TAG)) > order {
                return false;
            }
            let own = Link::at(medium, node).load();
            if node == block.offset {
                // Flush: as above; the node's own link says whether it is marked.
                // Redundant: but where a process was killed before, which the simulator does not know.
                medium.flush(node, 8);
                if own.is_marked() {
                    medium.store(at, redirect(link, target(own)).raw());
                    // Flush: as above.
                    medium.flush(at, 8);
                }
                return !own.is_marked();
            }
            (at, link) = (node, own);
        }
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> Drop for Core<K, V, M, MULTI> {
    /// Leaves the count behind. The heap settles after this.
    fn drop(&mut self) {
        let base = *self.base.get_mut();
        let medium = self.heap.medium();
        if base == UNKNOWN || medium.fault().is_some() {
            return;
        }
        let delta: i64 =
            self.deltas.iter().map(|delta| delta.entries.load(Ordering::Relaxed)).sum();
        let at = self.heap.header() + COUNT;
        medium.store(at, (base + delta).max(0) as u64);
        // Flush and fence: the count, before the pool is marked as closed properly.
        // Redundant: if this is lost, the next `len` counts.
        medium.persist(at, 8);
    }
}
