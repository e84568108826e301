//! Inserting rows.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::deferred::DeferredRow;
use super::foreign::Tie;
use super::layout::{STAMP_MAX, TransactionId, content_of};
use super::stamps::Commit;
use super::statement::{NewState, Part, Statement};
use super::statuses::Fate;
use super::view::View;
use super::wait::{Holder, Refused, Wanted};
use crate::engine::Engine;
use crate::index::uses::Use;
use crate::index::{Index, IndexSet, Key, Keyed, Member, Role};
use crate::table::Table;
use crate::table::layout::{Claim, Pending, State};
use crate::table::ops::{Group, Head, RowPlace, copy_of, key_cells};
use crate::value::Value;
use crate::{Error, Result};

/// The keys of a row, in the order of a set of the table's indexes.
type Keys = SmallVec<[Option<Key>; 4]>;

/// A row that is on its way into a table.
pub(super) struct NewRow {
    groups: [Group; 2],
    keys: Keys,
}

impl<M: Medium> Engine<M> {
    /// Adds a row that has values in the first `columns` columns. One fence.
    pub(crate) fn insert(
        &self,
        statement: &mut Statement<'_, '_, M>,
        table: &Arc<Table<M>>,
        columns: usize,
        values: &[Value<'_>],
    ) -> Result<RowId> {
        self.require_open(statement)?;
        table.require_there(statement.view.own)?;
        self.insert_row(
            statement,
            table,
            &mut NewRow::of(table, statement.view.own, columns, values)?,
        )
    }

    /// The same of a row whose values fit.
    pub(super) fn insert_row(
        &self,
        statement: &mut Statement<'_, '_, M>,
        table: &Arc<Table<M>>,
        row: &mut NewRow,
    ) -> Result<RowId> {
        let (mut waiting, mut is_relieved) = (statement.waiting(self), false);
        loop {
            // A commit that is cancelled waits for others, so that the set is given back before.
            let mut early = self.validated_last(statement)?;
            // Not held while it waits: who changes the indexes waits for it.
            let set = table.indexes.load();
            row.set_keys(table, &set);
            match self.try_insert(statement, table, (&set, row), &mut early) {
                Ok((id, commit)) => {
                    // Who changes the indexes waits for it, and this may wait for who does.
                    drop(set);
                    self.end_statement(statement, commit, table, id, false)?;
                    return Ok(id);
                }
                Err(Refused::Tied { holder, wanted }) => {
                    drop(set);
                    drop(early);
                    waiting.wait_for(holder, || *wanted)?;
                }
                // Lanes may hold blocks that are not freed yet.
                Err(Refused::For(error)) if error.is_full() && !is_relieved => {
                    is_relieved = true;
                    self.heap.relieve();
                }
                Err(Refused::For(error)) => {
                    let keyed = row.keyed(&set).map(|(index, key)| (&**index, key));
                    self.note_refusal(statement.slot, table, &set, keyed, &error);
                    return Err(error);
                }
                Err(Refused::Busy { holder, index: number }) => {
                    let (index, key) = row
                        .keyed(&set)
                        .find(|(index, _)| index.number == number)
                        .expect("the key of one of its indexes is wanted");
                    let (index, key) = (Arc::clone(&index.index), key.clone());
                    drop(set);
                    drop(early);
                    waiting.wait(holder, Wanted { table, index: &index, key: &key })?;
                }
            }
        }
    }

    /// Inserts the row, unless somebody is in its way. `early` is the commit, if it was validated.
    fn try_insert<'e>(
        &'e self,
        statement: &mut Statement<'_, '_, M>,
        table: &Arc<Table<M>>,
        (set, new_row): (&IndexSet<M>, &NewRow),
        early: &mut Option<Commit<'e, M>>,
    ) -> Result<(RowId, Option<Commit<'e, M>>), Refused> {
        let (row, place) = table.take_row()?;
        self.claim_free(table, place, statement.slot.index)?;
        if let Err(error) = self.place_row(statement, table, (set, new_row), row, place) {
            table.give_row_back(row, place);
            return Err(error);
        }
        let medium = self.medium();
        if statement.is_deferred() {
            let words = new_row.keyed(set).map(|(index, key)| (index.number, key.clone()));
            let words = words.collect();
            let table = Arc::clone(table);
            let deferred = DeferredRow { table, row, place, own: None, is_new: true };
            self.defer(statement, deferred, [None, Some(copy_of(&new_row.groups))], words);
            return Ok((row, None));
        }
        table.flush_groups(place);
        let commit = self.commit_of(statement.part, early.take());
        let content = content_of([&new_row.groups[0], &new_row.groups[1]]);
        let new = NewState { table, row, place, version: 0, is_own: false };
        self.write_record(statement, commit.as_ref(), &new, content);
        // Fence: cells, words of the indexes and record; before anybody sees the row, and before it
        // is acknowledged. Also what the record before has published.
        medium.fence();
        self.heap.verify()?;
        self.publish(statement, commit.as_ref(), &new);
        if statement.part == Part::Whole {
            table.give_free(place);
        }
        Ok((row, commit))
    }

