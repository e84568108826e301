//! The users of TATP that the power-cut rig puts on its machine, and their check
//! (docs/power-cuts.md). The rig calls it as `workers ACTION POOL SEED PLACE...`, with a place for
//! each worker as `Place` shows it:
//!
//! - `load` creates the pool with the tables.
//! - `work` goes on at the places. It prints a line for each step: the number of a worker, and its
//!   new place. It ends only with an error.
//! - `check` compares the tables with the places, and prints in the same way where the workers are.
//!   Lines that begin with `fact` have measured values.

use std::convert::Infallible;
use std::io::Write;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};
use remanent_engine::{Database, DatabaseOptions};
use remanent_pmem::{Durability, Options, Pool};
use remanent_tatp::recovery::{ROOT, placed};
use remanent_tatp::workers::{Found, Known, POPULATION, Place, WORKERS, Worker, check, race};
use remanent_tatp::{Population, Tables};

/// Far more than the tables and their versions take.
const POOL_SIZE: u64 = 256 << 20;
/// Share of the index entries that are in the pool. The others are rebuilt by each opening.
const PERCENT_IN_POOL: u32 = 50;
/// Threads that rebuild.
const THREADS: usize = 2;
/// Threads that race for the subscribers of everybody.
const RACERS: u64 = 2;
/// Time that a worker waits after each step. So the rig mostly hears of a token while the
/// transaction is open, and many transactions are resumed.
const PAUSE: Duration = Duration::from_millis(1);
/// More steps than can be in flight between a worker and the rig: the content of pipes and ports.
const LEAD_MAX: u64 = 1_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [action, pool, seed, places @ ..] = &arguments[..] else {
        bail!("usage: workers load|work|check POOL SEED PLACE...");
    };
    let seed = seed.parse().context("the seed is no number")?;
    let places = places.iter().map(|place| place.parse()).collect::<Result<Vec<Place>>>()?;
    let options = Pool::options().size_max(POOL_SIZE).durability(Durability::Power);
    if action == "load" {
        return load(&options, pool);
    }
    ensure!(places.len() == WORKERS as usize, "there are {WORKERS} workers");
    let begin = Instant::now();
    let pool = options.open(pool)?;
    let database = DatabaseOptions::new().threads(THREADS).open(&pool, ROOT)?;
    let opened_ms = begin.elapsed().as_secs_f64() * 1e3;
    match &action[..] {
        "work" => work(&database, seed, &places).map(|never| match never {}),
        "check" => {
            println!("fact opened_ms {opened_ms}");
            compare(&database, seed, &places)
        }
        _ => bail!("there is no action {action:?}: expected load, work or check"),
    }
}

fn load(options: &Options, path: &str) -> Result<()> {
    let pool = options.create(path)?;
    let database = Database::create(&pool, ROOT)?;
    let (specs, _) = placed(PERCENT_IN_POOL);
    Population::new(POPULATION).load(&Tables::create_as(&database, &specs)?)?;
    Ok(())
}

fn compare(database: &Database, seed: u64, places: &[Place]) -> Result<()> {
    let population = Population::new(POPULATION);
    let known = |(number, place): (u32, &Place)| Known::new(&population, seed, number, *place);
    let mut known: Vec<Known> = (0..).zip(places).map(known).collect();
    let mut found = Found::default();
    let begin = Instant::now();
    check(database, &mut known, LEAD_MAX, &mut found)?;
    println!("fact check_ms {}", begin.elapsed().as_secs_f64() * 1e3);
    println!("fact resumed_transactions {}", found.open);
    for (number, known) in known.iter().enumerate() {
        println!("{number} {}", known.place());
    }
    Ok(())
}

fn work(database: &Database, seed: u64, places: &[Place]) -> Result<Infallible> {
    thread::scope(|scope| {
        for racer in 0..RACERS {
            let seed =
                seed ^ (racer + 1) << 40 ^ places.iter().map(|place| place.done).sum::<u64>();
            scope.spawn(move || exit(&format!("racer {racer}"), race(database, seed)));
        }
        for (number, place) in (0..).zip(places) {
            scope.spawn(move || {
                let worked = Worker::new(database, seed, number)
                    .and_then(|worker| worker.work(*place, |place| tell(number, place)));
                exit(&format!("worker {number}"), worked);
            });
        }
    });
    bail!("all threads have ended")
}

/// Prints a place. One write, so that lines of different workers do not mix.
fn tell(number: u32, place: Place) {
    let mut stdout = std::io::stdout().lock();
    let told = stdout.write_all(format!("{number} {place}\n").as_bytes());
    if told.and_then(|()| stdout.flush()).is_err() {
        exit(&format!("worker {number}"), Err(anyhow::anyhow!("nobody reads its places")));
    }
    drop(stdout);
    thread::sleep(PAUSE);
}

/// Ends all threads, because each of them works until the power is cut.
fn exit(who: &str, ended: Result<Infallible>) {
    let Err(error) = ended;
    eprintln!("{who}: {error:#}");
    std::process::exit(1);
}
