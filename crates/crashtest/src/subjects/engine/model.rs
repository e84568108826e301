//! The model: tables, and beside them a transaction of several statements, by snapshot isolation,
//! where the first writer wins.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use super::columns;
use super::online::Indexes;
use super::rows::{Rows, Statement, VALUES, answer_number, answer_taken};
use super::subject::Op;
use crate::answer::Answer;

/// The tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) first: Rows,
    pub(super) others: BTreeMap<u64, Rows>,
    pub(super) open: Option<Open>,
    pub(super) indexes: Indexes,
    /// Columns that were added to the first table.
    pub(super) columns: u64,
}

impl State {
    /// The same after a crash, which takes locks away.
    pub(super) fn without_locks(mut self) -> Self {
        if let Some(open) = &mut self.open {
            open.locked.clear();
        }
        self
    }

    /// Executes an operation.
    pub(super) fn apply(&mut self, op: &Op) -> Answer<Rows> {
        if needed_columns(op) > self.columns {
            return Answer::None;
        }
        if let Op::AddColumn = op {
            return Answer::Bool(columns::add_to_model(&mut self.columns));
        }
        if let Op::Create(table) = *op {
            let is_new = self.rows(table).is_none();
            if is_new {
                self.others.insert(table, Rows::new());
            }
            return Answer::Bool(is_new);
        }
        if let Op::Drop(table) = op {
            return Answer::Bool(self.others.remove(table).is_some());
        }
        if let Op::Collect = op {
            return Answer::None;
        }
        if let Op::OnIndex(op) = *op {
            let done = self.indexes.apply(self.open.is_some(), self.columns, op);
            return done.map_or(Answer::None, Answer::Bool);
        }
        if let Some(answer) = self.apply_to_transaction(op) {
            return answer;
        }
        if let Op::FindOnline(value) = *op {
            return match self.indexes.has_values() {
                true => alone(self, 0, &Op::FindByValue(0, value)),
                false => Answer::None,
            };
        }
        let (Op::Create(table)
        | Op::Insert(table, ..)
        | Op::Update(table, ..)
        | Op::UpdateBehind(table, ..)
        | Op::Upsert(table, ..)
        | Op::FoldBetween(table, ..)
        | Op::Delete(table, _)
        | Op::DeleteByCode(table, _)
        | Op::Get(table, _)
        | Op::GetByCode(table, _)
        | Op::FindByValue(table, _)
        | Op::Range(table, ..)
        | Op::Scan(table)) = *op
        else {
            unreachable!("answered above");
        };
        if self.is_in_the_way(op) {
            return Answer::Bool(false);
        }
        let before = self.open.is_some().then(|| self.first.clone());
        let answer = alone(self, table, op);
        if let (Some(open), Some(before)) = (&mut self.open, before) {
            open.overtake(&before, &self.first, &BTreeSet::new());
        }
        answer
    }

    /// An operation on the open transaction; `None` if it is another one.
    fn apply_to_transaction(&mut self, op: &Op) -> Option<Answer<Rows>> {
        let answer = |done: Option<bool>| done.map_or(Answer::None, Answer::Bool);
        Some(match *op {
            Op::Within(statement) => {
                let mut open = self.open.take().unwrap_or_else(|| Open::on(&self.first));
                let done = open.apply(&self.first, statement);
                self.open = (open.statement > 0).then_some(open);
                answer(done)
            }
            Op::CommitWith(statement) => {
                let Some(mut open) = self.open.take() else { return Some(Answer::None) };
                let done = open.apply(&self.first, statement);
                match done {
                    Some(false) => self.open = Some(open),
                    _ => self.first = open.commit(&self.first),
                }
                answer(done)
            }
            Op::TakeBack(to) => answer(self.open.as_mut().map(|open| open.take_back(to))),
            Op::Lock(id) => answer(self.open.as_mut().and_then(|open| open.lock(id))),
            Op::Commit | Op::Abort => {
                let Some(open) = self.open.take() else { return Some(Answer::Bool(false)) };
                if let Op::Commit = op {
                    self.first = open.commit(&self.first);
                }
                Answer::Bool(true)
            }
            Op::Batch(ref statements) => {
                let mut open = self.open.take().unwrap_or_else(|| Open::on(&self.first));
                let done = open.apply_batch(&self.first, statements);
                self.open = (open.statement > 0).then_some(open);
                Answer::Bool(done)
            }
            Op::AtCommit(ref statements, is_commit) => self.at_commit(statements, is_commit),
            Op::Transfer(from, to, ..) => {
                let is_there = [from, to].iter().all(|id| self.first.contains_key(id));
                for id in [from, to].into_iter().filter(|_| is_there) {
                    let row = self.first.get_mut(&id).expect("it is there");
                    row.1 = (row.1 + 1) % VALUES;
                }
                Answer::Bool(is_there)
            }
            Op::Take(id) => Answer::Bool(self.first.remove(&id).is_some()),
            Op::Work(ref work) => work.apply_to_model(&mut self.first),
            _ => return None,
        })
    }

