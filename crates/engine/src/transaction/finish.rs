//! How a transaction of several statements ends: one record, and then its rows say so.

use std::collections::HashSet;
use std::sync::Arc;

use remanent_pmem::heap::{Lane, Suspect};
use remanent_pmem::sync::PauseGuard;
use remanent_pmem::{LINE_LEN, Medium};
use smallvec::SmallVec;

use super::collect::{After, Garbage, OldWords, SPARE, TOGETHER, VERSIONS, old_keys_of};
use super::held::Held;
use super::layout::{Content, ShortId, State};
use super::notes::Notes;
use super::slots::{HeldSlot, Open, Written};
use super::stamps::Commit;
use super::statuses::Fate;
use super::unwritten::RowName;
use crate::engine::Engine;
use crate::replicate::collect::ChangedRows;
use crate::replicate::write_set::Promised;
use crate::table::layout::State as RowState;
use crate::table::layout::{Claim, Committed, Pending};
use crate::table::ops::RowPlace;
use crate::table::version::NEWEST;
use crate::{Error, Result};

/// A row whose newest states are to be taken back, once their blocks are suspects durably.
struct Undone<'w, M: Medium> {
    written: &'w Written<M>,
    place: RowPlace,
    suspects: SmallVec<[Suspect; 4]>,
    /// What its transaction has made of it that is left.
    left: Option<Pending>,
    /// All that is to be taken back of it is.
    is_whole: bool,
    words: OldWords<M>,
}

/// What a transaction has changed: rows, and the schema.
pub(super) type Altered<M> = (ChangedRows<M>, Promised);

/// What a transaction that has ended leaves to be done, by who has its slot.
pub(super) struct Ended<M: Medium> {
    /// Rows that are to say what became of it.
    rows: Vec<Written<M>>,
    /// Rows that are to be unlocked.
    pub(super) locked: Vec<Written<M>>,
}

/// How much of a transaction is taken back.
#[derive(Clone, Copy)]
pub(super) enum Extent<'t> {
    /// All of it.
    All,
    /// What came behind a statement. It keeps rows that it has locked, by this lock.
    Behind { statement: u32, locked: &'t HashSet<RowName>, lock: Claim },
}

impl Extent<'_> {
    fn has(self, statement: u32) -> bool {
        match self {
            Extent::All => true,
            Extent::Behind { statement: last, .. } => statement > last,
        }
    }

    /// What becomes of a row of which nothing is left.
    fn after(self, row: RowName) -> After {
        match self {
            // Nobody could fold it while the transaction had changed it.
            Extent::Behind { locked, lock, .. } if locked.contains(&row) => {
                After::Lock(lock.to_fold())
            }
            _ => After::GiveFree,
        }
    }
}

/// Unlocks rows, also if a gate panics.
pub(super) struct Unlocking<'e, M: Medium> {
    pub(super) engine: &'e Engine<M>,
    pub(super) locked: Vec<Written<M>>,
    pub(super) slot: u32,
}

impl<M: Medium> Drop for Unlocking<'_, M> {
    fn drop(&mut self) {
        self.engine.unlock(&self.locked, self.slot);
    }
}

impl<M: Medium> Engine<M> {
    /// Commits the transaction that has a slot. One fence; none if it has changed nothing.
    pub(super) fn commit(&self, slot: &mut HeldSlot<'_, M>) -> Result<()> {
        let medium = self.medium();
        let Some(open) = slot.open() else { return Err(Error::TransactionEnded) };
        if open.deferred.is_at_commit {
            return self.commit_deferred(slot);
        }
        if open.statement == 0 {
            return self.end_unchanged(slot);
        }
        let checked = match open.checks_at_commit {
            true => self.require_foreign_keys(slot),
            false => Ok(()),
        };
        let held = self.hold_promises(slot);
        let commit = match checked.and_then(|()| self.validated(slot, &held)) {
            Ok(Some(commit)) => commit.proceed(),
            Ok(None) => self.stamps.begin(medium),
            Err(error) => return self.abort(slot).and(Err(error)),
        };
        slot.write(medium, State::Committed, Some(commit.stamp), Content::Nothing);
        // Fence: before anybody sees what the transaction has changed, and before it is
        // acknowledged.
        medium.fence();
        self.heap.verify()?;
        self.has_committed(slot, commit, held)
    }

