//! What operations do with transactions of several statements.

use std::time::Duration;

use remanent_engine::{
    Changes, Database, Durability, Error, LockMode, OpenTransaction, Resumed, Row, Transaction,
    TransactionOptions,
};
use remanent_pmem::Medium;

use super::columns;
use super::rows::{M, Rows, Statement, VALUES, answer_number, code, name, values};

/// Makes a statement of a transaction. `None` if there is no row.
pub(super) fn make(
    database: &Database<M>,
    transaction: &mut Transaction<'_, M>,
    statement: Statement,
) -> Result<Option<()>, Error> {
    let table = database.table(&name(0))?;
    match statement {
        Statement::Insert(id, code_number, value) => {
            let code = code_number.map(code);
            let values = values(&table, id, code.as_deref(), value);
            table.insert_in(transaction, &values).map(|_| Some(()))
        }
        Statement::Update(id, code_number, value) => {
            let code = code_number.map(code);
            let update = table.prepare_update("primary")?;
            update.run_in(transaction, &[id.into()], |_, row| {
                row.set(1, code.as_ref())?;
                columns::set(row, value)
            })
        }
        Statement::Upsert(id, code_number, value) => {
            let code = code_number.map(code);
            let values = values(&table, id, code.as_deref(), value);
            let upsert = table.prepare_upsert("primary")?;
            let change = |_: &Row<'_, M>, row: &mut Changes<'_, M>| columns::set(row, value);
            upsert.run_in(transaction, &values, change).map(|_| Some(()))
        }
        Statement::Delete(id) => {
            let delete = table.prepare_delete("primary")?;
            delete.take_in(transaction, &[id.into()], |_| Ok(()))
        }
    }
}

/// The open transaction, which somebody before has left, perhaps in another process.
pub(super) fn resumed(database: &Database<M>) -> Result<Option<Transaction<'_, M>>, Error> {
    let Some(OpenTransaction { token, .. }) = database.open_transactions().first().copied() else {
        return Ok(None);
    };
    match database.resume(token)? {
        Resumed::Open(transaction) => Ok(Some(transaction)),
        ended => Err(Error::NoToken { text: format!("{token} is open, and then {ended:?}") }),
    }
}

