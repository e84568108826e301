//! Whether what threads see together is serializable, when it is asked for.
//!
//! Transactions read some lists, by keys, ranges and scans, and append to others. A list is a row
//! that is inserted with its first number: until then, it is read as an empty one.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use remanent_engine::{
    Database, Durability, Error, Isolation, Order, Resumed, Row, Table, TableSpec, Transaction,
    TransactionOptions, Type,
};
use remanent_pmem::Pool;

use super::history::{List, Step};
use super::{Random, THREADS, TOGETHER, anomaly, history, list_of, taken_back};

/// Lists that the transactions of some rounds choose from.
const LISTS: u32 = 6;

struct Shared<'d> {
    isolation: Isolation,
    rounds: u32,
    database: &'d Database,
    table: &'d Table,
    /// The next number of each list.
    next: Vec<AtomicU32>,
    together: Barrier,
}

struct Run<'s, 'd> {
    shared: &'s Shared<'d>,
    random: &'s mut Random,
    /// The first of the lists to choose from.
    first: u32,
    steps: Vec<Step>,
}

impl Run<'_, '_> {
    fn key(&mut self) -> u32 {
        self.first + self.random.below(LISTS.into()) as u32
    }

    fn note(&mut self, keys: impl IntoIterator<Item = u32>, found: &[(u32, List)]) {
        for key in keys {
            let list = found.iter().find(|(of, _)| *of == key);
            let list = list.map_or_else(List::new, |(_, list)| list.clone());
            self.steps.push(Step::Read(key, list));
        }
    }

    fn read(&mut self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let (table, key) = (self.shared.table, self.key());
        let mut found = Vec::new();
        let mut visit = |row: &Row<'_>| {
            found.push((row.get(0).unwrap(), list_of(row.get(1).unwrap())));
            ControlFlow::<()>::Continue(())
        };
        match self.random.below(4) {
            0 | 1 => {
                let get = table.prepare_get("primary")?;
                get.run(transaction, &[key.into()], |row| {
                    let _ = visit(row);
                    Ok(())
                })?;
                self.note([key], &found);
            }
            2 => {
                let range = table.prepare_range("by_key")?;
                let (from, to) = ([key.into()], [(key + 1).into()]);
                let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
                range.run(transaction, bounds, Order::Ascending, &mut visit)?;
                self.note([key, key + 1], &found);
            }
            _ => {
                table.scan(transaction, &mut visit)?;
                self.note(self.first..self.first + LISTS, &found);
            }
        }
        Ok(())
    }

    /// False if somebody else was first.
    fn append(&mut self, transaction: &mut Transaction<'_>) -> Result<bool, Error> {
        let key = self.key();
        let number = self.shared.next[key as usize].fetch_add(1, Ordering::Relaxed) as u16;
        let upsert = self.shared.table.prepare_upsert("primary")?;
        let bytes = number.to_le_bytes();
        let mut before = List::new();
        let appended =
            upsert.run_in(transaction, &[key.into(), bytes.as_slice().into()], |row, to| {
                let mut list = row.get::<&[u8]>(1)?.to_vec();
                before = list_of(&list);
                list.extend(bytes);
                to.set(1, list.as_slice())
            });
        match appended {
            Err(Error::Conflict { .. } | Error::Overtaken { .. }) => return Ok(false),
            appended => drop(appended?),
        }
        self.steps.extend([Step::Read(key, before), Step::Append(key, number)]);
        Ok(true)
    }

    /// Makes a transaction. Whether it was committed.
    fn transaction(&mut self) -> Result<bool, Error> {
        let durability = match self.random.below(2) {
            0 => Durability::EachStatement,
            _ => Durability::AtCommit,
        };
        let Shared { isolation, database, .. } = *self.shared;
        let options = TransactionOptions::new().durability(durability).isolation(isolation);
        let mut transaction = database.begin_with(&options)?;
        let mut is_first = true;
        for _ in 0..=self.random.below(3) {
            self.read(&transaction)?;
            match self.random.below(8) {
                // The checker counts what is read before and afterwards as read at one moment.
                0 if isolation == Isolation::Serializable => {
                    transaction.refresh()?;
                    self.steps.push(Step::Refresh);
                }
                1 => {
                    let token = transaction.suspend();
                    let Resumed::Open(again) = database.resume(token)? else {
                        panic!("nobody has ended it");
                    };
                    transaction = again;
                }
                2 => is_first &= transaction.batch(|batch| self.append(batch))?,
                3 => is_first &= self.append(&mut transaction)?,
                _ => thread::yield_now(),
            }
        }
        let committed = match self.random.below(3) {
            _ if !is_first => return Ok(false),
            0 => transaction.commit_with(|last| match self.append(last)? {
                true => Ok(true),
                false => Err(taken_back()),
            }),
            _ => self.append(&mut transaction).and_then(|is_first| {
                if is_first { transaction.commit().map(|()| true) } else { Ok(false) }
            }),
        };
        match committed {
            Err(Error::NotSerializable { .. } | Error::NoToken { .. }) => Ok(false),
            committed => committed,
        }
    }
}

