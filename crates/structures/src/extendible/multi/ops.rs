//! Adding, visiting and removing values.

use std::ops::ControlFlow;

use remanent_pmem::heap::{Lane, Suspect};
use remanent_pmem::{Medium, WORD_LEN};

use super::super::Core;
use super::super::bucket::Bucket;
use super::super::clear::FREED_AT_ONCE;
use super::super::layout::{Hash, Link, slot_at};
use super::super::ops::Entry;
use super::super::segment::{NOT_WHOLE, Probe};
use super::chain::Linked;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// What an attempt to remove a value has come to.
enum Removed {
    /// The value is removed, and perhaps none is left in the bucket.
    One { has_emptied: bool },
    /// There is no such value.
    None,
    /// Begin anew.
    Again,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Adds a value to those of a key that has some. Two fences.
    pub(in super::super) fn add_to_chain(
        &self,
        lane: &mut Lane<'_, M>,
        mut entry: Entry<'_, M>,
        slot: u32,
        probe: &Probe<'_, K>,
        value: &V,
    ) -> Result<()> {
        let first = self.linked(self.first_at(&mut entry, slot), None)?;
        if first.link.number == u64::MAX {
            // No chain becomes that long.
            let what = "the number of a record is damaged";
            return Err(Error::corrupt(&self.heap, first.record.offset, what));
        }
        let record = self.make_record(lane, probe.key, value, Some(first))?;
        // Fence: the record, before the slot leads to it.
        self.medium().fence();
        let stamp = Self::stamp(probe.hash, entry.other.is_some());
        let bucket = entry.holder().bucket;
        let word = Self::word_for(bucket, slot, stamp, record.offset);
        let at = slot_at(bucket.0, slot) + WORD_LEN;
        self.exchange_word(lane, entry.holder(), slot, at, word);
        drop(entry);
        self.count.add(lane.index(), 1);
        Ok(())
    }

    /// Where the newest record of a key is, marked if it is damaged or another's.
    fn first_at(&self, entry: &mut Entry<'_, M>, slot: u32) -> u64 {
        let mark = if entry.is_whole { 0 } else { NOT_WHOLE };
        Self::content(entry.holder().bucket.word(self.medium(), slot)) | mark
    }

    /// Calls `visit` with the values of a key, the newest first, until it breaks.
    pub(super) fn for_each(
        &self,
        key: &K,
        mut visit: impl FnMut(&V) -> ControlFlow<()>,
    ) -> Result<()> {
        let probe = Probe { key, hash: self.hash(key) };
        self.prefetch(probe.hash);
        let _pin = self.heap.pin();
        if let Some(payload) = self.find(&probe)? {
            for linked in self.chain(payload.word) {
                let linked = self.of_key(linked?, key)?;
                if self.is_alive(linked)
                    && self.with_value(linked.payload(), &mut visit)?.is_break()
                {
                    break;
                }
            }
        }
        // A faulty medium reads as zeros. Report the fault, not what the zeros look like.
        Ok(self.heap.verify()?)
    }

    /// An error if a record is not of this key.
    fn of_key(&self, linked: Linked, key: &K) -> Result<Linked> {
        match self.is_key_of(linked.record.offset, key) {
            true => Ok(linked),
            false => {
                let what = "a record of one key leads to that of another";
                Err(Error::corrupt(&self.heap, linked.record.offset, what))
            }
        }
    }

    /// Removes the newest value of a key that `accept` returns true for; without `accept`, the
    /// newest, which is not read. Returns whether there was one. One fence.
    pub(super) fn remove_where(
        &self,
        key: &K,
        accept: Option<&dyn Fn(&V) -> bool>,
    ) -> Result<bool> {
        let probe = Probe { key, hash: self.hash(key) };
        self.prefetch(probe.hash);
        loop {
            let removed = self.try_remove(&probe, accept)?;
            self.heap.verify()?;
            match removed {
                Removed::One { has_emptied } => {
                    self.tidy_up(has_emptied, probe.hash);
                    return Ok(true);
                }
                Removed::None => return Ok(false),
                Removed::Again => self.medium().pause(),
            }
        }
    }

    /// Removes all values of a key, one by one, damaged ones too. Returns how many.
    pub(in super::super) fn remove_all_of(&self, key: &K) -> Result<u64> {
        let mut removed = 0;
        while self.remove_where(key, None)? {
            removed += 1;
        }
        Ok(removed)
    }

