//! Transactions that give rows keys in batches, and take batches back, while others want the keys.
//!
//! Each one changes rows that it reads, and nothing else, so that snapshot isolation is
//! serializability here: the model makes it at one moment. What is taken back is no part of it.

use remanent_crashsim::Rng;
use remanent_engine::{Database, Durability, Error, Transaction, Value};

use super::rows::{M, Rows, Statement, VALUES, code, name, row_of};
use super::transactions::{make, patient};
use crate::answer::Answer;

/// A transaction.
#[derive(Clone, Debug)]
pub(super) struct Work {
    durability: Durability,
    shape: Shape,
    plan: Plan,
    /// Statements that are taken back: those of a batch before the plan, and of one behind it.
    taken_back: [Vec<Statement>; 2],
    /// Whether the plan is taken back, too.
    is_left: bool,
}

/// The transactions that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Works {
    /// Some of their batches are taken back.
    TakenBack,
    /// None of their batches is taken back.
    Committed,
    /// They remove rows, and insert others with the same keys. Nothing else is drawn.
    Renewals,
}

/// How the statements of the plan, and those that are taken back, lie in batches.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// The plan is in no batch.
    Bare,
    /// The plan is a batch behind one that is taken back.
    Batch,
    /// All batches are parts of one.
    Nested,
}

/// What a transaction changes.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Nothing,
    /// Inserts a row: primary key, second key.
    Insert(u64, Option<u64>),
    /// Gives a row a second key.
    Rekey(u64, Option<u64>),
    /// Gives a row this second key, if nobody has it, and then the one that it had.
    ThereAndBack(u64, u64),
    /// Removes a row, and inserts one with the same keys, and the value behind its own.
    Renew(u64),
    /// Removes a row, and inserts one with its second key and this primary key.
    Replace(u64, u64),
    /// Two rows exchange their second keys.
    Exchange(u64, u64),
    Remove(u64),
}

impl Work {
    /// Draws one, for so many first and second keys.
    pub(super) fn draw(rng: &mut Rng, works: Works, keys: u64, codes: u64) -> Self {
        let id = rng.below(keys);
        let other = (id + 1 + rng.below(keys - 1)) % keys;
        let number = (rng.below(8) != 0).then(|| rng.below(codes));
        let plan = match rng.below(10) {
            _ if works == Works::Renewals => Plan::Renew(id),
            0 => Plan::Nothing,
            1 | 2 => Plan::Insert(id, number),
            3 | 4 => Plan::Rekey(id, number),
            5 => Plan::ThereAndBack(id, rng.below(codes)),
            6 => Plan::Replace(id, other),
            7 | 8 => Plan::Exchange(id, other),
            _ => Plan::Remove(id),
        };
        let durability =
            if rng.below(2) == 0 { Durability::AtCommit } else { Durability::EachStatement };
        let shape = match rng.below(3) {
            0 => Shape::Bare,
            1 => Shape::Batch,
            _ => Shape::Nested,
        };
        let mut statements = |count_max| match works {
            Works::TakenBack => draw_statements(rng, count_max, [id, other], codes),
            Works::Committed | Works::Renewals => Vec::new(),
        };
        let taken_back = [1, 3].map(&mut statements);
        let is_left = works == Works::TakenBack && rng.below(8) == 0;
        Work { durability, shape, plan, taken_back, is_left }
    }

    /// Makes the transaction. `None` if one of its rows is not there, or if it was taken back.
    pub(super) fn apply(&self, database: &Database<M>) -> Result<Option<()>, Error> {
        let mut transaction = database.begin_with(&patient().durability(self.durability))?;
        if self.is_left {
            let left = transaction.batch(|batch| {
                ignore_refusal(self.make_parts(database, batch))?;
                Err::<(), Error>(taken_back())
            });
            ignore_refusal(left.map(Some))?;
            transaction.commit()?;
            return Ok(None);
        }
        let done = match self.shape {
            Shape::Bare | Shape::Batch => self.make_parts(database, &mut transaction),
            Shape::Nested => transaction.batch(|batch| self.make_parts(database, batch)),
        }?;
        transaction.commit()?;
        Ok(done)
    }

    fn make_parts(
        &self,
        database: &Database<M>,
        transaction: &mut Transaction<'_, M>,
    ) -> Result<Option<()>, Error> {
        let [before, behind] = &self.taken_back;
        take_back(database, transaction, before)?;
        let done = match self.shape {
            Shape::Bare | Shape::Nested => self.plan.make(database, transaction),
            Shape::Batch => transaction.batch(|batch| self.plan.make(database, batch)),
        }?;
        take_back(database, transaction, behind)?;
        Ok(done)
    }

    /// The same on the model.
    pub(super) fn apply_to_model(&self, rows: &mut Rows) -> Answer<Rows> {
        match self.is_left {
            true => Answer::None,
            false => self.plan.apply_to_model(rows),
        }
    }
}

/// Some changes of second keys, mostly of the first row.
fn draw_statements(
    rng: &mut Rng,
    count_max: u64,
    [first, other]: [u64; 2],
    codes: u64,
) -> Vec<Statement> {
    let count = rng.below(count_max + 1);
    let statement = |_| {
        let id = if rng.below(4) == 0 { other } else { first };
        let number = rng.below(codes);
        match rng.below(6) {
            0 => Statement::Insert(id, Some(number), 0),
            1 | 2 => Statement::Update(id, Some(number), 0),
            3 => Statement::Update(id, None, 0),
            _ => Statement::Delete(id),
        }
    };
    (0..count).map(statement).collect()
}

