//! Reading and changing entries.

use std::borrow::Borrow;

use remanent_pmem::heap::{Block, Lane, Suspect};
use remanent_pmem::{Frozen, LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::bucket::{Bucket, Held};
use super::directory::Place;
use super::layout::{
    Form, Hash, LEN_MAX, Record, Stamp, gone, is_word, note_at, slot_at, to_word, with_word,
};
use super::multi::chain::Linked;
use super::observe::Changed;
use super::segment::{Fit, Found, NOT_WHOLE, Payload, Probe, Room};
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// Lines of a record that are fetched before its key is compared: a key and a value of some length.
const RECORD_LINES_FETCHED: u64 = 3;

/// The entry of a key, in a bucket that this thread has.
pub(super) struct Entry<'m, M: Medium> {
    pub(super) home: Held<'m, M>,
    /// The other bucket, if the entry may be there.
    pub(super) other: Option<Held<'m, M>>,
    pub(super) slot: Option<u32>,
    /// Whether the entry's record is the key's. If not, nothing is known of it, and nothing freed.
    pub(super) is_whole: bool,
}

impl<'m, M: Medium> Entry<'m, M> {
    /// The bucket that has the slot.
    pub(super) fn holder(&mut self) -> &mut Held<'m, M> {
        self.other.as_mut().unwrap_or(&mut self.home)
    }
}

/// What a new slot's second word is to say, and the record that it leads to.
struct New {
    content: u64,
    record: Option<Block>,
}

impl New {
    fn give_back<M: Medium>(self, lane: &mut Lane<'_, M>) {
        if let Some(record) = self.record {
            lane.give_back(record);
        }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Whether entries lie in slots completely, without records.
    pub(super) const IS_INLINE: bool = !MULTI && is_word::<K>() && is_word::<V>();
    /// Whether values are words that are replaced in their places.
    pub(super) const HAS_VALUE_WORD: bool = !MULTI && is_word::<V>();
    pub(super) const FORM: Form = match (MULTI, Self::HAS_VALUE_WORD) {
        (true, _) => Form::Linked,
        (false, true) => Form::ValueWord,
        (false, false) => Form::Plain,
    };

    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> Hash {
        match is_word::<K>() {
            true => Hash::of_word(to_word(key), self.seed),
            false => Hash(key.hash(self.seed)),
        }
    }

    #[inline]
    pub(super) fn get_with<R>(
        &self,
        key: &K,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>> {
        let probe = Probe { key, hash: self.hash(key) };
        self.prefetch(probe.hash);
        let _pin = self.heap.pin();
        let found = self.find(&probe)?;
        let result = found.map(|payload| self.with_value(payload, use_value)).transpose();
        // A faulty medium reads as zeros. Report the fault, not what the zeros look like.
        self.heap.verify()?;
        result
    }

    #[inline(always)]
    pub(super) fn find(&self, probe: &Probe<'_, K>) -> Result<Option<Payload>> {
        loop {
            let place = self.place(probe.hash)?;
            let found = self.look(place.segment, probe)?;
            // Two segments lead to one record for a moment when entries are moved. Its value may be
            // replaced by then, and only the new one's readers know whether it is durable.
            // Several values are never certain: a clear frees them in parts, and its slots lead to
            // what is left.
            let is_certain =
                found.is_some() && !MULTI && (Self::IS_INLINE || !Self::HAS_VALUE_WORD);
            if is_certain || self.directory.leads_to(place, probe.hash) {
                return Ok(found);
            }
        }
    }

    /// Has both buckets of an entry fetched. That takes longer than entering a lane, or a pin,
    /// which the caller does next. The other bucket is needed where the home has displaced entries,
    /// and would be waited for once more.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: Hash) {
        // Nothing is read, so no pin or lane is needed.
        let pair = Self::pair(self.directory.find(hash).segment, hash);
        self.medium().prefetch(pair.home.0);
        self.medium().prefetch(pair.home.0 + LINE_LEN);
        self.medium().prefetch(pair.other.0);
        self.medium().prefetch(pair.other.0 + LINE_LEN);
    }

    /// Has fetched what the entries of some keys need: first all homes, then all records, so that
    /// the CPU waits for several of them at a time.
    pub(super) fn prefetch_all<'k>(&self, keys: impl Iterator<Item = &'k K> + Clone)
    where
        K: 'k,
    {
        keys.clone().for_each(|key| self.prefetch(self.hash(key)));
        if Self::IS_INLINE {
            return;
        }
        let _pin = self.heap.pin();
        for hash in keys.map(|key| self.hash(key)) {
            let place = self.directory.find(hash);
            if place.segment != 0 {
                self.prefetch_records(place.segment, hash);
            }
        }
    }

