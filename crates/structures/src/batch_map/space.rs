//! The segments of a log: taking them, keeping spare ones, and picking those that are worth
//! emptying.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use remanent_pmem::heap::Heap;
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};

use super::balance::Balance;
use super::layout::{
    Head, Place, RECORDS, SEED, SEGMENT_LEN, SEQUENCE, SLOTS_MAX, segment_sum, void_mark,
};
use crate::Result;
use crate::segments::{PerSlot, Segment, Segments, Slot};

/// The spare segments, and the sparse ones.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Ordinary segments that are empty.
    pub(super) slots: Vec<Slot>,
    /// Slots below the directory's end that have no segment.
    pub(super) vacant: Vec<Slot>,
    /// The number of segments, including spare ones.
    pub(super) total: u64,
    /// Sealed segments that are partly dead, the least live ones first.
    sparse: BTreeSet<(Rank, Slot)>,
    /// The rank of each segment in `sparse`.
    ranks: HashMap<Slot, Rank>,
    /// Segments with damaged records, which are left alone.
    damaged: BTreeSet<Slot>,
}

/// What a segment is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// New data.
    Growth,
    /// A tombstone, which lets room be made later. It may take from the reserve, but not the last
    /// segment.
    Removal,
    /// Making room now: moving a record out of a sparse segment, or a clear.
    Relief,
}

/// The live part of a segment in sixteenths.
pub(super) type Rank = u64;
const RANKS: u64 = 16;
/// Segments below this rank are less than half live.
pub(super) const SPARSE: Rank = RANKS / 2;
/// Segments below this rank may have enough dead bytes for emptying to gain room.
pub(super) const DEAD_ENOUGH: Rank = RANKS * 3 / 4;

/// The reserve for operations that make room, since removing needs room, too: two segments, one for
/// tombstones and one to move live records into, and in addition one in 32 segments.
const RESERVE_MIN: usize = 2;
const RESERVE_ONE_IN: u64 = 32;
/// Spare segments kept beyond the reserve. Further ones go back to the pool.
const SPARES_MAX: usize = 4;

impl Spares {
    /// Spare segments that growth may not take.
    fn reserve(&self) -> usize {
        RESERVE_MIN + (self.total / RESERVE_ONE_IN) as usize
    }

    /// Spare segments that growth may take.
    fn free(&self) -> u64 {
        self.slots.len().saturating_sub(self.reserve()) as u64
    }

    fn rank(&mut self, slot: Slot, rank: Option<Rank>) {
        let before = match rank {
            Some(rank) => self.ranks.insert(slot, rank),
            None => self.ranks.remove(&slot),
        };
        if before != rank {
            before.map(|before| self.sparse.remove(&(before, slot)));
            rank.map(|rank| self.sparse.insert((rank, slot)));
        }
    }
}

/// The segments of a log: those with records, and empty ones.
pub(super) struct LogSegments<M: Medium> {
    pub(super) heap: Heap<M>,
    pub(super) directory: Segments,
    /// Bytes of an ordinary segment.
    pub(super) segment_len: u64,
    /// The map's seed, which makes its checksums and end marks unpredictable: a client cannot store
    /// bytes that look like a record.
    salt: u64,
    /// By slot, the bytes of live records, to which the index leads.
    pub(super) live: PerSlot,
    /// By slot, the end of the records in a sealed segment; 0 for other segments.
    pub(super) filled: PerSlot,
    /// By slot, the sequence of the segment; 0 for an empty one.
    pub(super) sequences: PerSlot,
    pub(super) balance: Balance,
    spares: PauseMutex<Spares>,
    /// Whether the reserve is being used up. Growth is refused until it is full again.
    is_low: AtomicBool,
    /// Segments with a lower sequence were cleared, and are void.
    cleared_before: AtomicU64,
}

