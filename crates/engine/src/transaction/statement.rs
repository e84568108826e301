//! A statement in progress: what it belongs to, and how it takes effect.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::LockMode;
use super::collect::Garbage;
use super::held::Held;
use super::layout::{Content, Entry, Identity, State as RecordState, TransactionId};
use super::notes::Notes;
use super::slots::{HeldSlot, Written};
use super::stamps::Commit;
use super::statuses::Fate;
use super::view::View;
use super::wait::{Holder, Waiting};
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::layout::{Claim, Committed, Pending, State};
use crate::table::ops::RowPlace;
use crate::{Error, Result};

/// What a statement is for its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// One of several, after which the transaction goes on.
    One,
    /// One that commits the transaction, too.
    Last,
}

/// A statement in progress.
pub(crate) struct Statement<'t, 'd, M: Medium> {
    pub(super) slot: &'t mut HeldSlot<'d, M>,
    pub(super) part: Part,
    /// What it sees, and may change.
    pub(crate) view: View,
}

/// What a statement has written of a row, before anything leads to it.
pub(super) struct NewState<'t, M: Medium> {
    pub(super) table: &'t Arc<Table<M>>,
    pub(super) row: RowId,
    pub(super) place: RowPlace,
    /// Offset of the new version; 0 if the row was inserted.
    pub(super) version: u64,
    /// Whether its transaction has changed the row before.
    pub(super) is_own: bool,
}

/// The right to change a row. Dropping it gives the row free, or leaves it as the transaction had
/// it.
pub(super) struct Claimed<'t, M: Medium> {
    pub(super) table: &'t Arc<Table<M>>,
    pub(super) place: RowPlace,
    /// What the transaction has made of the row before, and written.
    pub(super) own: Option<Pending>,
    is_kept: bool,
}

/// Why a row cannot be claimed.
pub(super) enum Refusal {
    /// It can be in a moment.
    Wait,
    /// Another statement or transaction is changing it.
    Busy(Holder),
}

impl<M: Medium> Drop for Claimed<'_, M> {
    fn drop(&mut self) {
        if self.own.is_none() && !self.is_kept {
            self.table.give_free(self.place);
        }
    }
}

impl<M: Medium> Claimed<'_, M> {
    /// Whether the statement's transaction has changed the row before.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some() || self.is_kept
    }

    /// The newest state of the row, before which no statement puts another one.
    pub(super) fn newest(&self) -> Committed {
        self.own.map_or_else(|| self.table.committed(self.place), Pending::as_previous)
    }

    /// Leaves the claim as it is.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Has the transaction keep the row by this lock. False if it has locked it already, or
    /// inserted it. A change of it that is written keeps the row, too, until it is taken back.
    pub(super) fn lock(&mut self, lock: Claim) -> bool {
        let head = self.table.head(self.place);
        let is_new_row = matches!(head.committed.state(), State::Free(_));
        let lock = match self.is_kept {
            // It is gone if its insertion is taken back.
            _ if is_new_row || head.claim.locked_by().is_some() => return false,
            _ if self.own.is_some() => return true,
            false => lock,
            // A change that is not written may be taken back. Nobody could fold the row meanwhile.
            true => lock.to_fold(),
        };
        self.table.claim_row(self.place, lock);
        self.keep();
        true
    }
}

impl<M: Medium> Statement<'_, '_, M> {
    /// What it does if somebody is in its way.
    pub(super) fn waiting<'e>(&self, engine: &'e Engine<M>) -> Waiting<'e, M> {
        self.waiting_as(engine, LockMode::Wait)
    }

    /// The same for a statement that may be told not to wait.
    pub(super) fn waiting_as<'e>(&self, engine: &'e Engine<M>, mode: LockMode) -> Waiting<'e, M> {
        let own = self.slot.open().map(|open| open.wait_ms);
        let limit_ms = match mode {
            LockMode::Wait => own.unwrap_or_else(|| engine.waits.limit_ms()),
            LockMode::NoWait | LockMode::Skip => 0,
        };
        Waiting::new(engine, self.slot.index, limit_ms)
    }

    pub(super) fn id(&self) -> Option<TransactionId> {
        self.slot.id()
    }

    fn notes(&self) -> Option<&Notes<M>> {
        self.slot.open().and_then(|open| open.notes.as_ref())
    }

    /// How many reads a serializable transaction has noted.
    pub(crate) fn note_count(&self, medium: &M) -> usize {
        self.notes().map_or(0, |notes| notes.count(medium))
    }

    /// Forgets what it has noted behind so many reads.
    pub(crate) fn forget_notes(&self, medium: &M, count: usize) {
        if let Some(notes) = self.notes() {
            notes.truncate(medium, count);
        }
    }

    /// Notes for a serializable transaction that the statement has read all rows with a key.
    pub(super) fn note_key(&self, medium: &M, table: &Arc<Table<M>>, index: &Index<M>, key: &Key) {
        if let Some(open) = self.slot.open() {
            open.note_key(medium, table, index, key);
        }
    }
}