    /// The segment of a hash.
    #[inline(always)]
    pub(super) fn place(&self, hash: Hash) -> Result<Place<'_>> {
        self.directory.place(hash, |hash| self.touch(hash))
    }

    #[inline(always)]
    pub(super) fn with_value<R>(
        &self,
        payload: Payload,
        use_value: impl FnOnce(&V) -> R,
    ) -> Result<R> {
        if Self::IS_INLINE {
            return Ok(with_word(payload.word, use_value));
        }
        let record = self.record(payload.word)?;
        if Self::HAS_VALUE_WORD {
            return Ok(with_word(payload.value, use_value));
        }
        self.with_bytes(record.value_at(Self::FORM), record.value_len, |value| {
            if self.is_summed {
                let sum_of = |key: &[u8]| record.sum_of(key, value);
                let computed = self.with_bytes(record.key_at(Self::FORM), record.key_len, sum_of);
                self.compare_sums(record, computed)?;
            }
            Ok(V::with_stored(value, use_value))
        })
    }

    #[inline(always)]
    fn compare_sums(&self, record: Record, computed: u32) -> Result<()> {
        match computed == record.sum {
            true => Ok(()),
            false => Err(Error::checksum(&self.heap, record.offset, record.sum, computed)),
        }
    }

    /// Passes the key of an entry to `use_key`.
    pub(super) fn with_key<R>(
        &self,
        hash: Hash,
        payload: Payload,
        use_key: impl FnOnce(&K) -> R,
    ) -> Result<R> {
        if Self::IS_INLINE {
            return Ok(with_word(hash.word(self.seed), use_key));
        }
        let record = self.record(payload.word)?;
        self.with_bytes(record.key_at(Self::FORM), record.key_len, |key| {
            // Otherwise it is compared with the value.
            if Self::HAS_VALUE_WORD && self.is_summed {
                self.compare_sums(record, record.sum_of(key, &[]))?;
            }
            K::with_stored(key, |key| match self.hash(key) == hash {
                true => Ok(use_key(key)),
                false => {
                    let what = "a record has another key than the slot that leads to it";
                    Err(Error::corrupt(&self.heap, record.offset, what))
                }
            })
        })
    }

    #[inline(always)]
    pub(super) fn record_at(&self, offset: u64) -> Option<Record> {
        let record = Record::read(self.medium(), offset, self.heap.member())?;
        // Types of one length need not expect bytes of another.
        let fits = |len: Option<u32>, found: u64| len.is_none_or(|len| u64::from(len) == found);
        (fits(K::LEN, record.key_len) && fits(V::LEN, record.value_len)).then_some(record)
    }

    #[inline(always)]
    pub(super) fn record(&self, offset: u64) -> Result<Record> {
        self.record_at(offset).ok_or_else(|| {
            let what = "an entry leads to no record, or to that of another key";
            Error::corrupt(&self.heap, offset & !NOT_WHOLE, what)
        })
    }

    /// Has the first lines of a record fetched at once.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, offset: u64) {
        for line in 0..RECORD_LINES_FETCHED {
            self.medium().prefetch(offset.saturating_add(line * LINE_LEN));
        }
    }

    /// Whether the record at `offset` has this key.
    #[inline(always)]
    pub(super) fn is_key_of(&self, offset: u64, key: &K) -> bool {
        self.record_at(offset).is_some_and(|record| {
            let end = record.key_at(Self::FORM).checked_add(record.key_len);
            let is_inside = end.is_some_and(|end| end <= self.medium().len());
            let is_as_long = match K::LEN {
                Some(len) => record.key_len == u64::from(len),
                None => record.key_len == key.stored_len(),
            };
            is_inside && is_as_long && key.matches(self.medium(), record.key_at(Self::FORM))
        })
    }

    /// Passes bytes of a record to `use_bytes`. A damaged length is cut to the end of the pool.
    #[inline(always)]
    pub(super) fn with_bytes<R>(&self, at: u64, len: u64, use_bytes: impl FnOnce(&[u8]) -> R) -> R {
        let is_inside = at.checked_add(len).is_some_and(|end| end <= self.medium().len());
        // SAFETY: keys and values of records are written before a slot leads to them and do not
        // change after. (Values of one word do, but those are loaded as words.) They are not freed
        // while the caller is inside the heap.
        let range = unsafe { Frozen::new(at, if is_inside { len } else { 0 }) };
        use_bytes(&self.medium().view(range))
    }

    /// Changes the entry of `key` as `decide` says, as one step.
    #[inline]
    pub(super) fn edit<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        self.edit_found(key, |found| match found {
            None => Ok(decide(None)),
            Some(payload) => self.with_value(payload, |value| decide(Some(value))),
        })
    }

    /// As `edit`, for changes that depend on whether there is an entry, and not on its value. The
    /// value is not read, so that a damaged one can be replaced or removed.
    #[inline]
    pub(super) fn edit_unread<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(bool) -> (Change<T>, R),
    ) -> Result<R> {
        self.edit_found(key, |found| Ok(decide(found.is_some())))
    }

    #[inline(always)]
    fn edit_found<T: Borrow<V>, R>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<Payload>) -> Result<(Change<T>, R)>,
    ) -> Result<R> {
        let probe = Probe { key, hash: self.hash(key) };
        self.prefetch(probe.hash);
        // The result is taken out at once, because copying a whole `Result` waits for the fence;
        // see `BlinkTree`.
        let mut has_emptied = false;
        let result = match self.try_edit(&probe, &mut decide, &mut has_emptied) {
            Ok(result) => result,
            // Other lanes may hold removed blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.try_edit(&probe, &mut decide, &mut has_emptied)?
            }
            Err(error) => return Err(error),
        };
        self.tidy_up(has_emptied, probe.hash);
        Ok(result)
    }

    /// What may be due after a change, which is done, whatever becomes of this.
    #[inline(always)]
    pub(super) fn tidy_up(&self, has_emptied: bool, hash: Hash) {
        if has_emptied && Self::is_join_due(hash) {
            // What is damaged, or in a pool that has failed, is left as it is.
            drop(self.try_join(hash));
        }
        if self.has_cleared() {
            self.help_to_clear();
        }
    }

    #[inline(always)]
    fn try_edit<T: Borrow<V>, R>(
        &self,
        probe: &Probe<'_, K>,
        decide: &mut impl FnMut(Option<Payload>) -> Result<(Change<T>, R)>,
        has_emptied: &mut bool,
    ) -> Result<R> {
        loop {
            let mut lane = self.gate.enter(&self.heap, || probe.hash.0)?;
            let place = self.place(probe.hash)?;
            let home = self.hold(Self::pair(place.segment, probe.hash).home)?;
            self.note(&lane, 0, place.segment);
            let Some(mut entry) = self.hold_entry(home, place, probe)? else {
                drop(lane);
                self.medium().pause();
                continue;
            };
            let payload = entry.slot.map(|slot| {
                let payload = self.payload(entry.holder().bucket.word(self.medium(), slot));
                if entry.is_whole { payload } else { Fit::Damaged.mark(payload) }
            });
            let (change, result) = decide(payload)?;
            match (change, entry.slot) {
                (Change::Put(value), Some(slot)) => {
                    self.replace(&mut lane, entry, slot, probe, value.borrow())?;
                }
                (Change::Put(value), None) => {
                    // First: once an entry has made room, its former slot is to be overwritten.
                    let new = self.prepare(&mut lane, probe.key, value.borrow())?;
                    match self.find_room(place.segment, probe.hash, entry.home, entry.other) {
                        Found::Room(room) => {
                            self.observer.tell(Changed::Put(probe.key, value.borrow()));
                            self.fill(&lane, room, probe.hash, new.content);
                        }
                        Found::Busy => {
                            new.give_back(&mut lane);
                            drop(lane);
                            self.heap.verify()?;
                            self.medium().pause();
                            continue;
                        }
                        Found::Full => {
                            new.give_back(&mut lane);
                            self.split(&mut lane, place, probe.hash)?;
                            continue;
                        }
                    }
                }
                (Change::Remove, Some(slot)) => {
                    self.observer.tell(Changed::Removed(probe.key));
                    *has_emptied = self.empty(&mut lane, entry, slot);
                }
                (Change::Keep, _) | (Change::Remove, None) => drop(entry),
            }
            self.heap.verify()?;
            return Ok(result);
        }
    }

    /// Finds the entry of a key whose home this thread has, and takes the other bucket if the entry
    /// is or may be there. `None` when another thread was quicker: then this one begins anew.
    #[inline(always)]
    pub(super) fn hold_entry<'m>(
        &'m self,
        home: Held<'m, M>,
        place: Place<'m>,
        probe: &Probe<'_, K>,
    ) -> Result<Option<Entry<'m, M>>> {
        let pair = Self::pair(place.segment, probe.hash);
        if !self.directory.leads_to(place, probe.hash) {
            return Ok(None);
        }
        let mut found = self.find_slot(pair.home, false, probe);
        let mut other = None;
        if found.is_none() && home.control().has_displaced() {
            let Some(held) = pair.other.try_hold(self.medium()) else { return Ok(None) };
            other = Some(held);
            found = self.find_slot(pair.other, true, probe);
        }
        if found.is_none() && home.control().is_damaged() {
            return Err(self.lost_from(place.segment));
        }
        let is_whole = found.is_some_and(|(_, fit)| fit == Fit::Whole);
        Ok(Some(Entry { home, other, slot: found.map(|(slot, _)| slot), is_whole }))
    }

    /// Says in one of the lane's places for that what it is going to change: a segment, a value in
    /// a record, or [`ANYTHING`](super::layout::ANYTHING). Nothing flushes this.
    #[inline(always)]
    pub(super) fn note(&self, lane: &Lane<'_, M>, index: usize, offset: u64) {
        // Release: before the stores of the change, for the case that this process is killed.
        self.medium().store(note_at(self.heap.header(), lane.index(), index), offset);
    }

    /// What a new entry's slot is to say. One fence if it leads to a record.
    #[inline(always)]
    fn prepare(&self, lane: &mut Lane<'_, M>, key: &K, value: &V) -> Result<New> {
        if Self::IS_INLINE {
            return Ok(New { content: to_word(value), record: None });
        }
        let record = self.make_record(lane, key, value, None)?;
        // Fence: the record, before a slot leads to it.
        self.medium().fence();
        Ok(New { content: record.offset, record: Some(record) })
    }

    /// Puts a new entry into a free slot. One fence.
    #[inline(always)]
    fn fill(&self, lane: &Lane<'_, M>, mut room: Room<'_, M>, hash: Hash, content: u64) {
        let at = self.store_entry(&mut room, hash, content);
        // Flush and fence: the entry is durable before anybody finds it.
        self.medium().persist(at, 2 * WORD_LEN);
        self.show_entry(lane, room, hash);
    }

    /// Stores a new entry in a free slot, and returns the slot's place. The caller flushes.
    #[inline(always)]
    pub(super) fn store_entry(&self, room: &mut Room<'_, M>, hash: Hash, content: u64) -> u64 {
        let stamp = Self::stamp(hash, room.other.is_some());
        let (slot, bucket) = (room.slot, room.holder().bucket);
        let word = Self::word_for(bucket, slot, stamp, content);
        bucket.store_slot(self.medium(), slot, stamp, word);
        slot_at(bucket.0, slot)
    }

    /// Shows a new entry that is durable.
    #[inline(always)]
    pub(super) fn show_entry(&self, lane: &Lane<'_, M>, mut room: Room<'_, M>, hash: Hash) {
        let (slot, is_displaced) = (room.slot, room.other.is_some());
        room.holder().show(slot, hash.fingerprint());
        if is_displaced {
            room.home.count_displaced(1);
        }
        drop(room.until_durable);
        self.count.add(lane.index(), 1);
    }

    /// Gives an entry another value. One fence for a value of one word, two for others.
    #[inline(always)]
    fn replace(
        &self,
        lane: &mut Lane<'_, M>,
        mut entry: Entry<'_, M>,
        slot: u32,
        probe: &Probe<'_, K>,
        value: &V,
    ) -> Result<()> {
        let medium = self.medium();
        let at = slot_at(entry.holder().bucket.0, slot) + WORD_LEN;
        if Self::HAS_VALUE_WORD {
            let at = self.value_at(at, entry.is_whole)?;
            if !Self::IS_INLINE {
                self.note(lane, 0, at);
            }
            self.observer.tell(Changed::Put(probe.key, value));
            self.exchange_word(lane, entry.holder(), slot, at, to_word(value));
            return Ok(());
        }
        if MULTI {
            return self.add_to_chain(lane, entry, slot, probe, value);
        }
        let record = self.make_record(lane, probe.key, value, None)?;
        let old = entry.is_whole.then(|| lane.suspect(Self::content(medium.load(at))));
        self.observer.tell(Changed::Put(probe.key, value));
        // Fence: the record, before the slot leads to it; the suspect, before the slot stops
        // leading to the old record.
        lane.fence();
        let stamp = Self::stamp(probe.hash, entry.other.is_some());
        let word = Self::word_for(entry.holder().bucket, slot, stamp, record.offset);
        self.exchange_word(lane, entry.holder(), slot, at, word);
        drop(entry);
        if let Some(old) = old {
            lane.retire(old);
        }
        Ok(())
    }

    /// Where the value of an entry is that is a word, if the slot's second word is at `at`. An
    /// error if the entry's record is damaged or another key's: the entry can only be removed.
    #[inline(always)]
    pub(super) fn value_at(&self, at: u64, is_whole: bool) -> Result<u64> {
        if Self::IS_INLINE {
            return Ok(at);
        }
        let mark = if is_whole { 0 } else { NOT_WHOLE };
        let record = self.record(Self::content(self.medium().load(at)) | mark)?;
        Ok(record.value_at(Self::FORM))
    }

    /// Stores a word of an entry that readers take from this lane's shadow until it is durable.
    #[inline(always)]
    pub(super) fn exchange_word(
        &self,
        lane: &Lane<'_, M>,
        held: &mut Held<'_, M>,
        slot: u32,
        at: u64,
        word: u64,
    ) {
        self.store_word(held, slot, lane.index(), at, word);
        // Flush and fence: the word is durable before anybody sees it, and before what it led to
        // may be freed.
        self.medium().persist(at, WORD_LEN);
        held.set_control(held.control().replaced().next_version());
    }

    /// Stores a word of an entry. Readers take the old one from this shadow until the caller has
    /// flushed and fenced the word, and says that it is replaced.
    #[inline(always)]
    pub(super) fn store_word(
        &self,
        held: &mut Held<'_, M>,
        slot: u32,
        shadow: usize,
        at: u64,
        word: u64,
    ) {
        let medium = self.medium();
        if medium.needs_flush() {
            self.shadows.set(shadow, medium.load(at));
            held.set_control(held.control().replacing(slot, shadow).next_version());
        }
        medium.store(at, word);
    }

    /// Removes an entry, and returns whether none is left in its bucket. One fence.
    #[inline(always)]
    fn empty(&self, lane: &mut Lane<'_, M>, mut entry: Entry<'_, M>, slot: u32) -> bool {
        // Readers find the entry as before, by its fingerprint, until the removal is durable.
        let old = self.begin_removal(lane, &mut entry, slot);
        // Fence: the removal is durable before anybody misses the entry.
        lane.fence();
        self.end_removal(lane, &mut entry, slot, old);
        let is_empty = entry.holder().used() == 0;
        drop(entry);
        self.count.add(lane.index(), -1);
        is_empty
    }

    /// Removes an entry with the next fence of the lane, and does not yet hide it. Returns its
    /// record, if there is one that is to be freed.
    #[inline(always)]
    pub(super) fn begin_removal(
        &self,
        lane: &mut Lane<'_, M>,
        entry: &mut Entry<'_, M>,
        slot: u32,
    ) -> Option<Suspect> {
        let bucket: Bucket = entry.holder().bucket;
        let (medium, at) = (self.medium(), slot_at(bucket.0, slot));
        let word = bucket.word(medium, slot);
        if Self::IS_INLINE || !entry.is_whole {
            self.make_void(bucket, slot);
            // Flush: fenced by the caller.
            medium.flush(at, WORD_LEN);
            return None;
        }
        let old = lane.suspect(Self::content(word));
        medium.store(at + WORD_LEN, gone(word));
        // Flush: fenced by the caller, together with the suspect. If only one of them gets there,
        // recovery finds the entry as it was.
        medium.flush(at, 2 * WORD_LEN);
        Some(old)
    }

    /// Hides an entry whose removal is durable, and has its record freed.
    #[inline(always)]
    pub(super) fn end_removal(
        &self,
        lane: &mut Lane<'_, M>,
        entry: &mut Entry<'_, M>,
        slot: u32,
        old: Option<Suspect>,
    ) {
        let bucket: Bucket = entry.holder().bucket;
        entry.holder().hide(1 << slot);
        if entry.other.is_some() {
            entry.home.count_displaced(-1);
        }
        if let Some(old) = old {
            self.make_void(bucket, slot);
            // Flush: before the lane frees the record. A marked word may lead to no other record.
            lane.flush_later(slot_at(bucket.0, slot));
            lane.retire(old);
        }
    }

    /// Makes a slot void. Readers who find words by fingerprints of before find them still.
    #[inline(always)]
    pub(super) fn make_void(&self, bucket: Bucket, slot: u32) {
        let stamp = match Self::IS_INLINE {
            true => bucket.stamp(self.medium(), slot).void(),
            false => Stamp::NONE,
        };
        self.medium().store(slot_at(bucket.0, slot), stamp.0);
    }

    /// Writes and flushes a record. If there may be several of one key, it leads to `next`.
    pub(super) fn make_record(
        &self,
        lane: &mut Lane<'_, M>,
        key: &K,
        value: &V,
        next: Option<Linked>,
    ) -> Result<Block> {
        key.with_bytes(|key| value.with_bytes(|value| self.write_record(lane, key, value, next)))
    }

    fn write_record(
        &self,
        lane: &mut Lane<'_, M>,
        key: &[u8],
        value: &[u8],
        next: Option<Linked>,
    ) -> Result<Block> {
        let medium = self.medium();
        let (key_len, value_len) = (key.len() as u64, value.len() as u64);
        for (what, len) in [("key", key_len), ("value", value_len)] {
            if len > LEN_MAX {
                return Err(Error::TooLong { what, len, limit: LEN_MAX });
            }
        }
        let record = Record { offset: 0, key_len, value_len, sum: 0 };
        let len = record.len(Self::FORM);
        let block = lane.allocate(len)?;
        // A value that is a word is replaced in its place.
        let summed = if Self::HAS_VALUE_WORD { &[] } else { value };
        let sum = if self.is_summed { record.sum_of(key, summed) } else { 0 };
        let record = Record { offset: block.offset, sum, ..record };
        record.write_head(medium, self.heap.member());
        if MULTI {
            self.write_link(record, next);
        }
        medium.write(record.key_at(Self::FORM), key);
        match Self::HAS_VALUE_WORD {
            true => V::with_stored(value, |value| {
                medium.store(record.value_at(Self::FORM), to_word(value));
            }),
            false => medium.write(record.value_at(Self::FORM), value),
        }
        // Flush: the record; fenced by the caller before it is linked.
        medium.flush(block.offset, len);
        Ok(block)
    }
}