    fn try_remove(
        &self,
        probe: &Probe<'_, K>,
        accept: Option<&dyn Fn(&V) -> bool>,
    ) -> Result<Removed> {
        let mut lane = self.gate.enter(&self.heap, || probe.hash.0)?;
        let place = self.place(probe.hash)?;
        let home = self.hold(Self::pair(place.segment, probe.hash).home)?;
        self.note(&lane, 0, place.segment);
        let Some(mut entry) = self.hold_entry(home, place, probe)? else {
            return Ok(Removed::Again);
        };
        let Some(slot) = entry.slot else { return Ok(Removed::None) };
        let mut before = None;
        for linked in self.chain(self.first_at(&mut entry, slot)) {
            let linked = self.of_key(linked?, probe.key)?;
            let is_left = linked.link.is_dead;
            let is_accepted = || match accept {
                Some(accept) => self.with_value(linked.payload(), accept),
                None => Ok(true),
            };
            if is_left || is_accepted()? {
                let has_emptied = self.remove_linked(&mut lane, entry, slot, before, linked);
                // What a crash has left of a removal is none of this one.
                return Ok(if is_left { Removed::Again } else { Removed::One { has_emptied } });
            }
            before = Some(linked);
        }
        Ok(Removed::None)
    }

    /// Removes a value, and takes its record out of the chain, where `before` leads to it. Returns
    /// whether no entry is left in the bucket. One fence.
    fn remove_linked(
        &self,
        lane: &mut Lane<'_, M>,
        mut entry: Entry<'_, M>,
        slot: u32,
        before: Option<Linked>,
        removed: Linked,
    ) -> bool {
        let (medium, record) = (self.medium(), removed.record);
        let suspect = lane.suspect(record.offset);
        let is_left = removed.link.is_dead;
        if !is_left {
            // Readers find the value as before until the removal is durable.
            self.dying.set(lane.index(), record.offset);
        }
        let at = self.set_link(record, Link { is_dead: true, ..removed.link });
        // Flush: fenced below, together with the suspect. If only the suspect gets there, the value
        // stays; if only this does, it is removed, and the record freed later.
        medium.flush(at, WORD_LEN);
        // Fence: the removal is durable before anybody misses the value.
        lane.fence();
        if !is_left {
            self.dying.set(lane.index(), 0);
        }
        // Flush: before the lane frees the record.
        lane.flush_later(self.lead_past(entry.holder().bucket, slot, before, removed.link));
        let was_last = before.is_none() && removed.link.next.is_none();
        if was_last {
            entry.holder().hide(1 << slot);
            if entry.other.is_some() {
                entry.home.count_displaced(-1);
            }
        }
        lane.retire(suspect);
        let is_bucket_empty = was_last && entry.holder().used() == 0;
        drop(entry);
        if !is_left {
            self.count.add(lane.index(), -1);
        }
        is_bucket_empty
    }

    /// Has what led to a record lead to the next one, and returns the place. The caller flushes.
    pub(super) fn lead_past(
        &self,
        bucket: Bucket,
        slot: u32,
        before: Option<Linked>,
        removed: Link,
    ) -> u64 {
        let next = removed.next;
        match before {
            Some(before) => self.set_link(before.record, Link { next, ..before.link }),
            None => self.lead_to(bucket, slot, next),
        }
    }

    /// Has a slot lead to the record at `first`, or makes it void; and returns the slot's place.
    fn lead_to(&self, bucket: Bucket, slot: u32, first: Option<u64>) -> u64 {
        let (medium, at) = (self.medium(), slot_at(bucket.0, slot));
        match first {
            None => self.make_void(bucket, slot),
            Some(first) => {
                let stamp = bucket.stamp(medium, slot);
                medium.store(at + WORD_LEN, Self::word_for(bucket, slot, stamp, first));
            }
        }
        at
    }

