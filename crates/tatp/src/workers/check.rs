//! The comparison of a database with what its workers have told.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail, ensure};
use remanent_engine::{Database, Error, Resumed, Token, Transaction};

use super::state::{State, difference};
use super::unit::{End, Statement, Unit, unit};
use super::{Place, WORKERS};
use crate::{Client, Population, Tables};

/// A worker as others know it: its last place, and the rows that it must have.
#[derive(Clone, Debug)]
pub struct Known {
    seed: u64,
    worker: u32,
    place: Place,
    state: State,
    /// The last transactions that are over, and whether they were committed.
    ended: VecDeque<(Token, bool)>,
}

/// So many of a worker's last transactions are asked about again.
const REMEMBERED: usize = 2;

impl Known {
    /// A worker at a place, on tables with these rows at the beginning.
    pub fn new(population: &Population, seed: u64, worker: u32, place: Place) -> Self {
        let state = State::loaded(population, worker);
        let (place_now, ended) = (Place::default(), VecDeque::new());
        let mut known = Known { seed, worker, place: place_now, state, ended };
        while known.place.done < place.done {
            known.finish_unit();
        }
        known.place = place;
        known
    }

    /// Its place.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Notes the place that the worker tells next.
    ///
    /// # Errors
    ///
    /// When it does not follow its place before.
    pub fn tell(&mut self, place: Place) -> Result<()> {
        let before = self.place;
        match place.open {
            None if place.done == before.done + 1 => self.finish_unit(),
            Some((_, 0)) if place.done == before.done && before.open.is_none() => {}
            Some((token, count @ 1..))
                if place.done == before.done && before.open == Some((token, count - 1)) => {}
            _ => bail!("worker {} tells {place} after {before}", self.worker),
        }
        self.place = place;
        Ok(())
    }

    fn unit(&self) -> Unit {
        unit(self.seed, self.worker, self.place.done)
    }

    fn finish_unit(&mut self) {
        let unit = self.unit();
        if let Some((token, _)) = self.place.open {
            self.ended.push_back((token, !matches!(unit, Unit::Transaction(_, End::Abort))));
        }
        while self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
        self.state.apply(&unit);
        self.place = Place { done: self.place.done + 1, open: None };
    }
}

/// What checks have found, in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Open transactions that were resumed.
    pub open: u64,
    /// Transactions that had committed before their worker could tell it.
    pub committed: u64,
    /// Transactions that had been given up, or had no statement yet.
    pub aborted: u64,
    /// Ended transactions whose outcome is forgotten, because others have used their slots since.
    pub forgotten: u64,
    /// How often one was asked about again that was known to be over, and was not forgotten.
    pub asked_again: u64,
    /// Transactions of requests that were not at their end.
    pub left: u64,
}

/// Compares a database with what its workers have told, and moves each to the place where it is.
/// Open transactions that no worker has told of are of requests, and keep nobody from their rows.
///
/// # Errors
///
/// When something contradicts what was told, the tables contradict each other, the database is
/// damaged, or it cannot be read.
pub fn check(database: &Database, known: &mut [Known], lead: u64, found: &mut Found) -> Result<()> {
    let tables = Tables::open(database)?;
    let told: Vec<Token> = known.iter().filter_map(|known| Some(known.place.open?.0)).collect();
    for open in database.open_transactions() {
        if told.contains(&open.token) {
            continue;
        }
        // A step that was told and not heard may have begun it.
        if let Resumed::Open(transaction) = database.resume(open.token)? {
            ensure!(lead > 1, "{transaction:?} is open, and nobody goes on with it");
            transaction.abort()?;
        }
        found.left += 1;
    }
    ensure!(known.len() == WORKERS as usize, "there are {} workers", known.len());
    for known in known {
        let worker = known.worker;
        let (place, unit) = (known.place, known.unit());
        let mut of_worker = OfWorker { database, tables: &tables, known, lead, found };
        of_worker.check().with_context(|| format!("worker {worker} at {place}, {unit:?}"))?;
    }
    let wrong = Client::new(database)?.check()?;
    ensure!(wrong.is_empty(), "the tables contradict each other: {wrong:?}");
    let violations = database.check()?;
    ensure!(violations.is_empty(), "the database is damaged: {violations:?}");
    Ok(())
}

