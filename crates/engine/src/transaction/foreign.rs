//! Foreign keys: what a statement has to find before it gives a row a parent, or takes a row from
//! its children.
//!
//! Both sides lock the parent's key. A statement holds the lock until others find what it has made:
//! the child, which needs its parent from then on, or the parent that is gone. What an open
//! transaction has made says so by itself, after a crash as well: a parent stays while an open
//! transaction has given it a child, or may get one back, and nobody gets a child of a parent that
//! an open transaction has made, or may take away.
//!
//! What is looked at later, when others find it already, is in `foreign_at_commit.rs`.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::ops::Taken;
use super::slots::HeldSlot;
use super::statement::Statement;
use super::statuses::Fate;
use super::unwritten::Made;
use super::view::View;
use super::wait::{Holder, Told};
use crate::engine::Engine;
use crate::foreign::ForeignKey;
use crate::index::{Index, IndexSet, Key, Keyed};
use crate::table::Table;
use crate::table::layout::{Pending, State};
use crate::table::ops::{Group, Head, RowPlace, key_cells};
use crate::table::version::Version;
use crate::{Error, Result};

/// What a statement has to find for a foreign key.
pub(super) struct Tie<M: Medium> {
    pub(super) kind: Kind,
    pub(super) of: Arc<ForeignKey<M>>,
    /// The table of the rows that are looked for.
    other: Arc<Table<M>>,
    /// By which they are found.
    key: Key,
    /// The key of the parent.
    pub(super) of_parent: Key,
    /// The row that is changed, which is not looked at; `None` if it is to be.
    own: Option<RowId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// There has to be a parent.
    Parent,
    /// There may be no child.
    NoChild,
    /// The same, and the row that is changed is one.
    IsItsOwnChild,
}

/// What a statement has to find for all foreign keys.
pub(super) type Ties<M> = SmallVec<[Tie<M>; 1]>;

/// Who is in the way of a statement, and what it wants.
pub(super) type InTheWay = (Holder, Box<Told>);

/// What is known of rows that may be a parent.
#[derive(Clone, Copy, Default)]
pub(super) struct Parents {
    /// One is there, and stays.
    pub(super) is_there: bool,
    /// The statement's transaction sees one.
    is_seen: bool,
    /// Who decides whether there is one.
    undecided: Option<Holder>,
}

impl<M: Medium> Tie<M> {
    /// That there has to be a parent with a key.
    pub(super) fn to_parent(of: &Arc<ForeignKey<M>>, parent: &Arc<Table<M>>, key: Key) -> Self {
        let (kind, of, other) = (Kind::Parent, Arc::clone(of), Arc::clone(parent));
        Tie { kind, of, other, of_parent: key.clone(), key, own: None }
    }

    /// What is to be locked.
    pub(super) fn lock(&self) -> (u32, u64) {
        self.of.lock_of(&self.of_parent)
    }

    /// The index by which the other rows are found, without columns that the foreign key has not.
    fn keyed<'k>(&'k self, index: &Index<M>) -> Keyed<'k> {
        let side = if self.kind == Kind::Parent { &self.of.parent } else { &self.of.child };
        Keyed { spec: &side.spec, needs_others: index.needs_others, key: &self.key }
    }

    #[cold]
    fn told(&self) -> (String, String, String) {
        let side = if self.kind == Kind::Parent { &self.of.parent } else { &self.of.child };
        let key = self.key.tell(&self.other.format, &side.spec);
        (self.other.name.clone(), side.spec.name.clone(), key)
    }

    #[cold]
    fn in_the_way(&self, holder: Holder) -> InTheWay {
        let (table, index, key) = self.told();
        (holder, Box::new(Told::Key { table, index, key }))
    }

    #[cold]
    fn overtaken(&self) -> Error {
        let (table, index, key) = self.told();
        Error::Overtaken { table, index, key }
    }

    #[cold]
    fn no_parent(&self, child: &Table<M>) -> Error {
        let (parent, _, key) = self.told();
        let (table, foreign_key) = (child.name.clone(), self.of.name.clone());
        Error::NoParent { table, foreign_key, key, parent }
    }

    #[cold]
    fn has_children(&self, parent: &Table<M>, row: RowId) -> Error {
        Error::HasChildren {
            table: parent.name.clone(),
            foreign_key: self.of.name.clone(),
            key: self.of_parent.tell(&parent.format, &self.of.parent.spec),
            child: self.other.name.clone(),
            row,
        }
    }
}