    /// Frees records of some slots of what was cleared. One fence.
    pub(in super::super) fn free_chains(
        &self,
        lane: &mut Lane<'_, M>,
        slots: &[(Bucket, u32, Hash)],
    ) {
        let medium = self.medium();
        let mut suspects: Vec<Suspect> = Vec::new();
        let mut rests = Vec::new();
        for &(bucket, slot, hash) in slots {
            let first = Self::content(bucket.word(medium, slot));
            let mut rest = Some(first);
            // What is damaged, or led to in place of what was damaged, may be another key's.
            let chain = self.chain(first).map_while(Result::ok);
            let whole = chain.take_while(|linked| self.is_of_hash(linked.record, hash));
            for linked in whole.take(FREED_AT_ONCE - suspects.len()) {
                suspects.push(lane.suspect(linked.record.offset));
                rest = linked.link.next;
            }
            // Nothing is freed behind damage.
            let has_room = suspects.len() < FREED_AT_ONCE;
            rests.push((bucket, slot, rest.filter(|_| !has_room)));
        }
        // Fence: the suspects, before nothing leads to their records any more.
        // Redundant: unless the records lie in chunks that no lane allocates from. Recovery asks
        // about every block of the other chunks in any case.
        lane.fence();
        for (bucket, slot, rest) in rests {
            // Flush: before the lane frees the records.
            lane.flush_later(self.lead_to(bucket, slot, rest));
        }
        suspects.into_iter().for_each(|suspect| lane.retire(suspect));
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Pool;
    use remanent_pmem::heap::Block;

    use super::super::super::layout::Link;
    use super::super::ExtendibleMultiMap;
    use super::*;

    type Names = ExtendibleMultiMap<str, u64>;

    fn map() -> (Pool, Names) {
        let pool = Pool::options().create_in_memory().unwrap();
        let map = Names::create(&pool, "map").unwrap();
        (pool, map)
    }

    /// The records of a key, the newest first.
    fn records(map: &Names, key: &str) -> Vec<Linked> {
        let found = map.core.find(&Probe { key, hash: map.core.hash(key) }).unwrap().unwrap();
        map.core.chain(found.word).map(Result::unwrap).collect()
    }

    fn block(linked: &Linked) -> Block {
        Block { offset: linked.record.offset, len: 64 }
    }

    /// As a crash leaves it that comes after the mark is durable, and before the suspect is.
    #[test]
    fn what_is_left_of_a_removal_is_no_value_and_is_freed_by_the_next() {
        let (_pool, map) = map();
        let core = &map.core;
        let chain = || records(&map, "key");
        for left in 0..3 {
            (0..3).for_each(|value| map.insert("key", &value).unwrap());
            let removed = chain()[2 - left as usize];
            core.set_link(removed.record, Link { is_dead: true, ..removed.link });
            core.count.add(0, -1);
            let others: Vec<u64> = (0..3).rev().filter(|value| *value != left).collect();
            assert_eq!(map.get_all("key").unwrap(), others);
            assert_eq!(map.iter().map(|entry| entry.unwrap().1).collect::<Vec<_>>(), others);
            assert_eq!((map.len().unwrap(), map.check().unwrap()), (2, vec![]));
            assert_eq!(chain().len(), 3);
            assert!(!map.remove_one("key", &left).unwrap());
            assert_eq!((chain().len(), map.len().unwrap()), (2, 2));
            assert_eq!(map.remove_all("key").unwrap(), 2);
            assert_eq!((map.len().unwrap(), map.check().unwrap()), (0, vec![]));
        }
    }

    #[test]
    fn a_clear_frees_nothing_behind_a_record_of_another_key() {
        let (pool, map) = map();
        (0..10).for_each(|value| map.insert("damaged", &value).unwrap());
        (0..3).for_each(|value| map.insert("whole", &value).unwrap());
        let (damaged, whole) = (records(&map, "damaged")[4], records(&map, "whole")[0]);
        let next = Some(whole.record.offset);
        map.core.set_link(damaged.record, Link { next, ..damaged.link });
        assert!(matches!(map.get_all("damaged"), Err(Error::Corrupt { .. })));
        assert_eq!(map.get_all("whole").unwrap(), [2, 1, 0]);
        map.clear().unwrap();
        map.core.heap.relieve();
        // A block that is freed twice takes its chunk out of use.
        assert_eq!(pool.set_aside(), []);
        assert_eq!((map.len().unwrap(), map.iter().count()), (0, 0));
    }

    #[test]
    fn recovery_keeps_what_may_be_behind_damage() {
        let (_pool, map) = map();
        (0..6).for_each(|value| map.insert("key", &value).unwrap());
        let chain = records(&map, "key");
        assert!(map.remove_one("key", &5).unwrap());
        assert!(!map.core.is_linked(block(&chain[0])).unwrap());
        let at = chain[2].record.link_at();
        map.core.medium().store(at, map.core.medium().load(at) ^ 1 << 20);
        for linked in &chain[1..] {
            assert!(map.core.is_linked(block(linked)).unwrap());
        }
    }

    #[test]
    fn recovery_keeps_what_may_be_behind_a_record_of_another_key() {
        let (_pool, map) = map();
        (0..10).for_each(|value| map.insert("damaged", &value).unwrap());
        map.insert("whole", &0).unwrap();
        let (chain, whole) = (records(&map, "damaged"), records(&map, "whole")[0]);
        let next = Some(whole.record.offset);
        map.core.set_link(chain[4].record, Link { next, ..chain[4].link });
        for linked in &chain {
            assert!(map.core.is_linked(block(linked)).unwrap());
        }
    }

    /// Of 65,536 damaged numbers, one has the check of the link before it.
    #[test]
    fn nothing_is_added_behind_a_number_that_cannot_be() {
        let (_pool, map) = map();
        (0..2).for_each(|value| map.insert("key", &value).unwrap());
        let (first, medium) = (records(&map, "key")[0], map.core.medium());
        let at = first.record.link_at();
        let link = Link { number: u64::MAX, ..first.link };
        medium.store(at, link.seal(at));
        medium.store(at + WORD_LEN, link.number);
        assert!(matches!(map.insert("key", &2), Err(Error::Corrupt { .. })));
        assert_eq!(map.get_all("key").unwrap(), [1, 0]);
    }
}