    /// Ends a transaction that has changed nothing. It leaves no trace: as if it had been given up.
    ///
    /// # Errors
    ///
    /// If it is serializable, and what it has read with earlier snapshots is different in its last
    /// one: with each of them it sees a state between two commits.
    pub(super) fn end_unchanged(&self, slot: &mut HeldSlot<'_, M>) -> Result<()> {
        let now = slot.open().map_or(0, |open| open.snapshot.stamp);
        let unchanged = self.require_unchanged(slot, now);
        slot.set_fate(Fate::Aborted);
        let ended = self.forget(slot, None);
        self.unlock(&ended.locked, slot.index);
        unchanged
    }

    /// Shows what a transaction has changed, whose record is durable.
    ///
    /// # Errors
    ///
    /// When the gate does not confirm it. It counts all the same.
    pub(super) fn has_committed(
        &self,
        slot: &mut HeldSlot<'_, M>,
        commit: Commit<'_, M>,
        held: Held<M>,
    ) -> Result<()> {
        let stamp = commit.stamp;
        let Some(id) = slot.id() else { return Ok(()) };
        let sweeping = self.keep_others_from(slot);
        slot.set_fate(Fate::Committed(stamp));
        let told = self.stamps.has_gate().then(|| self.told_of(slot));
        // Before others see its rows, and before the slot is used for others.
        self.keep_promises(slot, stamp)?;
        // Not longer: the next one that changes the schema may hold the same tables.
        drop(held);
        let mut commit = Some(commit);
        if told.is_none() && sweeping.is_none() {
            // Nobody is asked: others see it at once.
            commit = None;
        }
        let Ended { rows, locked } = self.forget(slot, Some(stamp));
        for written in &rows {
            // A damaged row stays as it is, and who meets it next is told.
            let _ = self.settle(written, id.short(), stamp, |line| slot.has_published(line));
        }
        drop(sweeping);
        // Without what others wait for: the gate may take its time. But who gets a lock next sees
        // what was committed under it.
        let _unlocking = Unlocking { engine: self, locked, slot: slot.index };
        commit.map_or(Ok(()), |commit| self.end_commit(commit, told))
    }

    /// Ends a commit. `told` is what it has changed, if there was a gate when it was written.
    pub(super) fn end_commit(
        &self,
        commit: Commit<'_, M>,
        told: Option<Result<Altered<M>>>,
    ) -> Result<()> {
        commit.end(|stamp| {
            let nothing = || Ok((ChangedRows::new(), Promised::default()));
            let (rows, promised) = told.unwrap_or_else(nothing)?;
            Ok(self.committed_set(rows, stamp)?.with(promised))
        })
    }

    /// What the transaction of a slot has changed, which has committed.
    pub(super) fn told_of(&self, slot: &HeldSlot<'_, M>) -> Result<Altered<M>> {
        Ok((self.changed_in(slot)?, self.promised_changes(slot)))
    }

    /// The rows that the transaction of a slot has changed. Looks at all rows if an earlier process
    /// has begun it.
    pub(crate) fn changed_in(&self, slot: &HeldSlot<'_, M>) -> Result<ChangedRows<M>> {
        let (Some(id), Some(open)) = (slot.id(), slot.open()) else { return Ok(Vec::new()) };
        let mut rows = match open.is_continued {
            true => self.rows_of(id.short())?,
            false => Vec::new(),
        };
        let written = rows.drain(..).map(|of| (of.table, of.row));
        let mut changed: ChangedRows<M> = written.collect();
        changed.extend(open.rows.iter().map(|of| (Arc::clone(&of.table), of.row)));
        changed.extend(open.deferred.changed());
        Ok(changed)
    }

