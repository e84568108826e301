//! Growing: more buckets, without moving an entry.
//!
//! Doubling publishes a new segment of slots, none of which is in the list yet; an operation on such a
//! bucket begins at the bucket it was split off from. Inserting threads then link the new slots, 64 at
//! a time: every slot of a group gets its successor, one fence, every predecessor is led to its slot,
//! one fence, and the slots are marked ready. So a doubling costs 1/32 fence a bucket, and no operation
//! waits for it. After a crash the groups are gone through again; linked slots are recognised.

use std::sync::atomic::Ordering;

use remanent_pmem::heap::Lane;
use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::layout::{
    BITS_MIN, Order, READY, SEGMENT_COUNT, SEGMENTS, redirect, target, to_dummy,
};
use super::list::{Edge, parent};
use crate::stored::{Key, Stored};

/// Slots linked together under two fences: eight lines of the segment.
const GROUP: u64 = 64;
/// Changes in a lane between two looks at growth. A group of 64 buckets every 32 changes links a new
/// segment before the map can have grown by half.
const MAINTENANCE_INTERVAL: i64 = 32;
/// Most buckets a map can have: 2^40.
const BITS_MAX: u32 = 40;

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Does a share of the map's own work, now and then: links buckets, sweeps, grows.
    #[inline(always)]
    pub(super) fn maintain(&self, lane: &mut Lane<'_, M>) {
        // Relaxed: only this lane's holder writes it.
        let changes = self.deltas[lane.index()].0.load(Ordering::Relaxed);
        if changes % MAINTENANCE_INTERVAL == 0 {
            self.maintain_now(lane);
        }
    }

    #[cold]
    fn maintain_now(&self, lane: &mut Lane<'_, M>) {
        if self.swept.load(Ordering::Relaxed) != self.generation.load(Ordering::Relaxed) {
            self.sweep_some(lane);
        }
        if self.link_group(lane) {
            return;
        }
        let entries = self.base_estimate + self.delta();
        if entries > 1 << self.bits() {
            // Failing to grow makes chains longer, nothing else; a full pool shows elsewhere.
            let _ = self.grow(lane);
        }
    }

    /// Doubles the number of buckets, when every bucket of the last doubling is linked.
    fn grow(&self, lane: &mut Lane<'_, M>) -> crate::Result<()> {
        // A thread that finds another one growing goes on with its own work.
        let Ok(_growing) = self.growing.try_lock() else { return Ok(()) };
        let bits = self.bits();
        let segment = (bits - BITS_MIN + 1) as usize;
        // Acquire: pairs with the Release in `link_group`.
        let linked = self.groups_done.load(Ordering::Acquire) == self.group_count();
        let too_small = self.base_estimate + self.delta() <= 1 << bits;
        if !linked || too_small || bits >= BITS_MAX || segment >= SEGMENT_COUNT {
            return Ok(());
        }
        let medium = self.medium();
        let block = lane.allocate_zeroed(8 << bits)?;
        // Fence: the segment's chunks are taken before the header refers to them.
        lane.fence();
        let at = self.heap.header() + SEGMENTS + segment as u64 * 8;
        medium.store(at, block.offset);
        // Flush and fence: one word makes the segment part of the map, for good, before any bucket of it
        // can be linked.
        medium.persist(at, 8);
        self.segments[segment].store(block.offset, Ordering::Relaxed);
        self.next_group.store(0, Ordering::Relaxed);
        self.groups_done.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `bits`; whoever sees the new buckets finds their segment.
        self.bits.store(bits + 1, Ordering::Release);
        Ok(())
    }

    /// Groups of the last segment. The first segment is linked when the map is created.
    pub(super) fn group_count(&self) -> u64 {
        let bits = self.bits();
        if bits == BITS_MIN { 0 } else { (1 << (bits - 1)) / GROUP }
    }

    /// Links the next group of buckets that nobody has taken on. False when none is left.
    fn link_group(&self, lane: &mut Lane<'_, M>) -> bool {
        let count = self.group_count();
        // Relaxed: a first look, to leave the counter alone when all is done.
        if self.next_group.load(Ordering::Relaxed) >= count {
            return false;
        }
        // Acquire: after the segment was published (Release in `grow`).
        let group = self.next_group.fetch_add(1, Ordering::Acquire);
        if group >= count {
            return false;
        }
        let first = (1 << (self.bits() - 1)) + group * GROUP;
        self.link_buckets(lane, first);
        // Release: pairs with the Acquire in `grow`: all groups are linked before the next doubling.
        self.groups_done.fetch_add(1, Ordering::Release);
        true
    }

    fn link_buckets(&self, lane: &mut Lane<'_, M>, first: u64) {
        let medium = self.medium();
        let not_ready: Vec<u64> = (first..first + GROUP)
            .filter(|&bucket| !Link::at(medium, self.slot(bucket)).load().has(READY))
            .collect();
        for &bucket in &not_ready {
            medium.prefetch(Link::at(medium, self.slot(parent(bucket))).load().offset());
        }
        let mut planned = Vec::with_capacity(not_ready.len());
        for &bucket in &not_ready {
            if let Some(plan) = self.plan(lane, bucket) {
                planned.push((bucket, plan));
            }
        }
        // Fence: every slot leads to its successor before any link leads to a slot.
        lane.fence();
        let mut dirty = Vec::with_capacity(planned.len());
        for (bucket, (link_at, link)) in planned {
            let new = redirect(link, to_dummy(bucket));
            let mark = if medium.needs_flush() { Word::DIRTY } else { 0 };
            match medium.compare_exchange(link_at, link.raw(), new.raw() | mark) {
                Ok(_) => {
                    // Flush: fenced below, before the mark is taken off and before the slot is ready.
                    medium.flush(link_at, 8);
                    dirty.push((link_at, new));
                }
                Err(_) => self.link_bucket(lane, bucket),
            }
        }
        // Fence: every slot is in the list for good before operations begin at it.
        lane.fence();
        if medium.needs_flush() {
            for (link_at, new) in dirty {
                // Fails when a reader was quicker. The cleared mark needs no flush.
                let _ = medium.compare_exchange(link_at, new.raw() | Word::DIRTY, new.raw());
            }
        }
        for &bucket in &not_ready {
            // Not flushed: a slot that is linked but not ready after a crash is recognised by `plan`.
            medium.fetch_or(self.slot(bucket), READY);
        }
    }

    /// Gives the slot of `bucket` its successor, flushed. Returns the link that is to lead to it, or
    /// `None` when one does already.
    fn plan(&self, lane: &mut Lane<'_, M>, bucket: u64) -> Option<(u64, Word)> {
        let slot = self.slot(bucket);
        loop {
            let place = self.find(Order::of_bucket(bucket), Edge::First, |_, _| false);
            if place.link_at == slot {
                return None;
            }
            if !place.run.nodes().is_empty() {
                // They would end up behind the dummy, where nobody looks for their order.
                self.unlink_run(lane, &place);
                continue;
            }
            let medium = self.medium();
            medium.store(slot, target(place.link).raw());
            // Flush: fenced by the caller, before a link leads to the slot.
            medium.flush(slot, 8);
            return Some((place.link_at, place.link));
        }
    }

    /// Links one bucket by itself, after its surroundings changed.
    #[cold]
    fn link_bucket(&self, lane: &mut Lane<'_, M>, bucket: u64) {
        while let Some((link_at, link)) = self.plan(lane, bucket) {
            // Fence: as in `link_buckets`.
            lane.fence();
            let link_word = Link::at(self.medium(), link_at);
            if link_word.replace(link, redirect(link, to_dummy(bucket))).is_ok() {
                return;
            }
        }
    }

    /// Links every slot of the first segment, in a new map.
    pub(super) fn link_first_segment(&self) {
        let medium = self.medium();
        let count = 1_u64 << BITS_MIN;
        let by_order = |place: u64| place.reverse_bits() >> (64 - BITS_MIN);
        for place in 0..count {
            let next = if place + 1 < count { to_dummy(by_order(place + 1)) } else { Word::NULL };
            medium.store(self.slot(by_order(place)), next.with(READY).raw());
        }
        // Flush: fenced in `create`, before the map is a root.
        medium.flush(self.slot(0), count * 8);
    }
}
