//! Kills TATP with open transactions, again and again, and compares what is left with what was
//! acknowledged.
//!
//! The threads of the process are the [workers](remanent_tatp::workers) of TATP, which tell their
//! places on standard output, and two that race for a few subscribers. An open transaction is left
//! open after each kill, and the next process goes on with it.
//!
//! `REMANENT_KILL_ROUNDS` sets the number of rounds, `REMANENT_SEED` repeats a run.

mod process;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use std::{env, thread};

use remanent_engine::{Database, DatabaseOptions, Rebuild, TableSpec};
use remanent_pmem::{Durability, Emulation, Options, Pool};
use remanent_tatp::recovery::placed;
use remanent_tatp::workers::{self, Found, Known, POPULATION, Place, WORKERS};
use remanent_tatp::{Population, Random, Tables, tables};

use self::process::{ORDERS, Orders};

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

    /// Each medium has tables of another form: indexes in DRAM, which are rebuilt while the workers
    /// go on; indexes in the pool; and all columns encoded.
    fn tables(self) -> [TableSpec; 4] {
        match self {
            Medium::Memory => placed(0).0,
            Medium::Nvram => tables(),
            Medium::File => tables().map(TableSpec::all_encoded),
        }
    }

    /// Opens the database for workers.
    fn open(self, pool: &Pool) -> Database {
        let rebuild = if self == Medium::Memory { Rebuild::Background } else { Rebuild::Wait };
        DatabaseOptions::new().rebuild(rebuild).open(pool, ROOT).unwrap()
    }
}

fn number_from_env(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// The number of steps that it has told first. Time alone would not do: a slow disk is still in
    /// the first ones when a quick one has done thousands.
    steps: u64,
    /// How long after the last of them, or after its start.
    after: Duration,
}

impl Moment {
    /// In every fourth round while it opens.
    fn of_round(round: u64, random: &mut Random, medium: Medium) -> Self {
        let steps_max = if medium == Medium::File { 150 } else { 2_000 };
        match round % 4 {
            3 => Moment { steps: 0, after: Duration::from_micros(random.within(1_000, 20_000)) },
            _ => Moment {
                steps: random.within(50, steps_max),
                after: Duration::from_micros(random.within(0, 500)),
            },
        }
    }
}

/// Starts the process, kills it, and notes what it has acknowledged.
fn run_and_kill(orders: &Orders, file: &Path, moment: Moment, known: &mut [Known]) {
    /// What the slowest machine does not need for the steps of a round.
    const PATIENCE: Duration = Duration::from_secs(120);
    let before: Vec<Place> = known.iter().map(Known::place).collect();
    assert_eq!(before, orders.places);
    orders.write(file);
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["kill::process::serve", "--exact", "--nocapture", "--test-threads=1"])
        .env(ORDERS, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (reached, at_moment) = mpsc::channel();
    let told = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let lines = lines.map_while(Result::ok);
            let told = lines.filter_map(|line| Some(line.split_once('@')?.1.to_owned()));
            let mut steps = Vec::new();
            for step in told.filter(|line| line != "open") {
                steps.push(step);
                if steps.len() as u64 == moment.steps {
                    // Nobody waits for it any more where patience has ended.
                    let _ = reached.send(());
                }
            }
            steps
        });
        let waited = if moment.steps == 0 { Ok(()) } else { at_moment.recv_timeout(PATIENCE) };
        thread::sleep(moment.after);
        // By the signal that nobody can catch.
        let was_running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_ne!(waited, Err(RecvTimeoutError::Timeout), "{moment:?} in {PATIENCE:?}");
        assert!(was_running, "the process has ended by itself");
        reader.join().unwrap()
    });
    for line in told {
        let (worker, place) = line.split_once(' ').unwrap();
        known[worker.parse::<usize>().unwrap()].tell(place.parse().unwrap()).unwrap();
    }
}

/// Opens what a killed process has left, and compares it with what was acknowledged.
fn compare(orders: &Orders, known: &mut [Known], found: &mut Found) {
    /// A worker tells each step before it takes the next one, and a pipe outlives the process.
    const LEAD: u64 = 1;
    let pool = orders.medium.options().open(&orders.pool).unwrap();
    let database = Database::open(&pool, ROOT).unwrap();
    workers::check(&database, known, LEAD, found).unwrap();
    drop(database);
    assert_eq!(pool.check().unwrap().violations, []);
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
        let tables = Tables::create_as(&database, &medium.tables()).unwrap();
        population.load(&tables).unwrap();
    }
    let begin = |worker| Known::new(&population, seed, worker, Place::default());
    let mut known: Vec<Known> = (0..WORKERS).map(begin).collect();
    let (mut random, mut found) = (Random::new(seed), Found::default());
    let (mut units, mut statements) = (0, 0);
    for round in 0..rounds {
        let before: Vec<u64> = known.iter().map(|known| known.place().done).collect();
        let orders = |known: &[Known]| Orders {
            pool: PathBuf::from(&pool),
            medium,
            seed,
            places: known.iter().map(Known::place).collect(),
        };
        let of_round = orders(&known);
        let moment = Moment::of_round(round, &mut random, medium);
        run_and_kill(&of_round, &file, moment, &mut known);
        let acknowledged = known.iter().filter_map(|known| Some(known.place().open?.1));
        statements += acknowledged.map(u64::from).sum::<u64>();
        compare(&orders(&known), &mut known, &mut found);
        let done = known.iter().zip(before).map(|(known, before)| known.place().done - before);
        units += done.sum::<u64>();
    }
    println!(
        "{medium:?}: {rounds} kills, {units} units, {statements} statements of open transactions, \
         {found:?}: nothing lost, nothing twice"
    );
    assert!(units > rounds, "there was no load");
    assert!(found.asked_again > rounds, "how some ended is remembered");
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
