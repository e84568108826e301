//! What a segment needs before this opening uses it: its volatile words, and an end to what a crash
//! has interrupted in it.
//!
//! All slots are read once, in the order in which they lie, because a segment is in no cache then;
//! what is compared with other buckets is compared in a copy.

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::bucket::Bucket;
use super::layout::{
    Control, Hash, Prints, READYING, SLOT_COUNT, Stamp, bucket_count, each_slot, is_sealed,
    not_gone, slot_at, slots_of, write_segment_head,
};
use super::segment::bucket_at;
use crate::Result;
use crate::stored::{Key, Stored};

/// Buckets that are fetched ahead of the one that is read.
const AHEAD: u64 = 8;

/// What the slots of a bucket hold.
struct Slots {
    /// Of the segment's entries; [`Stamp::NONE`] elsewhere.
    stamps: [Stamp; SLOT_COUNT as usize],
    prints: Prints,
    /// Slots, as bits, whose entries have their homes elsewhere.
    displaced: u32,
    /// Slots, as bits, whose words no entry has.
    damaged: u32,
}

/// Which entries are a segment's.
#[derive(Clone, Copy)]
struct Share {
    depth: u32,
    prefix: u64,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Rebuilds the volatile words of a segment that this opening of the pool has not touched yet.
    /// One thread at a time does this.
    pub(super) fn make_ready(&self, segment: u64, hash: Hash, depth: u32) -> Result<()> {
        let medium = self.medium();
        // Release: before what is changed here, for the case that this process is killed.
        medium.store(self.heap.header() + READYING, segment);
        let share = Share { depth, prefix: hash.prefix(depth) };
        let mut buckets: Vec<Slots> =
            (0..bucket_count::<K>()).map(|index| self.read_slots(segment, index, share)).collect();
        let displaced = self.settle_displaced(segment, &mut buckets);
        let is_damaged = buckets.iter().any(|slots| slots.damaged != 0);
        for (index, (slots, displaced)) in (0..).zip(buckets.iter().zip(displaced)) {
            let bucket = bucket_at(segment, index);
            let control = Control::new(displaced);
            let control = if is_damaged { control.damaged() } else { control };
            bucket.set_prints(medium, slots.prints);
            medium.store(bucket.0, control.0);
        }
        // Fence: for the flushes, before the entries are shown to anybody.
        // Redundant: unless a crash has interrupted a move or a removal, and another one comes
        // before the next fence of this thread.
        medium.fence();
        write_segment_head(medium, segment, self.heap.member(), hash.first(depth), self.epoch);
        Ok(())
    }

    /// Reads the slots of a bucket, and takes back marks of removals. The caller fences.
    ///
    /// Whether a slot is valid, and its entry displaced, is as good as random: branches there would
    /// cost more than all the rest.
    #[inline(always)]
    fn read_slots(&self, segment: u64, index: u64, share: Share) -> Slots {
        let (medium, bits, bucket) = (self.medium(), K::SEGMENT_BITS, bucket_at(segment, index));
        if index + AHEAD < bucket_count::<K>() {
            let ahead = bucket_at(segment, index + AHEAD).0;
            medium.prefetch(ahead);
            medium.prefetch(ahead + LINE_LEN);
        }
        let mut stamps = [Stamp::NONE; SLOT_COUNT as usize];
        let [mut used, mut displaced, mut damaged] = [0_u32; 3];
        let (mut prints, slots) = (Prints::default(), slots_of::<K>(index));
        for (slot, of_entry) in (0..).zip(&mut stamps) {
            let stamp = bucket.stamp(medium, slot);
            let word = if Self::IS_INLINE { 0 } else { bucket.word(medium, slot) };
            let entry = stamp.hash(index, bits);
            let is_slot = slots >> slot & 1 != 0;
            let is_damaged = is_slot & Self::is_damaged(slot_at(bucket.0, slot), stamp, word);
            // What a split has moved to another segment is left here until it is overwritten.
            let is_here = entry.prefix(share.depth) == share.prefix;
            let is_entry = is_slot & !is_damaged & stamp.is_valid() & is_here;
            *of_entry = if is_entry { stamp } else { Stamp::NONE };
            prints = prints.with(slot, entry.fingerprint());
            used |= u32::from(is_entry) << slot;
            displaced |= u32::from(is_entry & stamp.is_displaced()) << slot;
            damaged |= u32::from(is_damaged) << slot;
            if !Self::IS_INLINE && is_entry && word != not_gone(word) {
                self.keep_unremoved(bucket, slot, word);
            }
        }
        Slots { stamps, prints: prints.without(slots_but(used)), displaced, damaged }
    }

    /// Whether the words of a slot are none that an entry has, or had. Slots of words have bits
    /// that must be zero, and no check.
    pub(super) fn is_slot_damaged(&self, bucket: Bucket, slot: u32) -> bool {
        let (stamp, word) = (bucket.stamp(self.medium(), slot), bucket.word(self.medium(), slot));
        Self::is_damaged(slot_at(bucket.0, slot), stamp, word)
    }

    /// The same of the slot at `at`, which has these words.
    #[inline(always)]
    fn is_damaged(at: u64, stamp: Stamp, word: u64) -> bool {
        let is_possible = stamp.is_possible(K::SEGMENT_BITS);
        match Self::IS_INLINE {
            true => stamp.is_valid() & !is_possible,
            false => {
                let is_whole = stamp.is_valid() & is_possible & is_sealed(at, stamp, word);
                !is_whole & (stamp != Stamp::NONE)
            }
        }
    }