    /// Claims a row that was free when it was taken. If it is not any more, nobody gets it again.
    fn claim_free(&self, table: &Table<M>, place: RowPlace, slot: u32) -> Result<()> {
        // Others may have it for a moment: who looked for a row that was here before.
        while table.try_claim(place, Claim::of(self.opens, slot), self.opens).is_err() {
            self.medium().pause();
        }
        if matches!(table.committed(place).state(), State::Free(_)) {
            return Ok(());
        }
        table.give_free(place);
        Err(table.head_damaged(place))
    }

    /// Writes a row that is claimed and enters it in the indexes, unless one of its keys is taken.
    fn place_row(
        &self,
        statement: &Statement<'_, '_, M>,
        table: &Table<M>,
        (set, new): (&IndexSet<M>, &NewRow),
        row: RowId,
        place: RowPlace,
    ) -> Result<(), Refused> {
        let view = statement.view;
        table.make_room(place, &new.groups[1])?;
        let states = [None, Some(&new.groups)];
        let ties = self.ties_at_once(statement, table, set, states, row)?;
        let unique = || new.keyed(set).filter(|(index, key)| index.enforces(key));
        let hashes = unique().map(|(index, key)| (index.id, key.hash));
        let hashes = hashes.chain(ties.iter().map(Tie::lock));
        let _keys = self.keys.lock(self.medium(), hashes);
        for (index, key) in unique() {
            self.require_free(table, index, key, row, view)?;
        }
        if let Some((holder, wanted)) = self.require_ties(table, &ties, view)? {
            return Err(Refused::Tied { holder, wanted });
        }
        table.write_groups(place, [&new.groups[0], &new.groups[1]])?;
        for (done, (index, key)) in new.keyed(set).enumerate() {
            if let Err(error) = index.rows.insert(key, row) {
                for (index, key) in new.keyed(set).take(done) {
                    index.rows.remove(key, row)?;
                }
                return Err(error.into());
            }
            if index.role != Role::Kept {
                index.uses.count(Use::Change);
            }
        }
        Ok(())
    }

    /// Refuses a key that another row has, or is getting. An earlier statement may have left a word
    /// of the key for the row itself.
    pub(super) fn require_free(
        &self,
        table: &Table<M>,
        index: &Index<M>,
        key: &Key,
        own: RowId,
        view: View,
    ) -> Result<(), Refused> {
        let taken = table.search(index, key, |row| match table.place(row) {
            Some(place) if row != own => {
                let taken = {
                    let _pin = self.heap.pin();
                    self.takes(table, Keyed::of(index, key), row, place, view)?
                };
                // Without the pin: the index has one of its own, and each may be a lane.
                let is_left =
                    matches!(taken, Some(Taken::Perhaps(_))) && table.has_left(index, key, row)?;
                Ok(taken.filter(|_| !is_left))
            }
            _ => Ok(None),
        })?;
        self.require_kept(view)?;
        let Some(taken) = taken else { return Ok(()) };
        if let Taken::Perhaps(holder) = taken {
            return Err(Refused::Busy { holder, index: index.number });
        }
        let key = key.tell(&table.format, &index.spec);
        let (table, index) = (table.name.clone(), index.spec.name.clone());
        Err(match taken {
            Taken::Settled(row) => Error::Unique { table, index, key, row }.into(),
            _ => Error::Overtaken { table, index, key }.into(),
        })
    }

    /// Whether a row has a key, or may have it once another transaction has ended. The caller has a
    /// pin, and the key's lock: who gives the row the key waits for that. But who publishes what
    /// has the key, or takes back what has not, does not.
    pub(super) fn takes(
        &self,
        table: &Table<M>,
        keyed: Keyed<'_>,
        row: RowId,
        place: RowPlace,
        view: View,
    ) -> Result<Option<Taken>> {
        loop {
            let before = table.head(place);
            let taken = self.takes_as(before, table, keyed, row, place, view);
            let is_same = table.head(place) == before;
            // Cells that somebody is writing may name no value.
            if is_same || !taken.as_ref().is_err_and(Error::is_damage) {
                let taken = taken?;
                if is_same || taken.is_some() {
                    return Ok(taken);
                }
            }
            self.medium().pause();
        }
    }

