//! Updating and removing rows.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::heap::{Block, Lane};
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::LockMode;
use super::deferred::DeferredRow;
use super::foreign::{InTheWay, Tie, Ties};
use super::stamps::Commit;
use super::statement::{Claimed, NewState, Part, Refusal, Statement};
use super::statuses::Fate;
use super::view::View;
use super::wait::{Refused, Wanted};
use crate::engine::Engine;
use crate::index::uses::Use;
use crate::index::{HeldKeys, Index, IndexSet, Key, Keyed, Member, Role};
use crate::table::Table;
use crate::table::ops::{Group, Head, RowPlace, copy_of, key_cells};
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

/// An index, and the key that a row gets in it.
type Word<'t, M> = (&'t Member<M>, Key);

/// A row that a statement was asked to change.
struct Found {
    row: RowId,
    place: RowPlace,
}

/// The newest state of a row that may have a key.
#[derive(Clone, Copy, PartialEq, Eq)]
struct NewestState {
    row: RowId,
    head: Head,
    fate: Option<Fate>,
    /// Of its last commit.
    stamp: u64,
}

type LookedAt = SmallVec<[NewestState; 2]>;

/// A row that a statement was asked to change, claimed, with its cells.
pub(super) struct Target<'t, M: Medium> {
    pub(super) row: RowId,
    pub(super) claimed: Claimed<'t, M>,
    pub(super) groups: [Group; 2],
}

impl<M: Medium> Engine<M> {
    /// Changes the row with a key of a unique index as `decide` says. `None` when there is no row.
    /// One fence.
    pub(crate) fn change<R>(
        &self,
        statement: &mut Statement<'_, '_, M>,
        table: &Arc<Table<M>>,
        index: &Index<M>,
        key: &Key,
        decide: impl FnOnce(RowId, &[Group; 2]) -> Result<(Change, R)>,
    ) -> Result<Option<R>> {
        self.require_open(statement)?;
        let mode = LockMode::Wait;
        let Some(target) = self.claim_row(statement, table, index, key, mode)? else {
            return Ok(None);
        };
        let seen = table.stamp_of(table.committed(target.claimed.place));
        // If the row is changed, nobody else can do so afterwards, and no note is needed.
        let notes = statement.note_count(self.medium());
        statement.note_key(self.medium(), table, index, key);
        let decided = decide(target.row, &target.groups);
        let result = match decided {
            Ok((Change::Update(new), result)) if new != target.groups => {
                self.replace(statement, target, Some(new))?;
                statement.forget_notes(self.medium(), notes);
                result
            }
            Ok((Change::Remove, result)) => {
                self.replace(statement, target, None)?;
                statement.forget_notes(self.medium(), notes);
                result
            }
            unchanged => {
                drop(target);
                // What it has seen may not be acknowledged yet.
                if self.stamps.is_on_its_way(seen) {
                    self.stamps.wait_until_visible(self.medium(), seen);
                }
                unchanged?.1
            }
        };
        Ok(Some(result))
    }

