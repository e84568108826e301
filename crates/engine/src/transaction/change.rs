//! Updating and removing rows.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::heap::{Block, Lane};
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::collect::Garbage;
use super::layout::{Record, STAMP_MAX};
use super::slots::HeldSlot;
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;
use crate::table::layout::{Claim, Committed};
use crate::table::ops::{Group, RowPlace};
use crate::table::version::Version;
use crate::{Error, Result};

/// What a statement makes of a row.
pub(crate) enum Change {
    /// Nothing.
    Keep,
    /// These cells.
    Update([Group; 2]),
    Remove,
}

/// The right to change a row. Dropping it gives the row free.
struct Claimed<'t, M: Medium> {
    table: &'t Arc<Table<M>>,
    place: RowPlace,
}

impl<M: Medium> Drop for Claimed<'_, M> {
    fn drop(&mut self) {
        self.table.claim_row(self.place, Claim::NONE);
    }
}

/// An index, and the key that a row gets in it.
type Word<'t, M> = (&'t Index<M>, Key);

/// A row that a statement was asked to change.
struct Found {
    row: RowId,
    place: RowPlace,
}

impl<M: Medium> Engine<M> {
    /// Changes the row with a key of a unique index as `decide` says, and commits that. `None` when
    /// there is no row. One fence.
    pub(crate) fn change<R>(
        &self,
        table: &Arc<Table<M>>,
        index: &Index<M>,
        key: &Key,
        decide: impl FnOnce(RowId, &[Group; 2]) -> Result<(Change, R)>,
    ) -> Result<Option<R>> {
        let mut slot = self.slots.hold(self.medium());
        let Some((row, claimed, groups)) = self.claim_newest(table, index, key, slot.index)? else {
            return Ok(None);
        };
        let (change, result) = decide(row, &groups)?;
        match change {
            Change::Keep => {}
            Change::Update(new) if new == groups => {}
            Change::Update(new) => {
                self.replace(&mut slot, claimed, row, &groups, Some(new))?;
            }
            Change::Remove => self.replace(&mut slot, claimed, row, &groups, None)?,
        }
        drop(slot);
        self.collect_if_due();
        Ok(Some(result))
    }

