//! The model of several transactions that are open beside each other, by snapshot isolation, where
//! the first writer wins.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::model::Open;
use super::rows::{Rows, Statement, answer_number};
use super::sessions::{Op, has_limit};
use crate::answer::Answer;

/// The rows that are committed, and the transactions of the programs that have begun one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) rows: Rows,
    pub(super) sessions: BTreeMap<u64, Session>,
}

/// A program's transaction.
#[derive(Clone, Debug)]
pub(super) enum Session {
    /// Its token was written down. Who asks now is told that it was given up.
    Named,
    Open(Open),
    Committed,
    Aborted,
}

impl Session {
    /// One that is open, as an observer finds it.
    pub(super) fn observed(statement: u32, rows: Rows) -> Self {
        Session::Open(Open::observed(statement, rows))
    }

    /// What the program is told: whether it is over, if so whether it was committed, and what is
    /// open.
    fn told(&self) -> (bool, bool, Option<&Open>) {
        match self {
            Session::Open(open) => (false, false, Some(open)),
            Session::Committed => (true, true, None),
            Session::Named | Session::Aborted => (true, false, None),
        }
    }
}

impl PartialEq for Session {
    fn eq(&self, other: &Self) -> bool {
        self.told() == other.told()
    }
}

impl Eq for Session {}

impl Hash for Session {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.told().hash(state);
    }
}

impl State {
    /// The same after a crash, in which a transaction without a statement is lost.
    pub(super) fn after_crash(mut self) -> Self {
        for session in self.sessions.values_mut() {
            if let Session::Named = session {
                *session = Session::Aborted;
            }
        }
        self
    }

    /// Executes an operation, or a step of one.
    pub(super) fn apply(&mut self, op: &Op) -> Answer<Rows> {
        let answer = |done: Option<bool>| done.map_or(Answer::None, Answer::Bool);
        match *op {
            Op::Begin(of, _) if self.sessions.contains_key(&of) => Answer::None,
            Op::Begin(of, statement) => {
                self.sessions.insert(of, Session::Named);
                answer(self.first(of, statement))
            }
            Op::Name(of) => {
                self.sessions.entry(of).or_insert(Session::Named);
                Answer::None
            }
            Op::First(of, statement) => answer(self.first(of, statement)),
            Op::Within(of, statement) => answer(self.within(of, statement)),
            Op::CommitWith(of, statement) => {
                if !matches!(self.sessions.get(&of), Some(Session::Open(_))) {
                    return Answer::None;
                }
                let done = self.within(of, statement);
                if done != Some(false) {
                    self.commit(of);
                }
                answer(done)
            }
            Op::Commit(of) => answer(self.commit(of).then_some(true)),
            Op::Abort(of) => answer(self.give_up(of).then_some(true)),
            Op::Expire(of) => {
                if has_limit(of) {
                    self.give_up(of);
                }
                Answer::None
            }
            Op::Alone(statement) => self.alone(statement),
            Op::Collect => Answer::None,
            Op::Wait | Op::Late(_) => {
                for of in self.sessions.keys().copied().collect::<Vec<u64>>() {
                    self.apply(&Op::Expire(of));
                }
                match *op {
                    Op::Late(statement) => self.alone(statement),
                    _ => Answer::None,
                }
            }
        }
    }

    /// The first statement of a transaction, which is lost if it does nothing.
    fn first(&mut self, of: u64, statement: Statement) -> Option<bool> {
        if !matches!(self.sessions.get(&of), Some(Session::Named)) {
            return None;
        }
        self.sessions.insert(of, Session::Open(Open::on(&self.rows)));
        let done = self.within(of, statement);
        if matches!(self.sessions.get(&of), Some(Session::Open(open)) if open.statement == 0) {
            self.sessions.insert(of, Session::Aborted);
        }
        done
    }

    /// Makes a statement of a transaction. `None` if that is over, or there is no row; false if the
    /// statement is refused.
    fn within(&mut self, of: u64, statement: Statement) -> Option<bool> {
        let Some(Session::Open(mut own)) = self.sessions.get(&of).cloned() else { return None };
        let is_refused = self.are_in_the_way(of, &own, statement);
        let done = if is_refused { Some(false) } else { own.apply(&self.rows, statement) };
        self.sessions.insert(of, Session::Open(own));
        done
    }

    /// Whether transactions of other programs keep a statement from doing something.
    fn are_in_the_way(&self, of: u64, own: &Open, statement: Statement) -> bool {
        self.sessions.iter().any(|(other, session)| match session {
            Session::Open(open) => *other != of && open.refuses(own, statement),
            _ => false,
        })
    }

    /// A transaction of one statement, of nobody.
    fn alone(&mut self, statement: Statement) -> Answer<Rows> {
        let mut own = Open::on(&self.rows);
        let is_refused = self.are_in_the_way(u64::MAX, &own, statement);
        let done = if is_refused { Some(false) } else { own.apply(&self.rows, statement) };
        self.commit_one(own);
        Answer::Value([(0, (None, answer_number(done)))].into())
    }

    fn commit(&mut self, of: u64) -> bool {
        let Some(Session::Open(own)) = self.sessions.get(&of).cloned() else { return false };
        self.sessions.insert(of, Session::Committed);
        self.commit_one(own);
        true
    }

    fn commit_one(&mut self, own: Open) {
        let before = std::mem::take(&mut self.rows);
        let removed = own.removed.clone();
        self.rows = own.commit(&before);
        for session in self.sessions.values_mut() {
            if let Session::Open(open) = session {
                open.overtake(&before, &self.rows, &removed);
            }
        }
    }

    fn give_up(&mut self, of: u64) -> bool {
        let is_open = matches!(self.sessions.get(&of), Some(Session::Open(_)));
        if is_open {
            self.sessions.insert(of, Session::Aborted);
        }
        is_open
    }
}