fn run_thread(shared: &Shared<'_>, thread: usize) -> Vec<history::Transaction> {
    let mut random = Random(thread as u64 + 1);
    let mut history = Vec::new();
    for round in 0..shared.rounds {
        if round % TOGETHER == 0 {
            shared.together.wait();
        }
        let (random, first) = (&mut random, round / TOGETHER * LISTS);
        let mut run = Run { shared, random, first, steps: Vec::new() };
        let is_committed = run.transaction().unwrap();
        history.push(history::Transaction { thread, steps: run.steps, is_committed });
    }
    history
}

fn history_of(isolation: Isolation, rounds: u32) -> Vec<history::Transaction> {
    let pool = Pool::options().create_in_memory().unwrap();
    let database = Database::create(&pool, "lists").unwrap();
    let spec = TableSpec::new("lists")
        .column("key", Type::U32)
        .column("list", Type::Bytes { max: 255 })
        .primary_key(["key"])
        .index("by_key", ["key"])
        .ordered(["by_key"]);
    let table = database.create_table(&spec).unwrap();
    let lists = (rounds / TOGETHER + 1) * LISTS + 1;
    let shared = Shared {
        isolation,
        rounds,
        database: &database,
        table: &table,
        next: (0..lists).map(|_| AtomicU32::new(0)).collect(),
        together: Barrier::new(THREADS),
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
    let mut random = Random(0);
    let mut last = Run { shared: &shared, random: &mut random, first: 0, steps: Vec::new() };
    let mut found = Vec::new();
    let now = database.snapshot();
    let visit = |row: &Row<'_>| {
        found.push((row.get(0).unwrap(), list_of(row.get(1).unwrap())));
        ControlFlow::<()>::Continue(())
    };
    table.scan(&now, visit).unwrap();
    last.note(0..lists, &found);
    let steps = last.steps;
    history.push(history::Transaction { thread: THREADS, steps, is_committed: true });
    assert_eq!(database.check().unwrap(), []);
    history
}

/// The checker finds write skew, and threads make it.
#[test]
fn threads_with_snapshots_are_not_serializable() {
    let history = history_of(Isolation::Snapshot, 1_000);
    anomaly::check(&history).unwrap_or_else(|anomaly| panic!("{anomaly}"));
    let anomaly = anomaly::check_serializable(&history).expect_err("there is write skew");
    assert_eq!(anomaly.kind, anomaly::Kind::G2, "{anomaly}");
}

#[test]
fn threads_are_serializable_if_that_is_asked_for() {
    let history = history_of(Isolation::Serializable, 4_000);
    let committed = history.iter().filter(|of| of.is_committed).count();
    assert!(committed > 2_000 && committed < 15_000, "{committed} of {}", history.len());
    anomaly::check_serializable(&history).unwrap_or_else(|anomaly| panic!("{anomaly}"));
}