impl<M: Medium> LogSegments<M> {
    pub(super) fn new(heap: Heap<M>, directory: Segments, spares: Spares) -> Self {
        let segment_len = heap.medium().load(heap.header() + SEGMENT_LEN);
        let salt = heap.medium().load(heap.header() + SEED);
        LogSegments {
            heap,
            directory,
            segment_len,
            salt,
            live: PerSlot::default(),
            filled: PerSlot::default(),
            sequences: PerSlot::default(),
            balance: Balance::new(segment_len),
            spares: PauseMutex::new(spares),
            is_low: AtomicBool::new(false),
            cleared_before: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// Every slot that has a segment, in ascending order.
    pub(super) fn slots(&self) -> impl Iterator<Item = (Slot, Segment)> + '_ {
        self.directory.slots()
    }

    /// The segment of a slot, if it has one.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<Segment> {
        self.directory.get(slot)
    }

    /// Pool offset of a place. If its slot has no segment, the offset in the segment alone.
    pub(super) fn offset(&self, place: Place) -> u64 {
        self.directory.offset(place.slot()) + place.at()
    }

    /// The sequence combined with the salt, as checksums and marks use it.
    #[inline(always)]
    pub(super) fn salted(&self, sequence: u64) -> u64 {
        sequence ^ self.salt
    }

    /// The checksum of the unchanging part of the header of the segment at `offset`.
    pub(super) fn sum(&self, offset: u64, words: [u64; 3]) -> u64 {
        segment_sum(self.salt, offset, words)
    }

    /// Whether growth is refused until the reserve is full again.
    #[inline]
    pub(super) fn is_low(&self) -> bool {
        // Relaxed: a writer that sees the flag late takes a segment that is still there.
        self.is_low.load(Ordering::Relaxed)
    }

    /// Makes all segments with a lower sequence void.
    pub(super) fn clear_before(&self, sequence: u64) {
        // Relaxed: only compaction reads it, and the caller holds `compacting`.
        self.cleared_before.store(sequence, Ordering::Relaxed);
    }

    /// Counts nothing as live except in the segment of the slot `kept`.
    pub(super) fn forget_live_but(&self, kept: Slot) {
        for (slot, _) in self.slots().filter(|&(slot, _)| slot != kept) {
            self.live.make(slot).store(0, Ordering::Relaxed);
            self.consider(slot);
        }
    }

    /// Whether a segment is void because the map was cleared later.
    pub(super) fn is_void(&self, slot: Slot) -> bool {
        self.sequence(slot) < self.cleared_before.load(Ordering::Relaxed)
    }

    /// Whether a segment must stay because its header makes others void that still exist.
    pub(super) fn is_needed_by_void(&self, slot: Slot) -> bool {
        // Relaxed: as in `clear_before`.
        let cleared_before = self.cleared_before.load(Ordering::Relaxed);
        self.sequence(slot) == cleared_before
            && self.slots().any(|(other, _)| (1..cleared_before).contains(&self.sequence(other)))
    }

    /// The sequence of a slot's segment; 0 when it is empty.
    #[inline]
    pub(super) fn sequence(&self, slot: Slot) -> u64 {
        // Relaxed: as in `Log::open_segment`.
        self.sequences.get(slot).map_or(0, |sequence| sequence.load(Ordering::Relaxed))
    }

