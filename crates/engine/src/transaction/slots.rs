//! Transaction slots: a statement holds one while it is in progress, a transaction of several while
//! it is open.

use std::sync::Arc;

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium};
use remanent_structures::RowId;

use super::deferred::Deferred;
use super::layout::{
    Asked, Content, OUTCOME_COUNT, Outcome, Record, SLOT_COUNT, STATEMENTS_MAX, Serial, State,
    TransactionId, list_at, outcome_at, record_at,
};
use super::notes::Notes;
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
    outcome: NextOutcome,
    /// The transaction whose outcome is there, until it is decided whether it is kept.
    ended: Option<Serial>,
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
    /// What it has changed and not written.
    pub(crate) deferred: Deferred<M>,
    /// What it has read, if it is serializable.
    pub(crate) notes: Option<Notes<M>>,
    /// Foreign keys are checked at its commit, and not by its statements.
    pub(crate) checks_at_commit: bool,
    /// It has changed others in an earlier process.
    pub(crate) is_continued: bool,
    /// What it has changed behind this statement is to be taken back first of all.
    pub(crate) back_to: Option<u32>,
    /// How long its statements wait for who is in their way, in ms.
    pub(crate) wait_ms: u64,
    /// Milliseconds after the opening at which anybody may give it up, while nobody has it.
    pub(crate) expires_ms: Option<u64>,
}

/// Where the next outcome is written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NextOutcome {
    /// Here, unless somebody knows the name of the transaction whose outcome is here.
    pub(crate) at: usize,
    /// Or here, once no row needs the outcome that opening has found here; nobody asks for it.
    pub(crate) spare: Option<usize>,
}

