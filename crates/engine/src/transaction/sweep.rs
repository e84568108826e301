//! Rows that an earlier process has left before they said what became of their transactions. Its
//! slot tells it until a sweep has looked at every row; nobody else uses the slot meanwhile.

use std::sync::Arc;

use remanent_pmem::{LINE_LEN, Medium};
use remanent_structures::RowId;

use super::finish::Extent;
use super::layout::SLOT_COUNT;
use super::pass::Pass;
use super::slots::{HeldSlot, Written};
use super::statuses::Fate;
use crate::Result;
use crate::engine::Engine;
use crate::table::Table;
use crate::table::layout::State;
use crate::table::ops::RowPlace;

impl<M: Medium> Engine<M> {
    /// A slot that nobody has. Waits while all are taken, behind those who have waited before.
    pub(crate) fn hold_slot(&self) -> Result<HeldSlot<'_, M>> {
        if self.waiting_for_slots.is_empty()
            && let Some(slot) = self.slots.try_hold(self.medium())
        {
            return Ok(slot);
        }
        let _turn = self.waiting_for_slots.line_up(self.medium());
        loop {
            if let Some(slot) = self.slots.try_hold(self.medium()) {
                return Ok(slot);
            }
            // An error tells of a row, and not of this statement.
            if !self.sweep_orphans().unwrap_or(false) {
                self.heap.verify()?;
                self.medium().pause();
            }
        }
    }

    /// Gives up the transaction of a slot if nobody has it and its time is over; says whether it
    /// did.
    pub(super) fn expire(&self, slot: u32) -> Result<bool> {
        let Some(mut held) = self.slots.try_hold_one(slot) else { return Ok(false) };
        let expires_ms = held.open().and_then(|open| open.expires_ms);
        let is_over = expires_ms.is_some_and(|at| at <= self.clock.now_ms(self.medium()));
        if is_over {
            self.abort(&mut held)?;
        }
        Ok(is_over)
    }

    /// Gives up all transactions whose time is over; says whether there were any.
    pub(super) fn expire_all(&self) -> bool {
        // An error tells of a row, which stays as it is.
        let expired = (0..SLOT_COUNT).filter(|slot| self.expire(*slot).unwrap_or(false));
        expired.count() > 0
    }

    /// Has a row say what became of its transaction, which is over, and which an earlier process
    /// has left.
    pub(super) fn settle_orphan(
        &self,
        table: &Arc<Table<M>>,
        row: RowId,
        place: RowPlace,
    ) -> Result<()> {
        // The sweep waits for this row's fence, before the slot is used for others.
        let _sweeping = self.sweeping.lock(self.medium());
        let mut lines = Vec::new();
        let settled = self.settle_row(table, row, place, &mut lines);
        self.make_durable(lines);
        settled
    }

    /// The caller has the lock: who ends a transaction that was continued has it meanwhile, too.
    fn settle_row(
        &self,
        table: &Arc<Table<M>>,
        row: RowId,
        place: RowPlace,
        lines: &mut Vec<u64>,
    ) -> Result<()> {
        let Some(by) = table.claim(place).as_pending().map(|pending| pending.by) else {
            return Ok(());
        };
        if !self.statuses.is_orphan(by.slot()) {
            return Ok(());
        }
        let written = Written { table: Arc::clone(table), row };
        match self.statuses.fate(by) {
            Some(Fate::Open) => Ok(()),
            Some(Fate::Committed(stamp)) => {
                self.settle(&written, by, stamp, |line| lines.push(line))
            }
            Some(Fate::Aborted) | None => {
                self.undo(&[written], by, Extent::All, |line| lines.push(line))
            }
        }
    }

    fn make_durable(&self, mut lines: Vec<u64>) {
        for line in &mut lines {
            *line &= !(LINE_LEN - 1);
        }
        lines.sort_unstable();
        lines.dedup();
        for line in lines {
            // Flush: fenced below.
            // Redundant: but where a crash comes after another one, as in
            // `engine/transactions-recovery`.
            self.medium().flush(line, LINE_LEN);
        }
        // Fence: before the transaction's slot is used for others.
        // Redundant: for this thread alone, whose next statement will fence.
        self.medium().fence();
    }

    /// Gives up all transactions whose time is over, and looks at every row for those that an
    /// earlier process has left, and that are over. Slots can be used then; says whether there are
    /// any more.
    pub(crate) fn sweep_orphans(&self) -> Result<bool> {
        let mut is_any = self.expire_all();
        let mut over = self.orphans_over();
        if over.is_empty() {
            return Ok(is_any);
        }
        let mut failed = None;
        let tables = self.schema.lock(self.medium()).tables.clone();
        for table in tables {
            for tile in 0..table.tile_count() {
                // A damaged row stays as it is, and so does its slot.
                let swept = self.sweep_tile(&table, tile, &mut over);
                failed = failed.or(swept.err());
            }
        }
        self.heap.verify()?;
        for slot in over {
            self.statuses.set_orphan(slot, false);
            is_any = true;
        }
        failed.map_or(Ok(is_any), Err)
    }

    /// The slots whose transactions an earlier process has left, and that are over.
    fn orphans_over(&self) -> Vec<u32> {
        let is_over = |slot: &u32| {
            let held = self.slots.try_hold_one(*slot);
            self.statuses.is_orphan(*slot) && held.is_some_and(|held| held.open().is_none())
        };
        (0..SLOT_COUNT).filter(is_over).collect()
    }

    /// Does a part of what [`collect`](crate::Database::collect) does; false at the end of a pass.
    pub(crate) fn collect_step(&self) -> Result<bool> {
        let collected = self.collect_left();
        let mut passing = self.passing.lock(self.medium());
        let mut pass = passing.take().unwrap_or_else(|| self.begin_pass());
        pass.failed = pass.failed.take().or(collected.err());
        if self.go_on_with(&mut pass) {
            *passing = Some(pass);
            return Ok(true);
        }
        drop(passing);
        self.heap.verify()?;
        for slot in &pass.over {
            self.statuses.set_orphan(*slot, false);
        }
        self.finish_altering()?;
        self.free_dropped()?;
        pass.failed.map_or(Ok(false), Err)
    }

    fn begin_pass(&self) -> Pass {
        self.expire_all();
        Pass { over: self.orphans_over(), ..Pass::default() }
    }

    /// Looks at the next tile; false if there is none.
    fn go_on_with(&self, pass: &mut Pass) -> bool {
        let tables = self.schema.lock(self.medium()).tables.clone();
        let behind = tables.iter().filter(|table| table.number >= pass.table);
        let Some(table) = behind.min_by_key(|table| table.number) else { return false };
        if table.number > pass.table || pass.tile >= table.tile_count() {
            let is_new = table.number > pass.table;
            pass.table = if is_new { table.number } else { table.number + 1 };
            pass.tile = 0;
            return true;
        }
        if !pass.over.is_empty() {
            // A damaged row stays as it is, and so does its slot.
            let swept = self.sweep_tile(table, pass.tile, &mut pass.over);
            pass.failed = pass.failed.take().or(swept.err());
        }
        let folded = self.fold_tile(table, pass.tile);
        pass.failed = pass.failed.take().or(folded.err());
        pass.tile += 1;
        true
    }

    fn sweep_tile(&self, table: &Arc<Table<M>>, tile: u64, over: &mut Vec<u32>) -> Result<()> {
        let _sweeping = self.sweeping.lock(self.medium());
        let mut lines = Vec::new();
        let mut failed = None;
        for (row, place, head) in table.heads_of(tile) {
            // A killed process may have left it in the caches.
            lines.push(table.head_at(place));
            {
                // Nothing is freed meanwhile that the head leads to.
                let _pin = self.heap.pin();
                if let State::Version(newest) = table.committed(place).state() {
                    table.stamp_versions(row, newest, None, |line| lines.push(line));
                }
            }
            let Some(pending) = head.claim.as_pending() else { continue };
            if let Err(error) = self.settle_row(table, row, place, &mut lines) {
                over.retain(|slot| *slot != pending.by.slot());
                failed = failed.or(Some(error));
            }
        }
        self.make_durable(lines);
        failed.map_or(Ok(()), Err)
    }
}
