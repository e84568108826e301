//! Kills TATP with open transactions, again and again, and compares what is left with what was
//! acknowledged.
//!
//! Each of three workers has subscribers of its own. What it does is known from the seed: requests
//! of TATP, and transactions of up to six statements, which it commits, commits with the last
//! statement, or gives up. It says what was acknowledged. After a kill, all of that has to be
//! there; what was in progress is there as a whole, or not at all; an open transaction is resumed
//! by its token behind a statement that was acknowledged, or one more, and sees what it had made.
//! It is left open then, and the next process goes on with it. Some statements are batches, and some
//! transactions are durable at their commit. Who asks again how one has ended is told the same. Two more threads race for a few
//! subscribers. All must be consistent as the description wants it.
//!
//! `REMANENT_KILL_ROUNDS` sets the number of rounds, `REMANENT_SEED` repeats a run.

mod model;
mod process;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use remanent_engine::{Database, Resumed, Token};
use remanent_pmem::{Durability, Emulation, Options, Pool};
use remanent_tatp::{Client, Population, Random, Tables};

use self::model::{End, POPULATION, State, Unit, WORKERS, unit};
use self::process::{ORDERS, Orders, Place};

const ROOT: &str = "tatp";

/// What stands for persistent memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    /// Memory that outlives the process, without flushes.
    Memory,
    /// The same, with the instructions that persistent memory needs.
    Nvram,
    /// A file that is synced.
    File,
}

impl Medium {
    const ALL: [Medium; 3] = [Medium::Memory, Medium::Nvram, Medium::File];

    fn name(self) -> &'static str {
        match self {
            Medium::Memory => "memory",
            Medium::Nvram => "nvram",
            Medium::File => "file",
        }
    }

    fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|medium| medium.name() == name).expect("a medium")
    }

    fn options(self) -> Options {
        let options = Pool::options().size_max(4 << 30);
        match self {
            Medium::Memory => options.durability(Durability::Process),
            Medium::Nvram => options.durability(Durability::Process).emulation(Emulation::Nvram),
            Medium::File => options.durability(Durability::Power),
        }
    }
}

/// What a worker was told, and what it must have.
struct Known {
    place: Place,
    state: State,
    /// The last transactions that are over, and whether they were committed.
    ended: VecDeque<(Token, bool)>,
}

/// Of so many transactions in a row, each slot has to know how they ended.
const REMEMBERED: usize = 2;

impl Known {
    /// The open transaction is over.
    fn end(&mut self, is_committed: bool) {
        if let Some((token, _)) = self.place.open {
            self.ended.push_back((token, is_committed));
        }
        while self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

/// What was found in all rounds.
#[derive(Debug, Default)]
struct Found {
    units: u64,
    statements: u64,
    open: u64,
    committed: u64,
    aborted: u64,
    /// How many were asked about again that were known to be over.
    asked_again: u64,
    /// Of requests that were not at their end.
    left: u64,
}

fn number_from_env(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Starts the process, kills it after some time, and notes what it has acknowledged.
fn run_and_kill(orders: &Orders, file: &Path, after: Duration, known: &mut [Known]) {
    let before: Vec<Place> = known.iter().map(|known| known.place).collect();
    assert_eq!(before, orders.places);
    orders.write(file);
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["kill::process::serve", "--exact", "--nocapture", "--test-threads=1"])
        .env(ORDERS, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let lines = lines.map_while(Result::ok);
            lines.filter_map(|line| Some(line.split_once('@')?.1.to_owned())).collect::<Vec<_>>()
        });
        thread::sleep(after);
        // By the signal that nobody can catch.
        let was_running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(was_running, "the process has ended by itself");
        reader.join().unwrap()
    });
    for line in told.iter().filter(|line| *line != "open") {
        note(line, orders.seed, known);
    }
}