/// How a transaction is begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) limit_ms: u32,
    pub(crate) wait_ms: u64,
    /// It is durable at its commit, and not before.
    pub(crate) is_at_commit: bool,
    pub(crate) is_serializable: bool,
    /// Foreign keys are checked at its commit, and not by its statements.
    pub(crate) checks_at_commit: bool,
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
    pub(crate) fn of(last: Record, outcome: NextOutcome, open: Option<Open<M>>) -> Self {
        let begun = last.serial.number;
        Slot { last, published: Vec::new(), begun, open, outcome, ended: None }
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

    /// The rows that open transactions have locked, or changed and not written, by slots. Handles
    /// that were forgotten hold their slots for ever, so no slot is asked for.
    pub(crate) fn take_claimed(&mut self) -> Vec<(u32, Vec<Written<M>>, Deferred<M>)> {
        let slots = (0..).zip(self.slots.iter_mut().map(|slot| slot.0.get_mut()));
        let claimed = slots.filter_map(|(index, slot)| {
            let open = slot.open.as_mut()?;
            let deferred = std::mem::replace(&mut open.deferred, Deferred::new(false));
            Some((index, std::mem::take(&mut open.locked), deferred))
        });
        claimed.collect()
    }

    /// Makes durable what the last statements have published, before the database is closed: rows
    /// say then what became of transactions, and slots need not.
    pub(crate) fn close(&self, medium: &M) {
        let all = || (0..SLOT_COUNT).filter_map(|index| self.try_hold_one(index));
        for mut slot in all() {
            // Nobody learns the name of the last transaction any more.
            slot.settle_outcome(medium, true);
            slot.flush_published(medium);
        }
        // Fence: before records take the place of those that say the same.
        // Redundant: opening completes what was not published durably.
        medium.fence();
        for mut slot in all() {
            slot.lose_unwritten();
            let is_over = slot.open().is_none() && !self.statuses.is_orphan(slot.index);
            let last = slot.slot.last;
            let is_known = last.serial.number == slot.slot.begun;
            if is_over
                && (last.state != State::Alone || last.content != Content::Nothing || !is_known)
            {
                // Somebody may know the names of those that no record has. Nobody gets them again.
                slot.slot.last.serial.number = slot.slot.begun;
                slot.write(medium, State::Alone, None, Content::Nothing);
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
        medium: &M,
        opening: u16,
        how: How,
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
            limit_ms: how.limit_ms,
            snapshot,
            snapshot_before: None,
            rows: Vec::new(),
            locked: Vec::new(),
            deferred: Deferred::new(how.is_at_commit),
            notes: how.is_serializable.then(Notes::new),
            checks_at_commit: how.checks_at_commit,
            is_continued: false,
            back_to: None,
            wait_ms: how.wait_ms,
            expires_ms: None,
        });
        self.statuses.begin(TransactionId { slot: self.index, number }, Fate::Open);
        self.statuses.set_owner(self.index, serial, true);
        // Who begins has found that no row of an earlier process needs the slot.
        if let Some(spare) = self.slot.outcome.spare.take() {
            self.slot.outcome.at = spare;
        }
        // Of the one before, nobody learns the name any more.
        self.settle_outcome(medium, false);
        Ok(())
    }

    /// Gives up a transaction of which nothing is in the pool.
    fn lose_unwritten(&mut self) {
        let is_written = |open: &Open<M>| open.serial == self.slot.last.serial;
        if self.slot.open.as_ref().is_some_and(|open| !is_written(open)) {
            self.slot.open = None;
        }
    }

    /// Has the next outcome not take the place of the last one, if somebody may ask for that: but
    /// for this transaction, nobody learns its name any more. If the slot is being closed, says so
    /// otherwise, too.
    fn settle_outcome(&mut self, medium: &M, is_closing: bool) {
        let Some(ended) = self.slot.ended.take() else { return };
        let is_named = self.statuses.is_named(self.index, ended);
        let at = outcome_at(self.offset, self.index, self.slot.outcome.at);
        let asked = if is_named { Asked::BySomebody } else { Asked::ByNobody };
        let outcome = Outcome::read(medium, at).filter(|outcome| outcome.asked != asked);
        if let Some(outcome) = outcome.filter(|_| is_named || is_closing) {
            Outcome { asked, ..outcome }.write(medium, at);
            self.has_published(at & !(LINE_LEN - 1));
        }
        if is_named {
            self.slot.outcome.at = (self.slot.outcome.at + 1) % OUTCOME_COUNT;
        }
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
    pub(crate) fn write(&mut self, medium: &M, state: State, stamp: Option<u64>, content: Content) {
        let slot = &mut *self.slot;
        let last = slot.last;
        let mut record = Record { number: last.number + 1, state, content, ..last };
        record.stamp = stamp.unwrap_or(last.stamp);
        record.serial.opening = self.opening;
        (record.is_serializable, record.has_older) = (false, false);
        record.checks_at_commit = false;
        if let Some(open) = slot.open.as_mut() {
            record.is_serializable = open.notes.is_some();
            record.has_older = open.has_older_reads();
            record.checks_at_commit = open.checks_at_commit;
            let is_statement = content != Content::Nothing && !open.deferred.is_at_commit;
            open.statement += u32::from(is_statement);
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

    /// Offset of the word that leads to the list of the next record.
    pub(crate) fn next_list(&self) -> u64 {
        list_at(self.offset, self.index, self.slot.last.number + 1)
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
        // Of one that was given up and had written nothing, no row says anything.
        if open.statement > 0 && (committed.is_some() || !open.deferred.is_at_commit) {
            // Rows may need the one that opening has found.
            self.slot.outcome.spare = None;
            let at = outcome_at(self.offset, self.index, self.slot.outcome.at);
            let before = Outcome::read(medium, at);
            if let Some(before) = before.filter(|before| before.serial.opening == self.opening) {
                self.statuses.forget(self.index, before.serial.number);
            }
            let is_named = self.statuses.is_named(self.index, open.serial);
            let asked = if is_named { Asked::BySomebody } else { Asked::NotYet };
            Outcome { serial: open.serial, committed, asked }.write(medium, at);
            self.has_published(at & !(LINE_LEN - 1));
            // Opening may need the last one. Of those before, some are kept, for who asks.
            self.slot.ended = Some(open.serial);
        }
        if open.is_continued {
            self.statuses.set_orphan(self.index, true);
        }
        Some(open)
    }
}
