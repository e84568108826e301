//! Building an index while statements change the table.
//!
//! Statements keep the index by then: whatever gives a row a key adds its word. So each row has to
//! be looked at once, for the keys that it had before: those of all states that somebody may still
//! see or bring back. Words for keys that it loses meanwhile do no harm.

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::Table;
use super::layout::{Claim, KeyCells, State};
use super::ops::{RowPlace, key_cells};
use super::rebuild::Copied;
use crate::Result;
use crate::index::Index;

impl<M: Medium> Table<M> {
    /// Puts all rows into an index that all statements keep. The caller fences.
    ///
    /// # Errors
    ///
    /// When the pool is full, a row is damaged, or the medium met a fault.
    pub(crate) fn build(&self, index: &Index<M>) -> Result<()> {
        let mut copied = Copied::default();
        // Tiles that come later have rows of statements that keep the index.
        for number in 0..self.tile_count() {
            self.require_not_dropped()?;
            self.build_tile(index, number, &mut copied)?;
            // A faulty medium reads as zeros: as if there were no rows.
            self.heap.verify()?;
        }
        Ok(())
    }

    fn build_tile(&self, index: &Index<M>, number: u64, copied: &mut Copied) -> Result<()> {
        let tile = self.whole_tile(number)?;
        copied.copy(self, tile);
        let first = number << self.format.shift;
        // Nobody has changed such a row that is not done with it. If somebody does meanwhile, its
        // copied keys may be those before or behind that: who still needs those before keeps the
        // row from being folded, and then they are in the tile.
        let is_settled = |committed: State, claim: Claim| {
            matches!(committed, State::Present(_)) && claim == Claim::NONE && !index.needs_others
        };
        let rows = copied.rows(self.format.group_len[0]);
        let settled = rows.filter_map(|(row, committed, claim, keys)| {
            let cells: KeyCells<'_> = [keys, &[]];
            let id = RowId::new(first + row)?;
            is_settled(committed.state(), claim).then_some((id, cells))
        });
        // Cells that name no value may have been copied while the row was folded: look again.
        let mut doubtful: Vec<RowId> = Vec::new();
        let settled = settled.filter(|(row, cells)| {
            let have_values = self.require_values(&index.spec.columns, *cells).is_ok();
            if !have_values && doubtful.last() != Some(row) {
                doubtful.push(*row);
            }
            have_values
        });
        index.insert_rows(&self.format, settled)?;
        let opens = self.heap.pool().opens();
        for (row, head) in (0..).zip(copied.heads()) {
            let (committed, claim) = (head.committed.state(), head.claim);
            let is_free = matches!(committed, State::Free(_)) && !claim.is_held(opens);
            let Some(id) = RowId::new(first + row) else { break };
            if !is_free && (!is_settled(committed, claim) || doubtful.contains(&id)) {
                self.build_row(index, id, RowPlace { tile, index: row }, claim)?;
            }
        }
        Ok(())
    }

    /// Puts a row into an index under all keys that it has somewhere, or may get back.
    fn build_row(&self, index: &Index<M>, row: RowId, place: RowPlace, claim: Claim) -> Result<()> {
        // What is not written comes first: the row leads to it before it is forgotten.
        if let Some(slot) = claim.holder() {
            for cells in self.statuses.unwritten.all(self.medium(), slot, (self.number, row)) {
                self.ensure_key(index, row, key_cells(&cells))?;
            }
        }
        let (all, damage) = self.all_keys(row, place, index.needs_others);
        damage.map_or(Ok(()), Err)?;
        all.iter().try_for_each(|state| self.ensure_state(index, row, state))
    }
}
