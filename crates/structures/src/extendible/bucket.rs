//! Buckets: reading them without a lock, and the right to change one.
//!
//! A writer stores an entry in a slot, makes it durable, and only then names the slot in the
//! bucket's fingerprints, by which alone readers find entries. So they see nothing that a crash can
//! undo, and wait for nobody. A reader loads the control word, what it looks for, and the control
//! word again: if a version has passed, it begins anew. While a value is replaced in its place, the
//! control word leads readers to a copy of the old one in volatile memory, its *shadow*.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::layout::LANE_COUNT;
use remanent_pmem::{Mapped, Medium, WORD_LEN};

use super::layout::{CONTROL, Control, PRINTS, Prints, SHADOWS_MAX, Stamp, each_slot, slot_at};
use crate::shared::Step;

/// A bucket, by its pool offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket(pub(super) u64);

impl Bucket {
    #[inline(always)]
    pub(super) fn control<M: Medium>(self, medium: &M) -> Control {
        Control(medium.load(self.0 + CONTROL))
    }

    #[inline(always)]
    pub(super) fn prints<M: Medium>(self, medium: &M) -> Prints {
        Prints(medium.load(self.0 + PRINTS))
    }

    pub(super) fn set_prints<M: Medium>(self, medium: &M, prints: Prints) {
        medium.store(self.0 + PRINTS, prints.0);
    }

    #[inline(always)]
    pub(super) fn stamp<M: Medium>(self, medium: &M, slot: u32) -> Stamp {
        Stamp(medium.load(slot_at(self.0, slot)))
    }

    /// The second word of a slot.
    #[inline(always)]
    pub(super) fn word<M: Medium>(self, medium: &M, slot: u32) -> u64 {
        medium.load(slot_at(self.0, slot) + WORD_LEN)
    }

    /// Stores an entry in a slot that nobody finds, in the order that a crash requires. The caller
    /// flushes.
    #[inline(always)]
    pub(super) fn store_slot<M: Medium>(self, medium: &M, slot: u32, stamp: Stamp, word: u64) {
        let at = slot_at(self.0, slot);
        if Stamp(medium.load(at)).is_valid() {
            // What is left of an entry that has gone to another place must not get this value.
            medium.store(at, 0);
        }
        medium.store(at + WORD_LEN, word);
        // Release: after the second word in the line's order of stores.
        medium.store(at, stamp.0);
    }

    /// Tries to get the right to change the bucket.
    #[inline(always)]
    pub(super) fn try_hold<M: Medium>(self, medium: &M) -> Option<Held<'_, M>> {
        let control = self.control(medium);
        let taken = |control: Control| {
            medium.compare_exchange(self.0 + CONTROL, control.0, control.held().0).is_ok()
        };
        // `Held` is made only after the lock was taken, because dropping it gives the lock free.
        (!control.is_held() && taken(control)).then(|| Held {
            medium,
            bucket: self,
            control: control.held(),
        })
    }
}

/// The right to change a bucket. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct Held<'m, M: Medium> {
    medium: &'m M,
    pub(super) bucket: Bucket,
    /// The control word, which nobody else changes meanwhile.
    control: Control,
}

impl<M: Medium> Held<'_, M> {
    #[inline(always)]
    pub(super) fn control(&self) -> Control {
        self.control
    }

    #[inline(always)]
    pub(super) fn prints(&self) -> Prints {
        self.bucket.prints(self.medium)
    }

    /// Number of slots in use.
    #[inline(always)]
    pub(super) fn used(&self) -> u32 {
        self.prints().used().count_ones()
    }

    /// Slots that may be used and are not.
    #[inline(always)]
    pub(super) fn free_slots(&self, slots: u32) -> u32 {
        slots & !self.prints().used()
    }

    /// Changes the control word, in a way that readers notice.
    #[inline(always)]
    pub(super) fn set_control(&mut self, control: Control) {
        self.control = control;
        // Release: partner of the second load of the control word in readers.
        self.medium.store(self.bucket.0 + CONTROL, control.0);
    }

    /// Shows readers an entry that is durable.
    #[inline(always)]
    pub(super) fn show(&mut self, slot: u32, fingerprint: u8) {
        // Release: after the slot; partner of the loads of the fingerprints in readers.
        self.bucket.set_prints(self.medium, self.prints().with(slot, fingerprint));
    }

    /// Hides entries from readers. Their slots may be used again.
    #[inline(always)]
    pub(super) fn hide(&mut self, slots: u32) {
        self.bucket.set_prints(self.medium, self.prints().without(slots));
        self.set_control(self.control.next_version());
    }

    /// Notes that so many more entries are displaced from this bucket.
    pub(super) fn count_displaced(&mut self, added: i64) {
        self.set_control(self.control.with_displaced(added).next_version());
    }

    /// The slots that hold entries, with their stamps.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, Stamp)> {
        each_slot(self.prints().used()).map(|slot| (slot, self.bucket.stamp(self.medium, slot)))
    }
}

impl<M: Medium> Drop for Held<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: partner of the exchange in `try_hold`.
        self.medium.store(self.bucket.0 + CONTROL, self.control.free().0);
    }
}

/// The values that operations are replacing: one for each lane, and for each operation of a lane's
/// step.
#[derive(Debug)]
pub(super) struct Shadows {
    of_lanes: Box<[Shadow]>,
    /// For each lane, those of the operations behind the first that its step is replacing at once.
    of_steps: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

/// Aligned to two lines, because the adjacent-line prefetcher fetches pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Shadow(pub(super) AtomicU64);

/// Shadows of a lane behind the first.
const MORE: usize = Step::<Mapped>::OPERATIONS_MAX - 1;
const _: () = assert!(LANE_COUNT * (MORE + 1) <= SHADOWS_MAX);

impl Shadows {
    pub(super) fn new() -> Self {
        Shadows {
            of_lanes: (0..LANE_COUNT).map(|_| Shadow::default()).collect(),
            of_steps: (0..LANE_COUNT).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The number of a lane's shadow for one of the operations that it does at once.
    pub(super) fn of_operation(lane: usize, operation: usize) -> usize {
        lane + operation * LANE_COUNT
    }

    fn word(&self, shadow: usize) -> Option<&AtomicU64> {
        let (lane, operation) = (shadow % LANE_COUNT, shadow / LANE_COUNT);
        match operation.checked_sub(1) {
            None => Some(&self.of_lanes[lane].0),
            Some(index) => {
                let make = || (0..MORE).map(|_| AtomicU64::new(0)).collect();
                self.of_steps[lane].get_or_init(make).get(index)
            }
        }
    }

    #[inline(always)]
    pub(super) fn set(&self, shadow: usize, word: u64) {
        if let Some(place) = self.word(shadow) {
            // Release: before the control word that leads here.
            place.store(word, Ordering::Release);
        }
    }

    #[cold]
    pub(super) fn get(&self, shadow: usize) -> u64 {
        // Acquire: partner of the store in `set`. A number beyond the last is damage of a word that
        // is volatile, and the control word is compared again.
        self.word(shadow).map_or(0, |place| place.load(Ordering::Acquire))
    }
}
