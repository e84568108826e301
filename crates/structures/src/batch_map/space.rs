//! Segments taken, set aside, and found worth emptying.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};

use super::layout::{Place, SEQUENCE, SLOTS_MAX};
use super::log::{Log, Purpose};
use crate::Result;
use crate::segments::{Segment, Slot};

/// Segments that hold nothing, and those that hold little.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Ordinary segments with sequence 0.
    pub(super) slots: Vec<Slot>,
    /// Slots below the directory's end that have no segment.
    pub(super) vacant: Vec<Slot>,
    /// Segments there are, spare ones included.
    pub(super) total: u64,
    /// Segments of which less than half is live.
    pub(super) sparse: BTreeSet<Slot>,
    /// The one taken last: on its way to the log's end, where it is not seen yet.
    taken: Option<Slot>,
}

/// One in so many segments is kept for what makes room: removing needs room too. And at least one for
/// tombstones, and one to move into what is live.
const RESERVE_MIN: usize = 2;
const RESERVE_ONE_IN: u64 = 32;
/// Spare segments beyond the reserve that are kept; further ones go back to the pool.
const SPARES_MAX: usize = 2;

impl Spares {
    /// Spare segments that growth may not take.
    fn reserve(&self) -> usize {
        RESERVE_MIN + (self.total / RESERVE_ONE_IN) as usize
    }
}

impl<M: Medium> Log<M> {
    /// Takes a segment of at least `len` bytes, with sequence 0.
    pub(super) fn take_segment(&self, len: u64, purpose: Purpose) -> Result<(Slot, Segment)> {
        let mut spares = self.spares.lock(self.medium());
        let taken = self.take_from(&mut spares, len, purpose)?;
        spares.taken = Some(taken.0);
        Ok(taken)
    }

    fn take_from(
        &self,
        spares: &mut Spares,
        len: u64,
        purpose: Purpose,
    ) -> Result<(Slot, Segment)> {
        if len <= self.segment_len && spares.slots.len() > spares.reserve() {
            return Ok(self.pop_spare(spares).expect("more spares than are reserved"));
        }
        let made = match self.make_segment(spares, len.max(self.segment_len)) {
            Err(error)
                if error.is_full()
                    && len <= self.segment_len
                    && spares.slots.len() >= purpose.spares_needed() =>
            {
                // Relaxed: a writer that sees it late takes what it still may.
                self.is_low.store(true, Ordering::Relaxed);
                return self.pop_spare(spares).ok_or(error);
            }
            made => made?,
        };
        while spares.slots.len() < spares.reserve() {
            // A full pool is no error yet: nothing that was asked for fails.
            let Ok((slot, _)) = self.make_segment(spares, self.segment_len) else { break };
            spares.slots.push(slot);
        }
        self.forget_low(spares);
        Ok(made)
    }

    /// Ends the time in which nothing may grow, when the reserve is there again.
    fn forget_low(&self, spares: &Spares) {
        if spares.slots.len() >= spares.reserve() {
            self.is_low.store(false, Ordering::Relaxed);
        }
    }

    /// Fills the reserve up, where it is low and the pool has room again; whether it is full then.
    pub(super) fn refill(&self) -> bool {
        if !self.is_low.load(Ordering::Relaxed) {
            return false;
        }
        let mut spares = self.spares.lock(self.medium());
        while spares.slots.len() < spares.reserve() {
            let Ok((slot, _)) = self.make_segment(&mut spares, self.segment_len) else {
                return false;
            };
            spares.slots.push(slot);
        }
        self.forget_low(&spares);
        true
    }

    /// Whether a segment is spare, or about to be used.
    fn is_idle(spares: &Spares, slot: Slot) -> bool {
        spares.taken == Some(slot) || spares.slots.contains(&slot)
    }

    fn pop_spare(&self, spares: &mut Spares) -> Option<(Slot, Segment)> {
        let slot = spares.slots.pop()?;
        Some((slot, self.segments.get(slot)?))
    }

    fn make_segment(&self, spares: &mut Spares, len: u64) -> Result<(Slot, Segment)> {
        let slot = spares.vacant.last().copied().unwrap_or(self.segments.end());
        if slot.0 >= SLOTS_MAX {
            let (needed, limit) = (u64::from(slot.0), u64::from(SLOTS_MAX));
            return Err(PoolError::TooLarge { needed, limit }.into());
        }
        let medium = self.medium();
        let segment = self.segments.take(&self.heap, slot, len, |offset| {
            medium.store(offset + SEQUENCE, 0);
            // Flush: fenced by `take`, before the directory leads here.
            medium.flush(offset, LINE_LEN);
        })?;
        spares.vacant.retain(|&vacant| vacant != slot);
        spares.total += 1;
        Ok((slot, segment))
    }