    /// Others put right the rows of a transaction that an earlier process has begun, once it is
    /// over. While its rows are put right by who ends it, they wait.
    fn keep_others_from(&self, slot: &HeldSlot<'_, M>) -> Option<PauseGuard<'_, ()>> {
        let is_continued = slot.open().is_some_and(|open| open.is_continued);
        is_continued.then(|| self.sweeping.lock(self.medium()))
    }

    /// Gives up the transaction that has a slot. Two fences, and those for taking back; none if it
    /// has changed nothing.
    pub(super) fn abort(&self, slot: &mut HeldSlot<'_, M>) -> Result<()> {
        let medium = self.medium();
        let Some(id) = slot.id() else { return Ok(()) };
        let taken_back = self.take_back(slot, 0);
        let is_written = |open: &Open<M>| open.statement > 0 && !open.deferred.is_at_commit;
        if slot.open().is_some_and(is_written) {
            slot.flush_published(medium);
            // Fence: what leads to the last statement's version, so that it is taken back even if
            // the record alone arrives.
            // Redundant: but where the thread has used other chunks for versions since; opening
            // asks about all blocks of the last one.
            medium.fence();
            slot.write(medium, State::Aborted, None, Content::Nothing);
            // Fence: before anything that the transaction has written is taken back.
            // Redundant: but where a crash comes after another one, as in
            // `engine/transactions-recovery`.
            medium.fence();
            self.heap.verify()?;
        }
        let _sweeping = self.keep_others_from(slot);
        slot.set_fate(Fate::Aborted);
        // Before the slot is used for others.
        let broken = self.take_promises_back(slot, 0);
        let Ended { rows, locked } = self.forget(slot, None);
        self.unlock(&locked, slot.index);
        let undone = self.undo(&rows, id.short(), Extent::All, |line| slot.has_published(line));
        taken_back.and(broken).and(undone)
    }

    /// Ends the transaction of a slot, and returns what it leaves to be done.
    pub(super) fn forget(&self, slot: &mut HeldSlot<'_, M>, committed: Option<u64>) -> Ended<M> {
        // A batch whose end nobody has seen: its transaction was exchanged for another one.
        let _ = self.take_back(slot, 0);
        let Some(mut open) = slot.end(self.medium(), committed) else {
            return Ended { rows: Vec::new(), locked: Vec::new() };
        };
        self.snapshots.give_back(&open.snapshot);
        let oldest = open.notes.as_mut().and_then(Notes::take_oldest);
        for before in open.snapshot_before.iter().chain(&oldest) {
            self.snapshots.give_back(before);
        }
        Ended { rows: open.rows, locked: open.locked }
    }

    /// Has a row say what a transaction has made of it, which has committed. The caller flushes
    /// what `changed` is told.
    pub(super) fn settle(
        &self,
        written: &Written<M>,
        by: ShortId,
        stamp: u64,
        mut changed: impl FnMut(u64),
    ) -> Result<()> {
        let Written { table, row } = written;
        let Some(place) = table.place(*row) else { return Ok(()) };
        let pending = table.claim(place).as_pending().filter(|pending| pending.by == by);
        let Some(pending) = pending else { return Ok(()) };
        let committed = match pending.version {
            0 => Committed::present(stamp),
            newest => {
                table.version_of(newest, *row, NEWEST)?;
                table.stamp_versions(*row, newest, Some(stamp), &mut changed);
                Committed::version(newest)
            }
        };
        changed(table.publish(place, committed));
        table.give_free(place);
        if pending.version != 0 {
            self.leave_garbage(Garbage { table: table.clone(), row: *row, stamp });
        }
        Ok(())
    }

    /// Takes back what a transaction has made of rows: that was given up, or goes on behind an
    /// earlier statement. The caller flushes what `changed` is told. One fence for 32 rows, two if
    /// it goes on, and those for freeing. If it goes on, a word of an index may stay, which does no
    /// harm.
    pub(super) fn undo(
        &self,
        rows: &[Written<M>],
        by: ShortId,
        extent: Extent<'_>,
        mut changed: impl FnMut(u64),
    ) -> Result<()> {
        let mut failed = None;
        let mut rest = rows;
        while !rest.is_empty() {
            let mut lane = self.heap.enter().prepare_for(SPARE + VERSIONS);
            let (undone, damage) = self.prepare_some(&mut lane, &mut rest, by, extent);
            failed = failed.or(damage);
            // Fence: the suspects, before nothing leads to them.
            // Redundant: but where a crash comes after another one, as in
            // `engine/transactions-recovery`.
            lane.fence();
            if let Err(fault) = self.heap.verify() {
                for row in undone {
                    row.suspects.into_iter().for_each(|suspect| lane.cancel(suspect));
                }
                return Err(fault.into());
            }
            let mut words = Vec::new();
            for row in undone {
                let Undone { written, place, suspects, left, words: of_row, .. } = row;
                // Until its words are removed, nobody gives the row one of these keys again.
                let claim = left.map_or(Claim::of_collector(self.opens), Claim::pending);
                let head = written.table.claim_row(place, claim);
                lane.flush_later(head);
                changed(head & !(LINE_LEN - 1));
                suspects.into_iter().for_each(|suspect| lane.retire(suspect));
                if let RowState::Version(_) = written.table.committed(place).state() {
                    // Nobody could fold it while the transaction had the row.
                    let (table, row) = (written.table.clone(), written.row);
                    let stamp = table.stamp_of(table.committed(place));
                    self.leave_garbage(Garbage { table, row, stamp });
                }
                words.push(of_row);
            }
            if let Extent::Behind { .. } = extent {
                // Fence: the heads, before others get rows that the transaction has not any more. A
                // crash must not bring its claims back: it is open, so that they would count.
                // Redundant fence: for this thread alone, whose next statement will fence.
                lane.fence();
            }
            drop(lane);
            for of_row in words {
                let removed = of_row.remove();
                if let Extent::All = extent {
                    failed = failed.or(removed.err());
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Prepares to take back the first of some rows, and says which of them are damaged: these stay
    /// as they are. `rest` is what is left then.
    fn prepare_some<'w>(
        &self,
        lane: &mut Lane<'_, M>,
        rest: &mut &'w [Written<M>],
        by: ShortId,
        extent: Extent<'_>,
    ) -> (Vec<Undone<'w, M>>, Option<Error>) {
        let (mut undone, mut damage) = (Vec::new(), None);
        while let Some((written, others)) = rest.split_first()
            && undone.len() < TOGETHER
            && lane.suspects_left() > SPARE
        {
            match self.prepare_undo(lane, written, by, extent) {
                Ok(Some(row)) => {
                    let is_whole = row.is_whole;
                    undone.push(row);
                    if !is_whole {
                        break;
                    }
                }
                Ok(None) => {}
                Err(error) => damage = damage.or(Some(error)),
            }
            *rest = others;
        }
        (undone, damage)
    }

    /// Makes suspects of the versions that a transaction has given a row, or of the newest of them.
    /// `None` if there is nothing to be taken back.
    fn prepare_undo<'w>(
        &self,
        lane: &mut Lane<'_, M>,
        written: &'w Written<M>,
        by: ShortId,
        extent: Extent<'_>,
    ) -> Result<Option<Undone<'w, M>>> {
        let (table, row) = (&written.table, written.row);
        let Some(place) = table.place(row) else { return Ok(None) };
        let pending = table.claim(place).as_pending().filter(|pending| pending.by == by);
        let Some(pending) = pending else { return Ok(None) };
        let (versions, inserted_by) = table.pending_versions(row, pending)?;
        let over = versions.iter().take_while(|version| extent.has(version.statement)).count();
        let is_insert_over = inserted_by.is_some_and(|statement| extent.has(statement));
        if over == 0 && !is_insert_over {
            return Ok(None);
        }
        let count = over.min(lane.suspects_left().saturating_sub(SPARE));
        let (gone, left) = versions.split_at(count);
        let set = table.indexes.load_full();
        let needs_others = set.needs_others;
        let of_versions = |versions| table.keys_of_versions(place, versions, needs_others);
        let (mut old_keys, mut keys) = (of_versions(gone)?, of_versions(left)?);
        // Another one has the row, if it is there: its insertion was taken back before a crash.
        let is_free = matches!(table.committed(place).state(), RowState::Free(_));
        let is_new = is_insert_over && left.is_empty() && is_free;
        if is_new {
            old_keys.push(table.key_groups_in_tile(place, needs_others)?);
        } else {
            if let RowState::Version(offset) = table.committed(place).state() {
                let newest = table.version_of(offset, row, NEWEST)?;
                keys.extend(of_versions(&table.chain(newest)?)?);
            }
            keys.push(table.key_groups_in_tile(place, needs_others)?);
        }
        let words = old_keys_of(table, &set, &old_keys, &keys, is_new);
        let left = match (left.first(), inserted_by) {
            (Some(version), _) => Some(Pending::changed(by, version.offset)),
            (None, Some(statement)) if !is_insert_over => Some(Pending::inserted(by, statement)),
            (None, _) => None,
        };
        let after = match (is_new, left) {
            (true, _) => After::GiveBack,
            (false, Some(_)) => After::Keep,
            (false, None) => extent.after((table.number, row)),
        };
        let words = OldWords { table: table.clone(), row, place, set, keys: words, after };
        let suspects = gone.iter().map(|version| lane.suspect(version.offset)).collect();
        Ok(Some(Undone { written, place, suspects, left, is_whole: count == over, words }))
    }
}