/// Notes what a worker has acknowledged.
fn note(line: &str, seed: u64, known: &mut [Known]) {
    let words: Vec<&str> = line.split(' ').collect();
    let worker: usize = words[1].parse().unwrap();
    if words[0] == "done" {
        let unit = unit(seed, worker as u32, known[worker].place.done);
        known[worker].end(!matches!(unit, Unit::Transaction(_, End::Abort)));
    }
    let Known { place, state, .. } = &mut known[worker];
    assert_eq!(words[2].parse::<u64>().unwrap(), place.done, "{line}");
    match words[0] {
        "begun" => place.open = Some((words[3].parse().unwrap(), 0)),
        "statement" => {
            let (_, count) = place.open.as_mut().expect("it has begun");
            *count += 1;
            assert_eq!(*count, words[3].parse::<u32>().unwrap(), "{line}");
        }
        "done" => {
            state.apply(&unit(seed, worker as u32, place.done));
            *place = Place { done: place.done + 1, open: None };
        }
        _ => panic!("{line}"),
    }
}

/// Opens what a killed process has left, and compares it with what was acknowledged.
fn compare(orders: &Orders, known: &mut [Known], found: &mut Found) {
    let pool = orders.medium.options().open(&orders.pool).unwrap();
    let database = Database::open(&pool, ROOT).unwrap();
    let tables = Tables::open(&database).unwrap();
    let told: Vec<Token> = known.iter().filter_map(|of| Some(of.place.open?.0)).collect();
    for open in database.open_transactions() {
        // Those of requests, which nobody goes on with, keep nobody from their rows.
        if !told.contains(&open.token) {
            let resumed = database.resume(open.token).unwrap();
            assert!(matches!(resumed, Resumed::Aborted), "{open:?} is {resumed:?}");
            found.left += 1;
        }
    }
    for (worker, known) in (0..).zip(known.iter_mut()) {
        let next = unit(orders.seed, worker, known.place.done);
        match (&next, known.place.open) {
            (Unit::Transaction(statements, end), Some((token, acknowledged))) => {
                let of_worker = Resuming { database: &database, tables: &tables, worker, token };
                let count = statements.len() as u32;
                match of_worker.resume(known, statements, found) {
                    Ended::No => {}
                    Ended::Committed => {
                        known.end(true);
                        let least = if *end == End::CommitWith { count - 1 } else { count };
                        assert!(*end != End::Abort && acknowledged >= least, "{next:?}");
                        known.state.apply(&next);
                        known.place = Place { done: known.place.done + 1, open: None };
                    }
                    Ended::Aborted if acknowledged == 0 && *end != End::Abort => {
                        known.end(false);
                        known.place.open = None;
                    }
                    Ended::Aborted => {
                        known.end(false);
                        assert!(acknowledged == 0 || *end == End::Abort && acknowledged == count);
                        let is_over = acknowledged == count;
                        known.place =
                            Place { done: known.place.done + u64::from(is_over), open: None };
                    }
                }
            }
            (Unit::Request(_) | Unit::AtCommit(_), None) => {
                let seen = State::seen(&tables, &database.snapshot(), worker).unwrap();
                let mut after = known.state.clone();
                after.apply(&next);
                if seen == after {
                    known.state = after;
                    known.place.done += 1;
                }
            }
            (_, None) => {}
            (Unit::Request(_) | Unit::AtCommit(_), Some(_)) => unreachable!("nobody has its token"),
        }
        for &(token, is_committed) in &known.ended {
            let resumed = database.resume(token).unwrap();
            let expected = if is_committed { Resumed::Committed } else { Resumed::Aborted };
            assert_eq!(format!("{resumed:?}"), format!("{expected:?}"), "{token}, asked again");
            found.asked_again += 1;
        }
        let seen = State::seen(&tables, &database.snapshot(), worker).unwrap();
        assert_eq!(seen, known.state, "worker {worker}, {next:?}");
    }
    let wrong = Client::new(&database).unwrap().check().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}");
    drop(tables);
    assert_eq!(database.check().unwrap(), []);
    drop(database);
    assert_eq!(pool.check().unwrap().violations, []);
}

/// What became of a transaction.
enum Ended {
    No,
    Committed,
    Aborted,
}

