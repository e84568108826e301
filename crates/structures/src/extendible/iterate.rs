//! Visiting all entries, in the order of their hashes.

use remanent_pmem::Medium;

use super::Core;
use super::bucket::Bucket;
use super::directory::Place;
use super::layout::{Control, Hash, Target, bucket_count, each_slot, is_ready};
use super::segment::{Payload, bucket_at};
use crate::Result;
use crate::nesting::Nesting;
use crate::stored::{Key, Stored};

/// How often a segment is read without a lock before a visitor takes it.
const ATTEMPTS: u32 = 8;

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Visits about `limit` entries from the hash `cursor` on, and returns the cursor for the next
    /// call; 0 when done.
    pub(super) fn scan(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&K, &V),
    ) -> Result<u64> {
        let _pin = self.heap.pin();
        let limit = limit.max(1);
        let (mut from, mut visited) = (Hash(cursor), 0);
        loop {
            let (mut entries, end) = self.entries_from(from)?;
            let left = limit - visited;
            let mut next = end;
            if entries.len() > left {
                let (_, &mut (last, _), _) =
                    entries.select_nth_unstable_by_key(left - 1, |(hash, _)| *hash);
                // All of one hash, in case that there are several.
                entries.retain(|(hash, _)| *hash <= last);
                next = last.0.wrapping_add(1);
            }
            for &(hash, payload) in &entries {
                visited += self.visit_entry(hash, payload, &mut visit)?;
            }
            self.heap.verify()?;
            if next == 0 || visited >= limit {
                return Ok(next);
            }
            from = Hash(next);
        }
    }

    /// Visits an entry, or all of its key. Returns how many there are.
    fn visit_entry(
        &self,
        hash: Hash,
        payload: Payload,
        visit: &mut impl FnMut(&K, &V),
    ) -> Result<usize> {
        let mut visit_one = |payload| {
            self.with_key(hash, payload, |key| self.with_value(payload, |value| visit(key, value)))?
        };
        if !MULTI {
            return visit_one(payload).map(|()| 1);
        }
        let mut count = 0;
        for linked in self.chain(payload.word) {
            let linked = linked?;
            if self.is_alive(linked) {
                visit_one(linked.payload())?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// The entries of the segment of `from`, from that hash on, as they are at one moment; and the
    /// first hash behind the segment, or 0.
    fn entries_from(&self, from: Hash) -> Result<(Vec<(Hash, Payload)>, u64)> {
        loop {
            let place = self.place(from)?;
            let Some(depth) = self.depth_of(place, from)? else { continue };
            let mut entries = self.read_segment(place.segment)?;
            self.refuse_damaged(place.segment)?;
            // A split meanwhile has moved entries, and keeps the place of some of them.
            if self.depth_of(place, from)? != Some(depth) {
                continue;
            }
            entries.retain(|(hash, _)| *hash >= from);
            return Ok((entries, from.first_behind(depth).map_or(0, |hash| hash.0)));
        }
    }

    /// An error if entries of a segment may be lost.
    fn refuse_damaged(&self, segment: u64) -> Result<()> {
        match bucket_at(segment, 0).control(self.medium()).is_damaged() {
            true => Err(self.lost_from(segment)),
            false => Ok(()),
        }
    }

    /// How many bits of a hash lead to the segment of `place`; `None` when they lead elsewhere.
    fn depth_of(&self, place: Place<'_>, hash: Hash) -> Result<Option<u32>> {
        // The pool's directory is not changed meanwhile.
        let _shape = self.shape.lock(self.medium());
        let is_present = self.directory.leads_to(place, hash);
        let pointer = self.nodes().segment_pointer(hash)?;
        let is_there = is_present && pointer.target == Target::Segment(place.segment);
        Ok(is_there.then_some(pointer.depth))
    }

    /// The entries of a segment at one moment.
    fn read_segment(&self, segment: u64) -> Result<Vec<(Hash, Payload)>> {
        let medium = self.medium();
        for _ in 0..ATTEMPTS {
            let mut entries = Vec::new();
            let controls: Vec<Control> = (0..bucket_count::<K>())
                .map(|index| self.read_bucket(bucket_at(segment, index), index, &mut entries))
                .collect();
            // An entry that went from one bucket to another meanwhile has changed both.
            let is_same = |(index, control): (usize, &Control)| {
                bucket_at(segment, index as u64).control(medium).is_same_as(*control)
            };
            if controls.iter().enumerate().all(is_same) {
                return Ok(entries);
            }
            self.heap.verify()?;
        }
        // A closure of this thread may hold a bucket.
        Nesting::refuse()?;
        let held = self.hold_all(segment)?;
        let mut entries = Vec::new();
        for (index, held) in held.iter().enumerate() {
            self.read_bucket(held.bucket, index as u64, &mut entries);
        }
        Ok(entries)
    }

    /// Adds the entries of a bucket at one moment, and returns the control word of that moment.
    fn read_bucket(
        &self,
        bucket: Bucket,
        index: u64,
        entries: &mut Vec<(Hash, Payload)>,
    ) -> Control {
        let medium = self.medium();
        let first = entries.len();
        loop {
            let control = bucket.control(medium);
            for slot in each_slot(bucket.prints(medium).used()) {
                let hash = bucket.stamp(medium, slot).hash(index, K::SEGMENT_BITS);
                let payload = self.payload(bucket.word(medium, slot));
                entries.push((hash, self.unreplaced(payload, slot, control)));
            }
            // Acquire: after the loads of the slots, as in `look_in`.
            if bucket.control(medium).is_same_as(control) {
                return control;
            }
            entries.truncate(first);
        }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> Result<u64> {
        if let Some(count) = self.count.get() {
            return Ok(count);
        }
        Nesting::refuse()?;
        self.heap.quiesced(|_, _| {
            let _shape = self.shape.lock(self.medium());
            let mut count = 0;
            self.nodes().for_each_segment(self.root_at(), &mut |pointer, hash| {
                let segment = pointer.target.offset();
                if !is_ready(self.medium(), segment, self.epoch) {
                    self.make_ready(segment, hash, pointer.depth)?;
                }
                self.refuse_damaged(segment)?;
                for index in 0..bucket_count::<K>() {
                    let bucket = bucket_at(segment, index);
                    let used = bucket.prints(self.medium()).used();
                    count += match MULTI {
                        true => self.count_values(bucket, used)?,
                        false => u64::from(used.count_ones()),
                    };
                }
                Ok(())
            })?;
            self.heap.verify()?;
            self.count.set(count);
            Ok(count)
        })
    }
}
