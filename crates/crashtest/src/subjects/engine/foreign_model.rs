//! The model of two tables with a foreign key: parents, and children that refer to them by name.
//! One transaction of several statements beside them, by snapshot isolation.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use remanent_crashsim::Rng;

/// Number of values that rows have.
pub(super) const VALUES: u64 = 3;

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    Parents,
    Children,
}

/// A row: its table, and its primary key.
pub(super) type RowKey = (Side, u64);

/// Names and values of all rows. That of a child is the name of its parent.
pub(super) type Families = BTreeMap<RowKey, (Option<u64>, u64)>;

/// A statement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statement {
    Insert(RowKey, Option<u64>),
    /// Gives a row this name, and the value behind its own.
    Rename(RowKey, Option<u64>),
    Delete(RowKey),
}

impl Statement {
    /// Draws one, for so many primary keys and names.
    pub(super) fn draw(rng: &mut Rng, keys: u64, names: u64) -> Self {
        let side = if rng.below(5) < 2 { Side::Parents } else { Side::Children };
        let row = (side, rng.below(keys));
        let name = (rng.below(8) != 0).then(|| rng.below(names));
        match rng.below(6) {
            0..=2 => Statement::Insert(row, name),
            3 | 4 => Statement::Rename(row, name),
            _ => Statement::Delete(row),
        }
    }
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) rows: Families,
    pub(super) open: Option<Open>,
    /// The foreign key was dropped.
    pub(super) is_dropped: bool,
    /// Tables whose index for the foreign key is in DRAM.
    pub(super) in_dram: BTreeSet<Side>,
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// Statements that took effect.
    pub(super) statement: u32,
    /// The rows that it sees.
    pub(super) rows: Families,
    /// Those that it saw when it began. Not observed.
    began_with: Families,
    /// Rows that it has changed, and whether one was there before. Not observed.
    pending: BTreeMap<RowKey, bool>,
    /// Its statements that were not taken back; rows, and those changed, behind each one. Not
    /// observed.
    history: Vec<(u32, Families, BTreeMap<RowKey, bool>)>,
    /// Rows that others have changed since it began. Not observed.
    overtaken: BTreeSet<RowKey>,
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        (self.statement, &self.rows) == (other.statement, &other.rows)
    }
}

impl Eq for Open {}

impl Hash for Open {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.statement, &self.rows).hash(state);
    }
}

/// Whether some row but `own` has a name.
fn has(rows: &Families, side: Side, own: Option<RowKey>, name: u64) -> bool {
    let mut all = rows.iter().filter(|(row, _)| row.0 == side && Some(**row) != own);
    all.any(|(_, (of, _))| *of == Some(name))
}

/// What statements are judged by: committed rows, and the transaction that is in their way.
#[derive(Clone, Copy)]
struct Beside<'s> {
    committed: &'s Families,
    other: Option<&'s Open>,
    has_key: bool,
}

impl Beside<'_> {
    /// Whether a parent with a name is there and stays, for a transaction.
    fn is_there(&self, own: &Open, name: u64) -> bool {
        let is_parent = |row: &RowKey| row.0 == Side::Parents;
        let of_own = own.rows.iter().filter(|(row, _)| own.pending.contains_key(row));
        let of_others = self.committed.iter().filter(|(row, _)| {
            let other = self.other.is_none_or(|other| other.always_has(**row, name));
            !own.pending.contains_key(row) && other
        });
        let mut all = of_own.chain(of_others).filter(|(row, _)| is_parent(row));
        all.any(|(_, (of, _))| *of == Some(name))
    }

    /// Whether a child of a parent with a name can be made.
    fn allows_child(&self, own: &Open, name: Option<u64>) -> bool {
        let Some(name) = name.filter(|_| self.has_key) else { return true };
        self.is_there(own, name) && has(&own.rows, Side::Parents, None, name)
    }

    /// Whether a parent can lose a name.
    fn allows_end(&self, own: &Open, name: Option<u64>) -> bool {
        let Some(name) = name.filter(|_| self.has_key) else { return true };
        let is_child = |rows: &Families| has(rows, Side::Children, None, name);
        let of_other = self.other.is_some_and(|other| other.may_have_child(name));
        !is_child(&own.rows) && !is_child(&own.newest(self.committed)) && !of_other
    }

    /// Whether all of what a transaction has changed can be committed together.
    fn allows_all(&self, before: &Families, after: &Open, inserted: &BTreeSet<RowKey>) -> bool {
        let keys: BTreeSet<RowKey> = before.keys().chain(after.rows.keys()).copied().collect();
        keys.into_iter().all(|row| {
            let name = |rows: &Families| rows.get(&row).and_then(|(name, _)| *name);
            let (lost, got) = (name(before), name(&after.rows));
            match row.0 {
                Side::Children if got != lost || inserted.contains(&row) => {
                    self.allows_child(after, got)
                }
                Side::Parents if got != lost => {
                    let has_another = lost.is_some_and(|name| self.is_there(after, name));
                    has_another || self.allows_end(after, lost)
                }
                _ => true,
            }
        })
    }
}