/// Has the open transaction do something, and leaves it open. `None` if there is none.
pub(super) fn by_open<R>(
    database: &Database<M>,
    make: impl FnOnce(&mut Transaction<'_, M>) -> Result<R, Error>,
) -> Result<Option<R>, Error> {
    let Some(mut transaction) = resumed(database)? else { return Ok(None) };
    let result = make(&mut transaction);
    transaction.suspend();
    result.map(Some)
}

/// Makes a statement of the open transaction, which begins if there is none, and leaves it open.
pub(super) fn within(database: &Database<M>, statement: Statement) -> Result<Option<()>, Error> {
    let mut transaction = match resumed(database)? {
        Some(transaction) => transaction,
        None => database.begin_with(&patient())?,
    };
    let result = make(database, &mut transaction, statement);
    if transaction.statement() > 0 {
        transaction.suspend();
    }
    result
}

/// Makes statements of the open transaction that count as one. It begins if there is none, and is
/// left open.
pub(super) fn batch(database: &Database<M>, statements: &[Statement]) -> Result<(), Error> {
    let mut transaction = match resumed(database)? {
        Some(transaction) => transaction,
        None => database.begin_with(&patient())?,
    };
    let result = transaction
        .batch(|batch| statements.iter().try_for_each(|of| make(database, batch, *of).map(drop)));
    if transaction.statement() > 0 {
        transaction.suspend();
    }
    result
}

/// A transaction that is durable at its commit, and how its statements went.
pub(super) fn at_commit(
    database: &Database<M>,
    statements: &[Statement],
    is_commit: bool,
) -> Result<Rows, Error> {
    let how = patient().durability(Durability::AtCommit);
    let mut transaction = database.begin_with(&how)?;
    let mut answers = Rows::new();
    for (number, &statement) in (0..).zip(statements) {
        let done = match make(database, &mut transaction, statement) {
            Err(Error::Unique { .. } | Error::Conflict { .. } | Error::Overtaken { .. }) => {
                Some(false)
            }
            made => made?.map(|()| true),
        };
        answers.insert(number, (None, answer_number(done)));
    }
    match is_commit {
        true => transaction.commit()?,
        false => transaction.abort()?,
    }
    Ok(answers)
}

/// Makes the last statement of the open transaction. `None` if there is no row, or no transaction.
pub(super) fn commit_with(
    database: &Database<M>,
    statement: Statement,
) -> Result<Option<()>, Error> {
    let Some(mut transaction) = resumed(database)? else { return Ok(None) };
    let done = transaction.commit_with(|last| make(database, last, statement));
    if done.is_err() {
        transaction.suspend();
    }
    done
}

/// Has the open transaction lock a row. `None` if there is no row, or no transaction.
pub(super) fn lock(database: &Database<M>, id: u64) -> Result<Option<()>, Error> {
    let Some(mut transaction) = resumed(database)? else { return Ok(None) };
    let get = database.table(&name(0))?.prepare_get("primary")?;
    let locked = get.lock_in(&mut transaction, &[id.into()], LockMode::NoWait, |_| Ok(()));
    transaction.suspend();
    locked
}

/// Has the open transaction take back what came behind a statement. `None` if there is none.
pub(super) fn take_back(database: &Database<M>, to: u32) -> Result<Option<()>, Error> {
    let Some(mut transaction) = resumed(database)? else { return Ok(None) };
    transaction.take_back_to(to)?;
    transaction.suspend();
    Ok(Some(()))
}

/// Commits the open transaction, or gives it up. Whether there is one.
pub(super) fn end(database: &Database<M>, is_commit: bool) -> Result<bool, Error> {
    let Some(transaction) = resumed(database)? else { return Ok(false) };
    match is_commit {
        true => transaction.commit()?,
        false => transaction.abort()?,
    }
    Ok(true)
}

/// Options of a transaction that waits as long as it can.
pub(super) fn patient() -> TransactionOptions {
    TransactionOptions::new().time_limit(Duration::MAX)
}

/// Options of one whose statements wait for others, too.
pub(super) fn waiting(wait: Duration) -> TransactionOptions {
    patient().wait(wait)
}

/// Gives two rows other values, or neither. Whether both are there.
pub(super) fn transfer(
    database: &Database<M>,
    rows: [u64; 2],
    locks: bool,
    how: &TransactionOptions,
) -> Result<bool, Error> {
    let mut transaction = database.begin_with(how)?;
    let table = database.table(&name(0))?;
    let (get, update) = (table.prepare_get("primary")?, table.prepare_update("primary")?);
    let next = |transaction: &mut Transaction<'_, M>, id: u64| {
        update.run_in(transaction, &[id.into()], |row, changes| {
            changes.set(2, (row.get::<u64>(2)? + 1) % VALUES)
        })
    };
    for id in rows.into_iter().filter(|_| locks) {
        let locked = get.lock_in(&mut transaction, &[id.into()], LockMode::Wait, |_| Ok(()))?;
        if locked.is_none() {
            return Ok(false);
        }
    }
    let [from, to] = rows;
    if next(&mut transaction, from)?.is_none() {
        return Ok(false);
    }
    if get.run(&transaction, &[to.into()], |_| Ok(()))?.is_none() {
        return Ok(false);
    }
    transaction.commit_with(|last| next(last, to)).map(|_| true)
}

/// Removes a row that nobody else has, and waits as long as somebody has it. Whether it was there.
pub(super) fn take(database: &Database<M>, id: u64, medium: &M) -> Result<bool, Error> {
    let table = database.table(&name(0))?;
    let (get, delete) = (table.prepare_get("primary")?, table.prepare_delete("primary")?);
    let mut transaction = database.begin_with(&patient())?;
    while get.lock_in(&mut transaction, &[id.into()], LockMode::Skip, |_| Ok(()))?.is_none() {
        if get.run(&transaction, &[id.into()], |_| Ok(()))?.is_none() {
            return Ok(false);
        }
        medium.pause();
        transaction.refresh()?;
    }
    transaction.commit_with(|last| delete.run_in(last, &[id.into()]))
}
