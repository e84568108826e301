//! Transaction slots: a statement holds one while it is in progress.

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium};

use super::layout::{Record, SLOT_COUNT, record_at};

/// The slots of a database.
#[derive(Debug)]
pub(crate) struct Slots {
    offset: u64,
    slots: Box<[Aligned]>,
}

/// A slot in lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Aligned(PauseMutex<Slot>);

/// The volatile half of a slot.
#[derive(Debug, Default)]
struct Slot {
    /// Number of the last record.
    number: u64,
    /// Lines that the last statement has published, to be flushed before the next fence.
    published: Vec<u64>,
}

/// A slot that a statement holds.
pub(crate) struct HeldSlot<'s> {
    slot: PauseGuard<'s, Slot>,
    pub(crate) index: u32,
    offset: u64,
}

impl Slots {
    /// The slots at `offset`, whose last records have these numbers.
    pub(crate) fn new(offset: u64, numbers: impl Iterator<Item = u64>) -> Self {
        let slot = |number| Aligned(PauseMutex::new(Slot { number, published: Vec::new() }));
        Slots { offset, slots: numbers.map(slot).collect() }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes a slot: this thread's, unless another one has it. Waits while all are taken.
    #[inline]
    pub(crate) fn hold<M: Medium>(&self, medium: &M) -> HeldSlot<'_> {
        let first = medium.thread() as u32;
        loop {
            for index in (0..SLOT_COUNT).map(|next| first.wrapping_add(next) % SLOT_COUNT) {
                if let Some(slot) = self.slots[index as usize].0.try_lock() {
                    return HeldSlot { slot, index, offset: self.offset };
                }
            }
            medium.pause();
        }
    }

    /// Flushes what the last statements have published.
    pub(crate) fn flush_published<M: Medium>(&self, medium: &M) {
        for slot in &self.slots {
            slot.0.lock(medium).flush_published(medium);
        }
    }
}

impl Slot {
    fn flush_published<M: Medium>(&mut self, medium: &M) {
        for line in self.published.drain(..) {
            // Flush: fenced by the caller.
            medium.flush(line, LINE_LEN);
        }
    }
}

impl HeldSlot<'_> {
    /// Number of the record that comes next.
    pub(crate) fn next_number(&self) -> u64 {
        self.slot.number + 1
    }

    /// Writes the next record, and flushes it, together with what the one before has published.
    pub(crate) fn write<M: Medium>(&mut self, medium: &M, record: Record) {
        debug_assert_eq!(record.number, self.next_number(), "records are numbered");
        let at = record_at(self.offset, self.index, record.number);
        record.write(medium, at);
        self.slot.number = record.number;
        // Flush: with the fence of this record the one before is no longer needed: the one after
        // this takes its place.
        self.slot.flush_published(medium);
        // Flush: fenced by the caller, together with the content.
        medium.flush(at, LINE_LEN);
    }

    /// Says that the line at `offset` was changed by what the last record says.
    pub(crate) fn has_published(&mut self, offset: u64) {
        self.slot.published.push(offset);
    }
}