impl Open {
    /// What an observer finds.
    pub(super) fn observed(statement: u32, rows: Families) -> Self {
        Open { statement, rows, ..Open::default() }
    }

    /// One that begins now.
    fn on(committed: &Families) -> Self {
        Open { rows: committed.clone(), began_with: committed.clone(), ..Open::default() }
    }

    /// The newest rows that it may change: its own, and what was committed of others.
    fn newest(&self, committed: &Families) -> Families {
        let others = committed.iter().filter(|(row, _)| !self.pending.contains_key(row));
        let own = self.rows.iter().filter(|(row, _)| self.pending.contains_key(row));
        others.chain(own).map(|(row, cells)| (*row, *cells)).collect()
    }

    /// The rows that it has changed, in each state that may come back.
    fn states(&self) -> impl Iterator<Item = (&Families, &BTreeMap<RowKey, bool>)> {
        self.history.iter().map(|(_, rows, pending)| (rows, pending))
    }

    /// Whether a row has a name in all of them, if it has changed the row.
    fn always_has(&self, row: RowKey, name: u64) -> bool {
        let has_name = |rows: &Families| rows.get(&row).is_some_and(|(of, _)| *of == Some(name));
        self.states().all(|(rows, pending)| !pending.contains_key(&row) || has_name(rows))
    }

    /// Whether a child of a parent with a name is in one of them.
    fn may_have_child(&self, name: u64) -> bool {
        self.takes(Side::Children, None, Some(name))
    }

    /// Whether a row with one of these keys is in one of them.
    fn takes(&self, side: Side, row: Option<RowKey>, name: Option<u64>) -> bool {
        self.states().any(|(rows, pending)| {
            let mut own = rows.iter().filter(|(row, _)| pending.contains_key(row));
            own.any(|(of, (of_name, _))| {
                Some(*of) == row || of.0 == side && name.is_some() && *of_name == name
            })
        })
    }

    /// Whether it keeps a statement of another transaction, which sees these rows, from doing
    /// something, but for foreign keys.
    fn refuses(&self, seen: &Families, statement: Statement) -> bool {
        let unique = |side, name: Option<u64>| name.filter(|_| side == Side::Parents);
        match statement {
            Statement::Insert(row, name) => self.takes(row.0, Some(row), unique(row.0, name)),
            Statement::Rename(row, name) => seen.get(&row).is_some_and(|(before, _)| {
                self.pending.contains_key(&row)
                    || name != *before && self.takes(row.0, None, unique(row.0, name))
            }),
            Statement::Delete(row) => seen.contains_key(&row) && self.pending.contains_key(&row),
        }
    }

    /// Makes a statement; `None` if there is no such row, and false if it is refused. If it is one
    /// of several, foreign keys are looked at later.
    fn apply(&mut self, beside: Beside<'_>, statement: Statement, is_part: bool) -> Option<bool> {
        let newest = self.newest(beside.committed);
        let is_taken = |side, own, name: Option<u64>| {
            let is_in = |rows| name.is_some_and(|name| has(rows, side, own, name));
            side == Side::Parents && (is_in(&self.rows) || is_in(&newest))
        };
        let (row, cells) = match statement {
            Statement::Insert(row, name) => {
                let is_there = self.rows.contains_key(&row) || newest.contains_key(&row);
                if is_there || is_taken(row.0, None, name) {
                    return Some(false);
                }
                (row, Some((name, 0)))
            }
            Statement::Rename(row, name) => {
                let (before, value) = *self.rows.get(&row)?;
                let is_refused = name != before && is_taken(row.0, Some(row), name);
                if self.is_overtaken(row) || is_refused {
                    return Some(false);
                }
                (row, Some((name, (value + 1) % VALUES)))
            }
            Statement::Delete(row) => {
                self.rows.get(&row)?;
                if self.is_overtaken(row) {
                    return Some(false);
                }
                (row, None)
            }
        };
        let before = self.rows.get(&row).and_then(|(name, _)| *name);
        let after = cells.and_then(|(name, _)| name);
        let is_allowed = match row.0 {
            _ if is_part || before == after => true,
            Side::Children => beside.allows_child(self, after),
            Side::Parents => beside.allows_end(self, before),
        };
        if !is_allowed {
            return Some(false);
        }
        self.change(row, cells);
        Some(true)
    }