impl<M: Medium> Engine<M> {
    /// What a statement has to find before a row becomes what it says: nothing if that is looked at
    /// later.
    #[inline]
    pub(super) fn ties_at_once(
        &self,
        statement: &Statement<'_, '_, M>,
        table: &Table<M>,
        set: &IndexSet<M>,
        states: [Option<&[Group; 2]>; 2],
        row: RowId,
    ) -> Result<Ties<M>> {
        match set.foreign.is_empty() || statement.is_checked_later() {
            true => Ok(Ties::new()),
            false => {
                let is_author = self.statuses.is_author(statement.view.own);
                self.ties(table, (set, is_author), states, Some(row))
            }
        }
    }

    /// Refuses what speaks against a statement, or says who decides it. The caller has the locks.
    #[inline]
    pub(super) fn require_ties(
        &self,
        table: &Table<M>,
        ties: &Ties<M>,
        view: View,
    ) -> Result<Option<InTheWay>> {
        for tie in ties {
            let in_the_way = self.require_tie(table, tie, view)?;
            if in_the_way.is_some() {
                return Ok(in_the_way);
            }
        }
        Ok(None)
    }

    /// What has to be found before a row becomes `new` that was `old`; `None` if there is none.
    /// `own` is the row, if it is not what the indexes lead to: then it is not looked at, but for
    /// what it becomes.
    pub(super) fn ties(
        &self,
        table: &Table<M>,
        (set, is_author): (&IndexSet<M>, bool),
        [old, new]: [Option<&[Group; 2]>; 2],
        own: Option<RowId>,
    ) -> Result<Ties<M>> {
        let mut ties = Ties::new();
        // A value that is damaged keeps its row from what needs the value, and from no more.
        let [of_old, of_new] = [old, new].map(|of| of.map(key_cells));
        let cells = &table.format.cells;
        let changes = |column: &usize| match (of_old, of_new) {
            (Some(old), Some(new)) => cells.bytes_of(*column, old) != cells.bytes_of(*column, new),
            _ => true,
        };
        let counts = |of: &&Arc<ForeignKey<M>>| of.counts_for(is_author);
        let as_child =
            set.foreign.to_parents.iter().filter(counts).map(|of| (&of.child.columns, of_new));
        let as_parent =
            set.foreign.to_children.iter().filter(counts).map(|of| (&of.parent.columns, of_old));
        for (columns, needed) in as_child.chain(as_parent) {
            if let Some(cells) = needed.filter(|_| columns.iter().any(changes)) {
                table.require_values(columns, cells)?;
            }
        }
        for of in set.foreign.to_parents.iter().filter(counts) {
            let Some(parent) = of.parent.table() else { continue };
            let own = own.filter(|_| of.is_within_one_table());
            let key = |row: &[Group; 2]| of.key_of_parent(table, &parent, key_cells(row));
            let Some(wanted) = new.and_then(key) else { continue };
            let is_its_own = own.is_some()
                && new.and_then(|new| of.own_key(table, key_cells(new))).as_ref() == Some(&wanted);
            if old.and_then(key).as_ref() != Some(&wanted) && !is_its_own {
                ties.push(Tie { own, ..Tie::to_parent(of, &parent, wanted) });
            }
        }
        let Some(old) = old else { return Ok(ties) };
        for of in set.foreign.to_children.iter().filter(counts) {
            let Some(child) = of.child.table() else { continue };
            let own = own.filter(|_| of.is_within_one_table());
            let key = |row: &[Group; 2]| of.own_key(table, key_cells(row));
            let Some(lost) = key(old).filter(|lost| new.and_then(key).as_ref() != Some(lost))
            else {
                continue;
            };
            let Some(of_children) = of.key_of_children(table, &child, key_cells(old)) else {
                continue;
            };
            let is_its_own = own.is_some()
                && new.and_then(|new| of.key_of_parent(table, table, key_cells(new))).as_ref()
                    == Some(&lost);
            let kind = if is_its_own { Kind::IsItsOwnChild } else { Kind::NoChild };
            let set = child.indexes.load();
            let index = of.child.index_in(&child, &set)?;
            if index.spec.columns.len() > of.child.spec.columns.len() && !child.has_all_rows(index)
            {
                // Tiles that are not read are looked through for whole keys only.
                child.read_rest()?;
            }
            drop(set);
            let of = Arc::clone(of);
            ties.push(Tie { kind, of, other: child, key: of_children, of_parent: lost, own });
        }
        Ok(ties)
    }