    /// Takes an empty segment of at least `len` bytes.
    pub(super) fn take_segment(&self, len: u64, purpose: Purpose) -> Result<(Slot, Segment)> {
        let mut spares = self.spares.lock(self.medium());
        let taken = self.take_from(&mut spares, len, purpose);
        self.balance.set_spare(spares.free() * self.segment_len);
        drop(spares);
        self.balance.compare();
        taken
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
                // Relaxed: a writer that sees the flag late takes a segment that is still there.
                self.is_low.store(true, Ordering::Relaxed);
                return self.pop_spare(spares).ok_or(error);
            }
            made => made?,
        };
        while spares.slots.len() < spares.reserve() {
            // If the pool is full now, that is no error yet: the requested segment is there.
            let Ok((slot, _)) = self.make_segment(spares, self.segment_len) else { break };
            spares.slots.push(slot);
        }
        self.forget_low(spares);
        Ok(made)
    }

    /// Allows growth again when the reserve is full.
    fn forget_low(&self, spares: &Spares) {
        if spares.slots.len() >= spares.reserve() {
            self.is_low.store(false, Ordering::Relaxed);
        }
    }

    /// Refills a low reserve if the pool has room again. Returns whether that filled it.
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

    fn pop_spare(&self, spares: &mut Spares) -> Option<(Slot, Segment)> {
        let slot = spares.slots.pop()?;
        Some((slot, self.get(slot)?))
    }

    fn make_segment(&self, spares: &mut Spares, len: u64) -> Result<(Slot, Segment)> {
        let slot = spares.vacant.last().copied().unwrap_or(self.directory.end());
        if slot.0 >= SLOTS_MAX {
            let (needed, limit) = (u64::from(slot.0), u64::from(SLOTS_MAX));
            return Err(PoolError::TooLarge { needed, limit }.into());
        }
        let medium = self.medium();
        let segment = self.directory.take(&self.heap, slot, len, |offset| {
            medium.store(offset + SEQUENCE, void_mark(self.salt, offset));
            // Flush: the mark of an empty segment; fenced by `take`, before the directory leads
            // here.
            medium.flush(offset, LINE_LEN);
        })?;
        spares.vacant.retain(|&vacant| vacant != slot);
        spares.total += 1;
        self.balance.take(segment.len);
        Ok((slot, segment))
    }

    /// Makes a segment spare, durably, or gives it back to the pool. None of its records is needed
    /// any more.
    pub(super) fn recycle(&self, slot: Slot) {
        let Some(segment) = self.get(slot) else { return };
        let medium = self.medium();
        medium.store(segment.offset + SEQUENCE, void_mark(self.salt, segment.offset));
        // Flush and fence: this segment is void before a segment becomes void whose tombstones hide
        // the values in this one.
        // Redundant fence: unless that other segment is emptied next, with no record to move out of
        // it. No tested seed reaches that.
        medium.persist(segment.offset, LINE_LEN);
        self.set_aside(slot);
    }

    /// Makes a void segment spare, or gives it back to the pool.
    pub(super) fn set_aside(&self, slot: Slot) {
        let Some(segment) = self.get(slot) else { return };
        self.live.make(slot).store(0, Ordering::Relaxed);
        self.filled.make(slot).store(0, Ordering::Relaxed);
        self.sequences.make(slot).store(0, Ordering::Relaxed);
        let mut spares = self.spares.lock(self.medium());
        spares.rank(slot, None);
        spares.damaged.remove(&slot);
        if segment.len == self.segment_len {
            spares.slots.push(slot);
        } else {
            self.give_back(&mut spares, slot, segment);
        }
        self.trim(&mut spares);
        self.balance.set_spare(spares.free() * self.segment_len);
        self.forget_low(&spares);
    }

    /// Gives back surplus spare segments. The reserve shrinks with the log.
    fn trim(&self, spares: &mut Spares) {
        while spares.slots.len() > spares.reserve() + SPARES_MAX
            && let Some((slot, segment)) = self.pop_spare(spares)
        {
            self.give_back(spares, slot, segment);
        }
    }

    fn give_back(&self, spares: &mut Spares, slot: Slot, segment: Segment) {
        self.directory.free(&self.heap, slot);
        spares.vacant.push(slot);
        spares.total -= 1;
        self.balance.free(segment.len);
    }

    /// Subtracts a dead record from its segment's live bytes.
    #[inline]
    pub(super) fn kill(&self, place: Place, head: Head) {
        let (slot, len) = (place.slot(), head.record_len());
        // SeqCst: before the load in `is_sealed`; partner of the store in `seal` and the load in
        // `rank`. Whichever of `kill` and `seal` comes second sees the other's change and updates
        // the rank.
        let before = self.live.make(slot).fetch_sub(len, Ordering::SeqCst);
        let rank = |live: u64| live / (self.segment_len / RANKS);
        if rank(before) != rank(before.wrapping_sub(len)) && self.is_sealed(slot) {
            self.consider(slot);
        }
        if self.balance.bury(head) {
            self.balance.compare();
        }
    }

    /// Notes the end of a segment's records. No further ones are appended to it.
    pub(super) fn seal(&self, slot: Slot, end: u64) {
        // SeqCst: before the load of the live bytes in `rank`; partner of the subtraction in
        // `kill`.
        self.filled.make(slot).store(end, Ordering::SeqCst);
    }

    fn is_sealed(&self, slot: Slot) -> bool {
        // SeqCst: after the subtraction in `kill`; partner of the store in `seal`.
        self.filled.make(slot).load(Ordering::SeqCst) != 0
    }

    /// Updates the rank of a segment.
    pub(super) fn consider(&self, slot: Slot) {
        let mut spares = self.spares.lock(self.medium());
        // Under the lock, so that a later update does not use an older number.
        let rank = self.rank(slot);
        spares.rank(slot, rank);
    }

    /// The rank of a segment, if it is sealed and emptying it may gain room.
    fn rank(&self, slot: Slot) -> Option<Rank> {
        let segment = self.get(slot).filter(|_| self.is_sealed(slot))?;
        let live = self.live.make(slot).load(Ordering::SeqCst);
        // A long segment has one record, which is live or dead.
        let is_long = segment.len > self.segment_len;
        let rank = if is_long { live.min(1) * RANKS } else { live / (segment.len / RANKS) };
        (rank < DEAD_ENOUGH).then_some(rank)
    }

    /// Picks sealed segments with a rank below `end`, the least live ones first, except those that
    /// `used` returns. Picks as many as have live records for one segment together, and at least
    /// one if there is any.
    ///
    /// `used` is called under the lock of the spares, so a segment that is sealed later is not
    /// picked.
    pub(super) fn pick(&self, end: Rank, used: impl FnOnce() -> Vec<Slot>) -> Vec<Slot> {
        let spares = self.spares.lock(self.medium());
        let used = used();
        let mut left = self.segment_len;
        let mut picked = Vec::new();
        for &(rank, slot) in spares.sparse.range(..(end, Slot(0))) {
            let live = self.live.make(slot).load(Ordering::Relaxed);
            if !picked.is_empty() && live > left {
                break;
            }
            // A segment that is at least half live must have many dead bytes, because emptying does
            // not gain unused room.
            let is_worth = rank < SPARSE || self.dead(slot) * 4 >= self.segment_len;
            let is_kept = used.contains(&slot) || spares.damaged.contains(&slot);
            if is_worth && !is_kept && !self.is_needed_by_void(slot) {
                left = left.saturating_sub(live);
                picked.push(slot);
            }
        }
        picked
    }

    /// Excludes a segment from emptying, because a record in it is damaged.
    pub(super) fn leave_damaged(&self, slot: Slot) {
        self.spares.lock(self.medium()).damaged.insert(slot);
    }

    /// Allows damaged segments to be picked again.
    pub(super) fn forget_damaged(&self) {
        self.spares.lock(self.medium()).damaged.clear();
    }

    fn is_damaged(&self, slot: Slot) -> bool {
        self.spares.lock(self.medium()).damaged.contains(&slot)
    }

    /// Bytes of dead records in a sealed segment.
    fn dead(&self, slot: Slot) -> u64 {
        let filled = self.filled.make(slot).load(Ordering::Relaxed).saturating_sub(RECORDS);
        filled.saturating_sub(self.live.make(slot).load(Ordering::Relaxed))
    }

    /// The segment at rest with the most dead bytes, if these are at least `dead_min`.
    pub(super) fn pick_emptiest(
        &self,
        dead_min: u64,
        is_at_rest: impl Fn(Slot) -> bool,
    ) -> Option<Slot> {
        self.slots()
            .map(|(slot, _)| (self.dead(slot), slot))
            .filter(|&(dead, _)| dead >= dead_min)
            .filter(|&(_, slot)| is_at_rest(slot) && !self.is_damaged(slot))
            .filter(|&(_, slot)| !self.is_needed_by_void(slot))
            .max()
            .map(|(_, slot)| slot)
    }
}

impl Purpose {
    /// How many spare segments must exist for this purpose to take one from the reserve.
    fn spares_needed(self) -> usize {
        match self {
            Purpose::Growth => usize::MAX,
            Purpose::Removal => 2,
            Purpose::Relief => 1,
        }
    }
}
