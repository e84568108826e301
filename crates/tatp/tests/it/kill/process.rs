//! The process that is killed: workers that go on where the last one was killed, and say what they
//! have done.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs, thread};

use remanent_engine::{
    Changes, Database, Durability, Error, Resumed, Table, Token, Transaction, TransactionOptions,
    Update,
};
use remanent_pmem::Pool;
use remanent_tatp::{Client, Mix, Tables};

use super::Medium;
use super::model::{End, POPULATION, Statement, TOGGLED, Unit, WORKERS, of_subscriber, unit};

/// Where the process finds what it is to do; without it, the test is none.
pub(super) const ORDERS: &str = "REMANENT_TATP_ORDERS";
const VLR_LOCATION: usize = 33;

/// Where a worker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Units that are done.
    pub(super) done: u64,
    /// The open transaction of the next one, and how many of its statements took effect.
    pub(super) open: Option<(Token, u32)>,
}

/// What a process is to do.
pub(super) struct Orders {
    pub(super) pool: PathBuf,
    pub(super) medium: Medium,
    pub(super) seed: u64,
    pub(super) places: Vec<Place>,
}

impl Orders {
    pub(super) fn write(&self, path: &Path) {
        let mut text = format!("{}\n{}\n{}\n", self.pool.display(), self.medium.name(), self.seed);
        for Place { done, open } in &self.places {
            let open = open.map_or("-".to_owned(), |(token, count)| format!("{token} {count}"));
            text.push_str(&format!("{done} {open}\n"));
        }
        fs::write(path, text).unwrap();
    }

    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let mut line = || lines.next().expect("a line of the orders");
        let (pool, medium, seed) = (PathBuf::from(line()), line(), line().parse().unwrap());
        let places = lines.map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let open =
                (words[1] != "-").then(|| (words[1].parse().unwrap(), words[2].parse().unwrap()));
            Place { done: words[0].parse().unwrap(), open }
        });
        Orders { pool, medium: Medium::named(medium), seed, places: places.collect() }
    }
}

/// Says something to who has started the process. It is there even if the process is killed next.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("@{line}\n").as_bytes()).and_then(|()| out.flush()).expect("a parent");
}

/// Not a test, but the process that [`super`] kills.
#[test]
fn serve() {
    let Some(path) = env::var_os(ORDERS) else { return };
    let orders = Orders::read(Path::new(&path));
    let pool = orders.medium.options().open(&orders.pool).unwrap();
    let database = Database::open(&pool, super::ROOT).unwrap();
    say("open");
    thread::scope(|scope| {
        for (worker, place) in (0..).zip(&orders.places) {
            let worker = Worker::new(&database, &pool, orders.seed, worker);
            scope.spawn(move || worker.work(*place));
        }
        // Those of everybody, on which threads are in each other's way.
        for seed in 0..2 {
            let database = &database;
            scope.spawn(move || race(database, orders.seed ^ seed << 40));
        }
    });
}

/// Executes requests for the same few subscribers.
fn race(database: &Database, seed: u64) {
    let client = Client::new(database).unwrap();
    let mut mix = Mix::new(POPULATION, seed);
    loop {
        let s_id = mix.s_id() % 8 * (WORKERS + 1) + WORKERS + 1;
        client.run(&of_subscriber(mix.draw(), s_id)).unwrap();
    }
}

struct Worker<'d> {
    database: &'d Database,
    client: Client,
    locate: Update,
    forwardings: Table,
    seed: u64,
    number: u32,
}

impl<'d> Worker<'d> {
    fn new(database: &'d Database, _: &Pool, seed: u64, number: u32) -> Self {
        let tables = Tables::open(database).unwrap();
        Worker {
            database,
            client: Client::new(database).unwrap(),
            locate: tables.subscriber.prepare_update("primary").unwrap(),
            forwardings: tables.call_forwarding,
            seed,
            number,
        }
    }

    fn work(&self, place: Place) {
        let mut open = place.open;
        for done in place.done.. {
            match unit(self.seed, self.number, done) {
                Unit::Request(request) => {
                    self.client.run(&request).unwrap();
                }
                Unit::Transaction(statements, end) => {
                    self.transact(done, &statements, end, open.take());
                }
                Unit::AtCommit(statements) => self.at_commit(&statements).unwrap(),
            }
            say(&format!("done {} {done}", self.number));
        }
    }

    /// Executes a transaction, from the statement on behind which it was left.
    fn transact(&self, done: u64, statements: &[Statement], end: End, open: Option<(Token, u32)>) {
        let (mut transaction, first) = match open {
            Some((token, count)) => match self.database.resume(token).unwrap() {
                Resumed::Open(transaction) => {
                    assert_eq!(transaction.statement(), count, "it was resumed before");
                    (transaction, count as usize)
                }
                ended => panic!("{token} was open, and is {ended:?}"),
            },
            None => {
                let options = TransactionOptions::new().time_limit(Duration::from_secs(3600));
                let transaction = self.database.begin_with(&options).unwrap();
                say(&format!("begun {} {done} {}", self.number, transaction.token()));
                (transaction, 0)
            }
        };
        for (number, statement) in (1..).zip(statements).skip(first) {
            let is_batch = matches!(statement, Statement::Batch(..));
            if end == End::CommitWith && number == statements.len() && !is_batch {
                transaction.commit_with(|last| self.execute(last, *statement)).unwrap();
                return;
            }
            self.execute(&mut transaction, *statement).unwrap();
            say(&format!("statement {} {done} {number}", self.number));
        }
        match end {
            // It was left behind its last statement.
            End::Commit | End::CommitWith => transaction.commit().unwrap(),
            End::Abort => transaction.abort().unwrap(),
        }
    }

    /// Executes a transaction that is durable at its commit.
    fn at_commit(&self, statements: &[Statement]) -> Result<(), Error> {
        let options = TransactionOptions::new().durability(Durability::AtCommit);
        let mut transaction = self.database.begin_with(&options)?;
        statements.iter().try_for_each(|of| self.execute(&mut transaction, *of))?;
        transaction.commit()
    }

    fn execute(&self, by: &mut Transaction<'_>, statement: Statement) -> Result<(), Error> {
        match statement {
            Statement::Batch(location, key) => by.batch(|batch| {
                self.execute(batch, Statement::Locate(key.0, location))?;
                self.execute(batch, Statement::Toggle(key))
            })?,
            Statement::Locate(s_id, location) => {
                let set = |row: &mut Changes<'_>| row.set(VLR_LOCATION, location);
                let found = self.locate.run_in(by, &[s_id.into()], |_, row| set(row))?;
                assert!(found.is_some(), "subscriber {s_id} is there");
            }
            Statement::Toggle((s_id, sf_type, start)) => {
                let key = [s_id.into(), sf_type.into(), start.into()];
                if !self.forwardings.prepare_delete("primary")?.run_in(by, &key)? {
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
