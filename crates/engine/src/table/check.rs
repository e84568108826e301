//! Checking a table against its indexes.

use remanent_pmem::heap::Violation;
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::RowId;
use remanent_structures::shared::Inspection;

use super::Table;
use super::layout::{
    Committed, KeyCells, Kind, NUMBER, Pending, RUN_COUNT, State, TilePlace, run_at,
};
use super::ops::{RowPlace, key_cells};
use super::version::{NEWEST, Seen};
use crate::index::{Index, Key};
use crate::transaction::statuses::Fate;
use crate::transaction::view::View;
use crate::{Error, Result};

impl<M: Medium> Table<M> {
    /// What contradicts itself, and which blocks the table reaches. `last` is the stamp of the last
    /// commit.
    pub(crate) fn inspect(&self, last: u64) -> Result<Inspection> {
        let mut found = Inspection { violations: Vec::new(), blocks: Some(vec![self.state]) };
        for index in self.indexes.load().all() {
            let of_index = index.rows.inspect()?;
            found.violations.extend(of_index.violations);
            match (&mut found.blocks, of_index.blocks) {
                (Some(blocks), Some(reached)) => blocks.extend(reached),
                (blocks, _) => *blocks = None,
            }
        }
        for dictionary in self.dictionaries.iter().flatten() {
            let of_dictionary = dictionary.inspect()?;
            found.violations.extend(of_dictionary.violations);
            match (&mut found.blocks, of_dictionary.blocks) {
                (Some(blocks), Some(reached)) => blocks.extend(reached),
                (blocks, _) => *blocks = None,
            }
        }
        self.check_tiles(&mut found)?;
        self.for_each_row(|row, place, committed| {
            let head = self.format.head_at(place.tile, place.index);
            if self.stamp_of(committed) > last {
                let what = "a row was committed later than anything";
                found.violations.push(Violation::new(head, what));
            }
            let pending = self.claim(place).as_pending();
            let newest = self.check_versions((row, place), committed, pending, &mut found);
            match newest.and_then(|()| self.seen(row, place, View::NEWEST)) {
                Ok(None) => {}
                Ok(Some(seen)) => self.check_keys(row, place, seen, true, &mut found)?,
                Err(error) => note(error, &mut found)?,
            }
            let slot = pending.map(|pending| pending.by.slot());
            let is_known = |of: &Pending| self.statuses.fate(of.by).is_some();
            if pending.is_some_and(|of| !is_known(&of))
                && slot.is_some_and(|slot| !self.statuses.is_orphan(slot))
            {
                let what = "a row is of a transaction that nobody knows";
                found.violations.push(Violation::new(head, what));
            }
            self.check_lock(row, place, &mut found);
            // What is being taken back may have lost its words.
            let is_open = |of: &Pending| self.statuses.fate(of.by) == Some(Fate::Open);
            let Some(pending) = pending.filter(is_open) else { return Ok(true) };
            let of_row = match pending.version {
                0 => Ok(Seen::InTile),
                offset => self.version_of(offset, row, NEWEST).map(Seen::In),
            };
            match of_row {
                Ok(seen) => self.check_keys(row, place, seen, false, &mut found)?,
                Err(error) => note(error, &mut found)?,
            }
            Ok(true)
        })?;
        Ok(found)
    }

    /// Who ends a transaction unlocks its rows.
    fn check_lock(&self, row: RowId, place: RowPlace, found: &mut Inspection) {
        let claim = self.claim(place);
        if claim.is_held(self.heap.pool().opens())
            && let Some(slot) = claim.locked_by()
            && self.statuses.open_in(slot).is_none()
        {
            let what = format!("row {} is locked by a transaction that is over", row.get());
            found.violations.push(Violation::new(self.head_at(place), what));
        }
    }

    /// Looks for a row in the indexes, by the keys that it has somewhere; and if they are its own,
    /// for other rows with these keys.
    fn check_keys(
        &self,
        row: RowId,
        place: RowPlace,
        seen: Seen,
        is_committed: bool,
        found: &mut Inspection,
    ) -> Result<()> {
        let head = self.head_at(place);
        if let Seen::In(version) = seen
            && version.is_removal
        {
            return Ok(());
        }
        let set = self.indexes.load();
        let has_dictionaries = !self.dictionaries.is_empty();
        match self.key_groups(place, seen, set.needs_others || has_dictionaries) {
            Err(error) => found.violations.push(Violation::new(head, error.to_string())),
            // Nobody looks for rows of a table that was dropped, and nobody rebuilds its indexes.
            Ok(_) if self.is_dropped() => {}
            Ok(keys) => {
                for column in self.format.cells.encoded() {
                    if let Err(error) = self.require_values(&[column], key_cells(&keys)) {
                        found.violations.push(Violation::new(head, error.to_string()));
                    }
                }
                for index in set.all() {
                    self.check_row(index, row, head, key_cells(&keys), is_committed, found)?;
                }
            }
        }
        Ok(())
    }

