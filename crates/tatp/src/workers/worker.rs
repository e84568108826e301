//! The threads that work until the crash.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use remanent_engine::{
    Changes, Database, Delete, Durability, Resumed, Table, Transaction, TransactionOptions, Update,
};

use super::unit::{End, Statement, TOGGLED, Unit, of_subscriber, unit};
use super::{POPULATION, Place, WORKERS};
use crate::{Client, Mix, Tables};

/// How long an open transaction waits for the process that resumes it.
const TIME_LIMIT: Duration = Duration::from_secs(3_600);
/// Subscribers that threads race for.
const RACED_FOR: u32 = 8;
/// Column of a subscriber that statements change.
const VLR_LOCATION: usize = 33;

/// Executes requests for the same few subscribers, until there is an error.
///
/// # Errors
///
/// When a request fails.
pub fn race(database: &Database, seed: u64) -> Result<Infallible> {
    let client = Client::new(database)?;
    let mut mix = Mix::new(POPULATION, seed);
    loop {
        let s_id = mix.s_id() % RACED_FOR * (WORKERS + 1) + WORKERS + 1;
        client.run(&of_subscriber(mix.draw(), s_id))?;
    }
}

/// A worker with prepared statements.
#[derive(Debug)]
pub struct Worker<'d> {
    database: &'d Database,
    client: Client,
    locate: Update,
    forwardings: Table,
    remove: Delete,
    seed: u64,
    number: u32,
}

impl<'d> Worker<'d> {
    /// The worker of this number, below [`WORKERS`].
    ///
    /// # Errors
    ///
    /// When the database has not the tables of TATP.
    pub fn new(database: &'d Database, seed: u64, number: u32) -> Result<Self> {
        let tables = Tables::open(database)?;
        Ok(Worker {
            database,
            client: Client::new(database)?,
            locate: tables.subscriber.prepare_update("primary")?,
            remove: tables.call_forwarding.prepare_delete("primary")?,
            forwardings: tables.call_forwarding,
            seed,
            number,
        })
    }

    /// Works from `place` on, and tells each new place, until there is an error.
    ///
    /// # Errors
    ///
    /// When a statement fails, or `place` is none that the worker can be at.
    pub fn work(&self, mut place: Place, mut tell: impl FnMut(Place)) -> Result<Infallible> {
        loop {
            place = self.finish_unit(place, &mut tell)?;
        }
    }

    /// Does the rest of the unit at `place`, tells each new place, and returns the last one.
    ///
    /// # Errors
    ///
    /// As for [`work`](Self::work).
    pub fn finish_unit(&self, place: Place, tell: &mut dyn FnMut(Place)) -> Result<Place> {
        match unit(self.seed, self.number, place.done) {
            Unit::Request(request) => {
                ensure!(place.open.is_none(), "a request has no transaction: {place}");
                self.client.run(&request)?;
            }
            Unit::Transaction(statements, end) => self.transact(place, &statements, end, tell)?,
            Unit::AtCommit(statements) => {
                ensure!(place.open.is_none(), "nobody knows the transaction's token: {place}");
                let options = TransactionOptions::new().durability(Durability::AtCommit);
                let mut transaction = self.database.begin_with(&options)?;
                statements.iter().try_for_each(|of| self.execute(&mut transaction, *of))?;
                transaction.commit()?;
            }
        }
        let after = Place { done: place.done + 1, open: None };
        tell(after);
        Ok(after)
    }

    /// Executes the rest of a transaction.
    fn transact(
        &self,
        place: Place,
        statements: &[Statement],
        end: End,
        tell: &mut dyn FnMut(Place),
    ) -> Result<()> {
        let mut transaction = self.transaction(place, tell)?;
        let token = transaction.token();
        let first = transaction.statement();
        for (number, statement) in (1..).zip(statements).skip(first as usize) {
            // A batch is followed by the commit.
            let can_commit = !matches!(statement, Statement::Batch(..));
            if end == End::CommitWith && number as usize == statements.len() && can_commit {
                transaction.commit_with(|last| self.execute(last, *statement))?;
                return Ok(());
            }
            self.execute(&mut transaction, *statement)?;
            tell(Place { done: place.done, open: Some((token, number)) });
        }
        match end {
            // With `CommitWith`, a crash has left it behind its last statement.
            End::Commit | End::CommitWith => transaction.commit()?,
            End::Abort => transaction.abort()?,
        }
        Ok(())
    }

    /// The transaction of `place`, resumed or begun.
    fn transaction(&self, place: Place, tell: &mut dyn FnMut(Place)) -> Result<Transaction<'d>> {
        let Some((token, statements)) = place.open else {
            let options = TransactionOptions::new().time_limit(TIME_LIMIT);
            let transaction = self.database.begin_with(&options)?;
            tell(Place { done: place.done, open: Some((transaction.token(), 0)) });
            return Ok(transaction);
        };
        match self.database.resume(token)? {
            Resumed::Open(transaction) => {
                let count = transaction.statement();
                ensure!(
                    count == statements,
                    "{token} has {count} statements, and was left with {statements}"
                );
                Ok(transaction)
            }
            ended => bail!("{token} was open, and is {ended:?}"),
        }
    }

    fn execute(
        &self,
        by: &mut Transaction<'_>,
        statement: Statement,
    ) -> remanent_engine::Result<()> {
        match statement {
            Statement::Batch(location, key) => by.batch(|batch| {
                self.execute(batch, Statement::Locate(key.0, location))?;
                self.execute(batch, Statement::Toggle(key))
            })?,
            Statement::Locate(s_id, location) => {
                let set = |row: &mut Changes<'_>| row.set(VLR_LOCATION, location);
                self.locate.run_in(by, &[s_id.into()], |_, row| set(row))?;
            }
            Statement::Toggle((s_id, sf_type, start)) => {
                let key = [s_id.into(), sf_type.into(), start.into()];
                if !self.remove.run_in(by, &key)? {
                    let [s_id, sf_type, start] = key;
                    let (end, number) = TOGGLED;
                    let values = [s_id, sf_type, start, end.into(), number.into()];
                    self.forwardings.insert_in(by, &values)?;
                }
            }
        }
        Ok(())
    }
}