    /// Refuses what speaks against a statement, or says who decides it. `table` is that of the row
    /// that is changed. The caller has the lock.
    pub(super) fn require_tie(
        &self,
        table: &Table<M>,
        tie: &Tie<M>,
        view: View,
    ) -> Result<Option<InTheWay>> {
        match (tie.kind, tie.own) {
            (Kind::Parent, _) => {
                let parents = self.parents(tie, view)?;
                match parents.undecided {
                    _ if parents.is_there && parents.is_seen => Ok(None),
                    _ if parents.is_there => Err(tie.overtaken()),
                    Some(holder) => Ok(Some(tie.in_the_way(holder))),
                    None if parents.is_seen && view.place.is_some() => Err(tie.overtaken()),
                    None => Err(tie.no_parent(table)),
                }
            }
            (Kind::IsItsOwnChild, Some(row)) => Err(tie.has_children(table, row)),
            (Kind::NoChild | Kind::IsItsOwnChild, _) => match self.child(tie, view)? {
                None => Ok(None),
                Some(Taken::Perhaps(holder)) => Ok(Some(tie.in_the_way(holder))),
                Some(Taken::Settled(row)) => Err(tie.has_children(table, row)),
                Some(Taken::Before) => Err(tie.overtaken()),
            },
        }
    }

    /// A row that refers to the key, or may refer to it once another transaction has ended.
    fn child(&self, tie: &Tie<M>, view: View) -> Result<Option<Taken>> {
        let child = &*tie.other;
        let set = child.indexes.load();
        let index = tie.of.child.index_in(child, &set)?;
        // What speaks against the statement in any case comes first: there is nothing to wait for.
        let mut perhaps = None;
        let settled = child.search(index, &tie.key, |row| match child.place(row) {
            Some(place) if Some(row) != tie.own => {
                let _pin = self.heap.pin();
                let taken = self.takes(child, tie.keyed(index), row, place, view)?;
                perhaps = perhaps.or(taken);
                Ok(taken.filter(|taken| matches!(taken, Taken::Settled(_))))
            }
            _ => Ok(None),
        })?;
        self.heap.verify()?;
        self.require_kept(view)?;
        Ok(settled.or(perhaps))
    }

    /// What is known of the rows that may have the key.
    pub(super) fn parents(&self, tie: &Tie<M>, view: View) -> Result<Parents> {
        let parent = &*tie.other;
        let set = parent.indexes.load();
        let index = tie.of.parent.index_in(parent, &set)?;
        let mut all = Parents { is_seen: view.place.is_none(), ..Parents::default() };
        parent.search(index, &tie.key, |row| match parent.place(row) {
            Some(place) if Some(row) != tie.own => {
                let _pin = self.heap.pin();
                let of_row = self.parent(parent, tie.keyed(index), row, place, view)?;
                all.is_there |= of_row.is_there;
                all.is_seen |= of_row.is_seen;
                all.undecided = all.undecided.or(of_row.undecided);
                Ok((all.is_there && all.is_seen).then_some(()))
            }
            _ => Ok(None),
        })?;
        self.heap.verify()?;
        self.require_kept(view)?;
        Ok(all)
    }

    /// What is known of one of them. The caller has a pin.
    fn parent(
        &self,
        table: &Table<M>,
        keyed: Keyed<'_>,
        row: RowId,
        place: RowPlace,
        view: View,
    ) -> Result<Parents> {
        loop {
            let before = table.head(place);
            let found = self.parent_as(before, table, keyed, row, place, view);
            // Otherwise it has changed meanwhile.
            if table.head(place) == before {
                return found;
            }
            self.medium().pause();
        }
    }