    fn change(&mut self, row: RowKey, cells: Option<(Option<u64>, u64)>) {
        let was_there = self.rows.contains_key(&row);
        match cells {
            Some(cells) => drop(self.rows.insert(row, cells)),
            None => drop(self.rows.remove(&row)),
        }
        let had_one = *self.pending.entry(row).or_insert(was_there);
        if cells.is_none() && !had_one {
            // Nobody ever saw it.
            self.pending.remove(&row);
        }
        self.statement += 1;
    }

    /// Makes a statement that counts by itself. Foreign keys may be looked at later.
    fn apply_one(
        &mut self,
        beside: Beside<'_>,
        statement: Statement,
        is_checked_later: bool,
    ) -> Option<bool> {
        let before = self.statement;
        let done = self.apply(beside, statement, is_checked_later);
        self.note_statement(before);
        done
    }

    /// Makes statements that count as one; false if they are refused. Foreign keys may be looked at
    /// later.
    fn apply_batch(
        &mut self,
        beside: Beside<'_>,
        statements: &[Statement],
        is_checked_later: bool,
    ) -> bool {
        let mut open = self.clone();
        let mut inserted = BTreeSet::new();
        for &statement in statements {
            match (open.apply(beside, statement, true), statement) {
                (Some(false), _) => return false,
                (Some(true), Statement::Insert(row, _)) => drop(inserted.insert(row)),
                _ => {}
            }
        }
        if !is_checked_later && !beside.allows_all(&self.rows, &open, &inserted) {
            return false;
        }
        // A row that has been changed back is free again.
        let is_removed = |row: RowKey| {
            statements.iter().any(|of| matches!(of, Statement::Delete(gone) if *gone == row))
        };
        open.pending.retain(|row, _| {
            self.pending.contains_key(row)
                || is_removed(*row)
                || open.rows.get(row) != self.rows.get(row)
        });
        open.statement = self.statement + u32::from(open.statement > self.statement);
        open.note_statement(self.statement);
        *self = open;
        true
    }

    /// Remembers how it is behind a statement.
    fn note_statement(&mut self, before: u32) {
        if self.statement > before {
            self.history.push((self.statement, self.rows.clone(), self.pending.clone()));
        }
    }

    /// Takes back what came behind a statement.
    fn take_back(&mut self, to: u32) {
        if to < self.statement {
            self.history.retain(|(statement, ..)| *statement <= to);
            let first = (0, self.began_with.clone(), BTreeMap::new());
            let (_, rows, pending) = self.history.last().cloned().unwrap_or(first);
            (self.rows, self.pending) = (rows, pending);
            self.statement += 1;
            self.note_statement(self.statement - 1);
        }
    }

    fn is_overtaken(&self, row: RowKey) -> bool {
        self.overtaken.contains(&row) && !self.pending.contains_key(&row)
    }

    /// Another one has changed rows.
    fn overtake(&mut self, before: &Families, after: &Families) {
        let changed = before.iter().filter(|(row, cells)| after.get(row) != Some(cells));
        self.overtaken.extend(changed.map(|(row, _)| *row));
    }
}

impl State {
    fn beside<'s>(&'s self, other: Option<&'s Open>) -> Beside<'s> {
        Beside { committed: &self.rows, other, has_key: !self.is_dropped }
    }

    /// A statement that is a transaction.
    pub(super) fn alone(&mut self, statement: Statement) -> Option<bool> {
        if self.open.as_ref().is_some_and(|open| open.refuses(&self.rows, statement)) {
            return Some(false);
        }
        let mut own = Open::on(&self.rows);
        let done = own.apply(self.beside(self.open.as_ref()), statement, false);
        self.commit(own, &BTreeSet::new());
        done
    }

    /// Commits what a transaction beside the open one has changed.
    fn commit(&mut self, own: Open, removed: &BTreeSet<RowKey>) {
        let before = std::mem::take(&mut self.rows);
        self.rows = own.newest(&before);
        if let Some(open) = &mut self.open {
            open.overtake(&before, &self.rows);
            // Even if another one with the same cells took its place.
            open.overtaken.extend(removed);
        }
    }

    /// A statement of the open transaction, which begins if there is none.
    pub(super) fn within(&mut self, statement: Statement, is_checked_later: bool) -> Option<bool> {
        let mut open = self.open.take().unwrap_or_else(|| Open::on(&self.rows));
        let done = open.apply_one(self.beside(None), statement, is_checked_later);
        self.open = (open.statement > 0).then_some(open);
        done
    }

