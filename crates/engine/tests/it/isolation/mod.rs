//! Whether what threads see together is snapshot isolation.
//!
//! Transactions append numbers to lists, and read lists, as in Elle (Kingsbury and Alvaro, VLDB
//! 2020): durable by statements and at their commits, in batches, some of which are taken back,
//! waiting and not, and some with a later snapshot. [`anomaly::check`] looks for what snapshot
//! isolation forbids.

mod anomaly;
mod cases;
mod history;
mod skew;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use remanent_engine::{
    Database, Durability, Error, LockMode, Resumed, Table, TableSpec, Transaction,
    TransactionOptions, Type,
};
use remanent_pmem::{Emulation, Pool};

use self::history::{List, Step};

/// Transactions of each thread.
const ROUNDS: u32 = 10_000;
/// After so many, threads wait for each other, and go on with other lists.
const TOGETHER: u32 = 20;
/// Lists that a round's transactions choose from, half of which are the next ones', too.
const LISTS: u32 = 4;
const THREADS: usize = 4;

/// Numbers without a pattern.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn list_of(bytes: &[u8]) -> List {
    bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect()
}

/// What threads do wrong, so that the checker has something to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    Nothing,
    /// They read the present, not the transaction's moment.
    ReadsPresent,
    /// They write what they have read before they see what was committed since.
    WritesBlindly,
}

/// What the threads share.
struct Shared<'d> {
    control: Control,
    /// Transactions of each thread.
    rounds: u32,
    database: &'d Database,
    table: &'d Table,
    /// The next number of each list.
    next: Vec<AtomicU32>,
    together: Barrier,
    /// Statements that were refused because somebody was in their way.
    refused: AtomicU32,
}

/// A transaction in progress, and what it has done.
struct Run<'s, 'd> {
    shared: &'s Shared<'d>,
    random: &'s mut Random,
    round: u32,
    steps: Vec<Step>,
    /// Somebody was in the way of one of its statements.
    is_refused: bool,
}

impl Run<'_, '_> {
    fn key(&mut self) -> u32 {
        self.round / TOGETHER * 2 + self.random.below(LISTS.into()) as u32
    }