/// The check of a worker.
struct OfWorker<'d> {
    database: &'d Database,
    tables: &'d Tables,
    known: &'d mut Known,
    /// Number of steps that may have taken effect, beyond the known place.
    lead: u64,
    found: &'d mut Found,
}

impl OfWorker<'_> {
    fn check(&mut self) -> Result<()> {
        if let Some((token, statements)) = self.known.place.open {
            self.check_transaction(token, statements)?;
        }
        for &(token, is_committed) in &self.known.ended {
            let ended = match self.database.resume(token) {
                // The next process had another worker in its slot.
                Err(Error::Forgotten { .. }) => continue,
                ended => ended?,
            };
            let is_as_before = match ended {
                Resumed::Open(_) => false,
                Resumed::Committed => is_committed,
                Resumed::Aborted => !is_committed,
            };
            ensure!(is_as_before, "{token} had ended, and asked again it is {ended:?}");
            self.found.asked_again += 1;
        }
        let seen = State::seen(self.tables, &self.database.snapshot(), self.known.worker)?;
        if self.known.place.open.is_none() {
            self.catch_up(&seen);
        }
        let expected = &self.known.state;
        ensure!(seen == *expected, "{}", difference(&seen, expected));
        Ok(())
    }

    /// Finishes units until the state is the one that is `seen`, if it is within the lead. Units
    /// that change nothing may be counted for not done: doing them again makes no difference.
    fn catch_up(&mut self, seen: &State) {
        let mut ahead = self.known.clone();
        let mut left = self.lead;
        while ahead.state != *seen {
            match left.checked_sub(ahead.unit().steps()) {
                Some(rest) => left = rest,
                None => return,
            }
            ahead.finish_unit();
        }
        *self.known = ahead;
    }

    /// Compares the open transaction that the worker told of, and what became of it.
    fn check_transaction(&mut self, token: Token, told: u32) -> Result<()> {
        let Unit::Transaction(statements, end) = self.known.unit() else {
            bail!("a request has no transaction");
        };
        match self.database.resume(token) {
            Ok(Resumed::Open(transaction)) => self.check_open(transaction, told, &statements),
            Ok(Resumed::Committed) => {
                self.found.committed += 1;
                ensure!(end != End::Abort, "it has committed, which nobody wanted");
                self.finish(told)
            }
            Ok(Resumed::Aborted) => {
                self.found.aborted += 1;
                match (told, end) {
                    (0, End::Abort) => self.known.place.open = None,
                    (0, _) => {
                        // The crash has given it up, as it had no statement. The worker has done
                        // nothing since.
                        self.known.place.open = None;
                        self.lead = 0;
                    }
                    (_, End::Abort) => return self.finish(told),
                    _ => bail!("it was given up, which nobody wanted"),
                }
                Ok(())
            }
            Err(Error::Forgotten { .. }) => {
                self.found.forgotten += 1;
                if told > 0 {
                    // With a durable statement it would be open, had it not ended.
                    return self.finish(told);
                }
                self.known.place.open = None;
                // Its rows say whether it has committed. It was told to have begun, so `catch_up`
                // counts that step of the unit without need.
                self.lead += 1;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn check_open(
        &mut self,
        transaction: Transaction<'_>,
        told: u32,
        statements: &[Statement],
    ) -> Result<()> {
        let count = transaction.statement();
        let seen = State::seen(self.tables, &transaction, self.known.worker);
        // Before anything else: if it were dropped, it would be given up.
        let token = transaction.suspend();
        let seen = seen?;
        let is_possible = told <= count
            && u64::from(count - told) <= self.lead
            && count as usize <= statements.len();
        ensure!(is_possible, "{told} statements were acknowledged, and {count} took effect");
        let mut expected = self.known.state.clone();
        statements[..count as usize].iter().for_each(|statement| expected.statement(*statement));
        ensure!(seen == expected, "within its transaction {}", difference(&seen, &expected));
        self.known.place.open = Some((token, count));
        self.found.open += 1;
        Ok(())
    }

    /// Notes that the transaction ended as the worker wanted, if that is within the lead.
    fn finish(&mut self, told: u32) -> Result<()> {
        // All but the beginning and the statements that were told; at least the end.
        let steps = (self.known.unit().steps() - 1 - u64::from(told)).max(1);
        let Some(left) = self.lead.checked_sub(steps) else {
            bail!("it has ended, and only {told} of its statements were acknowledged");
        };
        self.lead = left;
        self.known.finish_unit();
        Ok(())
    }
}