    /// Makes a segment spare, durably, or gives it back to the pool. Nothing in it is needed any more.
    pub(super) fn recycle(&self, slot: Slot) {
        let Some(segment) = self.segments.get(slot) else { return };
        let medium = self.medium();
        medium.store(segment.offset + SEQUENCE, 0);
        // Flush and fence: void before a segment with a tombstone is, which the values in here made necessary.
        // Redundant: the fence alone, but where that segment is emptied next, and nothing has to be moved out
        // of it; no seed has met that.
        medium.persist(segment.offset, LINE_LEN);
        self.set_aside(slot);
    }

    /// Makes a segment spare that is void already, or gives it back to the pool.
    pub(super) fn set_aside(&self, slot: Slot) {
        let Some(segment) = self.segments.get(slot) else { return };
        self.live.make(slot).store(0, Ordering::Relaxed);
        self.filled.make(slot).store(0, Ordering::Relaxed);
        let mut spares = self.spares.lock(self.medium());
        spares.sparse.remove(&slot);
        if segment.len == self.segment_len && spares.slots.len() < spares.reserve() + SPARES_MAX {
            spares.slots.push(slot);
            self.forget_low(&spares);
        } else {
            self.segments.free(&self.heap, slot);
            spares.vacant.push(slot);
            spares.total -= 1;
        }
    }

    /// Counts a record out of its segment's live bytes.
    #[inline]
    pub(super) fn kill(&self, place: Place, len: u64) {
        let slot = place.slot();
        let before = self.live.make(slot).fetch_sub(len, Ordering::Relaxed);
        if let Some(segment) = self.segments.get(slot)
            && self.is_sparse_with(before - len, segment)
            && !self.is_sparse_with(before, segment)
        {
            self.spares.lock(self.medium()).sparse.insert(slot);
        }
    }

    /// Notes the segment as sparse if it is.
    pub(super) fn consider(&self, slot: Slot) {
        if self.is_sparse(slot) {
            self.spares.lock(self.medium()).sparse.insert(slot);
        }
    }

    /// A sparse segment that is at rest.
    pub(super) fn pick_sparse(&self) -> Option<Slot> {
        let mut spares = self.spares.lock(self.medium());
        // A spare segment may have been used again since.
        spares.sparse.retain(|&slot| self.is_sparse(slot));
        let sparse: Vec<Slot> =
            spares.sparse.iter().copied().filter(|&slot| !Self::is_idle(&spares, slot)).collect();
        drop(spares);
        sparse.into_iter().find(|&slot| self.is_at_rest(slot) && !self.is_needed_by_void(slot))
    }

    fn is_sparse(&self, slot: Slot) -> bool {
        let live = self.live.make(slot).load(Ordering::Relaxed);
        self.segments.get(slot).is_some_and(|segment| self.is_sparse_with(live, segment))
    }

    fn is_sparse_with(&self, live: u64, segment: Segment) -> bool {
        // One long record is there or not.
        if segment.len > self.segment_len { live == 0 } else { live * 2 < segment.len }
    }

    /// The segment at rest with the most dead bytes, if they are at least `dead_min`.
    pub(super) fn pick_emptiest(&self, dead_min: u64) -> Option<Slot> {
        let is_idle = |slot| Self::is_idle(&self.spares.lock(self.medium()), slot);
        let dead = |slot: Slot| {
            let filled = self.filled.make(slot).load(Ordering::Relaxed);
            filled.saturating_sub(self.live.make(slot).load(Ordering::Relaxed))
        };
        self.segments
            .slots()
            .filter(|&(slot, _)| !is_idle(slot) && self.is_at_rest(slot))
            .filter(|&(slot, _)| !self.is_needed_by_void(slot))
            .map(|(slot, _)| (dead(slot), slot))
            .filter(|&(dead, _)| dead >= dead_min)
            .max()
            .map(|(_, slot)| slot)
    }
}

impl Purpose {
    /// Spare segments that have to be there for one of them to be taken from the reserve.
    fn spares_needed(self) -> usize {
        match self {
            Purpose::Growth => usize::MAX,
            Purpose::Removal => 2,
            Purpose::Relief => 1,
        }
    }
}
