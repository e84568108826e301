//! Growing: more buckets, without moving an entry.
//!
//! Doubling publishes a new segment of slots, none of which is in the list yet. An operation on
//! such a bucket begins at the bucket that it was split off from. Inserting threads then link the
//! new slots, 64 at a time:
//!
//! 1. Every slot of the group gets its successor. One fence.
//! 2. Every predecessor is led to its slot. One fence.
//! 3. The slots are marked ready.
//!
//! So a doubling costs 1/32 of a fence per bucket, and no operation waits for it. After a crash,
//! all groups are gone through again, and slots that are linked already are recognised.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use remanent_pmem::heap::Lane;
use remanent_pmem::{LINE_LEN, Link, Medium, Word};

use super::Core;
use super::damage::Damage;
use super::layout::{
    DUMMY, Hint, Order, READY, SEGMENT_COUNT, SEGMENTS, level, parent, target, to_dummy,
};
use super::list::{Edge, RUN_MAX};
use super::seal::{seal_link, seal_word};
use crate::stored::{Key, Stored};

/// Slots linked together under two fences: eight lines of the segment.
const GROUP: u64 = 64;
/// Bits of a group's number in the counter of groups.
const GROUP_BITS: u32 = 48;
/// Entries that a lane adds between two shares of maintenance. A group of 64 buckets for every 32
/// entries links a new segment before the map can have grown by half.
const MAINTENANCE_INTERVAL: u32 = 32;
/// Most buckets a map can have: 2^40.
const BITS_MAX: u32 = 40;