    /// Statements of the open transaction that count as one. It begins if there is none.
    pub(super) fn batch(&mut self, statements: &[Statement], is_checked_later: bool) -> bool {
        let mut open = self.open.take().unwrap_or_else(|| Open::on(&self.rows));
        let done = open.apply_batch(self.beside(None), statements, is_checked_later);
        self.open = (open.statement > 0).then_some(open);
        done
    }

    /// The last statement of the open transaction.
    pub(super) fn commit_with(&mut self, statement: Statement) -> Option<bool> {
        let mut open = self.open.take()?;
        let done = open.apply_one(self.beside(None), statement, false);
        match done {
            Some(false) => self.open = Some(open),
            _ => self.rows = open.newest(&self.rows),
        }
        done
    }

    /// Ends the open transaction; whether there is one.
    pub(super) fn end(&mut self, is_commit: bool) -> bool {
        let Some(open) = self.open.take() else { return false };
        if is_commit {
            self.rows = open.newest(&self.rows);
        }
        true
    }

    /// Commits the open transaction, which has not looked at foreign keys; whether that is done. If
    /// they speak against it, it is given up.
    pub(super) fn commit_checked(&mut self) -> bool {
        let is_commit = self.is_allowed() == Some(true);
        self.end(is_commit) && is_commit
    }

    /// Whether the commit of the open transaction, which has not looked at foreign keys, would be
    /// done. `None` if there is none.
    pub(super) fn is_allowed(&self) -> Option<bool> {
        let open = self.open.as_ref()?;
        Some(self.beside(None).allows_all(&open.began_with, open, &BTreeSet::new()))
    }

    /// Takes back what the open transaction has done behind a statement. `None` if there is none.
    pub(super) fn take_back(&mut self, to: u32) -> Option<bool> {
        self.open.as_mut()?.take_back(to);
        Some(true)
    }

    /// A transaction that is durable at its commit, beside the open one. How its statements went;
    /// `None` if its commit is refused.
    pub(super) fn at_commit(
        &mut self,
        statements: &[Statement],
        is_commit: bool,
    ) -> Option<Vec<Option<bool>>> {
        let mut own = Open::on(&self.rows);
        let (mut removed, mut inserted) = (BTreeSet::new(), BTreeSet::new());
        let mut answers = Vec::new();
        let beside = self.beside(self.open.as_ref());
        for &statement in statements {
            let is_refused =
                self.open.as_ref().is_some_and(|open| open.refuses(&own.rows, statement));
            let done = if is_refused { Some(false) } else { own.apply(beside, statement, true) };
            match (statement, done) {
                (Statement::Delete(row), Some(true)) => drop(removed.insert(row)),
                (Statement::Insert(row, _), Some(true)) => drop(inserted.insert(row)),
                _ => {}
            }
            answers.push(done);
        }
        if is_commit {
            if !beside.allows_all(&self.rows, &own, &inserted) {
                return None;
            }
            self.commit(own, &removed);
        }
        Some(answers)
    }

    /// A transaction of threads, which is committed if each of its statements is made. `None` if
    /// one of the rows is not there.
    pub(super) fn work(&mut self, statements: &[Statement], is_together: bool) -> Option<bool> {
        let mut own = Open::on(&self.rows);
        let mut inserted = BTreeSet::new();
        for &statement in statements {
            let beside = self.beside(None);
            match own.apply(beside, statement, is_together) {
                Some(true) => {}
                done => return done,
            }
            if let Statement::Insert(row, _) = statement {
                inserted.insert(row);
            }
        }
        if is_together && !self.beside(None).allows_all(&self.rows, &own, &inserted) {
            return Some(false);
        }
        self.rows = own.newest(&self.rows);
        Some(true)
    }

    /// Adds the foreign key, or drops it; whether that is done.
    pub(super) fn set_key(&mut self, is_there: bool) -> bool {
        if is_there != self.is_dropped {
            return false;
        }
        if is_there {
            let beside = Beside { has_key: true, ..self.beside(self.open.as_ref()) };
            let nobody = Open::default();
            let of_open = self.open.iter().flat_map(Open::states).flat_map(|(rows, pending)| {
                rows.iter().filter(|(row, _)| pending.contains_key(row))
            });
            let mut all = self.rows.iter().chain(of_open);
            let is_orphan = |(row, (name, _)): (&RowKey, &(Option<u64>, u64))| {
                row.0 == Side::Children && name.is_some_and(|name| !beside.is_there(&nobody, name))
            };
            if all.any(is_orphan) {
                return false;
            }
        }
        self.is_dropped = !is_there;
        true
    }
}
