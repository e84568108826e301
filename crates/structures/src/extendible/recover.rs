//! Creating and opening a map, and recovery.
//!
//! Opening looks only at the blocks that the heap has in doubt. Every segment is [made
//! ready](Core::make_ready) by the first thread that touches it.

use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Core;
use super::bucket::Shadows;
use super::directory::Directory;
use super::layout::{
    ANYTHING, BUCKET_LEN, CLEARED, COUNT, COUNT_UNKNOWN, Hash, Kind, LAYOUT, OPTIONS, ROOT, SEED,
    SEED_INVERTED, SUMMED, Target, UNSUMMED, bucket_count, each_slot, not_gone, notes,
    record_offset, segment_len, slots_of, write_segment_head,
};
use super::multi::chain::Dying;
use super::multi::recover::Walks;
use super::observe::Observer;
use super::segment::bucket_at;
use crate::batch::Gate;
use crate::count::Count;
use crate::options::MapOptions;
use crate::shared::{Site, recover};
use crate::stored::{Key, Stored};
use crate::{Error, Result};

impl<K, V, M, const MULTI: bool> RootObject<M> for Core<K, V, M, MULTI>
where
    K: Key + ?Sized + 'static,
    V: Stored + ?Sized + 'static,
    M: Medium,
{
    fn root_type() -> RootType {
        let kind = if MULTI { "ExtendibleMultiMap" } else { "ExtendibleMap" };
        let name = format!("{kind}<{}, {}>", K::type_name(), V::type_name());
        RootType { name, layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        Self::create_at(Site::alone(heap), &MapOptions::new())
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let core = Self::load(Site::alone(heap))?;
        recover(&core.heap, |block| core.is_linked(block))?;
        core.take_count()?;
        Ok(core)
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Makes an empty map. Its header exists and is zero.
    pub(super) fn create_at(heap: Site<M>, options: &MapOptions) -> Result<Self, PoolError> {
        let seed = xxh3_64_with_seed(&heap.pool().uuid(), heap.header() ^ heap.generation() << 48);
        let core = Self::new(heap, seed, options.has_checksums());
        let (medium, header) = (core.medium(), core.heap.header());
        {
            let mut lane = core.heap.enter().prepare_to_write();
            let segment = lane.allocate(segment_len::<K>())?.offset;
            core.write_empty_segment(segment);
            let root = core.root_at();
            medium.store(root, Target::Segment(segment).seal(root));
            medium.store(header + SEED, seed);
            medium.store(header + SEED_INVERTED, !seed);
            let options = if core.is_summed { SUMMED } else { UNSUMMED };
            medium.store(header + OPTIONS, options);
            medium.store(header + COUNT, COUNT_UNKNOWN);
            // Flush: the header; fenced below.
            medium.flush(header, LINE_LEN);
            // Fence: segment and header, before the root becomes live.
            lane.fence();
        }
        core.count.set(0);
        Ok(core)
    }

    /// Writes a segment without entries, and flushes it. The caller fences.
    pub(super) fn write_empty_segment(&self, segment: u64) {
        let medium = self.medium();
        medium.write_zeros(segment, segment_len::<K>());
        write_segment_head(medium, segment, self.heap.member(), Hash(0), self.epoch);
        // Flush: fenced by the caller.
        medium.flush(segment, segment_len::<K>());
    }

    /// Reads the header of an existing map.
    pub(super) fn load(heap: Site<M>) -> Result<Self, PoolError> {
        let (medium, header) = (heap.medium(), heap.header());
        let is_summed = match medium.load(header + OPTIONS) {
            SUMMED => true,
            UNSUMMED => false,
            _ => {
                let what = "the header of a map does not say whether records have checksums";
                return Err(PoolError::corrupt(header + OPTIONS, what));
            }
        };
        let target = |field| Target::open(header + field, medium.load(header + field));
        if target(CLEARED).is_some() && target(CLEARED) == target(ROOT) {
            // A crash came between the two words that clear a map: it is not cleared.
            medium.store(header + CLEARED, 0);
            // Flush: fenced by the heap's recovery, and before the next clear.
            // Redundant: the header is flushed by whoever finds the map again.
            medium.flush(header + CLEARED, WORD_LEN);
        }
        let seed = medium.load(header + SEED);
        if medium.load(header + SEED_INVERTED) != !seed {
            return Err(PoolError::corrupt(header + SEED, "the seed of a map has changed"));
        }
        let core = Self::new(heap, seed, is_summed);
        core.flush_unfinished();
        Ok(core)
    }

    /// Flushes what was being changed when a process was killed. Another kill leaves the same work,
    /// until recovery has fenced and the notes are [forgotten](Core::take_count).
    fn flush_unfinished(&self) {
        let medium = self.medium();
        for at in notes(self.heap.header()) {
            let offset = medium.load(at);
            if offset == 0 {
                continue;
            }
            if offset == ANYTHING {
                // What damage leads nowhere is not used either.
                drop(self.nodes().for_each_segment(self.root_at(), &mut |pointer, _| {
                    self.flush_segment(pointer.target.offset());
                    Ok(())
                }));
            } else if Kind::Segment.is_at(medium, offset, self.heap.member())
                && offset.checked_add(segment_len::<K>()).is_some_and(|end| end <= medium.len())
            {
                self.flush_segment(offset);
            } else if offset.is_multiple_of(WORD_LEN) && offset < medium.len() {
                // Flush: a value in a record; the rest as for segments.
                // Redundant: as for segments.
                medium.flush(offset, WORD_LEN);
            }
        }
    }

    /// Flushes a segment, and values of its records that are words.
    fn flush_segment(&self, segment: u64) {
        let medium = self.medium();
        // Flush: fenced by the heap's recovery, before anybody acts on what is there.
        // Redundant: unless a process was killed before and the power fails later.
        medium.flush(segment, segment_len::<K>());
        if Self::IS_INLINE || !Self::HAS_VALUE_WORD {
            return;
        }
        for index in 0..bucket_count::<K>() {
            let bucket = bucket_at(segment, index);
            for slot in each_slot(slots_of::<K>(index)) {
                let record = self.record_at(Self::content(bucket.word(medium, slot)));
                if let Some(record) = record.filter(|_| bucket.stamp(medium, slot).is_valid()) {
                    // Flush: as above.
                    // Redundant: as above.
                    medium.flush(record.value_at(Self::FORM), WORD_LEN);
                }
            }
        }
    }

    /// Takes the number of entries from the header, if a proper close stored it there, and forgets
    /// the notes of former openings and what recovery has walked along. Called after recovery,
    /// before others use the map.
    pub(super) fn take_count(&self) -> Result<(), PoolError> {
        let (medium, at) = (self.medium(), self.heap.header() + COUNT);
        self.walks.end();
        for note in notes(self.heap.header()) {
            if medium.load(note) != 0 {
                medium.store(note, 0);
            }
        }
        let count = medium.load(at);
        if count != COUNT_UNKNOWN {
            self.count.set(count);
            medium.store(at, COUNT_UNKNOWN);
            // Flush and fence: before the first change, since the count in the header is wrong
            // after that.
            // Redundant fence: unless another thread makes the first change.
            medium.persist(at, WORD_LEN);
        }
        self.heap.verify()
    }

    fn new(heap: Site<M>, seed: u64, is_summed: bool) -> Self {
        // Distinct for 2^32 consecutive openings. An odd factor permutes them: consecutive openings
        // differ in many bits, so that a single flipped bit does not make a segment look as if this
        // opening had touched it.
        let epoch = (heap.pool().opens() as u32).wrapping_mul(0x9e37_79b9);
        Core {
            seed,
            is_summed,
            epoch,
            directory: Directory::new(),
            shape: PauseMutex::new(()),
            shadows: Shadows::new(),
            dying: Dying::new::<MULTI>(),
            walks: Walks::default(),
            count: Count::unknown(),
            freeing: PauseMutex::new(()),
            has_cleared: AtomicBool::new(heap.medium().load(heap.header() + CLEARED) != 0),
            gate: Gate::default(),
            observer: Observer::nobody(),
            intents: OnceLock::new(),
            types: PhantomData,
            heap,
        }
    }

    /// Whether the map leads to `block`, whose content may be garbage.
    pub(super) fn is_linked(&self, block: Block) -> Result<bool> {
        for kind in Kind::candidates(self.medium(), block.offset, self.heap.member()) {
            if self.is_linked_from(self.root_at(), block, kind)?
                || self.has_cleared() && self.is_linked_cleared(block, kind)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether what was cleared still leads to `block`.
    fn is_linked_cleared(&self, block: Block, kind: Kind) -> Result<bool> {
        match self.is_linked_from(self.cleared_at(), block, kind) {
            // It is being taken apart: what led there is gone.
            Err(Error::Corrupt { offset, .. }) => {
                // Flush: a pointer that a killed process may have removed in the caches alone;
                // fenced by the heap before it forgets that the block was suspect.
                self.medium().flush(offset, WORD_LEN);
                Ok(false)
            }
            found => found,
        }
    }

    fn is_linked_from(&self, root: u64, block: Block, kind: Kind) -> Result<bool> {
        match kind {
            Kind::Record => self.is_linked_record(root, block),
            Kind::Segment if block.len < segment_len::<K>() => Ok(false),
            Kind::Segment | Kind::Node => self.nodes().leads_to(root, block, kind),
        }
    }

    fn is_linked_record(&self, root: u64, block: Block) -> Result<bool> {
        let record = self.record_at(block.offset).filter(|record| record.fits(Self::FORM, block));
        let Some(record) = record.filter(|_| !Self::IS_INLINE) else { return Ok(false) };
        let hash = self.with_bytes(record.key_at(Self::FORM), record.key_len, |key| {
            K::with_stored(key, |key| self.hash(key))
        });
        let pair = Self::pair(self.nodes().walk(root, hash, |_| false)?.target.offset(), hash);
        let medium = self.medium();
        let mut is_linked = false;
        for (bucket, slots, is_displaced) in pair.slots::<K>() {
            for slot in each_slot(slots) {
                let (stamp, word) = (bucket.stamp(medium, slot), bucket.word(medium, slot));
                let is_of_hash =
                    stamp.is_valid() && stamp.is_same_as(Self::stamp(hash, is_displaced));
                if is_of_hash && MULTI {
                    is_linked |= self.is_linked_in_chain(bucket, slot, hash, block);
                    continue;
                }
                if !is_of_hash || record_offset(word) != block.offset {
                    continue;
                }
                match word == not_gone(word) {
                    true => is_linked = true,
                    // The removal of the entry is completed.
                    false => self.make_void(bucket, slot),
                }
            }
            // Flush: the void slot, and what a killed process may have left in the caches alone;
            // fenced by the heap before it forgets that the block was suspect.
            medium.flush(bucket.0, BUCKET_LEN);
        }
        Ok(is_linked)
    }
}

impl<K: ?Sized, V: ?Sized, M: Medium, const MULTI: bool> Drop for Core<K, V, M, MULTI> {
    /// Stores the count in the header. The heap is quiesced after this.
    fn drop(&mut self) {
        let medium = self.heap.medium();
        let Some(count) = self.count.get().filter(|_| medium.fault().is_none()) else { return };
        let at = self.heap.header() + COUNT;
        medium.store(at, count);
        // Flush and fence: the count, before the pool is marked as closed properly.
        // Redundant: if this is lost, the next `len` counts.
        medium.persist(at, WORD_LEN);
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::{Mapped, Medium, Pool, WORD_LEN};

    use super::super::ExtendibleMap;
    use super::super::layout::{gone, not_gone, slot_at};
    use super::super::segment::Probe;

    /// As a crash leaves it that comes after the mark is durable, and before the suspect is. If the
    /// record became a suspect later, recovery would take the mark for a removal.
    #[test]
    fn a_mark_that_came_alone_is_taken_back() {
        let pool = Pool::options().create_in_memory().unwrap();
        let map: ExtendibleMap<str, [u8]> = ExtendibleMap::create(&pool, "map").unwrap();
        map.put("key", b"value").unwrap();
        let (core, medium) = (&map.core, pool.medium());
        let probe = Probe { key: "key", hash: core.hash("key") };
        let segment = core.place(probe.hash).unwrap().segment;
        let bucket = super::Core::<str, [u8], Mapped>::pair(segment, probe.hash).home;
        let (slot, _) = core.find_slot(bucket, false, &probe).unwrap();
        let at = slot_at(bucket.0, slot) + WORD_LEN;
        let word = medium.load(at);
        medium.store(at, gone(word));
        core.make_ready(segment, probe.hash, 0).unwrap();
        assert_eq!((medium.load(at), not_gone(word)), (word, word));
        assert_eq!(map.get("key").unwrap().unwrap(), b"value");
    }
}