/// How a slot gets into the list: the link at `link_at`, which is `link` now, becomes `new`.
struct Plan {
    link_at: u64,
    link: Word,
    new: Word,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    /// Whether the operation that holds `lane` should do a share of the map's maintenance after it.
    #[inline(always)]
    pub(super) fn is_maintenance_due(&self, lane: &Lane<'_, M>) -> bool {
        let added = &self.deltas[lane.index()].added;
        // Relaxed: only the lane's holder touches it.
        let is_due = added.load(Ordering::Relaxed) >= MAINTENANCE_INTERVAL;
        if is_due {
            added.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// Links buckets, sweeps or grows. May not be called inside a lane.
    #[cold]
    pub(super) fn maintain(&self) {
        if !self.is_swept() {
            // The operation before this one has succeeded. Damage is reported to operations that
            // meet it, and by `check`.
            let _ = self.sweep_some();
        }
        if self.link_group() {
            return;
        }
        if self.estimated_len() > 1 << self.bits() {
            // A failure only makes chains longer. Other operations report a full pool.
            let _ = self.grow();
        }
    }

    /// Doubles the number of buckets, if every bucket of the last doubling is linked.
    fn grow(&self) -> crate::Result<()> {
        // Another thread is growing the map: this one goes on with its own work.
        let Ok(_growing) = self.growing.try_lock() else { return Ok(()) };
        let bits = self.bits();
        let segment = (bits - K::BUCKET_BITS + 1) as usize;
        // Acquire: pairs with the Release in `link_group`.
        let linked = self.groups_done.load(Ordering::Acquire) == Self::group_count(bits);
        let too_small = self.estimated_len() <= 1 << bits;
        if !linked || too_small || bits >= BITS_MAX || segment >= SEGMENT_COUNT {
            return Ok(());
        }
        let medium = self.medium();
        let mut lane = self.heap.enter().prepare_to_write();
        let block = lane.allocate_zeroed(8 << bits)?;
        let field = SEGMENTS + segment as u64 * 8;
        let at = self.heap.header() + field;
        medium.store(at, seal_word(field, block.offset));
        // Flush and fence: this word durably makes the segment part of the map, before any bucket
        // of it can be linked.
        medium.persist(at, 8);
        self.segments[segment].store(block.offset, Ordering::Relaxed);
        self.groups_done.store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `claim_group`, for the segment and the count of
        // groups.
        self.next_group.store(Self::first_group(bits + 1), Ordering::Release);
        // Release: pairs with the Acquire in `bits`; a thread that sees the new buckets finds their
        // segment.
        self.bits.store(bits + 1, Ordering::Release);
        Ok(())
    }

    /// About how many entries there are.
    fn estimated_len(&self) -> i64 {
        // Relaxed: written before others use the map.
        self.base_estimate.load(Ordering::Relaxed) + self.delta()
    }

    /// Groups of the last segment of a map with `bits` bits. The first segment is linked when the
    /// map is created.
    fn group_count(bits: u32) -> u64 {
        if bits == K::BUCKET_BITS { 0 } else { (1_u64 << (bits - 1)).div_ceil(GROUP) }
    }

    /// The counter of groups when no group of a map with `bits` bits is claimed. It includes the
    /// bits, so that no thread claims a group of one segment and links that of another.
    pub(super) const fn first_group(bits: u32) -> u64 {
        (bits as u64) << GROUP_BITS
    }

    /// Claims a group. Returns the bits of the map that it belongs to, and its number.
    fn claim_group(&self) -> Option<(u32, u64)> {
        // Acquire: after the segment was published (Release in `grow`).
        let mut next = self.next_group.load(Ordering::Acquire);
        loop {
            let (bits, group) = ((next >> GROUP_BITS) as u32, next & ((1 << GROUP_BITS) - 1));
            if group >= Self::group_count(bits) {
                return None;
            }
            // Acquire: as above.
            let claimed = self.next_group.compare_exchange_weak(
                next,
                next + 1,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            match claimed {
                Ok(_) => return Some((bits, group)),
                Err(found) => next = found,
            }
        }
    }

    /// Links the next group of buckets that no thread has claimed. False when none is left. A group
    /// with damage is not linked: the map works without it, but grows no more.
    fn link_group(&self) -> bool {
        let Some((bits, group)) = self.claim_group() else { return false };
        let medium = self.medium();
        let first = (1 << (bits - 1)) + group * GROUP;
        let end = (first + GROUP).min(1 << bits);
        let mut buckets: VecDeque<u64> = (first..end)
            .filter(|&bucket| !Link::at(medium, self.slot(bucket)).load().has(READY))
            .collect();
        while !buckets.is_empty() {
            let mut lane = self.heap.enter().prepare_to_write();
            if self.link_buckets(&mut lane, &mut buckets).is_err() || self.heap.verify().is_err() {
                return true;
            }
        }
        // Release: pairs with the Acquire in `grow`: all groups are linked before the next
        // doubling.
        self.groups_done.fetch_add(1, Ordering::Release);
        true
    }

    /// Links as many buckets as one stay in a lane allows. These are all of them, unless many
    /// marked nodes are in the way.
    fn link_buckets(
        &self,
        lane: &mut Lane<'_, M>,
        buckets: &mut VecDeque<u64>,
    ) -> Result<(), Damage> {
        let medium = self.medium();
        self.prefetch_chains(buckets);
        let mut planned = Vec::with_capacity(buckets.len());
        while lane.suspects_left() > 2 * RUN_MAX || planned.is_empty() {
            let Some(bucket) = buckets.pop_front() else { break };
            planned.push((bucket, self.plan(lane, bucket)?));
        }
        let mut slots: Vec<u64> = planned.iter().map(|&(bucket, _)| self.slot(bucket)).collect();
        // Flush and fence: every slot leads to its successor before any link leads to a slot.
        flush_lines(medium, &mut slots);
        lane.fence();
        let mark = if medium.needs_flush() { Word::DIRTY } else { 0 };
        let mut linked = Vec::with_capacity(planned.len());
        for (bucket, plan) in &planned {
            let Some(Plan { link_at, link, new }) = plan else { continue };
            match medium.compare_exchange(*link_at, link.raw(), new.raw() | mark) {
                Ok(_) => linked.push((*link_at, *new)),
                Err(_) => self.link_bucket(lane, *bucket)?,
            }
        }
        // The flushes come after all exchanges, because a locked instruction waits for the flushes
        // before it.
        let mut links: Vec<u64> = linked.iter().map(|&(link_at, _)| link_at).collect();
        // Flush and fence: every slot is durably in the list before the mark is removed from the
        // link to it, and before operations begin at it.
        flush_lines(medium, &mut links);
        lane.fence();
        if mark != 0 {
            for (link_at, new) in linked {
                // Fails when a reader was faster. The cleared mark needs no flush.
                let _ = medium.compare_exchange(link_at, new.raw() | mark, new.raw());
            }
        }
        for (bucket, _) in planned {
            // Not flushed: after a crash, `plan` recognises a slot that is linked but not ready.
            medium.fetch_or(self.slot(bucket), READY);
        }
        Ok(())
    }

    /// Prefetches the first two nodes of the buckets to be split, all at once. Waiting for them one
    /// after the other would be most of the cost of growing.
    fn prefetch_chains(&self, buckets: &VecDeque<u64>) {
        let medium = self.medium();
        let first = |bucket| Link::at(medium, self.slot(parent(bucket))).load();
        for &bucket in buckets {
            medium.prefetch(first(bucket).offset());
        }
        for &bucket in buckets {
            let link = first(bucket);
            // The link may be damaged, and its target is loaded here without a check.
            let leads_to_node = !link.has(DUMMY) && !link.is_null();
            if leads_to_node && self.is_inside(link.offset(), LINE_LEN) {
                medium.prefetch(Link::at(medium, link.offset()).load().offset());
            }
        }
    }

    /// Gives the slot of `bucket` its successor; the caller flushes it. `None` when a link leads to
    /// the slot already.
    fn plan(&self, lane: &mut Lane<'_, M>, bucket: u64) -> Result<Option<Plan>, Damage> {
        let slot = self.slot(bucket);
        loop {
            let place = self.find(Order::of_bucket(bucket), Edge::First, |_, _| Ok(false))?;
            if place.link_at == slot {
                return Ok(None);
            }
            if place.run_len > 0 {
                if lane.suspects_left() < RUN_MAX {
                    let what = "removed entries are in the way of a bucket, again and again";
                    return Err(Damage::Word { at: place.link_at, what });
                }
                // They would end up behind the dummy, where no search for their order looks.
                self.unlink_run(lane, &place);
                continue;
            }
            let medium = self.medium();
            let order = Order::of_bucket(bucket);
            let bits = level(bucket, K::BUCKET_BITS);
            let hint = match place.bound(K::BUCKET_BITS) {
                Some(bound) if bound.shares(order, bits) => Hint::of(bound, bits),
                _ => Hint::NONE,
            };
            medium.store(slot, seal_link(slot, hint.put(target(place.link))).raw());
            let new = place.led_past(to_dummy(bucket));
            return Ok(Some(Plan { link_at: place.link_at, link: place.link, new }));
        }
    }

    /// Links one bucket alone, after another thread changed the link to it.
    #[cold]
    fn link_bucket(&self, lane: &mut Lane<'_, M>, bucket: u64) -> Result<(), Damage> {
        while let Some(plan) = self.plan(lane, bucket)? {
            // Flush and fence: as in `link_buckets`.
            self.medium().flush(self.slot(bucket), 8);
            lane.fence();
            // Redundant fence: unless another thread passes the link at this moment, which reads as
            // clean already. The fence of `link_buckets` follows.
            if Link::at(self.medium(), plan.link_at).replace(plan.link, plan.new).is_ok() {
                return Ok(());
            }
            if self.medium().fault().is_some() {
                let what = "the link to a bucket cannot be changed";
                return Err(Damage::Word { at: plan.link_at, what });
            }
        }
        Ok(())
    }

    /// Links every slot of the first segment, in a new map.
    pub(super) fn link_first_segment(&self) {
        let medium = self.medium();
        let count = 1_u64 << K::BUCKET_BITS;
        let by_order = |place: u64| place.reverse_bits() >> (64 - K::BUCKET_BITS);
        for place in 0..count {
            let next = if place + 1 < count { to_dummy(by_order(place + 1)) } else { Word::NULL };
            let slot = self.slot(by_order(place));
            medium.store(slot, seal_link(slot, next.with(READY)).raw());
        }
        // Flush: fenced in `create`, before the map is a root.
        medium.flush(self.slot(0), count * 8);
    }
}

/// Flushes the lines of all these words, each line once.
#[inline]
#[track_caller]
fn flush_lines<M: Medium>(medium: &M, words: &mut Vec<u64>) {
    if !medium.needs_flush() {
        return;
    }
    words.iter_mut().for_each(|word| *word &= !(LINE_LEN - 1));
    words.sort_unstable();
    words.dedup();
    for &line in &*words {
        medium.flush(line, LINE_LEN);
    }
}
