//! Long transactions: begun by a users process that is killed, and committed by the next one.
//!
//! Each inserts a subscriber that no user asks for, and counts its own statements in that row. So a
//! statement that was lost, or took effect twice, is seen in the committed row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use remanent_engine::{
    Database, Get, Resumed, Table, Token, Transaction, TransactionOptions, Update,
};
use remanent_pmem::Medium;

use super::event::Event;
use super::plan::PlannedTransaction;
use crate::{Subscriber, Tables};

/// How long a transaction waits for the process that resumes it.
const TIME_LIMIT: Duration = Duration::from_secs(3_600);
/// Time between two statements of the busiest transaction.
const PAUSE: Duration = Duration::from_millis(20);
/// Statements of each transaction after it was resumed.
const STATEMENTS_AFTER: u32 = 3;
/// How many paces there are: after the same time, transactions are at different statements.
const PACES: usize = 4;
/// Column of the subscriber that counts.
const COUNT: usize = 33;

/// Statements that long transactions make.
pub(super) struct Statements<'d, M: Medium> {
    database: &'d Database<M>,
    subscriber: Table<M>,
    update: Update<M>,
    get: Get<M>,
}

impl<'d, M: Medium> Statements<'d, M> {
    pub(super) fn new(database: &'d Database<M>) -> Result<Self> {
        let subscriber = Tables::open(database)?.subscriber;
        let (update, get) =
            (subscriber.prepare_update("primary")?, subscriber.prepare_get("primary")?);
        Ok(Statements { database, subscriber, update, get })
    }

    /// Begins a transaction by its first statement.
    pub(super) fn begin(&self, s_id: u32) -> Result<Transaction<'d, M>> {
        let options = TransactionOptions::new().time_limit(TIME_LIMIT);
        let mut transaction = self.database.begin_with(&options)?;
        let row = Subscriber {
            s_id,
            bits: [0; 10],
            hexes: [0; 10],
            byte2s: [0; 10],
            msc_location: 0,
            vlr_location: 1,
        };
        row.with_values(|values| self.subscriber.insert_in(&mut transaction, values))?;
        tell(&transaction)?;
        Ok(transaction)
    }

    /// Makes a statement that counts itself in the row.
    fn count(
        &self,
        transaction: &mut Transaction<'d, M>,
        s_id: u32,
    ) -> remanent_engine::Result<()> {
        let key = [s_id.into()];
        self.update
            .run_in(transaction, &key, |before, row| row.set(COUNT, before.get::<u32>(COUNT)? + 1))
            .map(|_| ())
    }

    /// Makes statements until it is told to stop: the first transaction one in each round, the
    /// second one in every other round, and so on.
    pub(super) fn go_on(
        &self,
        transactions: &mut [(u32, Transaction<'d, M>)],
        stop: &AtomicBool,
    ) -> Result<()> {
        for round in 1usize.. {
            for (rank, (s_id, transaction)) in transactions.iter_mut().enumerate() {
                // Relaxed: a flag.
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if round.is_multiple_of(rank % PACES + 1) {
                    // With the moment at which it began, versions of all rows would pile up, and
                    // users would be slower before the kill than after it.
                    transaction.refresh()?;
                    self.count(transaction, *s_id)?;
                    tell(transaction)?;
                }
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Resumes all transactions, then makes a few more statements of each, and commits it.
    pub(super) fn finish(&self, planned: &[PlannedTransaction]) -> Result<()> {
        let mut resumed = Vec::new();
        for PlannedTransaction { s_id, token } in planned {
            let token: Token = token.parse()?;
            let transaction = match self.database.resume(token)? {
                Resumed::Open(transaction) => transaction,
                Resumed::Committed => bail!("transaction {token} was committed by nobody"),
                Resumed::Aborted => bail!("transaction {token} was given up by nobody"),
            };
            let statement = transaction.statement();
            Event::Resumed { token: token.to_string(), statement }.tell()?;
            resumed.push((*s_id, transaction));
        }
        for (s_id, mut transaction) in resumed {
            let token = transaction.token();
            let statement = transaction.statement() + STATEMENTS_AFTER;
            for _ in 1..STATEMENTS_AFTER {
                self.count(&mut transaction, s_id)?;
            }
            transaction.commit_with(|last| self.count(last, s_id))?;
            let now = self.database.snapshot();
            let counted = self.get.run(&now, &[s_id.into()], |row| row.get::<u32>(COUNT))?;
            let counted = counted.with_context(|| format!("transaction {token} is lost"))?;
            let is_committed = matches!(self.database.resume(token)?, Resumed::Committed);
            ensure!(is_committed, "transaction {token} was committed, and is not");
            Event::Committed { token: token.to_string(), statement, counted }.tell()?;
        }
        Ok(())
    }
}

fn tell<M: Medium>(transaction: &Transaction<'_, M>) -> Result<()> {
    let (token, statement) = (transaction.token().to_string(), transaction.statement());
    Event::Statement { token, statement }.tell()
}
