//! Entries in a segment: finding one, and finding room for one.

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::bucket::{Bucket, Held};
use super::layout::{
    BALANCED_FROM, BUCKET_LEN, Control, Hash, Record, Stamp, bucket_count, each_slot,
    record_offset, seal_record, slot_at, slots_of,
};
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// What an entry's slot says of its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Payload {
    /// The value itself, or the offset of the record.
    pub(super) word: u64,
    /// A value of one word that lies in a record.
    pub(super) value: u64,
}

/// How an entry whose slot has the hash of a key fits the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is the key's.
    Whole,
    /// It was the key's, and its record is damaged or another's.
    Damaged,
    /// It is of another key with the same hash.
    Other,
}

impl Fit {
    /// What is said of the value: nothing if it is not known.
    #[inline(always)]
    pub(super) fn mark(self, payload: Payload) -> Payload {
        match self {
            Fit::Damaged => Payload { word: payload.word | NOT_WHOLE, ..payload },
            Fit::Whole | Fit::Other => payload,
        }
    }
}

/// In the offset of a payload's record, which is even: the record is damaged or another's.
pub(super) const NOT_WHOLE: u64 = 1;

/// A key to look for.
pub(super) struct Probe<'k, K: ?Sized> {
    pub(super) key: &'k K,
    pub(super) hash: Hash,
}

/// The two buckets where an entry may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) home: Bucket,
    pub(super) other: Bucket,
    home_index: u64,
    other_index: u64,
}

impl Pair {
    /// The two buckets, the slots that each may use, and whether entries are displaced there.
    pub(super) fn slots<K: Key + ?Sized>(self) -> [(Bucket, u32, bool); 2] {
        [
            (self.home, slots_of::<K>(self.home_index), false),
            (self.other, slots_of::<K>(self.other_index), true),
        ]
    }
}

/// A slot of a bucket that this thread may change.
pub(super) struct Room<'m, M: Medium> {
    pub(super) home: Held<'m, M>,
    /// The other bucket, if the slot is there.
    pub(super) other: Option<Held<'m, M>>,
    pub(super) slot: u32,
    /// What must not change before the slot is durable.
    pub(super) until_durable: Option<Held<'m, M>>,
}

impl<'m, M: Medium> Room<'m, M> {
    /// The bucket of the slot.
    #[inline(always)]
    pub(super) fn holder(&mut self) -> &mut Held<'m, M> {
        self.other.as_mut().unwrap_or(&mut self.home)
    }
}