    /// Takes back the mark of a removal that a crash has interrupted before the record was a
    /// suspect. The caller fences.
    #[cold]
    fn keep_unremoved(&self, bucket: Bucket, slot: u32, word: u64) {
        let at = slot_at(bucket.0, slot) + WORD_LEN;
        self.medium().store(at, not_gone(word));
        // Flush: fenced by the caller, before anybody acts on the entry. If the record became a
        // suspect with the mark still there, recovery would remove the entry.
        // Redundant: unless another crash interrupts a replacement of the same entry.
        self.medium().flush(at, WORD_LEN);
    }

    /// Counts for each bucket the entries that are displaced from it. Those that lie in their
    /// homes, too, are made void instead: a crash interrupted them on their way from one bucket to
    /// the other.
    fn settle_displaced(&self, segment: u64, buckets: &mut [Slots]) -> Vec<u32> {
        let bits = K::SEGMENT_BITS;
        let mut counts = vec![0_u32; buckets.len()];
        let mut doubles = Vec::new();
        for index in 0..buckets.len() {
            for slot in each_slot(buckets[index].displaced) {
                let hash = buckets[index].stamps[slot as usize].hash(index as u64, bits);
                let home = hash.home(bits);
                let at_home = &buckets[home as usize].stamps;
                let here = bucket_at(segment, index as u64);
                match self.is_double(bucket_at(segment, home), at_home, (here, slot), hash) {
                    true => doubles.push((index, slot)),
                    false => counts[home as usize] += 1,
                }
            }
        }
        self.void_doubles(segment, buckets, &doubles);
        counts
    }

    /// Whether the entry in a slot of another bucket also lies in its home, which has these stamps.
    #[inline(always)]
    fn is_double(
        &self,
        home: Bucket,
        at_home: &[Stamp; SLOT_COUNT as usize],
        (bucket, slot): (Bucket, u32),
        hash: Hash,
    ) -> bool {
        let stamp = Self::stamp(hash, false);
        if !at_home.contains(&stamp) {
            return false;
        }
        let content = |bucket: Bucket, slot| Self::content(bucket.word(self.medium(), slot));
        // Two records of one hash may have different keys.
        Self::IS_INLINE
            || (0..).zip(at_home).any(|(other, of_entry)| {
                *of_entry == stamp && content(home, other) == content(bucket, slot)
            })
    }

    /// Makes slots void whose entries lie in their homes, too. Whoever wrote those has flushed
    /// them, or `flush_unfinished` has, and the caller fences.
    fn void_doubles(&self, segment: u64, buckets: &mut [Slots], doubles: &[(usize, u32)]) {
        let medium = self.medium();
        if !doubles.is_empty() {
            // Fence: what lies at home, before the other copy may be lost.
            // Redundant: unless a process was killed in the middle of a move before, and the power
            // fails in the middle of this.
            medium.fence();
        }
        for &(index, slot) in doubles {
            let bucket = bucket_at(segment, index as u64);
            buckets[index].prints = buckets[index].prints.without(1 << slot);
            self.make_void(bucket, slot);
            // Flush: fenced by the caller.
            // Redundant: unless the entry is removed later, and then the power fails.
            medium.flush(slot_at(bucket.0, slot), WORD_LEN);
        }
    }
}

/// All slots but these, as bits.
const fn slots_but(slots: u32) -> u32 {
    !slots & ((1 << SLOT_COUNT) - 1)
}

#[cfg(test)]
mod tests {
    use remanent_pmem::{Mapped, Pool};

    use super::super::ExtendibleMap;
    use super::super::segment::Probe;
    use super::*;

    type Map = ExtendibleMap<str, [u8]>;
    type MapCore = Core<str, [u8], Mapped>;

    /// Has the entry of `key` twice, as a crash leaves it on its way from one bucket to the other,
    /// makes its segment ready, and passes the place of the displaced one.
    fn with_twin(key: &str, change_at_home: impl Fn(u64) -> u64, check: impl Fn(&Map, Bucket)) {
        let pool = Pool::options().create_in_memory().unwrap();
        let map: Map = ExtendibleMap::create(&pool, "map").unwrap();
        map.put(key, b"value").unwrap();
        let (core, medium, hash) = (&map.core, pool.medium(), map.core.hash(key));
        let segment = core.place(hash).unwrap().segment;
        let pair = MapCore::pair(segment, hash);
        let (slot, _) = core.find_slot(pair.home, false, &Probe { key, hash }).unwrap();
        let word = pair.home.word(medium, slot);
        let stamp = MapCore::stamp(hash, true);
        let twin = MapCore::word_for(pair.other, TWIN, stamp, MapCore::content(word));
        pair.other.store_slot(medium, TWIN, stamp, twin);
        medium.store(slot_at(pair.home.0, slot) + WORD_LEN, change_at_home(word));
        core.make_ready(segment, hash, 0).unwrap();
        check(&map, pair.other);
        assert_eq!(map.get(key).unwrap().unwrap(), b"value");
    }

    const TWIN: u32 = 1;

    #[test]
    fn an_entry_that_lies_at_home_too_is_there_once() {
        with_twin(
            "key",
            |word| word,
            |map, other| {
                assert_eq!(other.stamp(map.core.medium(), TWIN), Stamp::NONE);
            },
        );
    }

    #[test]
    fn an_entry_whose_copy_at_home_is_damaged_is_kept() {
        with_twin(
            "key",
            |word| word ^ 1 << 60,
            |map, other| {
                assert!(other.stamp(map.core.medium(), TWIN).is_valid());
            },
        );
    }
}