    /// The same for a row whose head is this one, unless it changes meanwhile.
    fn takes_as(
        &self,
        Head { committed, claim }: Head,
        table: &Table<M>,
        keyed: Keyed<'_>,
        row: RowId,
        place: RowPlace,
        view: View,
    ) -> Result<Option<Taken>> {
        let has_key = |of: &[Group; 2]| keyed.is_of(&table.format, of);
        // Of what is not written, any state may come back: where a batch is taken back, or cannot
        // be written.
        let may_have = |slot| {
            let (unwritten, name) = (&self.statuses.unwritten, (table.number, row));
            let of = unwritten.get(self.medium(), slot, name, |made| made.all().any(has_key));
            of.map(|may_have| (slot, may_have))
        };
        let unwritten = claim.holder().and_then(may_have);
        let unwritten_by = unwritten.map(|(slot, _)| slot);
        // A row that is locked has its keys until its transaction changes it, and commits that.
        let is_locked = claim.locked_by().is_some() && unwritten_by.is_none();
        let is_held = claim.is_held(self.opens) && !claim.is_collectors() && !is_locked;
        let pending = claim.as_pending();
        let fate = pending.and_then(|pending| self.statuses.fate(pending.by));
        let is_own = view.own.is_some_and(|id| {
            pending.is_some_and(|of| id.short() == of.by) || unwritten_by == Some(id.slot)
        });
        let newest = View { stamp: STAMP_MAX, ..view };
        let perhaps = Taken::Perhaps(Holder { slot: claim.holder() });
        if self.sees_key(table, keyed, row, place, newest)? {
            let is_settled = match (pending, fate) {
                _ if is_own => true,
                (Some(_), Some(Fate::Open)) => false,
                (Some(_), Some(Fate::Committed(stamp))) => stamp <= self.stamps.visible(),
                // Whoever is told of a row finds it: until readers see it, it is on its way. A
                // claimed row may be losing the key.
                _ => {
                    (pending.is_some() || !is_held)
                        && table.stamp_of(committed) <= self.stamps.visible()
                }
            };
            return Ok(Some(if is_settled { Taken::Settled(row) } else { perhaps }));
        }
        if view.own.is_some() && self.sees_key(table, keyed, row, place, view)? {
            return Ok(Some(Taken::Before));
        }
        let is_getting_it = match pending {
            _ if !is_own && unwritten.is_some_and(|(_, may_have)| may_have) => true,
            Some(pending) if !is_own && fate == Some(Fate::Open) => {
                let states =
                    self.pending_states(table, keyed.needs_others, place, (row, pending))?;
                states.iter().any(has_key)
            }
            Some(_) => false,
            None if unwritten.is_some() => false,
            // An insert on its way has its cells in the tile already.
            None => {
                is_held
                    && matches!(committed.state(), State::Free(_))
                    && has_key(&table.key_groups_in_tile(place, keyed.needs_others)?)
            }
        };
        Ok(is_getting_it.then_some(perhaps))
    }

    /// The cells for the key of a row in an index in all states that an open transaction has given
    /// it: each of them comes back if the transaction takes statements back.
    pub(super) fn pending_states(
        &self,
        table: &Table<M>,
        needs_others: bool,
        place: RowPlace,
        (row, pending): (RowId, Pending),
    ) -> Result<SmallVec<[[Group; 2]; 2]>> {
        let (versions, inserted_by) = table.pending_versions(row, pending)?;
        let mut states = table.keys_of_versions(place, &versions, needs_others)?;
        if inserted_by.is_some() {
            states.push(table.key_groups_in_tile(place, needs_others)?);
        }
        Ok(states)
    }
}

/// That a key is not free.
#[derive(Clone, Copy)]
pub(super) enum Taken {
    /// This row has it.
    Settled(RowId),
    /// Another transaction decides it.
    Perhaps(Holder),
    /// A row had it when the transaction took its snapshot.
    Before,
}

impl NewRow {
    /// One that has these values in the first `columns` columns, and defaults in others.
    pub(super) fn of<M: Medium>(
        table: &Table<M>,
        own: Option<TransactionId>,
        columns: usize,
        values: &[Value<'_>],
    ) -> Result<Self> {
        let format = &table.format;
        if values.len() != columns {
            return Err(table.wrong_count(columns, values.len()));
        }
        if columns > format.cells.made_count() {
            // Its last columns may be those of a transaction that is open, or has taken them back.
            let count = table.columns_for(own).len();
            if columns > count {
                return Err(table.wrong_count(count, columns));
            }
        }
        let mut groups: [Group; 2] =
            format.group_len.map(|len| SmallVec::from_elem(0, len as usize));
        for (column, value) in values.iter().enumerate() {
            table.set(&mut groups, column, value)?;
        }
        format.cells.trim(&mut groups[1]);
        Ok(NewRow { groups, keys: Keys::new() })
    }

    /// The key of an index that no other row can have; `None` if the row has none there.
    pub(super) fn unique_key<M: Medium>(&self, table: &Table<M>, index: &Index<M>) -> Option<Key> {
        let key = index.key_of(&table.format, key_cells(&self.groups))?;
        index.is_unique_in(&key).then_some(key)
    }

    /// Gives it the keys that it has in a set of indexes.
    fn set_keys<M: Medium>(&mut self, table: &Table<M>, set: &IndexSet<M>) {
        let cells = key_cells(&self.groups);
        let keys = set.all().iter().map(|index| index.key_of(&table.format, cells));
        self.keys = keys.collect();
    }

    /// The indexes that the row is in, with its keys: those of the set by which it got them.
    fn keyed<'k, M: Medium>(
        &'k self,
        set: &'k IndexSet<M>,
    ) -> impl Iterator<Item = (&'k Member<M>, &'k Key)> {
        set.all().iter().zip(&self.keys).filter_map(|(index, key)| Some((index, key.as_ref()?)))
    }
}