    /// A transaction beside the open one, from its beginning to its end.
    fn at_commit(&mut self, statements: &[Statement], is_commit: bool) -> Answer<Rows> {
        let mut own = Open::on(&self.first);
        let mut answers = Rows::new();
        for (number, &statement) in (0..).zip(statements) {
            let is_refused = self.open.as_ref().is_some_and(|open| open.refuses(&own, statement));
            let done = if is_refused { Some(false) } else { own.apply(&self.first, statement) };
            answers.insert(number, (None, answer_number(done)));
        }
        if is_commit {
            let before = std::mem::take(&mut self.first);
            let removed = own.removed.clone();
            self.first = own.commit(&before);
            if let Some(open) = &mut self.open {
                open.overtake(&before, &self.first, &removed);
            }
        }
        Answer::Value(answers)
    }

    /// Whether the open transaction keeps a statement of others from doing something.
    fn is_in_the_way(&self, op: &Op) -> bool {
        let Some(open) = &self.open else { return false };
        let row_of = |code| self.first.iter().find(|(_, (of, _))| *of == Some(code));
        match *op {
            Op::Insert(0, id, code, _) => open.takes(Some(id), code),
            Op::Upsert(0, id, code, _) => match self.first.contains_key(&id) {
                true => open.holds(id),
                false => open.takes(Some(id), code),
            },
            Op::Update(0, id, code, _) => match self.first.get(&id) {
                Some((before, _)) => open.holds(id) || code != *before && open.takes(None, code),
                None => false,
            },
            Op::Delete(0, id) => self.first.contains_key(&id) && open.holds(id),
            Op::DeleteByCode(0, code) => row_of(code).is_some_and(|(id, _)| open.holds(*id)),
            _ => false,
        }
    }

    fn rows(&mut self, table: u64) -> Option<&mut Rows> {
        if table == 0 { Some(&mut self.first) } else { self.others.get_mut(&table) }
    }
}

/// Changes a row unless another one has its second key.
fn update_model(rows: &mut Rows, id: u64, code: Option<u64>, value: u64) -> bool {
    let is_taken =
        code.is_some() && rows.iter().any(|(other, (of, _))| *other != id && *of == code);
    if !is_taken {
        let before = rows.get(&id).map_or(0, |(_, value)| *value);
        rows.insert(id, (code, columns::changed(before, value)));
    }
    !is_taken
}

/// A statement that is a transaction, or a read.
fn alone(state: &mut State, table: u64, op: &Op) -> Answer<Rows> {
    let Some(rows) = state.rows(table) else { return Answer::None };
    let only = |keep: &dyn Fn(u64, Option<u64>, u64) -> bool| {
        let kept = rows.iter().filter(|(id, (code, value))| keep(**id, *code, *value));
        Answer::Value(kept.map(|(id, others)| (*id, *others)).collect())
    };
    match *op {
        Op::Update(_, id, code, value) => match rows.contains_key(&id) {
            true => Answer::Bool(update_model(rows, id, code, value)),
            false => Answer::None,
        },
        Op::UpdateBehind(_, id, code, value) => {
            let before = rows.get(&id).map(|others| (id, *others));
            match before.is_none() || update_model(rows, id, code, value) {
                true => Answer::Value(before.into_iter().collect()),
                false => Answer::Bool(false),
            }
        }
        Op::FoldBetween(_, id, _, second) => {
            if rows.contains_key(&id) {
                update_model(rows, id, None, second);
            }
            Answer::None
        }
        Op::Upsert(_, id, code, value) => {
            // A row that is there keeps its second key.
            let code = rows.get(&id).map_or(code, |(of, _)| *of);
            Answer::Bool(update_model(rows, id, code, value))
        }
        Op::Delete(_, id) => answer_taken(rows.remove_entry(&id)),
        Op::DeleteByCode(_, number) => {
            let with_code = |(_, (code, _)): &(&u64, &(Option<u64>, u64))| *code == Some(number);
            let id = rows.iter().find(with_code).map(|(id, _)| *id);
            Answer::Bool(id.is_some_and(|id| rows.remove(&id).is_some()))
        }
        Op::Insert(_, id, code, value) => {
            let is_taken = rows.contains_key(&id)
                || code.is_some() && rows.values().any(|(other, _)| *other == code);
            if !is_taken {
                rows.insert(id, (code, columns::inserted(value)));
            }
            Answer::Bool(!is_taken)
        }
        Op::Get(_, wanted) => only(&|id, _, _| id == wanted),
        Op::GetByCode(_, wanted) => only(&|_, code, _| code == Some(wanted)),
        Op::FindByValue(_, wanted) => only(&|_, _, value| value % VALUES == wanted),
        Op::Range(_, least, greatest, _) => {
            only(&|_, _, value| (least..=greatest).contains(&(value % VALUES)))
        }
        Op::Scan(_) => only(&|_, _, _| true),
        _ => unreachable!("answered above"),
    }
}