/// What the search for room has come to.
pub(super) enum Found<'m, M: Medium> {
    Room(Room<'m, M>),
    /// Another thread has the bucket that is needed: begin anew.
    Busy,
    /// The segment has to be split.
    Full,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline(always)]
    pub(super) fn pair(segment: u64, hash: Hash) -> Pair {
        let home_index = hash.home(K::SEGMENT_BITS);
        let other_index = home_index ^ hash.step(K::SEGMENT_BITS);
        Pair {
            home: bucket_at(segment, home_index),
            other: bucket_at(segment, other_index),
            home_index,
            other_index,
        }
    }

    #[inline(always)]
    pub(super) fn stamp(hash: Hash, is_displaced: bool) -> Stamp {
        Stamp::new(hash, K::SEGMENT_BITS, is_displaced)
    }

    /// Finds an entry, for reading. The caller has a pin.
    #[inline(always)]
    pub(super) fn look(&self, segment: u64, probe: &Probe<'_, K>) -> Result<Option<Payload>> {
        let pair = Self::pair(segment, probe.hash);
        loop {
            let (found, before) = self.look_in(pair.home, false, probe);
            if found.is_some() {
                return Ok(found);
            }
            if before.has_displaced() {
                let (found, _) = self.look_in(pair.other, true, probe);
                if found.is_some() {
                    return Ok(found);
                }
            }
            // Acquire: after all loads of the search. An entry that went from one bucket to the
            // other meanwhile has changed this word; partner of `hide` and `count_displaced`.
            if pair.home.control(self.medium()).is_same_as(before) {
                return if before.is_damaged() { Err(self.lost_from(segment)) } else { Ok(None) };
            }
        }
    }

    /// What is said of a key that is not found where entries may be lost.
    #[cold]
    pub(super) fn lost_from(&self, segment: u64) -> Error {
        Error::corrupt(&self.heap, segment, "entries of a segment have changed and may be lost")
    }

    /// How the entry whose slot has this content, and the hash of a key, fits the key.
    #[inline(always)]
    fn fit(&self, content: u64, probe: &Probe<'_, K>) -> Fit {
        if Self::IS_INLINE || self.is_key_of(content, probe.key) {
            Fit::Whole
        } else if self.is_record_damaged(content, probe.hash) {
            Fit::Damaged
        } else {
            Fit::Other
        }
    }

    /// Whether a record has another hash than its slot. Then one of them is damaged, or from
    /// another time, and the key's value is not known.
    #[cold]
    fn is_record_damaged(&self, offset: u64, hash: Hash) -> bool {
        self.record_at(offset).is_none_or(|record| !self.is_of_hash(record, hash))
    }

    /// Whether the key of a record has this hash.
    pub(super) fn is_of_hash(&self, record: Record, hash: Hash) -> bool {
        self.with_bytes(record.key_at(Self::FORM), record.key_len, |key| {
            K::with_stored(key, |key| self.hash(key) == hash)
        })
    }

    /// Finds an entry in one of its buckets, for reading. Also returns the control word that was
    /// true of the answer.
    #[inline(always)]
    fn look_in(
        &self,
        bucket: Bucket,
        is_displaced: bool,
        probe: &Probe<'_, K>,
    ) -> (Option<Payload>, Control) {
        let medium = self.medium();
        let stamp = Self::stamp(probe.hash, is_displaced);
        'again: loop {
            let before = bucket.control(medium);
            for slot in each_slot(bucket.prints(medium).matching(probe.hash.fingerprint())) {
                if !bucket.stamp(medium, slot).is_same_as(stamp) {
                    continue;
                }
                let word = bucket.word(medium, slot);
                if !Self::IS_INLINE {
                    self.prefetch_record(Self::content(word));
                }
                let fit = self.fit(Self::content(word), probe);
                let payload = self.unreplaced(fit.mark(self.payload(word)), slot, before);
                // Acquire: after the loads of the slot and of the shadow, which is another
                // operation's once the control word has changed; partner of `set_control`.
                if !bucket.control(medium).is_same_as(before) {
                    continue 'again;
                }
                if fit != Fit::Other {
                    return (Some(payload), before);
                }
            }
            return (None, before);
        }
    }

    /// Has the records fetched that an entry in its home may lead to.
    #[inline(always)]
    pub(super) fn prefetch_records(&self, segment: u64, hash: Hash) {
        let (medium, home) = (self.medium(), Self::pair(segment, hash).home);
        for slot in each_slot(home.prints(medium).matching(hash.fingerprint())) {
            self.prefetch_record(Self::content(home.word(medium, slot)));
        }
    }

    /// The value in a slot's second word, or the offset of the record that it leads to.
    #[inline(always)]
    pub(super) fn content(word: u64) -> u64 {
        if Self::IS_INLINE { word } else { record_offset(word) }
    }

    /// The second word of a slot that gets this stamp, for a value or the offset of a record.
    #[inline(always)]
    pub(super) fn word_for(bucket: Bucket, slot: u32, stamp: Stamp, content: u64) -> u64 {
        match Self::IS_INLINE {
            true => content,
            false => seal_record(slot_at(bucket.0, slot), stamp, content),
        }
    }

    /// What a slot says, its second word being `word`.
    #[inline(always)]
    pub(super) fn payload(&self, word: u64) -> Payload {
        // Readers find what is being removed until the removal is durable.
        let word = Self::content(word);
        let is_word_in_record = !Self::IS_INLINE && Self::HAS_VALUE_WORD;
        let load = || {
            self.record_at(word).map_or(0, |record| self.medium().load(record.value_at(Self::FORM)))
        };
        // Where the word leads to no record, `with_value` says so.
        Payload { word, value: if is_word_in_record { load() } else { 0 } }
    }

    /// The payload with the old value, if that is being replaced.
    #[inline(always)]
    pub(super) fn unreplaced(&self, payload: Payload, slot: u32, control: Control) -> Payload {
        match control.shadow_of(slot) {
            None => payload,
            Some(shadow) if !Self::IS_INLINE && Self::HAS_VALUE_WORD => {
                Payload { value: self.shadows.get(shadow), ..payload }
            }
            Some(shadow) => Payload { word: Self::content(self.shadows.get(shadow)), ..payload },
        }
    }

    /// Finds the slot of an entry in a bucket that this thread has, and how it fits.
    #[inline(always)]
    pub(super) fn find_slot(
        &self,
        bucket: Bucket,
        is_displaced: bool,
        probe: &Probe<'_, K>,
    ) -> Option<(u32, Fit)> {
        let medium = self.medium();
        let stamp = Self::stamp(probe.hash, is_displaced);
        let matching = bucket.prints(medium).matching(probe.hash.fingerprint());
        each_slot(matching).find_map(|slot| {
            if !bucket.stamp(medium, slot).is_same_as(stamp) {
                return None;
            }
            let content = Self::content(bucket.word(medium, slot));
            if !Self::IS_INLINE {
                self.prefetch_record(content);
            }
            let fit = self.fit(content, probe);
            (fit != Fit::Other).then_some((slot, fit))
        })
    }

    /// Finds a free slot for a new entry. `other` is its other bucket, if this thread has it.
    #[inline(always)]
    pub(super) fn find_room<'m>(
        &'m self,
        segment: u64,
        hash: Hash,
        home: Held<'m, M>,
        other: Option<Held<'m, M>>,
    ) -> Found<'m, M> {
        let pair = Self::pair(segment, hash);
        let free = home.free_slots(slots_of::<K>(pair.home_index));
        if free != 0 && home.used() < BALANCED_FROM {
            let slot = free.trailing_zeros();
            return Found::Room(Room { home, other: None, slot, until_durable: None });
        }
        self.find_room_in_either(segment, pair, home, other)
    }

    #[inline(never)]
    fn find_room_in_either<'m>(
        &'m self,
        segment: u64,
        pair: Pair,
        mut home: Held<'m, M>,
        other: Option<Held<'m, M>>,
    ) -> Found<'m, M> {
        let [free_at_home, free_in_other] = pair
            .slots::<K>()
            .map(|(bucket, slots, _)| slots & !bucket.prints(self.medium()).used());
        let room_at_home = |home| {
            let slot = free_at_home.trailing_zeros();
            Found::Room(Room { home, other: None, slot, until_durable: None })
        };
        // The other bucket may change until it is held, but then this only balances worse.
        let is_other_better = free_in_other.count_ones() > free_at_home.count_ones();
        if free_at_home != 0 && !is_other_better {
            return room_at_home(home);
        }
        let Some(mut other) = other.or_else(|| pair.other.try_hold(self.medium())) else {
            return if free_at_home == 0 { Found::Busy } else { room_at_home(home) };
        };
        let free_in_other = other.free_slots(slots_of::<K>(pair.other_index));
        if free_in_other != 0 {
            let slot = free_in_other.trailing_zeros();
            return Found::Room(Room { home, other: Some(other), slot, until_durable: None });
        }
        if free_at_home != 0 {
            return room_at_home(home);
        }
        match self.make_room(segment, pair.home_index, &mut home, &other) {
            Made::Room(slot, kept) => {
                Found::Room(Room { home, other: None, slot, until_durable: Some(kept) })
            }
            Made::Busy => Found::Busy,
            Made::None => match self.make_room(segment, pair.other_index, &mut other, &home) {
                Made::Room(slot, kept) => {
                    Found::Room(Room { home, other: Some(other), slot, until_durable: Some(kept) })
                }
                Made::Busy => Found::Busy,
                Made::None => Found::Full,
            },
        }
    }

    /// Moves an entry from the bucket `from` to the other bucket where it may be. One fence.
    #[cold]
    fn make_room<'m>(
        &'m self,
        segment: u64,
        index: u64,
        from: &mut Held<'m, M>,
        also_held: &Held<'m, M>,
    ) -> Made<'m, M> {
        let (medium, bits) = (self.medium(), K::SEGMENT_BITS);
        let mut is_busy = false;
        let entries: Vec<(u32, Stamp)> = from.entries().collect();
        for (slot, stamp) in entries {
            let hash = stamp.hash(index, bits);
            let to_index = index ^ hash.step(bits);
            let to = bucket_at(segment, to_index);
            if to == also_held.bucket {
                continue;
            }
            let Some(mut to) = to.try_hold(medium) else {
                is_busy = true;
                continue;
            };
            let free = to.free_slots(slots_of::<K>(to_index));
            // The last slot is left to the bucket's own entries: each move costs a fence, and a
            // segment in which only single slots are free is better split.
            if free.count_ones() < 2 {
                continue;
            }
            let to_slot = free.trailing_zeros();
            let moved = Self::stamp(hash, !stamp.is_displaced());
            let content = Self::content(from.bucket.word(medium, slot));
            let word = Self::word_for(to.bucket, to_slot, moved, content);
            to.bucket.store_slot(medium, to_slot, moved, word);
            // Flush and fence: the copy, before what it was copied from is overwritten.
            medium.persist(slot_at(to.bucket.0, to_slot), 2 * WORD_LEN);
            to.show(to_slot, hash.fingerprint());
            // The home of the entry tells readers to look again, before they miss it.
            match stamp.is_displaced() {
                true => to.count_displaced(-1),
                false => {
                    // Who visits all entries may have passed here before the copy came.
                    to.set_control(to.control().next_version());
                    from.count_displaced(1);
                }
            }
            from.hide(1 << slot);
            // Nobody may remove the copy while a crash can still bring back the original.
            return Made::Room(slot, to);
        }
        if is_busy { Made::Busy } else { Made::None }
    }

    /// Takes all buckets of a segment, in order.
    pub(super) fn hold_all(&self, segment: u64) -> Result<Vec<Held<'_, M>>> {
        (0..bucket_count::<K>()).map(|index| self.hold(bucket_at(segment, index))).collect()
    }

    /// Takes a bucket; waits for those who have it.
    #[inline(always)]
    pub(super) fn hold(&self, bucket: Bucket) -> Result<Held<'_, M>> {
        loop {
            if let Some(held) = bucket.try_hold(self.medium()) {
                return Ok(held);
            }
            // A faulty medium reads as zeros, and waiting for those would never end.
            self.heap.verify()?;
            self.medium().pause();
        }
    }
}

/// What moving an entry has come to.
enum Made<'m, M: Medium> {
    /// This slot is free. The bucket with the copy is held until the slot is durable.
    Room(u32, Held<'m, M>),
    None,
    Busy,
}

#[inline(always)]
pub(super) fn bucket_at(segment: u64, index: u64) -> Bucket {
    Bucket(segment + index * BUCKET_LEN)
}

const _: () = assert!(BUCKET_LEN == 2 * LINE_LEN);