    /// Says which versions the head of a row leads to. Its tile has to have room for what they have
    /// of added columns.
    fn check_versions(
        &self,
        (row, place): (RowId, RowPlace),
        committed: Committed,
        pending: Option<Pending>,
        found: &mut Inspection,
    ) -> Result<()> {
        let committed = match committed.state() {
            State::Version(offset) => offset,
            _ => 0,
        };
        let mut versions: Vec<u64> = Vec::new();
        for newest in [committed, pending.map_or(0, |pending| pending.version)] {
            if newest != 0 {
                let chain = self.chain(self.version_of(newest, row, NEWEST)?)?;
                if let Some(version) = chain.iter().max_by_key(|version| version.added_len)
                    && version.added_len > 0
                    && version.added_len > self.room_of_added(place.tile)?
                {
                    let what = "a version has cells for which the tile of its row has no room";
                    found.violations.push(Violation::new(version.offset, what));
                }
                versions.extend(chain.iter().map(|version| version.offset));
            }
        }
        // What a transaction has written leads to what was committed.
        versions.sort_unstable();
        versions.dedup();
        if let Some(blocks) = &mut found.blocks {
            blocks.extend(versions);
        }
        Ok(())
    }

    fn check_tiles(&self, found: &mut Inspection) -> Result<()> {
        let (medium, mut damage) = (self.medium(), Vec::new());
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
            let at = self.tile(tile);
            reach(at, Kind::Tile, tile);
            if !self.is_tile(at, tile) {
                continue;
            }
            match self.extension_to_check(at) {
                Ok(Some(extension)) => reach(extension.offset, Kind::Extension, tile),
                Ok(None) => {}
                Err(error) => damage.push(error),
            }
        }
        let place = TilePlace::of(self.tile_count());
        let run =
            if place.run < RUN_COUNT { medium.load(run_at(self.state, place.run)) } else { 0 };
        if run != 0 && medium.load(place.at(run)) != 0 {
            let what = "the table leads to a tile behind its last one";
            found.violations.push(Violation::new(place.at(run), what));
        }
        damage.into_iter().try_for_each(|error| note(error, found))
    }

    fn check_row(
        &self,
        index: &Index<M>,
        row: RowId,
        head: u64,
        keys: KeyCells<'_>,
        is_committed: bool,
        found: &mut Inspection,
    ) -> Result<()> {
        let Some(key) = index.key_of(&self.format, keys) else { return Ok(()) };
        if !index.has(&key, row)? {
            let what = format!("a row is not found in the index {:?}", index.spec.name);
            found.violations.push(Violation::new(head, what));
        }
        let is_other = |seen: &RowId| *seen != row && self.has_key(*seen, index, &key);
        // One that is promised is unique by the rows of its transaction.
        let is_unique = index.presence.is_there(|| false) && index.is_unique_in(&key);
        if is_committed && is_unique && index.candidates(&key)?.iter().any(is_other) {
            let what = format!("another row has the same key in the index {:?}", index.spec.name);
            found.violations.push(Violation::new(head, what));
        }
        Ok(())
    }

    /// Whether the newest state of a row has this key.
    fn has_key(&self, row: RowId, index: &Index<M>, key: &Key) -> bool {
        let Some(place) = self.place(row) else { return false };
        let Ok(Some(seen)) = self.seen(row, place, View::NEWEST) else { return false };
        let has_key = |keys| key.is_of(&self.format, &index.spec, key_cells(&keys));
        self.key_groups(place, seen, index.needs_others).is_ok_and(has_key)
    }
}

/// An error that tells of damage is a violation.
fn note(error: Error, found: &mut Inspection) -> Result<()> {
    match error {
        Error::Pool(PoolError::Corrupt { offset, what }) => {
            found.violations.push(Violation::new(offset, what));
            Ok(())
        }
        error => Err(error),
    }
}