impl<M: Medium> Engine<M> {
    /// Makes a statement that is a transaction.
    pub(crate) fn alone<R>(
        &self,
        make: impl FnOnce(&mut Statement<'_, '_, M>) -> Result<R>,
    ) -> Result<R> {
        let mut slot = self.hold_slot()?;
        let (part, view) = (Part::Whole, View::NEWEST);
        let result = make(&mut Statement { slot: &mut slot, part, view })?;
        drop(slot);
        self.collect_if_due();
        Ok(result)
    }

    /// Claims a row for a statement.
    pub(super) fn claim_for<'t>(
        &self,
        statement: &Statement<'_, '_, M>,
        table: &'t Arc<Table<M>>,
        row: RowId,
        place: RowPlace,
    ) -> Result<Result<Claimed<'t, M>, Refusal>> {
        let claim = Claim::of(self.opens, statement.slot.index);
        let Err(other) = table.try_claim(place, claim, self.opens) else {
            return Ok(Ok(Claimed { table, place, own: None, is_kept: false }));
        };
        if let Some(by) = other.locked_by() {
            if by == statement.slot.index {
                return Ok(Ok(Claimed { table, place, own: None, is_kept: true }));
            }
            return self.meet_lock(statement, table, place, other).map(Err);
        }
        let Some(pending) = other.as_pending() else {
            if other.holder() == Some(statement.slot.index)
                && self.is_unwritten(statement.slot.index, (table.number, row))
            {
                return Ok(Ok(Claimed { table, place, own: None, is_kept: true }));
            }
            let holder = Holder { slot: other.holder() };
            // Folding takes one fence. One that has written nothing yet may be over.
            let is_short = match holder.slot {
                Some(slot) if !other.is_collectors() => self.expire(slot)?,
                _ => other.is_collectors(),
            };
            return Ok(Err(if is_short { Refusal::Wait } else { Refusal::Busy(holder) }));
        };
        if statement.id().is_some_and(|id| id.short() == pending.by) {
            return Ok(Ok(Claimed { table, place, own: Some(pending), is_kept: false }));
        }
        let slot = pending.by.slot();
        if self.statuses.fate(pending.by) == Some(Fate::Open) {
            let is_short = self.expire(slot)?;
            let holder = Holder { slot: Some(slot) };
            return Ok(Err(if is_short { Refusal::Wait } else { Refusal::Busy(holder) }));
        }
        if self.statuses.is_orphan(slot) {
            self.settle_orphan(table, row, place)?;
        } else {
            let is_over = || self.statuses.fate(pending.by) != Some(Fate::Open);
            self.require_claim_ends(statement, table, place, (other, slot), is_over)?;
        }
        Ok(Err(Refusal::Wait))
    }

    /// Who ends a transaction holds its slot until all rows say what became of it, and none is
    /// locked by it. A row that names it afterwards always will: it is damaged.
    pub(super) fn require_claim_ends(
        &self,
        statement: &Statement<'_, '_, M>,
        table: &Table<M>,
        place: RowPlace,
        (claim, slot): (Claim, u32),
        is_over: impl Fn() -> bool,
    ) -> Result<()> {
        let held = self.slots.try_hold_one(slot);
        let is_ending = held.is_none() && slot != statement.slot.index;
        let is_left = || table.claim(place) == claim;
        match !is_ending && is_left() && is_over() && !self.statuses.is_orphan(slot) {
            true => Err(table.head_damaged(place)),
            false => Ok(()),
        }
    }

    /// The commit of a statement's transaction, if the statement is its last one: the one that has
    /// begun, if it was validated.
    pub(super) fn commit_of<'e>(
        &'e self,
        part: Part,
        early: Option<Commit<'e, M>>,
    ) -> Option<Commit<'e, M>> {
        let begin = || (part != Part::One).then(|| self.stamps.begin(self.medium()));
        early.map(Commit::proceed).or_else(begin)
    }

    /// By what versions of a statement know it.
    pub(super) fn identity_of(
        &self,
        statement: &Statement<'_, '_, M>,
        commit: Option<&Commit<'_, M>>,
    ) -> Identity {
        match (statement.slot.id(), statement.slot.open(), commit) {
            (Some(id), Some(open), _) => {
                Identity { stamp: id.as_stamp(), opening: open.serial.opening }
            }
            (.., Some(commit)) => Identity { stamp: commit.stamp, opening: self.opening() },
            (.., None) => unreachable!("a statement without a transaction commits"),
        }
    }

    /// Writes the record of a statement. The caller fences.
    pub(super) fn write_record(
        &self,
        statement: &mut Statement<'_, '_, M>,
        commit: Option<&Commit<'_, M>>,
        new: &NewState<'_, M>,
        content: u32,
    ) {
        let state = match statement.part {
            Part::Whole => RecordState::Alone,
            Part::One => RecordState::Open,
            Part::Last => RecordState::Committed,
        };
        let (table, row, version) = (new.table.number, new.row, new.version);
        let content = Content::Row(Entry { table, row, version, content });
        let stamp = commit.map(|commit| commit.stamp);
        statement.slot.write(self.medium(), state, stamp, content);
    }

    /// Has the row lead to its new state. The row stays claimed if the statement is a transaction.
    pub(super) fn publish(
        &self,
        statement: &mut Statement<'_, '_, M>,
        commit: Option<&Commit<'_, M>>,
        new: &NewState<'_, M>,
    ) {
        let NewState { table, row, place, version, is_own } = *new;
        match (statement.id(), commit) {
            (None, Some(commit)) => {
                let committed = match version {
                    0 => Committed::present(commit.stamp),
                    offset => Committed::version(offset),
                };
                statement.slot.has_published(table.publish(place, committed));
            }
            (None, None) => unreachable!("a statement without a transaction commits"),
            (Some(id), _) => {
                let number = statement.slot.open().map_or(0, |open| open.statement);
                let pending = Pending::of(id.short(), version, number);
                statement.slot.has_published(table.claim_row(place, Claim::pending(pending)));
                let open = statement.slot.open_mut().expect("it has a transaction");
                if !is_own {
                    open.rows.push(Written { table: Arc::clone(table), row });
                }
                // The record that is durable by now names the newer one.
                self.leave_snapshot_before(open);
            }
        }
    }

    /// Ends a statement that has taken effect, and its transaction if that was its last one.
    pub(super) fn end_statement(
        &self,
        statement: &mut Statement<'_, '_, M>,
        commit: Option<Commit<'_, M>>,
        table: &Arc<Table<M>>,
        row: RowId,
        is_version: bool,
    ) -> Result<()> {
        match (statement.part, commit) {
            (Part::Whole, Some(commit)) => {
                if is_version {
                    let stamp = commit.stamp;
                    self.leave_garbage(Garbage { table: Arc::clone(table), row, stamp });
                }
                let changed = || vec![(Arc::clone(table), row)];
                commit.end(|stamp| self.committed_set(changed(), stamp))
            }
            (Part::Last, Some(commit)) => {
                self.has_committed(statement.slot, commit, Held::nothing())
            }
            _ => Ok(()),
        }
    }

    /// Refuses what was read of a moment that was not kept until it was read.
    #[inline]
    pub(crate) fn require_kept(&self, view: View) -> Result<()> {
        match view.place.is_none_or(|place| self.snapshots.is_kept(place)) {
            true => Ok(()),
            false => Err(Error::SnapshotTooOld { limit: self.snapshots.limit() }),
        }
    }

    /// Refuses a statement of a transaction that is at its end, or cannot have another one.
    pub(crate) fn require_open(&self, statement: &Statement<'_, '_, M>) -> Result<()> {
        match statement.part {
            Part::Whole => Ok(()),
            _ if statement.slot.open().is_none() => Err(Error::TransactionEnded),
            _ => statement.slot.require_statement(),
        }
    }
}
