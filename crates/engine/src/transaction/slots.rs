//! Transaction slots: a statement holds one while it is in progress, a transaction of several while
//! it is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium};
use remanent_structures::RowId;

use super::layout::{
    Entry, OUTCOME_COUNT, Outcome, Record, SLOT_COUNT, STATEMENTS_MAX, Serial, State,
    TransactionId, outcome_at, record_at,
};
use super::snapshots::Held;
use super::statuses::{Fate, Statuses};
use crate::table::Table;
use crate::{Error, Result};

/// The slots of a database.
pub(crate) struct Slots<M: Medium> {
    offset: u64,
    slots: Box<[Aligned<M>]>,
    statuses: Arc<Statuses>,
    /// That of the pool, as records have it.
    opening: u16,
}

/// A slot in lines of its own.
#[repr(align(128))]
struct Aligned<M: Medium>(PauseMutex<Slot<M>>);

/// The volatile half of a slot.
pub(crate) struct Slot<M: Medium> {
    /// The last record.
    last: Record,
    /// Lines that the last statement has published, to be flushed before the next fence.
    published: Vec<u64>,
    /// Number of the last transaction of several statements that has begun.
    begun: u64,
    open: Option<Open<M>>,
    /// Where the next outcome is written.
    outcome: usize,
}

/// A transaction of several statements that is not at its end.
pub(crate) struct Open<M: Medium> {
    pub(crate) serial: Serial,
    /// The last statement that took effect.
    pub(crate) statement: u32,
    pub(crate) limit_ms: u32,
    pub(crate) snapshot: Held,
    /// The one that the last record names, if that is an older one.
    pub(crate) snapshot_before: Option<Held>,
    /// Rows that it has changed in this process.
    pub(crate) rows: Vec<Written<M>>,
    /// Rows that it has locked. Some of them may be changed since, and are among `rows`, too.
    pub(crate) locked: Vec<Written<M>>,
    /// It has changed others in an earlier process.
    pub(crate) is_continued: bool,
    /// How long its statements wait for who is in their way, in ms.
    pub(crate) wait_ms: u64,
    /// Somebody knows its name, and may ask later how it ended.
    pub(crate) is_named: AtomicBool,
    /// Milliseconds after the opening at which anybody may give it up, while nobody has it.
    pub(crate) expires_ms: Option<u64>,
}

/// A row that a transaction has changed, or locked.
pub(crate) struct Written<M: Medium> {
    pub(crate) table: Arc<Table<M>>,
    pub(crate) row: RowId,
}

/// A slot that a statement or a transaction holds.
pub(crate) struct HeldSlot<'s, M: Medium> {
    slot: PauseGuard<'s, Slot<M>>,
    pub(crate) index: u32,
    offset: u64,
    opening: u16,
    statuses: &'s Statuses,
}

impl<M: Medium> Slot<M> {
    /// A slot as its last record and its outcomes say; with the transaction that is open.
    pub(crate) fn of(last: Record, outcome: usize, open: Option<Open<M>>) -> Self {
        Slot { last, published: Vec::new(), begun: last.serial.number, open, outcome }
    }

    fn flush_published(&mut self, medium: &M) {
        for line in self.published.drain(..) {
            // Flush: fenced by the caller.
            medium.flush(line, LINE_LEN);
        }
    }
}

impl<M: Medium> Slots<M> {
    /// The slots at `offset`.
    pub(crate) fn new(
        offset: u64,
        statuses: &Arc<Statuses>,
        opening: u16,
        slots: impl Iterator<Item = Slot<M>>,
    ) -> Self {
        let slots = slots.map(|slot| Aligned(PauseMutex::new(slot))).collect();
        Slots { offset, slots, statuses: Arc::clone(statuses), opening }
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// A slot that nobody has: this thread's, unless it is taken.
    #[inline]
    pub(crate) fn try_hold(&self, medium: &M) -> Option<HeldSlot<'_, M>> {
        let first = medium.thread() as u32;
        let all = (0..SLOT_COUNT).map(|next| first.wrapping_add(next) % SLOT_COUNT);
        all.into_iter().find_map(|index| {
            let held = self.try_hold_one(index)?;
            (held.slot.open.is_none() && !self.statuses.is_orphan(index)).then_some(held)
        })
    }

    /// This slot, whatever transaction has it, unless a handle holds it.
    pub(crate) fn try_hold_one(&self, index: u32) -> Option<HeldSlot<'_, M>> {
        let slot = self.slots[index as usize].0.try_lock()?;
        let Slots { offset, opening, ref statuses, .. } = *self;
        Some(HeldSlot { slot, index, offset, opening, statuses })
    }

    /// The outcomes that a slot keeps, and whether it has had others.
    pub(crate) fn outcomes(&self, medium: &M, slot: u32) -> (Vec<Outcome>, bool) {
        let all = || (0..OUTCOME_COUNT).map(|of| outcome_at(self.offset, slot, of));
        let kept = all().filter_map(|at| Outcome::read(medium, at)).collect();
        (kept, !all().any(|at| Outcome::is_unused(medium, at)))
    }

    /// The rows that open transactions have locked, by slots. Handles that were forgotten hold
    /// their slots for ever, so no slot is asked for.
    pub(crate) fn take_locked(&mut self) -> Vec<(u32, Vec<Written<M>>)> {
        let slots = (0..).zip(self.slots.iter_mut().map(|slot| slot.0.get_mut()));
        let locked = slots.filter_map(|(index, slot)| {
            let open = slot.open.as_mut()?;
            Some((index, std::mem::take(&mut open.locked)))
        });
        locked.collect()
    }

    /// Makes durable what the last statements have published, before the database is closed: rows
    /// say then what became of transactions, and slots need not.
    pub(crate) fn close(&self, medium: &M) {
        let all = || (0..SLOT_COUNT).filter_map(|index| self.try_hold_one(index));
        for mut slot in all() {
            slot.flush_published(medium);
        }
        // Fence: before records take the place of those that say the same.
        // Redundant: opening completes what was not published durably.
        medium.fence();
        for mut slot in all() {
            let is_over = slot.open().is_none() && !self.statuses.is_orphan(slot.index);
            let last = slot.slot.last;
            if is_over && (last.state != State::Alone || last.entry.is_some()) {
                slot.write(medium, State::Alone, None, None);
            }
        }
        // Fence: for these records.
        // Redundant: without them, opening believes that rows may not say it.
        medium.fence();
    }
}

