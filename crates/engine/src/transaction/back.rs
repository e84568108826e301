//! Taking statements of an open transaction back: one record says so, and then its rows do.

use std::collections::HashSet;
use std::sync::Arc;

use remanent_pmem::Medium;

use super::finish::Extent;
use super::layout::{Content, ShortId, State};
use super::slots::{HeldSlot, Written};
use super::unwritten::RowName;
use crate::engine::Engine;
use crate::table::layout::{Claim, State as RowState};
use crate::table::ops::Head;
use crate::{Error, Result};

impl<M: Medium> Engine<M> {
    /// Takes back what the transaction that has a slot has changed behind a statement. That is a
    /// statement, too.
    pub(super) fn take_statements_back(&self, slot: &mut HeldSlot<'_, M>, to: u32) -> Result<()> {
        let Some(open) = slot.open_mut() else { return Err(Error::TransactionEnded) };
        if to >= open.statement {
            return Ok(());
        }
        slot.require_statement()?;
        let Some(open) = slot.open_mut() else { return Err(Error::TransactionEnded) };
        if open.deferred.is_at_commit {
            open.statement += 1;
            let left = open.deferred.steps_until(to);
            let taken_back = self.take_back(slot, left);
            return taken_back.and(self.take_promises_back(slot, to));
        }
        let medium = self.medium();
        slot.flush_published(medium);
        // Fence: what leads to the last statement's version, so that it is taken back even if the
        // record alone arrives.
        // Redundant: but where the thread has used other chunks for versions since; opening asks
        // about all blocks of the last one.
        medium.fence();
        slot.write(medium, State::Open, None, Content::TakenBack(to));
        if let Some(open) = slot.open_mut() {
            open.back_to = Some(to);
        }
        // Fence: before anything is taken back, and before it is acknowledged.
        // Redundant: but where nothing is left to be taken back. Otherwise the suspects are fenced
        // before.
        medium.fence();
        self.heap.verify()?;
        // The record that is durable by now names the newer one.
        if let Some(open) = slot.open_mut() {
            self.leave_snapshot_before(open);
        }
        self.finish_taking_back(slot)
    }

    /// Takes back what the last record says, if all of that is not done yet. Looks at every row if
    /// an earlier process has begun the transaction.
    pub(super) fn finish_taking_back(&self, slot: &mut HeldSlot<'_, M>) -> Result<()> {
        let (index, Some(id)) = (slot.index, slot.id()) else { return Ok(()) };
        let Some(open) = slot.open_mut() else { return Ok(()) };
        let Some(statement) = open.back_to else { return Ok(()) };
        let by = id.short();
        let rows = match open.is_continued {
            true => self.rows_of(by)?,
            false => std::mem::take(&mut open.rows),
        };
        for Written { table, row } in &rows {
            // What it has read of them before it changed them is not protected any more. Nobody has
            // read a row that it has inserted.
            let committed = table.place(*row).map(|place| table.committed(place).state());
            if !matches!(committed, None | Some(RowState::Free(_))) {
                open.note_row(self.medium(), table, *row);
            }
        }
        let locked: HashSet<RowName> =
            open.locked.iter().map(|of| (of.table.number, of.row)).collect();
        let lock = Claim::of_lock(self.opens, index);
        let extent = Extent::Behind { statement, locked: &locked, lock };
        // All that it changes is durable when it returns.
        let undone = self.undo(&rows, by, extent, |_| {});
        let undone = undone.and_then(|()| self.take_promises_back(slot, statement));
        let is_left = |of: &Written<M>| {
            let claim = of.table.place(of.row).map(|place| of.table.claim(place));
            claim.and_then(Claim::as_pending).is_some_and(|pending| pending.by == by)
        };
        if let Some(open) = slot.open_mut() {
            open.rows = rows.into_iter().filter(is_left).collect();
            if undone.is_ok() {
                open.back_to = None;
            }
        }
        undone
    }

    /// All rows that a transaction has changed.
    pub(super) fn rows_of(&self, by: ShortId) -> Result<Vec<Written<M>>> {
        let tables = self.schema.lock(self.medium()).tables.clone();
        let (mut rows, mut is_any_left) = (Vec::new(), false);
        for table in tables {
            for (row, place, Head { claim, .. }) in
                (0..table.tile_count()).flat_map(|tile| table.heads_of(tile))
            {
                if claim.as_pending().is_some_and(|pending| pending.by == by) {
                    rows.push(Written { table: Arc::clone(&table), row });
                } else if claim != Claim::NONE && !claim.is_held(self.opens) {
                    // Who was killed while it took the row back has left this in the caches. Where
                    // it is lost, the row is the transaction's again.
                    // Redundant: but where a process was killed before, and the power fails later.
                    table.flush_head(place);
                    is_any_left = true;
                }
            }
        }
        if is_any_left {
            // Fence: these heads, before another record takes the place of the one that says what
            // is taken back.
            // Redundant: but where a process was killed before, and the power fails later.
            self.medium().fence();
        }
        self.heap.verify()?;
        Ok(rows)
    }
}