    /// Claims the row whose newest committed state has a key, and returns its cells.
    #[allow(clippy::type_complexity, reason = "a row, the right to change it, and its cells")]
    fn claim_newest<'t>(
        &self,
        table: &'t Arc<Table<M>>,
        index: &Index<M>,
        key: &Key,
        slot: u32,
    ) -> Result<Option<(RowId, Claimed<'t, M>, [Group; 2])>> {
        loop {
            let Some(Found { row, place }) = self.newest_with(table, index, key)? else {
                return Ok(None);
            };
            match table.try_claim(place, Claim::of(self.opens, slot), self.opens) {
                Ok(()) => {}
                // That takes one fence.
                Err(other) if other.is_collectors() => {
                    self.medium().pause();
                    continue;
                }
                Err(_) => return Err(self.in_the_way(table, index, key)),
            }
            let claimed = Claimed { table, place };
            // Nobody changes the row or frees a version of it any more. But somebody may have.
            if let Some(groups) = self.newest(table, row, place)?
                && key.is_of(&table.format, &index.spec.columns, &groups[0])
            {
                return Ok(Some((row, claimed, groups)));
            }
        }
    }

    #[cold]
    fn in_the_way(&self, table: &Table<M>, index: &Index<M>, key: &Key) -> Error {
        let key = key.tell(&table.format, &index.spec.columns);
        Error::Conflict { table: table.name.clone(), index: index.spec.name.clone(), key }
    }

    /// The row whose newest committed state has a key.
    fn newest_with(&self, table: &Table<M>, index: &Index<M>, key: &Key) -> Result<Option<Found>> {
        let mut failed = None;
        for row in index.candidates(key)? {
            let Some(place) = table.place(row) else { continue };
            let _pin = self.heap.pin();
            match self.newest_has(table, index, key, row, place) {
                Ok(true) => return Ok(Some(Found { row, place })),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.heap.verify()?;
        failed.map_or(Ok(None), Err)
    }

    /// Whether the newest committed state of a row has a key. The caller has a pin, or the row's
    /// claim.
    pub(super) fn newest_has(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        row: RowId,
        place: RowPlace,
    ) -> Result<bool> {
        let Some(seen) = table.seen(row, place, STAMP_MAX)? else { return Ok(false) };
        let keys = table.group_of(place, seen, 0)?;
        Ok(key.is_of(&table.format, &index.spec.columns, &keys))
    }

    fn newest(&self, table: &Table<M>, row: RowId, place: RowPlace) -> Result<Option<[Group; 2]>> {
        let Some(seen) = table.seen(row, place, STAMP_MAX)? else { return Ok(None) };
        let groups = [table.group_of(place, seen, 0)?, table.group_of(place, seen, 1)?];
        self.heap.verify()?;
        Ok(Some(groups))
    }

    /// Gives a row that is claimed a new version: these cells, or its removal.
    fn replace(
        &self,
        slot: &mut HeldSlot<'_>,
        claimed: Claimed<'_, M>,
        row: RowId,
        old: &[Group; 2],
        new: Option<[Group; 2]>,
    ) -> Result<()> {
        let (table, place) = (claimed.table, claimed.place);
        let medium = self.medium();
        let is_removal = new.is_none();
        let has = [0, 1].map(|group| new.as_ref().is_some_and(|new| new[group] != old[group]));
        let new = new.unwrap_or_else(|| old.clone());
        let changed = Self::changed_keys(table, &old[0], &new[0]);
        let unique = || changed.iter().filter(|(index, _)| index.spec.kind.is_unique());
        // Held until the version is published: until then, nobody can see that the row has the key.
        let _keys = self.keys.lock(medium, unique().map(|(index, key)| (index.number, key.hash)));
        for (index, key) in unique() {
            self.require_free(table, index, key, row)?;
        }
        let words = Self::add_words(row, &changed)?;
        // The lane is held until something leads to the version.
        let (mut lane, block) = match self.version_block(table, has) {
            Ok(allocated) => allocated,
            Err(error) => {
                Self::remove_words(row, &words)?;
                return Err(error);
            }
        };
        let commit = self.stamps.begin(medium);
        let stamp = commit.stamp;
        let previous = table.committed(place);
        let version = Version { offset: block.offset, row, stamp, previous, has, is_removal };
        let content = table.write_version(version, [&new[0], &new[1]]);
        let (number, table_number) = (slot.next_number(), table.number);
        let record = Record {
            number,
            stamp,
            table: table_number,
            row,
            version: block.offset,
            content,
            is_void: false,
        };
        slot.write(medium, record);
        // Fence: version, words of the indexes and record; before anybody sees the change, and
        // before it is acknowledged. Also what the record before has published.
        // Redundant flush: what folding has noted is flushed before its blocks are freed, too.
        lane.fence();
        self.heap.verify()?;
        slot.has_published(table.publish(place, Committed::version(block.offset)));
        drop(lane);
        self.leave_garbage(Garbage { table: Arc::clone(table), row, stamp });
        Ok(())
    }

    /// Puts a row that is claimed into indexes under its new keys, and returns the words that were
    /// added. Others are there: of a state that is not folded, or left by a statement.
    fn add_words<'k, 't>(
        row: RowId,
        changed: &'k [Word<'t, M>],
    ) -> Result<SmallVec<[&'k Word<'t, M>; 2]>> {
        let mut added: SmallVec<[&Word<'t, M>; 2]> = SmallVec::new();
        for word in changed {
            let (index, key) = word;
            let was_there = index.candidates(key)?.contains(&row);
            if let Err(error) = index.rows.ensure(key.hash, row) {
                Self::remove_words(row, &added)?;
                return Err(error.into());
            }
            if !was_there {
                added.push(word);
            }
        }
        Ok(added)
    }

    fn remove_words(row: RowId, words: &[&Word<'_, M>]) -> Result<()> {
        for (index, key) in words {
            index.rows.remove(key.hash, row)?;
        }
        Ok(())
    }

    /// Room for a version, and the lane that it is in doubt by.
    fn version_block(&self, table: &Table<M>, has: [bool; 2]) -> Result<(Lane<'_, M>, Block)> {
        let allocate = || {
            let mut lane = self.heap.enter().prepare_to_write();
            let block = table.allocate_version(&mut lane, has)?;
            Ok((lane, block))
        };
        match allocate() {
            Err(error) if Error::is_full(&error) => {
                // Lanes may hold blocks that are not freed yet.
                self.heap.relieve();
                allocate()
            }
            allocated => allocated,
        }
    }

    /// The indexes in which a row gets another key, with that key.
    fn changed_keys<'t>(table: &'t Table<M>, old: &[u8], new: &[u8]) -> SmallVec<[Word<'t, M>; 2]> {
        if old == new {
            return SmallVec::new();
        }
        let key =
            |index: &Index<M>, keys: &[u8]| Key::of_row(&table.format, &index.spec.columns, keys);
        let changed = table.indexes.iter().filter_map(|index| {
            let new = key(index, new)?;
            (key(index, old).as_ref() != Some(&new)).then_some((index, new))
        });
        changed.collect()
    }
}