/// The error by which batches are taken back.
fn taken_back() -> Error {
    Error::NoToken { text: "a batch is taken back".to_owned() }
}

/// Goes on behind a batch that was taken back, or a statement that was refused.
fn ignore_refusal(done: Result<Option<()>, Error>) -> Result<(), Error> {
    match done {
        Err(Error::NoToken { .. } | Error::Unique { .. }) => Ok(()),
        Err(Error::Conflict { .. } | Error::Overtaken { .. }) => Ok(()),
        done => done.map(drop),
    }
}

/// Makes statements as a batch, and takes it back.
fn take_back(
    database: &Database<M>,
    transaction: &mut Transaction<'_, M>,
    statements: &[Statement],
) -> Result<(), Error> {
    if statements.is_empty() {
        return Ok(());
    }
    let left = transaction.batch(|batch| {
        for &statement in statements {
            ignore_refusal(make(database, batch, statement))?;
        }
        Err::<(), Error>(taken_back())
    });
    ignore_refusal(left.map(Some))
}

/// What a transaction sees of a row: second key, and value.
fn read(
    database: &Database<M>,
    transaction: &Transaction<'_, M>,
    id: u64,
) -> Result<Option<(Option<u64>, u64)>, Error> {
    let get = database.table(&name(0))?.prepare_get("primary")?;
    let found = get.run(transaction, &[id.into()], row_of)?;
    Ok(found.map(|(_, others)| others))
}

/// Gives a row of a transaction a second key.
fn rekey(
    database: &Database<M>,
    transaction: &mut Transaction<'_, M>,
    id: u64,
    number: Option<u64>,
) -> Result<Option<()>, Error> {
    let update = database.table(&name(0))?.prepare_update("primary")?;
    let text = number.map(code);
    update.run_in(transaction, &[id.into()], |_, row| row.set(1, Value::from(text.as_ref())))
}

impl Plan {
    /// Makes its statements. `None` if one of its rows is not there: then nothing is changed.
    fn make(
        self,
        database: &Database<M>,
        transaction: &mut Transaction<'_, M>,
    ) -> Result<Option<()>, Error> {
        match self {
            Plan::Nothing => Ok(None),
            Plan::Insert(id, number) => {
                make(database, transaction, Statement::Insert(id, number, 0))
            }
            Plan::Rekey(id, number) => rekey(database, transaction, id, number),
            Plan::ThereAndBack(id, via) => {
                let Some((number, _)) = read(database, transaction, id)? else { return Ok(None) };
                ignore_refusal(rekey(database, transaction, id, Some(via)))?;
                rekey(database, transaction, id, number)
            }
            Plan::Renew(id) => {
                let Some((number, value)) = read(database, transaction, id)? else {
                    return Ok(None);
                };
                make(database, transaction, Statement::Delete(id))?;
                let next = (value + 1) % VALUES;
                make(database, transaction, Statement::Insert(id, number, next))
            }
            Plan::Replace(id, other) => {
                let Some((number, value)) = read(database, transaction, id)? else {
                    return Ok(None);
                };
                make(database, transaction, Statement::Delete(id))?;
                make(database, transaction, Statement::Insert(other, number, value))
            }
            Plan::Exchange(one, other) => {
                let of_one = read(database, transaction, one)?;
                let of_other = read(database, transaction, other)?;
                let (Some((first, _)), Some((second, _))) = (of_one, of_other) else {
                    return Ok(None);
                };
                rekey(database, transaction, one, None)?;
                rekey(database, transaction, other, first)?;
                rekey(database, transaction, one, second)
            }
            Plan::Remove(id) => make(database, transaction, Statement::Delete(id)),
        }
    }

    fn apply_to_model(self, rows: &mut Rows) -> Answer<Rows> {
        let has = |rows: &Rows, own: Option<u64>, number: Option<u64>| {
            let mut others = rows.iter().filter(|(id, _)| Some(**id) != own);
            number.is_some() && others.any(|(_, (of, _))| *of == number)
        };
        let first = match self {
            Plan::Nothing => return Answer::None,
            Plan::Insert(id, number) => {
                let is_free = !rows.contains_key(&id) && !has(rows, None, number);
                if is_free {
                    rows.insert(id, (number, 0));
                }
                return Answer::Bool(is_free);
            }
            Plan::Rekey(id, _) | Plan::ThereAndBack(id, _) | Plan::Renew(id) => id,
            Plan::Replace(id, _) | Plan::Exchange(id, _) | Plan::Remove(id) => id,
        };
        let Some(&(own, value)) = rows.get(&first) else { return Answer::None };
        match self {
            Plan::Nothing | Plan::Insert(..) | Plan::ThereAndBack(..) => {}
            Plan::Rekey(id, number) => {
                if has(rows, Some(id), number) {
                    return Answer::Bool(false);
                }
                rows.insert(id, (number, value));
            }
            Plan::Renew(id) => drop(rows.insert(id, (own, (value + 1) % VALUES))),
            Plan::Replace(id, other) => {
                if rows.contains_key(&other) {
                    return Answer::Bool(false);
                }
                rows.remove(&id);
                rows.insert(other, (own, value));
            }
            Plan::Exchange(_, other) => {
                let Some(&(second, of_other)) = rows.get(&other) else { return Answer::None };
                rows.insert(first, (second, value));
                rows.insert(other, (own, of_other));
            }
            Plan::Remove(id) => drop(rows.remove(&id)),
        }
        Answer::Bool(true)
    }
}