impl<M: Medium> HeldSlot<'_, M> {
    /// The transaction of several statements that has the slot.
    pub(crate) fn open(&self) -> Option<&Open<M>> {
        self.slot.open.as_ref()
    }

    pub(crate) fn open_mut(&mut self) -> Option<&mut Open<M>> {
        self.slot.open.as_mut()
    }

    /// Its name.
    pub(crate) fn id(&self) -> Option<TransactionId> {
        let open = self.slot.open.as_ref()?;
        Some(TransactionId { slot: self.index, number: open.serial.number })
    }

    /// Begins a transaction of several statements, which is in the pool from its first one on.
    pub(crate) fn begin(
        &mut self,
        opening: u16,
        (limit_ms, wait_ms): (u32, u64),
        snapshot: Held,
    ) -> Result<()> {
        let slot = &mut *self.slot;
        let mut number = slot.begun + 1;
        // Claims have few bits of a number, in which the next one in the pool has to differ from
        // the last one in the pool.
        if number % 512 == slot.last.serial.number % 512 {
            number += 1;
        }
        if number > Serial::NUMBER_MAX {
            return Err(Error::TooManyTransactions);
        }
        slot.begun = number;
        let serial = Serial { number, opening };
        slot.open = Some(Open {
            serial,
            statement: 0,
            limit_ms,
            snapshot,
            snapshot_before: None,
            rows: Vec::new(),
            locked: Vec::new(),
            is_continued: false,
            wait_ms,
            is_named: AtomicBool::new(false),
            expires_ms: None,
        });
        self.statuses.begin(TransactionId { slot: self.index, number }, Fate::Open);
        self.statuses.set_owner(self.index, serial, true);
        Ok(())
    }

    /// Makes room for one statement more.
    pub(crate) fn require_statement(&self) -> Result<()> {
        match self.slot.open.as_ref().is_some_and(|open| open.statement == STATEMENTS_MAX) {
            true => Err(Error::TooManyStatements { limit: STATEMENTS_MAX }),
            false => Ok(()),
        }
    }

    /// Writes the next record, and flushes it, together with what the one before has published. It
    /// says that the slot has this state, and what a statement has done to a row.
    pub(crate) fn write(
        &mut self,
        medium: &M,
        state: State,
        stamp: Option<u64>,
        entry: Option<Entry>,
    ) {
        let slot = &mut *self.slot;
        let last = slot.last;
        let mut record = Record { number: last.number + 1, state, entry, ..last };
        record.stamp = stamp.unwrap_or(last.stamp);
        record.serial.opening = self.opening;
        if let Some(open) = slot.open.as_mut() {
            open.statement += u32::from(entry.is_some());
            record.serial = open.serial;
            record.statement = open.statement;
            record.limit_ms = open.limit_ms;
            record.snapshot = open.snapshot.stamp;
        }
        let at = record_at(self.offset, self.index, record.number);
        record.write(medium, at);
        slot.last = record;
        // Flush: with the fence of this record the one before is no longer needed: the one after
        // this takes its place.
        slot.flush_published(medium);
        // Flush: fenced by the caller, together with the content.
        medium.flush(at, LINE_LEN);
    }

    /// Says that the line at `offset` was changed by what the last record says.
    pub(crate) fn has_published(&mut self, offset: u64) {
        self.slot.published.push(offset);
    }

    /// Flushes what was published. The caller fences.
    pub(crate) fn flush_published(&mut self, medium: &M) {
        self.slot.flush_published(medium);
    }

    /// Says what has become of the transaction.
    pub(crate) fn set_fate(&self, fate: Fate) {
        if let Some(id) = self.id() {
            self.statuses.set(id, fate);
        }
    }

    /// Ends the transaction, and keeps its outcome for who asks with its token.
    pub(crate) fn end(&mut self, medium: &M, committed: Option<u64>) -> Option<Open<M>> {
        let open = self.slot.open.take()?;
        self.statuses.set_owner(self.index, open.serial, false);
        if open.statement > 0 {
            let at = outcome_at(self.offset, self.index, self.slot.outcome);
            Outcome { serial: open.serial, committed }.write(medium, at);
            self.has_published(at & !(LINE_LEN - 1));
            // Opening may need the last one. Of those before, nobody asks after others.
            // Relaxed: who was told the name has the transaction, or had it.
            if open.is_named.load(Ordering::Relaxed) {
                self.slot.outcome = (self.slot.outcome + 1) % OUTCOME_COUNT;
            }
        }
        if open.is_continued {
            self.statuses.set_orphan(self.index, true);
        }
        Some(open)
    }
}