    /// Makes a statement: reads a list, or appends a number to one.
    fn statement(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Error> {
        let key = self.key();
        match self.random.below(8) {
            0..=2 => self.read(transaction, key),
            3 => self.lock(transaction, key),
            _ => self.append(transaction, key),
        }
    }

    fn read(&mut self, transaction: &Transaction<'_>, key: u32) -> Result<(), Error> {
        let get = self.shared.table.prepare_get("primary")?;
        let read = |row: &remanent_engine::Row<'_>| Ok(list_of(row.get(1)?));
        let list = match self.shared.control {
            Control::ReadsPresent => {
                get.run(&self.shared.database.snapshot(), &[key.into()], read)?
            }
            Control::Nothing | Control::WritesBlindly => {
                get.run(transaction, &[key.into()], read)?
            }
        };
        self.steps.push(Step::Read(key, list.expect("every list is there")));
        Ok(())
    }

    fn lock(&mut self, transaction: &mut Transaction<'_>, key: u32) -> Result<(), Error> {
        let get = self.shared.table.prepare_get("primary")?;
        let mode = if self.random.below(2) == 0 { LockMode::Wait } else { LockMode::Skip };
        let read = |row: &remanent_engine::Row<'_>| Ok(list_of(row.get(1)?));
        let locked = get.lock_in(transaction, &[key.into()], mode, read);
        // Nothing if others have it.
        if let Some(list) = self.unless_refused(locked)?.flatten() {
            self.steps.push(Step::Read(key, list));
        }
        Ok(())
    }

    fn append(&mut self, transaction: &mut Transaction<'_>, key: u32) -> Result<(), Error> {
        let number = self.shared.next[key as usize].fetch_add(1, Ordering::Relaxed) as u16;
        let update = self.shared.table.prepare_update("primary")?;
        let mut read_before = None;
        if self.shared.control == Control::WritesBlindly {
            let get = self.shared.table.prepare_get("primary")?;
            read_before =
                get.run(transaction, &[key.into()], |row| Ok(row.get::<&[u8]>(1)?.to_vec()))?;
            thread::yield_now();
            transaction.refresh()?;
        }
        let appended = update.run_in(transaction, &[key.into()], |row, changes| {
            let read_now = || row.get::<&[u8]>(1).map(<[u8]>::to_vec);
            let mut bytes = read_before.take().map_or_else(read_now, Ok)?;
            let before = list_of(&bytes);
            bytes.extend(number.to_le_bytes());
            changes.set(1, bytes.as_slice())?;
            Ok(before)
        });
        if let Some(before) = self.unless_refused(appended)? {
            let before = before.expect("every list is there");
            self.steps.extend([Step::Read(key, before), Step::Append(key, number)]);
        }
        Ok(())
    }

    fn unless_refused<R>(&mut self, result: Result<R, Error>) -> Result<Option<R>, Error> {
        match result {
            Err(Error::Conflict { .. } | Error::Overtaken { .. } | Error::Deadlock { .. }) => {
                self.is_refused = true;
                self.shared.refused.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            result => result.map(Some),
        }
    }

    /// Makes statements as a batch, and perhaps a batch in it. One in three is taken back.
    fn batch(&mut self, transaction: &mut Transaction<'_>, depth: u32) -> Result<(), Error> {
        self.steps.push(Step::Begin);
        let is_left = self.random.below(3) == 0;
        let done = transaction.batch(|batch| {
            for _ in 0..=self.random.below(3) {
                match self.random.below(4) {
                    0 if depth == 0 => self.batch(batch, depth + 1)?,
                    _ => self.statement(batch)?,
                }
            }
            if is_left { Err(taken_back()) } else { Ok(()) }
        });
        match done {
            Err(Error::NoToken { .. }) if is_left => self.steps.push(Step::TakeBack),
            done => {
                done?;
                self.steps.push(Step::End);
            }
        }
        Ok(())
    }

    /// Makes a transaction. Whether it was committed.
    fn transaction(&mut self) -> Result<bool, Error> {
        let durability = match self.random.below(2) {
            0 => Durability::EachStatement,
            _ => Durability::AtCommit,
        };
        let wait = Duration::from_micros(500 * self.random.below(3));
        let options = TransactionOptions::new().durability(durability).wait(wait);
        let database = self.shared.database;
        let mut transaction = database.begin_with(&options)?;
        for _ in 0..=self.random.below(4) {
            if self.random.below(4) == 0 {
                // Others act in between, however few processors there are.
                thread::yield_now();
            }
            match self.random.below(16) {
                0..=2 => self.batch(&mut transaction, 0)?,
                3 => {
                    transaction.refresh()?;
                    self.steps.push(Step::Refresh);
                }
                4 | 5 => {
                    let token = transaction.suspend();
                    let Resumed::Open(again) = database.resume(token)? else {
                        panic!("nobody has ended it");
                    };
                    transaction = again;
                }
                _ => self.statement(&mut transaction)?,
            }
        }
        // What was refused has left no trace: it may be committed.
        let is_committed = match self.random.below(8) {
            0 => false,
            1 => true,
            _ => !self.is_refused,
        };
        match is_committed {
            true => self.commit(transaction)?,
            false if self.random.below(2) == 0 => drop(transaction),
            false => transaction.abort()?,
        }
        Ok(is_committed)
    }

    /// Commits it, perhaps with a last statement.
    fn commit(&mut self, mut transaction: Transaction<'_>) -> Result<(), Error> {
        if self.random.below(3) != 0 {
            return transaction.commit();
        }
        let key = self.key();
        transaction.commit_with(|last| self.append(last, key))
    }
}

/// The error by which batches are taken back.
fn taken_back() -> Error {
    Error::NoToken { text: "a batch is taken back".to_owned() }
}

/// Makes the transactions of a thread.
fn run_thread(shared: &Shared<'_>, thread: usize) -> Vec<history::Transaction> {
    let mut random = Random(thread as u64 + 1);
    let mut history = Vec::new();
    for round in 0..shared.rounds {
        if round % TOGETHER == 0 {
            shared.together.wait();
        }
        let random = &mut random;
        let mut run = Run { shared, random, round, steps: Vec::new(), is_refused: false };
        let is_committed = run.transaction().unwrap();
        history.push(history::Transaction { thread, steps: run.steps, is_committed });
    }
    history
}

/// A transaction that reads all lists.
fn read_all(shared: &Shared<'_>) -> history::Transaction {
    let (now, get) = (shared.database.snapshot(), shared.table.prepare_get("primary").unwrap());
    let read = |key: u32| {
        let list = get.run(&now, &[key.into()], |row| Ok(list_of(row.get(1)?)));
        Step::Read(key, list.unwrap().unwrap())
    };
    let steps = (0..shared.next.len() as u32).map(read).collect();
    history::Transaction { thread: THREADS, steps, is_committed: true }
}

/// The transactions of some threads, and how often somebody was in the way of one.
fn history_of(control: Control, rounds: u32) -> (Vec<history::Transaction>, u32) {
    let directory = tempfile::tempdir().unwrap();
    let options = Pool::options().emulation(Emulation::Nvram);
    let pool = options.create(directory.path().join("lists.pool")).unwrap();
    let database = Database::create(&pool, "lists").unwrap();
    let spec = TableSpec::new("lists")
        .column("key", Type::U32)
        .column("list", Type::Bytes { max: 255 })
        .primary_key(["key"]);
    let table = database.create_table(&spec).unwrap();
    let lists = rounds / TOGETHER * 2 + LISTS;
    for key in 0..lists {
        table.insert(&[key.into(), [].as_slice().into()]).unwrap();
    }
    let shared = Shared {
        control,
        rounds,
        database: &database,
        table: &table,
        next: (0..lists).map(|_| AtomicU32::new(0)).collect(),
        together: Barrier::new(THREADS),
        refused: AtomicU32::new(0),
    };
    let history = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, history) = (&shared, &history);
            scope.spawn(move || {
                let of_thread = run_thread(shared, thread);
                history.lock().unwrap().extend(of_thread);
            });
        }
    });
    let mut history = history.into_inner().unwrap();
    history.push(read_all(&shared));
    assert_eq!(database.check().unwrap(), []);
    (history, shared.refused.into_inner())
}

