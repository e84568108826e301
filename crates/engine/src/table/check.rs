//! Checking a table against its indexes.

use remanent_pmem::heap::Violation;
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::RowId;
use remanent_structures::shared::{Inspection, Shareable};

use super::Table;
use super::layout::{Committed, Kind, NUMBER, RUN_COUNT, State, TilePlace, run_at};
use crate::index::{Index, Key};
use crate::transaction::layout::STAMP_MAX;
use crate::{Error, Result};

impl<M: Medium> Table<M> {
    /// What contradicts itself, and which blocks the table reaches. `last` is the stamp of the last
    /// commit.
    pub(crate) fn inspect(&self, last: u64) -> Result<Inspection> {
        let mut found = Inspection { violations: Vec::new(), blocks: Some(vec![self.state]) };
        for index in &self.indexes {
            let of_index = index.rows.inspect()?;
            found.violations.extend(of_index.violations);
            match (&mut found.blocks, of_index.blocks) {
                (Some(blocks), Some(reached)) => blocks.extend(reached),
                (blocks, _) => *blocks = None,
            }
            if let Some(blocks) = &mut found.blocks {
                blocks.push(index.header);
            }
        }
        self.check_tiles(&mut found);
        self.for_each_row(|row, place, committed| {
            let head = self.format.head_at(place.tile, place.index);
            if self.stamp_of(committed) > last {
                let what = "a row was committed later than anything";
                found.violations.push(Violation::new(head, what));
            }
            match self.check_versions(committed, &mut found).and(self.seen(row, place, STAMP_MAX)) {
                Err(Error::Pool(PoolError::Corrupt { offset, what })) => {
                    found.violations.push(Violation::new(offset, what));
                }
                Err(error) => return Err(error),
                Ok(None) => {}
                Ok(Some(seen)) => match self.group_of(place, seen, 0) {
                    Err(error) => found.violations.push(Violation::new(head, error.to_string())),
                    Ok(keys) => {
                        for index in &self.indexes {
                            self.check_row(index, row, head, &keys, &mut found)?;
                        }
                    }
                },
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Says which versions a committed state leads to.
    fn check_versions(&self, committed: Committed, found: &mut Inspection) -> Result<()> {
        let State::Version(offset) = committed.state() else { return Ok(()) };
        let Some(newest) = self.version(offset) else { return Ok(()) };
        if let Some(blocks) = &mut found.blocks {
            blocks.extend(self.chain(newest)?.iter().map(|version| version.offset));
        }
        Ok(())
    }

    fn check_tiles(&self, found: &mut Inspection) {
        let medium = self.medium();
        let mut reach = |at: u64, kind: Kind, number: u64| {
            if medium.load(at) != kind.tag(self.number) || medium.load(at + NUMBER) != number {
                let what = "the table leads to a block of another kind, or another table";
                found.violations.push(Violation::new(at, what));
            }
            if let Some(blocks) = &mut found.blocks {
                blocks.push(at);
            }
        };
        for run in 0..RUN_COUNT {
            match medium.load(run_at(self.state, run)) {
                0 => break,
                at => reach(at, Kind::Run, u64::from(run)),
            }
        }
        for tile in 0..self.tile_count() {
            reach(self.tile(tile), Kind::Tile, tile);
        }
        let place = TilePlace::of(self.tile_count());
        let run =
            if place.run < RUN_COUNT { medium.load(run_at(self.state, place.run)) } else { 0 };
        if run != 0 && medium.load(place.at(run)) != 0 {
            let what = "the table leads to a tile behind its last one";
            found.violations.push(Violation::new(place.at(run), what));
        }
    }

    fn check_row(
        &self,
        index: &Index<M>,
        row: RowId,
        head: u64,
        keys: &[u8],
        found: &mut Inspection,
    ) -> Result<()> {
        let columns = &index.spec.columns;
        let Some(key) = Key::of_row(&self.format, columns, keys) else { return Ok(()) };
        let candidates = index.candidates(&key)?;
        let is_found = candidates.contains(&row);
        let other = candidates.iter().any(|seen| *seen != row && self.has_key(*seen, index, &key));
        if !is_found {
            let what = format!("a row is not found in the index {:?}", index.spec.name);
            found.violations.push(Violation::new(head, what));
        }
        if index.spec.kind.is_unique() && other {
            let what = format!("another row has the same key in the index {:?}", index.spec.name);
            found.violations.push(Violation::new(head, what));
        }
        Ok(())
    }

    /// Whether the newest state of a row has this key.
    fn has_key(&self, row: RowId, index: &Index<M>, key: &Key) -> bool {
        let Some(place) = self.place(row) else { return false };
        let Ok(Some(seen)) = self.seen(row, place, STAMP_MAX) else { return false };
        self.group_of(place, seen, 0)
            .is_ok_and(|keys| key.is_of(&self.format, &index.spec.columns, &keys))
    }
}
