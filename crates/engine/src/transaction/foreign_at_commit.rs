//! Foreign keys of what a transaction has changed and nobody has looked at: by a batch, or by all
//! of it where that is left to the commit.
//!
//! Others find what it has made of its rows by then, and meet it when they look for parents and
//! children. So each key is locked for a moment only.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::foreign::{InTheWay, Kind, Tie};
use super::slots::HeldSlot;
use super::unwritten::{Cells, Made};
use super::view::View;
use super::wait::Waiting;
use crate::Result;
use crate::engine::Engine;
use crate::replicate::collect::ChangedRows;
use crate::table::Table;

impl<M: Medium> Engine<M> {
    /// Refuses what a transaction has changed, and has not checked, if some row would have no
    /// parent. Waits for others who decide that, as statements do.
    pub(super) fn require_foreign_keys(&self, slot: &HeldSlot<'_, M>) -> Result<()> {
        let Some(open) = slot.open() else { return Ok(()) };
        let rows: ChangedRows<M> = match open.checks_at_commit {
            true => self.changed_in(slot)?,
            false => open.deferred.changed().collect(),
        };
        let view = View::of(&open.snapshot, slot.id());
        let mut waiting = Waiting::new(self, slot.index, open.wait_ms);
        for (table, row) in &rows {
            loop {
                let tied = self.require_ties_of(slot, table, *row, view);
                if let Err(error) = &tied {
                    let set = table.indexes.load();
                    self.note_refusal(slot, table, &set, std::iter::empty(), error);
                }
                let Some((holder, wanted)) = tied? else { break };
                waiting.wait_for(holder, || *wanted)?;
            }
        }
        Ok(())
    }

    /// Refuses what the transaction of a slot has made of a row, or says who decides it.
    fn require_ties_of(
        &self,
        slot: &HeldSlot<'_, M>,
        table: &Arc<Table<M>>,
        row: RowId,
        view: View,
    ) -> Result<Option<InTheWay>> {
        let set = table.indexes.load();
        if set.foreign.is_empty() || table.is_dropped() {
            return Ok(None);
        }
        let Some([before, newest]) = self.before_and_after(slot, table, row, view)? else {
            return Ok(None);
        };
        let set = (&**set, self.statuses.is_author(view.own));
        for tie in &self.ties(table, set, [before.as_ref(), newest.as_ref()], None)? {
            let _key = self.keys.lock(self.medium(), std::iter::once(tie.lock()));
            // Another row may have the key by now.
            if tie.kind != Kind::Parent && self.has_parent(table, tie, view)? {
                continue;
            }
            let in_the_way = self.require_tie(table, tie, view)?;
            if in_the_way.is_some() {
                return Ok(in_the_way);
            }
        }
        Ok(None)
    }

    /// A row before the transaction of a slot, and as that has made it; `None` if it has made
    /// nothing of it that is left.
    fn before_and_after(
        &self,
        slot: &HeldSlot<'_, M>,
        table: &Table<M>,
        row: RowId,
        view: View,
    ) -> Result<Option<[Cells; 2]>> {
        let both = |made: &Made| [made.before().clone(), made.newest().clone()];
        let (unwritten, name) = (&self.statuses.unwritten, (table.number, row));
        if let Some(states) = unwritten.get(self.medium(), slot.index, name, both) {
            return Ok(Some(states));
        }
        let (Some(place), Some(id)) = (table.place(row), slot.id()) else { return Ok(None) };
        if table.claim(place).as_pending().is_none_or(|pending| pending.by != id.short()) {
            return Ok(None);
        }
        // No version is freed that the row leads to.
        let _pin = self.heap.pin();
        let cells = |view| -> Result<Cells> {
            let Some(seen) = table.seen(row, place, view)? else { return Ok(None) };
            let group = |group| table.group_of(place, seen, group);
            Ok(Some([group(0)?, group(1)?]))
        };
        Ok(Some([cells(View::NEWEST)?, cells(view)?]))
    }

    /// Whether the children of a tie have a parent, which stays.
    fn has_parent(&self, parent: &Arc<Table<M>>, tie: &Tie<M>, view: View) -> Result<bool> {
        let to_parent = Tie::to_parent(&tie.of, parent, tie.of_parent.clone());
        Ok(self.parents(&to_parent, view)?.is_there)
    }
}