    /// The same for a row whose head is this one, unless it changes meanwhile.
    ///
    /// A statement that is changing the row, and has not made anything of it yet, does not matter:
    /// it locks the key before it takes it from the row, and finds the child.
    fn parent_as(
        &self,
        Head { committed, claim }: Head,
        table: &Table<M>,
        keyed: Keyed<'_>,
        row: RowId,
        place: RowPlace,
        view: View,
    ) -> Result<Parents> {
        let has_key = |of: &[Group; 2]| keyed.is_of(&table.format, of);
        let unwritten = claim.holder().and_then(|slot| {
            let (unwritten, name) = (&self.statuses.unwritten, (table.number, row));
            let states = |made: &Made| {
                (slot, made.all().any(has_key), made.is_always() && made.all().all(has_key))
            };
            unwritten.get(self.medium(), slot, name, states)
        });
        let pending = claim.as_pending();
        let fate = pending.and_then(|pending| self.statuses.fate(pending.by));
        let is_own = view.own.is_some_and(|id| {
            pending.is_some_and(|of| id.short() == of.by)
                || unwritten.is_some_and(|(slot, ..)| slot == id.slot)
        });
        if is_own {
            let is_there = self.sees_key(table, keyed, row, place, view)?;
            return Ok(Parents { is_there, is_seen: is_there, undecided: None });
        }
        let is_now = self.sees_key(table, keyed, row, place, View::NEWEST)?;
        let (mut some, mut all) = (is_now, is_now);
        if let Some((_, has_some, has_all)) = unwritten {
            (some, all) = (some || has_some, all && has_all);
        }
        if let Some(pending) = pending
            && fate == Some(Fate::Open)
        {
            let of = self.pending_have(table, keyed, place, (row, pending))?;
            (some, all) = (some || of.0, all && of.1);
        }
        // An insert on its way has its cells in the tile already.
        some |= pending.is_none()
            && unwritten.is_none()
            && claim.is_held(self.opens)
            && matches!(committed.state(), State::Free(_))
            && !claim.is_collectors()
            && has_key(&table.key_groups_in_tile(place, keyed.needs_others)?);
        let is_seen = view.place.is_some() && self.sees_key(table, keyed, row, place, view)?;
        // Whoever is told that there is no row finds none.
        let of_fate = match fate {
            Some(Fate::Committed(stamp)) => stamp,
            _ => 0,
        };
        let is_on_its_way = self.stamps.is_on_its_way(table.stamp_of(committed).max(of_fate));
        let undecided =
            (!all && (some || is_on_its_way)).then_some(Holder { slot: claim.holder() });
        Ok(Parents { is_there: all, is_seen, undecided })
    }

    /// Whether some states that an open transaction has given a row have a key, and whether all of
    /// them have it.
    fn pending_have(
        &self,
        table: &Table<M>,
        keyed: Keyed<'_>,
        place: RowPlace,
        (row, pending): (RowId, Pending),
    ) -> Result<(bool, bool)> {
        let (versions, inserted_by) = table.pending_versions(row, pending)?;
        let rows = versions.iter().copied().filter(|version| !version.is_removal);
        let rows: SmallVec<[Version; 4]> = rows.collect();
        let mut states = table.keys_of_versions(place, &rows, keyed.needs_others)?;
        if inserted_by.is_some() {
            states.push(table.key_groups_in_tile(place, keyed.needs_others)?);
        }
        let has_key = |of: &[Group; 2]| keyed.is_of(&table.format, of);
        let is_whole = rows.len() == versions.len();
        Ok((states.iter().any(has_key), is_whole && states.iter().all(has_key)))
    }

    /// Notes for a serializable transaction what it learns by the refusal of a statement that gives
    /// a row these keys: that another row has one of them, or what rows there are on the other side
    /// of a foreign key.
    pub(super) fn note_refusal<'k>(
        &self,
        slot: &HeldSlot<'_, M>,
        table: &Arc<Table<M>>,
        set: &IndexSet<M>,
        mut keyed: impl Iterator<Item = (&'k Index<M>, &'k Key)>,
        error: &Error,
    ) where
        M: 'k,
    {
        let Some(open) = slot.open().filter(|open| open.notes.is_some()) else { return };
        match error {
            Error::Unique { index: taken, .. } => {
                if let Some((index, key)) = keyed.find(|(index, _)| index.spec.name == *taken) {
                    open.note_key(self.medium(), table, index, key);
                }
            }
            Error::NoParent { .. } | Error::HasChildren { .. } => {
                let parents = set.foreign.to_parents.iter().filter_map(|of| of.parent.table());
                let children = set.foreign.to_children.iter().filter_map(|of| of.child.table());
                parents.chain(children).for_each(|other| open.note_all(self.medium(), &other));
            }
            _ => {}
        }
    }
}