#[test]
fn threads_see_snapshot_isolation() {
    let (history, refused) = history_of(Control::Nothing, ROUNDS);
    let committed = history.iter().filter(|of| of.is_committed).count();
    assert!(
        committed > 10_000 && committed < history.len() - 5_000,
        "{committed} of {} committed",
        history.len()
    );
    assert!(refused > 1_000, "{refused} statements met others");
    anomaly::check(&history).unwrap_or_else(|anomaly| panic!("{anomaly}"));
}

/// What threads do wrong is in their histories, and the checker finds it.
#[test]
fn the_checker_finds_what_threads_do_wrong() {
    for control in [Control::ReadsPresent, Control::WritesBlindly] {
        let (history, _) = history_of(control, 2_000);
        let anomaly = anomaly::check(&history).expect_err("something is wrong with it");
        let is_expected = match control {
            Control::Nothing => false,
            Control::ReadsPresent => matches!(
                anomaly.kind,
                anomaly::Kind::Internal | anomaly::Kind::GSingle | anomaly::Kind::GNonadjacent
            ),
            Control::WritesBlindly => matches!(
                anomaly.kind,
                anomaly::Kind::LostUpdate
                    | anomaly::Kind::IncompatibleOrder
                    | anomaly::Kind::Internal
            ),
        };
        assert!(is_expected, "{control:?}: {anomaly}");
    }
}
