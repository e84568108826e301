//! Writing what a transaction has changed and not written: one record with a list of rows, and one
//! fence, however many they are.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::heap::layout::SUSPECT_COUNT;
use remanent_pmem::heap::{Block, Lane};
use remanent_structures::RowId;

use super::collect::Garbage;
use super::deferred::{Deferred, DeferredRow};
use super::finish::Unlocking;
use super::layout::{Content, Entry, Identity, State, TransactionId, content_of};
use super::list;
use super::slots::{HeldSlot, Written};
use super::stamps::Commit;
use super::statuses::Fate;
use super::unwritten::{Cells, Made};
use crate::engine::Engine;
use crate::index::Key;
use crate::table::Table;
use crate::table::layout::{Claim, Committed, Pending};
use crate::table::ops::{Group, RowPlace, key_cells};
use crate::table::version::Version;
use crate::{Error, Result};

/// Suspects that the allocator needs, and the list.
const SPARE: usize = 32;
const _: () = assert!(2 * SPARE < SUSPECT_COUNT as usize);

/// A change of a row that is to be written.
struct Change<M: Medium> {
    table: Arc<Table<M>>,
    row: RowId,
    place: RowPlace,
    own: Option<Pending>,
    kind: Kind,
}

enum Kind {
    Insert([Group; 2]),
    /// The new version: its cells, the groups that it has, and its block.
    Version {
        cells: Cells,
        has: [bool; 2],
        block: Option<Block>,
    },
}

/// The cells of a new version; none of a removal.
fn groups_of(cells: &Cells) -> [&[u8]; 2] {
    cells.as_ref().map_or([&[][..]; 2], |cells| [&cells[0], &cells[1]])
}

impl<M: Medium> Change<M> {
    /// What is to be written of a row; `None` if nothing has changed.
    fn of(row: &DeferredRow<M>, made: &Made) -> Option<Self> {
        let kind = match (made.before(), made.newest().clone()) {
            (None, cells) => Kind::Insert(cells?),
            (Some(base), Some(cells)) if *base == cells => return None,
            (Some(base), cells) => {
                let differs =
                    |group: usize| cells.as_ref().is_some_and(|cells| cells[group] != base[group]);
                Kind::Version { has: [0, 1].map(differs), cells, block: None }
            }
        };
        let DeferredRow { ref table, row, place, own, .. } = *row;
        let table = Arc::clone(table);
        (!table.is_dropped()).then_some(Change { table, row, place, own, kind })
    }

    /// Has room for the row in its tile, so that folding finds it.
    fn make_room(&self) -> Result<()> {
        match &self.kind {
            Kind::Insert(cells) | Kind::Version { cells: Some(cells), .. } => {
                self.table.make_room(self.place, &cells[1])
            }
            Kind::Version { cells: None, .. } => Ok(()),
        }
    }

    /// Offset of the new version; 0 if the row was inserted.
    fn version(&self) -> u64 {
        match self.kind {
            Kind::Version { block: Some(block), .. } => block.offset,
            Kind::Version { .. } | Kind::Insert(_) => 0,
        }
    }

    /// Writes and flushes the cells, or the version. Returns the entry of the list.
    fn write(&self, identity: Identity, statement: u32) -> Result<Entry> {
        let (table, row, version) = (&self.table, self.row, self.version());
        let content = match &self.kind {
            Kind::Insert(cells) => {
                let groups: [&[u8]; 2] = [&cells[0], &cells[1]];
                table.write_groups(self.place, groups)?;
                table.flush_groups(self.place);
                content_of(groups)
            }
            Kind::Version { cells, has, .. } => {
                let previous =
                    self.own.map_or_else(|| table.committed(self.place), Pending::as_previous);
                let groups = groups_of(cells);
                let written = Version {
                    offset: version,
                    row,
                    stamp: identity.stamp,
                    statement,
                    previous,
                    has: *has,
                    added_len: table.added_len_of(*has, groups),
                    is_removal: cells.is_none(),
                };
                table.write_version(written, identity, groups)
            }
        };
        Ok(Entry { table: table.number, row, version, content })
    }
}