/// An open transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Open {
    /// Statements that took effect.
    pub(super) statement: u32,
    /// The rows that it sees.
    pub(super) rows: Rows,
    /// Those that it saw when it began. Not observed.
    began_with: Rows,
    /// Keys of rows that it has changed, and whether one was there before. Not observed.
    pending: BTreeMap<u64, bool>,
    /// Its statements that were not taken back; rows, and keys, behind each one. Not observed.
    history: Vec<(u32, Rows, BTreeMap<u64, bool>)>,
    /// Keys of rows that it has removed, even if it has inserted others with them. Not observed.
    pub(super) removed: BTreeSet<u64>,
    /// Keys of rows that it has locked. Not observed.
    locked: BTreeSet<u64>,
    /// Keys of rows that others have changed since it began. Not observed.
    overtaken: BTreeSet<u64>,
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

/// Whether some row but that with `own` has one of the keys.
fn has(rows: &Rows, own: Option<u64>, id: Option<u64>, code: Option<u64>) -> bool {
    let others = || rows.iter().filter(|(other, _)| Some(**other) != own);
    id.is_some_and(|id| rows.contains_key(&id))
        || code.is_some() && others().any(|(_, (of, _))| *of == code)
}

impl Open {
    /// What an observer finds.
    pub(super) fn observed(statement: u32, rows: Rows) -> Self {
        Open { statement, rows, ..Open::default() }
    }

    /// One that begins now.
    pub(super) fn on(committed: &Rows) -> Self {
        Open { rows: committed.clone(), began_with: committed.clone(), ..Open::default() }
    }

    /// The newest rows that it may change: its own, and what was committed of others.
    fn newest(&self, committed: &Rows) -> Rows {
        let others = committed.iter().filter(|(id, _)| !self.pending.contains_key(id));
        let own = self.rows.iter().filter(|(id, _)| self.pending.contains_key(id));
        others.chain(own).map(|(id, row)| (*id, *row)).collect()
    }

    /// What an upsert is: an insert, or an update that leaves the second key.
    fn plain(&self, statement: Statement) -> Statement {
        let Statement::Upsert(id, code, value) = statement else { return statement };
        match self.rows.get(&id) {
            Some((before, _)) => Statement::Update(id, *before, value),
            None => Statement::Insert(id, code, value),
        }
    }

    /// Makes a statement; `None` if there is no such row, and false if it is refused.
    pub(super) fn apply(&mut self, committed: &Rows, statement: Statement) -> Option<bool> {
        let before = self.statement;
        let done = self.apply_one(committed, statement);
        self.note_statement(before);
        done
    }

    /// Remembers how it is behind a statement.
    fn note_statement(&mut self, before: u32) {
        if self.statement > before {
            self.history.push((self.statement, self.rows.clone(), self.pending.clone()));
        }
    }

    /// Takes back what came behind a statement.
    fn take_back(&mut self, to: u32) -> bool {
        if to < self.statement {
            self.history.retain(|(statement, ..)| *statement <= to);
            let first = (0, self.began_with.clone(), BTreeMap::new());
            let (_, rows, pending) = self.history.last().cloned().unwrap_or(first);
            (self.rows, self.pending) = (rows, pending);
            self.statement += 1;
            self.note_statement(self.statement - 1);
        }
        true
    }

    fn apply_one(&mut self, committed: &Rows, statement: Statement) -> Option<bool> {
        let newest = self.newest(committed);
        let is_taken =
            |own, id, code| has(&self.rows, own, id, code) || has(&newest, own, id, code);
        let (id, row) = match self.plain(statement) {
            Statement::Upsert(..) => unreachable!("it is one of the others"),
            Statement::Insert(id, code, value) => {
                if is_taken(None, Some(id), code) {
                    return Some(false);
                }
                (id, Some((code, columns::inserted(value))))
            }
            Statement::Update(id, code, value) => {
                let before = *self.rows.get(&id)?;
                let value = columns::changed(before.1, value);
                if self.is_overtaken(id) {
                    return Some(false);
                }
                if before == (code, value) {
                    return Some(true);
                }
                if code != before.0 && is_taken(Some(id), None, code) {
                    return Some(false);
                }
                (id, Some((code, value)))
            }
            Statement::Delete(id) => {
                self.rows.get(&id)?;
                if self.is_overtaken(id) {
                    return Some(false);
                }
                self.removed.insert(id);
                (id, None)
            }
        };
        let was_there = self.rows.contains_key(&id);
        match row {
            Some(row) => drop(self.rows.insert(id, row)),
            None => drop(self.rows.remove(&id)),
        }
        let had_one = *self.pending.entry(id).or_insert(was_there);
        if row.is_none() && !had_one {
            // Nobody ever saw it.
            self.pending.remove(&id);
        }
        self.statement += 1;
        Some(true)
    }