/// A transaction that a process has left.
struct Resuming<'d> {
    database: &'d Database,
    tables: &'d Tables,
    worker: u32,
    token: Token,
}

impl Resuming<'_> {
    fn resume(
        &self,
        known: &mut Known,
        statements: &[model::Statement],
        found: &mut Found,
    ) -> Ended {
        let (_, acknowledged) = known.place.open.expect("it has a token");
        match self.database.resume(self.token).unwrap() {
            Resumed::Open(transaction) => {
                let count = transaction.statement();
                assert!(
                    (acknowledged..=acknowledged + 1).contains(&count),
                    "{acknowledged} statements were acknowledged, and {count} took effect"
                );
                let mut expected = known.state.clone();
                statements[..count as usize].iter().for_each(|of| expected.statement(*of));
                let seen = State::seen(self.tables, &transaction, self.worker).unwrap();
                assert_eq!(seen, expected, "within its transaction");
                assert_eq!(transaction.suspend(), self.token);
                known.place.open = Some((self.token, count));
                found.open += 1;
                Ended::No
            }
            Resumed::Committed => {
                found.committed += 1;
                Ended::Committed
            }
            Resumed::Aborted => {
                found.aborted += 1;
                Ended::Aborted
            }
        }
    }
}

fn kill_rounds(directory: &Path, medium: Medium, rounds: u64) {
    let seed = number_from_env("REMANENT_SEED", std::process::id().into());
    let rounds = number_from_env("REMANENT_KILL_ROUNDS", rounds);
    println!("REMANENT_SEED={seed} REMANENT_KILL_ROUNDS={rounds} repeats this run");
    let (pool, file) = (directory.join("kill.pool"), directory.join("orders"));
    let population = Population::new(POPULATION);
    {
        // Loading may be lost.
        let options = Pool::options().size_max(4 << 30).durability(Durability::Process);
        let options = if medium == Medium::File { options } else { medium.options() };
        let pool = options.create(&pool).unwrap();
        let database = Database::create(&pool, ROOT).unwrap();
        population.load(&Tables::create(&database).unwrap()).unwrap();
    }
    let loaded = |worker| Known {
        place: Place::default(),
        state: State::loaded(&population, worker),
        ended: VecDeque::new(),
    };
    let mut known: Vec<Known> = (0..WORKERS).map(loaded).collect();
    let (mut random, mut found) = (Random::new(seed), Found::default());
    for _ in 0..rounds {
        let before: Vec<u64> = known.iter().map(|known| known.place.done).collect();
        let orders = |known: &[Known]| Orders {
            pool: PathBuf::from(&pool),
            medium,
            seed,
            places: known.iter().map(|known| known.place).collect(),
        };
        // Now and then while it opens.
        let after = match random.within(0, 3) {
            0 => Duration::from_micros(random.within(1_000, 20_000)),
            _ => Duration::from_millis(random.within(15, 120)),
        };
        let of_round = orders(&known);
        run_and_kill(&of_round, &file, after, &mut known);
        let acknowledged = known.iter().filter_map(|known| Some(known.place.open?.1));
        found.statements += acknowledged.map(u64::from).sum::<u64>();
        compare(&orders(&known), &mut known, &mut found);
        let units = known.iter().zip(before).map(|(known, before)| known.place.done - before);
        found.units += units.sum::<u64>();
    }
    println!("{medium:?}: {rounds} kills, {found:?}: nothing lost, nothing twice");
    assert!(found.units > rounds, "there was no load");
    if rounds >= 100 {
        assert!(found.open > rounds / 4, "transactions were open");
        assert!(found.committed > 0 && found.aborted > 0, "some had ended, unknown to who waited");
    }
}

#[test]
fn acknowledged_statements_outlive_sigkill_in_memory() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    kill_rounds(directory.path(), Medium::Memory, 12);
}

#[test]
fn acknowledged_statements_outlive_sigkill_as_nvram() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    kill_rounds(directory.path(), Medium::Nvram, 12);
}

#[test]
fn acknowledged_statements_outlive_sigkill_on_a_file() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    kill_rounds(directory.path(), Medium::File, 6);
}