    /// Claims the row that has a key for a statement. `None` when there is no row, or another
    /// transaction has it that is passed over.
    pub(super) fn claim_row<'t>(
        &self,
        statement: &Statement<'_, '_, M>,
        table: &'t Arc<Table<M>>,
        index: &Index<M>,
        key: &Key,
        mode: LockMode,
    ) -> Result<Option<Target<'t, M>>> {
        let mut waiting = statement.waiting_as(self, mode);
        if statement.view.stamp < index.unique_since() {
            self.require_one_row(table, index, key, statement.view)?;
        }
        loop {
            let Some(found) = self.row_with(table, index, key, statement.view)? else {
                statement.note_key(self.medium(), table, index, key);
                return table.require_index(index).map(|()| None);
            };
            let Found { row, place } = found;
            let claimed = match self.claim_for(statement, table, row, place)? {
                Ok(claimed) => claimed,
                Err(Refusal::Wait) => {
                    self.medium().pause();
                    continue;
                }
                Err(Refusal::Busy(_)) if mode == LockMode::Skip => return Ok(None),
                Err(Refusal::Busy(holder)) => {
                    waiting.wait(holder, Wanted { table, index, key })?;
                    continue;
                }
            };
            if !claimed.is_own() && table.stamp_of(table.committed(place)) > statement.view.stamp {
                return Err(self.overtaken(table, index, key));
            }
            // Nobody changes the row or frees a version of it any more. But somebody may have.
            if let Some(groups) = self.cells(table, row, place, statement.view)?
                && key.is_of(&table.format, &index.spec, key_cells(&groups))
            {
                return Ok(Some(Target { row, claimed, groups }));
            }
        }
    }

    /// Refuses a key that two rows have in a view that is older than the index is unique.
    #[cold]
    fn require_one_row(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        view: View,
    ) -> Result<()> {
        let mut first = None;
        let other = table.search(index, key, |row| {
            let Some(place) = table.place(row) else { return Ok(None) };
            let _pin = self.heap.pin();
            let is_seen = self.sees_key(table, Keyed::of(index, key), row, place, view);
            self.require_kept(view)?;
            // A row number that was used before, with the same key, may have a second word.
            Ok((is_seen? && *first.get_or_insert(row) != row).then_some(row))
        })?;
        self.heap.verify()?;
        self.require_kept(view)?;
        match first.zip(other) {
            Some((first, other)) => Err(table.ambiguous(index, key, [first, other])),
            None => Ok(()),
        }
    }

    #[cold]
    pub(super) fn overtaken(&self, table: &Table<M>, index: &Index<M>, key: &Key) -> Error {
        let key = key.tell(&table.format, &index.spec);
        Error::Overtaken { table: table.name.clone(), index: index.spec.name.clone(), key }
    }

    /// The row that has a key in a view. Without a snapshot, the newest rows are looked at one
    /// after the other. So if none is found although there are some, they are looked at twice more.
    /// They have to be the same then, and none of them may be on its way: a commit may exchange one
    /// row for another.
    fn row_with(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        view: View,
    ) -> Result<Option<Found>> {
        let mut has_candidates = false;
        let found = self.row_with_once(table, index, key, view, |_, _| has_candidates = true)?;
        if found.is_some() || view.place.is_some() || !has_candidates {
            return Ok(found);
        }
        let mut before = LookedAt::new();
        loop {
            let mut rows = LookedAt::new();
            let look = |row, place| rows.push(self.look_at(table, row, place));
            let found = self.row_with_once(table, index, key, view, look)?;
            if found.is_some() || rows.is_empty() {
                return Ok(found);
            }
            if rows.iter().any(|row| self.stamps.is_on_its_way(row.stamp)) {
                self.medium().pause();
            } else if rows == before {
                return Ok(None);
            }
            before = rows;
        }
    }

    fn row_with_once(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        view: View,
        mut look: impl FnMut(RowId, RowPlace),
    ) -> Result<Option<Found>> {
        let mut failed = None;
        let found = table.search(index, key, |row| {
            let Some(place) = table.place(row) else { return Ok(None) };
            // It is read as a whole if it has the key.
            table.prefetch(place);
            let _pin = self.heap.pin();
            look(row, place);
            match self.sees_key(table, Keyed::of(index, key), row, place, view) {
                Ok(is_seen) => Ok(is_seen.then_some(Found { row, place })),
                Err(error) => {
                    failed.get_or_insert(error);
                    Ok(None)
                }
            }
        })?;
        self.heap.verify()?;
        self.require_kept(view)?;
        match found {
            Some(found) => Ok(Some(found)),
            None => failed.map_or(Ok(None), Err),
        }
    }

    fn look_at(&self, table: &Table<M>, row: RowId, place: RowPlace) -> NewestState {
        let head = table.head(place);
        let fate = head.claim.as_pending().and_then(|pending| self.statuses.fate(pending.by));
        let of_fate = match fate {
            Some(Fate::Committed(stamp)) => stamp,
            _ => 0,
        };
        NewestState { row, head, fate, stamp: table.stamp_of(head.committed).max(of_fate) }
    }

    /// Whether a row has a key in a view. The caller has a pin, or the row's claim.
    pub(super) fn sees_key(
        &self,
        table: &Table<M>,
        keyed: Keyed<'_>,
        row: RowId,
        place: RowPlace,
        view: View,
    ) -> Result<bool> {
        let Some(seen) = table.seen(row, place, view)? else { return Ok(false) };
        let keys = table.key_groups(place, seen, keyed.needs_others)?;
        let is_of = keyed.is_of(&table.format, &keys);
        if !is_of {
            table.require_values(&keyed.spec.columns, key_cells(&keys))?;
        }
        Ok(is_of)
    }

    fn cells(
        &self,
        table: &Table<M>,
        row: RowId,
        place: RowPlace,
        view: View,
    ) -> Result<Option<[Group; 2]>> {
        let _pin = self.heap.pin();
        let Some(seen) = table.seen(row, place, view)? else { return Ok(None) };
        let groups = [table.group_of(place, seen, 0)?, table.group_of(place, seen, 1)?];
        self.heap.verify()?;
        self.require_kept(view)?;
        Ok(Some(groups))
    }

    /// Gives a row that is claimed a new version: these cells, or its removal.
    fn replace(
        &self,
        statement: &mut Statement<'_, '_, M>,
        target: Target<'_, M>,
        cells: Option<[Group; 2]>,
    ) -> Result<()> {
        let Target { row, mut claimed, groups: old } = target;
        let (table, place, is_removal) = (claimed.table, claimed.place, cells.is_none());
        if let Some(new) = &cells {
            // Folding finds it.
            table.make_room(place, &new[1])?;
        }
        let has = [0, 1].map(|group| cells.as_ref().is_some_and(|new| new[group] != old[group]));
        let cells = cells.unwrap_or_else(|| copy_of(&old));
        let mut waiting = statement.waiting(self);
        // A commit that is cancelled waits for others, so that the set is given back before.
        let (mut early, mut set);
        // The keys are held until the version is published: until then, nobody can see that the row
        // has them. The set is not held while it waits: who changes the indexes waits for it.
        let (changed, keys) = loop {
            early = self.validated_last(statement)?;
            set = table.indexes.load();
            let changed = Self::changed_keys(table, &set, &old, &cells);
            let states = [Some(&old), (!is_removal).then_some(&cells)];
            let ties = self.ties_at_once(statement, table, &set, states, row)?;
            match self.lock_new_keys(statement, (table, &set), row, &changed, &ties)? {
                Ok(keys) => break (changed, keys),
                Err((holder, told)) => {
                    drop(changed);
                    drop((set, early));
                    waiting.wait_for(holder, || *told)?;
                }
            }
        };
        drop(waiting);
        let words = Self::add_words(table, row, &changed)?;
        if statement.is_deferred() {
            let words = words.into_iter().map(|(index, key)| (index.number, key.clone()));
            let (table, own) = (Arc::clone(table), claimed.own);
            let deferred = DeferredRow { table, row, place, own, is_new: false };
            let states = [Some(old), (!is_removal).then_some(cells)];
            self.defer(statement, deferred, states, words.collect());
            claimed.keep();
            return Ok(());
        }
        // The lane is held until something leads to the version.
        let groups = [&cells[0][..], &cells[1]];
        let added_len = table.added_len_of(has, groups);
        let allocated = self.version_block(table, has, added_len);
        let (mut lane, block) =
            allocated.or_else(|error| Self::remove_words(row, &words).and(Err(error)))?;
        let commit = self.commit_of(statement.part, early);
        let version = (block.offset, has, is_removal);
        let new = self.write_change(statement, commit.as_ref(), &claimed, row, version, groups);
        // Fence: version, words of the indexes and record; before anybody sees the change, and
        // before it is acknowledged. Also what the record before has published.
        // Redundant flush: what folding has noted is flushed before its blocks are freed, too.
        lane.fence();
        self.heap.verify()?;
        self.publish(statement, commit.as_ref(), &new);
        drop((keys, lane, words));
        drop(changed);
        // Who changes the indexes waits for it, and this may wait for who does.
        drop(set);
        if statement.part == Part::Whole {
            table.give_free(place);
        }
        claimed.keep();
        self.end_statement(statement, commit, table, row, true)
    }

    /// Writes a version of a row that is claimed: where, which groups it has, and whether it is a
    /// removal. Then the record of its statement. The caller fences.
    fn write_change<'t>(
        &self,
        statement: &mut Statement<'_, '_, M>,
        commit: Option<&Commit<'_, M>>,
        claimed: &Claimed<'t, M>,
        row: RowId,
        (offset, has, is_removal): (u64, [bool; 2], bool),
        groups: [&[u8]; 2],
    ) -> NewState<'t, M> {
        let (table, place) = (claimed.table, claimed.place);
        let identity = self.identity_of(statement, commit);
        let version = Version {
            offset,
            row,
            stamp: identity.stamp,
            statement: statement.slot.open().map_or(0, |open| open.statement + 1),
            previous: claimed.newest(),
            has,
            added_len: table.added_len_of(has, groups),
            is_removal,
        };
        let content = table.write_version(version, identity, groups);
        let new = NewState { table, row, place, version: offset, is_own: claimed.own.is_some() };
        self.write_record(statement, commit, &new, content);
        new
    }

    /// Locks the unique keys that a row gets, if nobody has them, and those of foreign keys, if
    /// nothing speaks against them. `Err` says who decides that.
    fn lock_new_keys(
        &self,
        statement: &Statement<'_, '_, M>,
        (table, set): (&Arc<Table<M>>, &IndexSet<M>),
        row: RowId,
        changed: &[Word<'_, M>],
        ties: &Ties<M>,
    ) -> Result<Result<HeldKeys<'_>, InTheWay>> {
        let unique = || changed.iter().filter(|(index, key)| index.enforces(key));
        let hashes = unique().map(|(index, key)| (index.id, key.hash));
        let keys = self.keys.lock(self.medium(), hashes.chain(ties.iter().map(Tie::lock)));
        for (index, key) in unique() {
            match self.require_free(table, index, key, row, statement.view) {
                Ok(()) => {}
                Err(Refused::For(error)) => {
                    let keyed = std::iter::once((&***index, key));
                    self.note_refusal(statement.slot, table, set, keyed, &error);
                    return Err(error);
                }
                Err(Refused::Busy { holder, .. } | Refused::Tied { holder, .. }) => {
                    return Ok(Err((holder, Box::new(Wanted { table, index, key }.told()))));
                }
            }
        }
        let tied = self.require_ties(table, ties, statement.view).inspect_err(|error| {
            self.note_refusal(statement.slot, table, set, std::iter::empty(), error);
        });
        Ok(tied?.map_or(Ok(keys), Err))
    }

    /// Puts a row that is claimed into indexes under its new keys, and returns the words that were
    /// added. Others are there: of a state that is not folded, or left by a statement.
    fn add_words<'k, 't>(
        table: &Table<M>,
        row: RowId,
        changed: &'k [Word<'t, M>],
    ) -> Result<SmallVec<[&'k Word<'t, M>; 2]>> {
        let mut added: SmallVec<[&Word<'t, M>; 2]> = SmallVec::new();
        for word in changed {
            let (index, key) = word;
            // Before the index is read. Who builds or rebuilds it may rely on the word that is
            // added here.
            let is_whole = index.role != Role::Kept && table.has_all_rows(index);
            let was_there = !is_whole || index.has(key, row)?;
            if let Err(error) = index.rows.ensure(key, row) {
                Self::remove_words(row, &added)?;
                return Err(error);
            }
            if index.role != Role::Kept {
                index.uses.count(Use::Change);
            }
            if !was_there {
                added.push(word);
            }
        }
        Ok(added)
    }

    fn remove_words(row: RowId, words: &[&Word<'_, M>]) -> Result<()> {
        for (index, key) in words {
            index.rows.remove(key, row)?;
        }
        Ok(())
    }

    /// Room for a version, and the lane that it is in doubt by.
    fn version_block(
        &self,
        table: &Table<M>,
        has: [bool; 2],
        added_len: u64,
    ) -> Result<(Lane<'_, M>, Block)> {
        let allocate = || {
            let mut lane = self.heap.enter().prepare_to_write();
            let block = table.allocate_version(&mut lane, has, added_len)?;
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
    fn changed_keys<'t>(
        table: &Table<M>,
        set: &'t IndexSet<M>,
        old: &[Group; 2],
        new: &[Group; 2],
    ) -> SmallVec<[Word<'t, M>; 2]> {
        if old[0] == new[0] && !(set.needs_others && old[1] != new[1]) {
            return SmallVec::new();
        }
        let (format, old, new) = (&table.format, key_cells(old), key_cells(new));
        let changed = set.all().iter().filter_map(|index| {
            let new = index.key_of(format, new)?;
            (index.key_of(format, old).as_ref() != Some(&new)).then_some((index, new))
        });
        changed.collect()
    }
}