    /// Makes statements that count as one; false if they are refused.
    fn apply_batch(&mut self, committed: &Rows, statements: &[Statement]) -> bool {
        let mut open = self.clone();
        if statements.iter().any(|of| open.apply_one(committed, *of) == Some(false)) {
            return false;
        }
        // A row that has been changed back is free again.
        let is_removed = |id: u64| {
            statements.iter().any(|of| matches!(of, Statement::Delete(gone) if *gone == id))
        };
        open.pending.retain(|id, _| {
            self.pending.contains_key(id)
                || is_removed(*id)
                || open.rows.get(id) != self.rows.get(id)
        });
        open.statement = self.statement + u32::from(open.statement > self.statement);
        open.note_statement(self.statement);
        *self = open;
        true
    }

    /// Whether it keeps a statement of another transaction from doing something.
    pub(super) fn refuses(&self, other: &Open, statement: Statement) -> bool {
        match other.plain(statement) {
            Statement::Upsert(..) => unreachable!("it is one of the others"),
            Statement::Insert(id, code, _) => self.takes(Some(id), code),
            Statement::Update(id, code, _) => other.rows.get(&id).is_some_and(|(before, _)| {
                self.holds(id) || code != *before && self.takes(None, code)
            }),
            Statement::Delete(id) => other.rows.contains_key(&id) && self.holds(id),
        }
    }

    /// Locks a row; `None` if there is no such row, and false if it is refused.
    fn lock(&mut self, id: u64) -> Option<bool> {
        self.rows.get(&id)?;
        let is_free = !self.is_overtaken(id);
        if is_free && !self.pending.contains_key(&id) {
            self.locked.insert(id);
        }
        Some(is_free)
    }

    fn is_overtaken(&self, id: u64) -> bool {
        self.overtaken.contains(&id) && !self.pending.contains_key(&id)
    }

    /// What is committed once it is.
    pub(super) fn commit(self, committed: &Rows) -> Rows {
        self.newest(committed)
    }

    /// Whether it keeps others from changing a row that is there.
    pub(super) fn holds(&self, id: u64) -> bool {
        self.pending.contains_key(&id) || self.locked.contains(&id)
    }

    /// Whether it keeps others from giving a row one of the keys: in any state that may come back.
    pub(super) fn takes(&self, id: Option<u64>, code: Option<u64>) -> bool {
        let mut states = self.history.iter().map(|(_, rows, pending)| (rows, pending));
        states.any(|(rows, pending)| {
            let own = rows.iter().filter(|(id, _)| pending.contains_key(id));
            has(&own.map(|(id, row)| (*id, *row)).collect(), None, id, code)
        })
    }

    /// Another one has changed rows, and removed some: even if it has others with the same cells in
    /// their places.
    pub(super) fn overtake(&mut self, before: &Rows, after: &Rows, removed: &BTreeSet<u64>) {
        let changed = before.iter().filter(|(id, row)| after.get(id) != Some(row));
        self.overtaken.extend(changed.map(|(id, _)| *id).chain(removed.iter().copied()));
    }
}

/// Number of added columns that an operation needs. Without them it does nothing.
pub(super) fn needed_columns(op: &Op) -> u64 {
    let of_statement = |statement: &Statement| match *statement {
        Statement::Insert(.., number)
        | Statement::Update(.., number)
        | Statement::Upsert(.., number) => columns::needed(number),
        Statement::Delete(_) => 0,
    };
    match op {
        Op::Insert(.., number)
        | Op::Update(.., number)
        | Op::UpdateBehind(.., number)
        | Op::Upsert(.., number) => columns::needed(*number),
        Op::FoldBetween(.., first, second) => columns::needed(*first).max(columns::needed(*second)),
        Op::Within(statement) | Op::CommitWith(statement) => of_statement(statement),
        Op::Batch(statements) | Op::AtCommit(statements, _) => {
            statements.iter().map(of_statement).max().unwrap_or(0)
        }
        _ => 0,
    }
}