impl<M: Medium> Engine<M> {
    /// Commits a transaction that is durable at its commit. One fence; none if it has changed
    /// nothing.
    pub(super) fn commit_deferred(&self, slot: &mut HeldSlot<'_, M>) -> Result<()> {
        let has_changed = slot.open().is_some_and(|open| open.statement > 0);
        if !has_changed {
            return self.end_unchanged(slot);
        }
        let checked = self.require_foreign_keys(slot);
        let held = self.hold_promises(slot);
        let checked = checked.and_then(|()| self.validated(slot, &held));
        let prepared = checked.and_then(|early| Ok((early, self.prepare(slot)?)));
        let (early, (lane, changes)) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.abort(slot)?;
                return Err(error);
            }
        };
        // Not before there is room, if possible: later commits wait for it.
        let begin = || self.stamps.begin(self.medium());
        let commit = early.map_or_else(begin, Commit::proceed);
        let told = self.stamps.has_gate().then(|| self.told_of(slot));
        self.write_out(slot, Some(&commit), lane, changes)?;
        let stamp = commit.stamp;
        slot.set_fate(Fate::Committed(stamp));
        // Before others see its rows, and before the slot is used for others.
        self.keep_promises(slot, stamp)?;
        // Not longer: the next one that changes the schema may hold the same tables.
        drop(held);
        let ended = self.forget(slot, Some(stamp));
        let _unlocking = Unlocking { engine: self, locked: ended.locked, slot: slot.index };
        self.end_commit(commit, told)
    }

    /// Writes what a batch has changed: one statement, and one fence. If it cannot be written, none
    /// of it was done.
    pub(super) fn write_batch(&self, slot: &mut HeldSlot<'_, M>) -> Result<()> {
        if slot.open().is_none_or(|open| open.deferred.rows.is_empty()) {
            return Ok(());
        }
        let is_checked_now = slot.open().is_some_and(|open| !open.checks_at_commit);
        let checked = if is_checked_now { self.require_foreign_keys(slot) } else { Ok(()) };
        match checked.and_then(|()| self.prepare(slot)) {
            Ok((lane, changes)) => self.write_out(slot, None, lane, changes),
            Err(error) => {
                self.take_back(slot, 0)?;
                Err(error)
            }
        }
    }

    /// What is to be written, with room for it, and the lane by which the room is in doubt.
    fn prepare(&self, slot: &HeldSlot<'_, M>) -> Result<(Lane<'_, M>, Vec<Change<M>>)> {
        let rows = slot.open().map_or(&[][..], |open| &open.deferred.rows);
        let change = |row: &DeferredRow<M>| {
            let of = |made: &Made| Change::of(row, made);
            self.statuses.unwritten.get(self.medium(), slot.index, row.name(), of).flatten()
        };
        let changes = rows.iter().filter_map(change);
        let mut changes: Vec<Change<M>> = changes.collect();
        changes.iter().try_for_each(Change::make_room)?;
        // At the worst, each version is in a chunk of its own.
        let suspects = (2 * SPARE + changes.len()).min(SUSPECT_COUNT.into());
        let mut lane = self.heap.enter().prepare_for(suspects);
        match self.allocate(&mut lane, slot, &mut changes) {
            Err(error) if error.is_full() => {
                drop(lane);
                // Lanes may hold blocks that are not freed yet.
                self.heap.relieve();
                lane = self.heap.enter().prepare_for(suspects);
                self.allocate(&mut lane, slot, &mut changes)?;
            }
            allocated => allocated?,
        }
        Ok((lane, changes))
    }

    /// Allocates the blocks of all versions, and the list; or none.
    fn allocate(
        &self,
        lane: &mut Lane<'_, M>,
        slot: &HeldSlot<'_, M>,
        changes: &mut [Change<M>],
    ) -> Result<()> {
        let mut allocate = || {
            for change in &mut *changes {
                let Kind::Version { cells, has, block } = &mut change.kind else { continue };
                // Each chunk takes one of them.
                if lane.suspects_left() < SPARE {
                    return Err(Error::TooMuchAtOnce);
                }
                let added_len = change.table.added_len_of(*has, groups_of(cells));
                *block = Some(change.table.allocate_version(lane, *has, added_len)?);
            }
            list::make_room(lane, slot.next_list(), changes.len() as u64)
        };
        let allocated = allocate();
        if allocated.is_err() {
            for change in changes {
                if let Kind::Version { block, .. } = &mut change.kind
                    && let Some(block) = block.take()
                {
                    lane.give_back(block);
                }
            }
        }
        allocated
    }

    /// Writes changes, and shows them. If it fails, nobody can say whether they took effect, until
    /// the pool is opened again.
    fn write_out(
        &self,
        slot: &mut HeldSlot<'_, M>,
        commit: Option<&Commit<'_, M>>,
        mut lane: Lane<'_, M>,
        changes: Vec<Change<M>>,
    ) -> Result<()> {
        let medium = self.medium();
        let (Some(id), Some(open)) = (slot.id(), slot.open()) else { return Ok(()) };
        let (opening, made) = (open.serial.opening, open.statement);
        // Those of a transaction that is durable at its commit were counted when they were made.
        let statement = if commit.is_some() { made } else { made + 1 };
        let stamp = commit.map(|commit| commit.stamp);
        let identity = Identity { stamp: stamp.unwrap_or(id.as_stamp()), opening };
        let entries: Vec<Entry> = changes
            .iter()
            .map(|change| change.write(identity, statement))
            .collect::<Result<_>>()?;
        let listed = list::write(medium, slot.next_list(), &entries);
        let state = if commit.is_some() { State::Committed } else { State::Open };
        slot.write(medium, state, stamp, Content::Rows(listed));
        // Fence: cells, versions, words of the indexes, list and record; before anybody sees a
        // change, and before it is acknowledged. Also what the record before has published.
        lane.fence();
        self.heap.verify()?;
        for change in &changes {
            self.show(slot, id, stamp, change);
        }
        drop(lane);
        self.clean_up(slot, stamp, changes);
        Ok(())
    }

    /// Has a row lead to what is written of it. It stays claimed.
    fn show(
        &self,
        slot: &mut HeldSlot<'_, M>,
        id: TransactionId,
        stamp: Option<u64>,
        change: &Change<M>,
    ) {
        let Change { table, place, .. } = change;
        let version = change.version();
        let head = match stamp {
            Some(stamp) if version == 0 => table.publish(*place, Committed::present(stamp)),
            Some(_) => table.publish(*place, Committed::version(version)),
            None => {
                let statement = slot.open().map_or(0, |open| open.statement);
                let pending = Pending::of(id.short(), version, statement);
                table.claim_row(*place, Claim::pending(pending))
            }
        };
        slot.has_published(head);
    }

    /// Forgets what was not written: it is, or need not be. Removes words that were added to
    /// indexes for keys that rows have lost again, and gives rows free.
    fn clean_up(&self, slot: &mut HeldSlot<'_, M>, stamp: Option<u64>, changes: Vec<Change<M>>) {
        let index = slot.index;
        let Some(open) = slot.open_mut() else { return };
        let Deferred { rows, steps, .. } = &mut open.deferred;
        let (rows, steps) = (std::mem::take(rows), std::mem::take(steps));
        let mut last: Vec<Cells> = Vec::new();
        for row in &rows {
            let made = self.statuses.unwritten.remove(self.medium(), index, row.name());
            last.push(made.and_then(|made| made.newest().clone()));
        }
        for step in steps {
            let row = &rows[step.at];
            let is_lost = |(number, key): &(u32, Key)| {
                let set = row.table.indexes.load();
                let Some(index) = set.with_number(*number) else { return false };
                let has = |cells: &[Group; 2]| {
                    let (format, cells) = (&row.table.format, key_cells(cells));
                    // Another key may have the same word.
                    let has_word =
                        |own: Option<Key>| own.is_some_and(|own| index.rows.is_one_word(&own, key));
                    key.is_of(format, &index.spec, cells) || has_word(index.key_of(format, cells))
                };
                !last[step.at].as_ref().is_some_and(has)
            };
            for (number, key) in step.words.iter().filter(|word| is_lost(word)) {
                // A word that stays does no harm. An error tells of the medium, or of damage, and
                // who meets it next is told.
                let _ = row.table.remove_word(*number, key, row.row);
            }
        }
        let mut changes = changes.into_iter().peekable();
        for row in rows {
            let is_next = |change: &Change<M>| (change.table.number, change.row) == row.name();
            match (changes.next_if(is_next), stamp) {
                (None, _) => {
                    if !row.is_new && row.own.is_none() && stamp.is_none() {
                        open.note_row(self.medium(), &row.table, row.row);
                    }
                    self.leave_unchanged(row);
                }
                (Some(change), Some(stamp)) => {
                    row.table.give_free(row.place);
                    if change.version() != 0 {
                        self.leave_garbage(Garbage { table: row.table, row: row.row, stamp });
                    }
                }
                (Some(_), None) if row.own.is_none() => {
                    open.rows.push(Written { table: row.table, row: row.row });
                }
                (Some(_), None) => {}
            }
        }
        // The record that is durable by now names the newer one.
        self.leave_snapshot_before(open);
    }
}
