//! Creating a map, and opening it.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error as PoolError, Link, Medium};

use super::Core;
use super::damage::Damage;
use super::iterate::{Sweep, UNKNOWN};
use super::layout::{
    COUNT, DUMMY, GENERATION, OPTIONS, Order, SEED, SEED_CHECK, SEGMENT_COUNT, SEGMENTS, SUMMED,
    SWEPT, TAG, redirect, tag_order, target,
};
use super::seal::{open_word, seal_link, seal_word};
use super::walk::Progress;
use crate::batch::Gate;
use crate::options::MapOptions;
use crate::shared::Site;
use crate::stored::{Key, Stored};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Version of the layout, part of the root's type. It changes with `layout.rs`.
const LAYOUT: u64 = 2;

/// The header's count when it is not known, as always while the map is open.
const COUNT_UNKNOWN: u64 = u64::MAX >> 16;

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
        Self::create_at(Site::alone(heap), &MapOptions::new())
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let core = Self::load(Site::alone(heap))?;
        core.heap.recover(|block| core.is_linked(block))?;
        core.take_count()?;
        Ok(core)
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Creates an empty map over an existing header, which is all zeros.
    pub(super) fn create_at(heap: Site<M>, options: &MapOptions) -> Result<Self, PoolError> {
        let medium = heap.medium();
        let header = heap.header();
        // Clients cannot guess the pool's random identity, so they cannot aim keys at one bucket.
        let seed = xxh3_64_with_seed(&heap.pool().uuid(), place_in_pool(&heap));
        medium.store(header + SEED, seed);
        medium.store(header + SEED_CHECK, seed_check(seed));
        let stored_options = if options.has_checksums() { SUMMED } else { 0 };
        let words =
            [(GENERATION, 1), (SWEPT, 1), (COUNT, COUNT_UNKNOWN), (OPTIONS, stored_options)];
        for (field, number) in words {
            medium.store(header + field, seal_word(field, number));
        }
        let segment = {
            let mut lane = heap.enter().prepare_to_write();
            lane.allocate_zeroed(8 << K::BUCKET_BITS)?.offset
        };
        medium.store(header + SEGMENTS, seal_word(SEGMENTS, segment));
        // Flush: fenced below, together with the first segment.
        medium.flush(header, SEGMENTS + 8);
        let core = Self::load(heap)?;
        core.link_first_segment();
        core.base.store(0, Ordering::Relaxed);
        // Fence: header and slots, before the root becomes live.
        core.medium().fence();
        Ok(core)
    }

    /// Reads the header.
    pub(super) fn load(heap: Site<M>) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        let seed = medium.load(header + SEED);
        if medium.load(header + SEED_CHECK) != seed_check(seed) {
            let what = "the seed of a hash map's hash does not fit its check";
            return Err(PoolError::corrupt(header + SEED, what));
        }
        let word = |field: u64| {
            let what = || format!("byte {field} of a hash map's header does not fit its check");
            open_word(field, medium.load(header + field))
                .ok_or_else(|| PoolError::corrupt(header + field, what()))
        };
        let (segments, count) = Self::load_segments(&heap)?;
        let generation = word(GENERATION)?;
        // If the word is damaged, the dead entries are swept out again.
        let swept = word(SWEPT).unwrap_or(generation.wrapping_sub(1));
        let is_summed = word(OPTIONS)? & SUMMED != 0;
        let bits = K::BUCKET_BITS + count - 1;
        // After a crash, the number of entries is not known. Between two doublings it is this on
        // average.
        let estimate = if bits == K::BUCKET_BITS { 0 } else { (1 << bits) / 4 * 3 };
        Ok(Core {
            seed,
            is_summed,
            generation: AtomicU64::new(generation),
            swept: AtomicU64::new(swept),
            bits: AtomicU32::new(bits),
            segments: segments.map(AtomicU64::new),
            next_group: AtomicU64::new(Self::first_group(bits)),
            groups_done: AtomicU64::new(0),
            growing: Mutex::new(()),
            sweep: Mutex::new(Sweep::default()),
            deltas: Self::new_deltas(),
            base: AtomicI64::new(UNKNOWN),
            base_estimate: AtomicI64::new(estimate),
            gate: Gate::default(),
            intents: OnceLock::new(),
            types: PhantomData,
            heap,
        })
    }

    /// Offsets of the segments, and how many there are.
    fn load_segments(heap: &Site<M>) -> Result<([u64; SEGMENT_COUNT], u32), PoolError> {
        let mut segments = [0; SEGMENT_COUNT];
        let mut count = 0;
        for (index, segment) in segments.iter_mut().enumerate() {
            let field = SEGMENTS + index as u64 * 8;
            let at = heap.header() + field;
            let word = heap.medium().load(at);
            if word == 0 {
                continue;
            }
            // Each segment except the first has as many buckets as all segments before it.
            let len = 8 << (K::BUCKET_BITS + (index as u32).saturating_sub(1));
            *segment = match open_word(field, word) {
                Some(offset) if count == index as u32 && heap.has_large(offset, len)? => offset,
                _ => {
                    let what =
                        format!("segment {index} of a hash map's buckets is not where it was");
                    return Err(PoolError::corrupt(at, what));
                }
            };
            count += 1;
        }
        if count == 0 {
            let what = "a hash map's header has no segment of buckets";
            return Err(PoolError::corrupt(heap.header() + SEGMENTS, what));
        }
        Ok((segments, count))
    }

    /// Reads the number of entries, if a proper close has stored it. Called after recovery, before
    /// other threads use the map.
    pub(super) fn take_count(&self) -> Result<(), PoolError> {
        let count_at = self.heap.header() + COUNT;
        let word = self.medium().load(count_at);
        // A damaged count counts as unknown.
        let known = open_word(COUNT, word).filter(|&count| count != COUNT_UNKNOWN);
        if let Some(count) = known {
            self.base.store(count as i64, Ordering::Relaxed);
            self.base_estimate.store(count as i64, Ordering::Relaxed);
        }
        let unknown = seal_word(COUNT, COUNT_UNKNOWN);
        if word != unknown {
            self.medium().store(count_at, unknown);
            // Flush and fence: before the first change, after which the stored count would be
            // wrong.
            self.medium().persist(count_at, 8);
        }
        self.heap.verify()
    }

    /// Whether the list or the header leads to `block`, whose content may be garbage. When damage
    /// ends the search, the block is not known to be free, and kept.
    pub(super) fn is_linked(&self, block: Block) -> bool {
        self.find_block(block).unwrap_or(true)
    }

    /// Searches the list for `block`. If its node is marked, this unlinks it, because no other
    /// operation will. Every link on the way is flushed: it may be in the caches only, and if it
    /// were lost later, the list would lead to a free block, or to none.
    fn find_block(&self, block: Block) -> Result<bool, Damage> {
        let medium = self.medium();
        // Relaxed: no other thread has the map yet.
        if self.segments.iter().any(|s| s.load(Ordering::Relaxed) == block.offset) {
            return Ok(true);
        }
        let tag = medium.load(block.offset + TAG);
        if !self.is_tag(block.offset, tag) {
            // No node was ever here.
            return Ok(false);
        }
        let (order, bits) = (tag_order(tag), self.bits());
        let (start, mut at, mut link) = self.start(order, bits)?;
        let mut progress = Progress::from_bucket::<K>(start, bits);
        loop {
            // Flush: fenced by the heap, before it forgets that the block was in doubt.
            // Redundant: except when a process is killed and the power fails later.
            medium.flush(at, 8);
            if link.has(DUMMY) {
                let bucket = self.step_to_dummy(&mut progress, at, link)?;
                if Order::of_bucket(bucket) > order {
                    return Ok(false);
                }
                (at, link) = self.enter_slot(bucket, |link| link.load())?;
                continue;
            }
            if link.is_null() {
                self.step_to_end(&progress, at)?;
                return Ok(false);
            }
            let (node, node_tag) = self.step_to_node(&mut progress, at, link)?;
            if tag_order(node_tag) > order {
                return Ok(false);
            }
            let own = Link::at(medium, node).load();
            if node == block.offset {
                // Flush: as above; the node's own link says whether it is marked.
                // Redundant: except when a process is killed and the power fails later.
                medium.flush(node, 8);
                let is_gone = self.is_gone(node, own)?;
                if is_gone {
                    medium.store(at, seal_link(at, redirect(link, target(own))).raw());
                    // Flush: as above.
                    medium.flush(at, 8);
                }
                return Ok(!is_gone);
            }
            (at, link) = (node, own);
        }
    }
}

/// A number that no other map in the pool has at the same time.
fn place_in_pool<M: Medium>(site: &Site<M>) -> u64 {
    u64::from(site.owner().0) | u64::from(site.member().get()) << 32
}

/// The check of the seed, which lies beside it in the header.
fn seed_check(seed: u64) -> u64 {
    xxh3_64(&seed.to_le_bytes())
}

impl<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> Drop for Core<K, V, M, MULTI> {
    /// Stores the count in the header. The heap is quiesced after this.
    fn drop(&mut self) {
        let base = *self.base.get_mut();
        let medium = self.heap.medium();
        if base == UNKNOWN || medium.fault().is_some() {
            return;
        }
        let delta: i64 =
            self.deltas.iter().map(|delta| delta.entries.load(Ordering::Relaxed)).sum();
        let at = self.heap.header() + COUNT;
        medium.store(at, seal_word(COUNT, (base + delta).max(0) as u64));
        // Flush and fence: the count, before the pool is marked as closed properly.
        // Redundant: if this is lost, the next `len` counts.
        medium.persist(at, 8);
    }
}
