//! Statements that are not written when they return: those of a transaction that is durable at its
//! commit, and those of a batch. Their rows are claimed in this process alone, so that a crash
//! leaves nothing of them but words of indexes, which do no harm.

use remanent_pmem::Medium;
use smallvec::SmallVec;

use super::collect::Garbage;
use super::deferred::{Deferred, DeferredRow, Step};
use super::slots::HeldSlot;
use super::statement::Statement;
use super::unwritten::{Cells, RowName};
use crate::Result;
use crate::engine::Engine;
use crate::index::Key;
use crate::table::layout::State;

impl<M: Medium> Statement<'_, '_, M> {
    /// Whether it is written later than it returns.
    pub(super) fn is_deferred(&self) -> bool {
        self.slot.open().is_some_and(|open| open.deferred.is_on())
    }

    /// Whether foreign keys are checked later.
    pub(super) fn is_checked_later(&self) -> bool {
        self.slot.open().is_some_and(|open| open.checks_at_commit || open.deferred.is_on())
    }
}

impl<M: Medium> Engine<M> {
    /// Whether the transaction of a slot has changed a row, and not written it.
    pub(super) fn is_unwritten(&self, slot: u32, name: RowName) -> bool {
        self.statuses.unwritten.has(self.medium(), slot, name)
    }

    /// Remembers how a row, which stays claimed, was before a statement and is behind it, and the
    /// words that were added to indexes.
    pub(super) fn defer(
        &self,
        statement: &mut Statement<'_, '_, M>,
        row: DeferredRow<M>,
        cells: [Cells; 2],
        words: SmallVec<[(u32, Key); 2]>,
    ) {
        let slot = statement.slot.index;
        let Some(open) = statement.slot.open_mut() else { return };
        let Deferred { batches, rows, steps, .. } = &mut open.deferred;
        let unwritten = &self.statuses.unwritten;
        let at = unwritten.change(self.medium(), slot, row.name(), cells, rows.len());
        if at == rows.len() {
            rows.push(row);
        }
        steps.push(Step { statement: open.statement + 1, at, words });
        // All statements of a batch are one.
        open.statement += u32::from(batches.is_empty());
    }

    /// Takes back what a transaction has not written, but the first `left` steps. A row whose words
    /// cannot be removed keeps them, which does no harm.
    pub(super) fn take_back(&self, slot: &mut HeldSlot<'_, M>, left: usize) -> Result<()> {
        let index = slot.index;
        let Some(open) = slot.open_mut() else { return Ok(()) };
        let mut failed = None;
        while open.deferred.steps.len() > left
            && let Some(Step { at, words, .. }) = open.deferred.steps.pop()
        {
            let row = &open.deferred.rows[at];
            for (number, key) in &words {
                failed = failed.or(row.table.remove_word(*number, key, row.row).err());
            }
            let is_first = self.statuses.unwritten.take_back(self.medium(), index, row.name());
            if is_first && let Some(row) = open.deferred.rows.pop() {
                if !row.is_new && row.own.is_none() {
                    open.note_row(self.medium(), &row.table, row.row);
                }
                self.leave_unchanged(row);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Takes back what a transaction has not written that nobody goes on with.
    pub(crate) fn leave_all(&self, deferred: Deferred<M>) {
        for Step { at, words, .. } in &deferred.steps {
            let row = &deferred.rows[*at];
            for (number, key) in words {
                // A word that stays does no harm.
                let _ = row.table.remove_word(*number, key, row.row);
            }
        }
        for row in deferred.rows {
            self.leave_unchanged(row);
        }
    }

    /// Gives a row free of which nothing is written, unless its transaction has locked it.
    pub(super) fn leave_unchanged(&self, row: DeferredRow<M>) {
        let DeferredRow { table, row, place, own, is_new } = row;
        if is_new {
            table.give_row_back(row, place);
        } else if own.is_none() && table.claim(place).locked_by().is_none() {
            let committed = table.committed(place);
            table.give_free(place);
            if let State::Version(_) = committed.state() {
                // Nobody could fold it while the transaction had the row.
                let stamp = table.stamp_of(committed);
                self.leave_garbage(Garbage { table, row, stamp });
            }
        }
    }
}
