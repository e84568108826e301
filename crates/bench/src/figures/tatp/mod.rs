//! TATP in the engine, beside SQLite and PostgreSQL: the seven transactions one by one, and their
//! mix.

mod fences;
mod postgres;
mod sqlite;

use std::time::Instant;

use anyhow::{Result, ensure};
use remanent_engine::{Database, TableSpec};
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Emulation, Mapped, Pool};
use remanent_tatp::{Client, Kind, Mix, Population, Request, Tables, tables};

use self::postgres::Postgres;
use self::sqlite::Sqlite;
use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples};
use crate::memory::floor::Floor;
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "tatp",
    "TATP in the engine, as nvram and in memory, beside SQLite and PostgreSQL",
    run,
);

/// Bytes beyond which no pool of this bench grows.
const SIZE_MAX: u64 = 10 << 30;
const LATENCY: &str = "ns/op";
const THROUGHPUT: &str = "k transactions/s";

/// How much is done.
struct Load {
    population: Population,
    /// Requests of each kind, and of the mix for each thread.
    requests: u64,
}

/// What a contender was measured to take.
struct Times {
    /// One for each kind.
    kind_ns: Vec<Samples>,
    /// Bytes for each subscriber, with all that belongs to one.
    bytes: Samples,
    /// The mix, with one thread and with two.
    mix_ktps: [Samples; 2],
}

impl Times {
    fn new() -> Self {
        let kind_ns = Kind::ALL.map(|_| Samples::default()).into();
        Times { kind_ns, bytes: Samples::default(), mix_ktps: Default::default() }
    }

    fn report(&self, report: &mut Report, series: &str, ground: &Ground, subscribers: u32) {
        for ((kind, _), samples) in Kind::ALL.iter().zip(&self.kind_ns) {
            let x = format!("{subscribers} subscribers: {}", kind.name());
            report.row(series, &x, ground, LATENCY, samples);
        }
        for (threads, samples) in (1..).zip(&self.mix_ktps) {
            if samples.runs() > 0 {
                let x = format!("{subscribers} subscribers: mix, {threads} threads");
                report.row(series, &x, ground, THROUGHPUT, samples);
            }
        }
        if self.bytes.runs() > 0 {
            let x = format!("{subscribers} subscribers: each");
            report.row(series, &x, ground, "bytes", &self.bytes);
        }
    }
}

/// Measures all contenders.
///
/// # Errors
///
/// When a pool or a database cannot be made, or a transaction fails.
fn run(setup: &Setup) -> Result<Report> {
    let effort = Effort::of(setup);
    let rounds = effort.pick(5, 3, 1);
    let load = Load {
        population: Population::new(effort.pick(1_000_000, 100_000, 1_000)),
        requests: effort.pick(500_000, 100_000, 500),
    };
    let mut report = Report::new("tatp")?;
    let progress = Progress::new("tatp", 1 + rounds * 6);
    let [mut nvram, mut encoded, mut memory, mut sqlite, mut logged, mut served] =
        [(); 6].map(|()| Times::new());
    let mut ground = None;
    progress.step("loading PostgreSQL");
    let postgres = Postgres::start(&setup.dir, &load.population)?;
    if let Some(postgres) = &postgres {
        served.bytes.push(postgres.bytes()?);
    }
    for _ in 0..rounds {
        let scratch = Scratch::new(&setup.dir)?;
        let options = Pool::options().size_max(SIZE_MAX).emulation(Emulation::Nvram);
        for (name, specs, times) in [
            ("the engine, as nvram", tables(), &mut nvram),
            ("the engine, encoded", tables().map(TableSpec::all_encoded), &mut encoded),
        ] {
            progress.step(name);
            let path = scratch.path().join("tatp.pool");
            let pool = options.create(&path)?;
            ground = Some(Ground::of_pool(&pool));
            measure_engine(&pool, &specs, &load, times)?;
            drop(pool);
            std::fs::remove_file(&path)?;
        }
        progress.step("the engine, in memory");
        let pool = Pool::options().size_max(SIZE_MAX).create_in_memory()?;
        measure_engine(&pool, &tables(), &load, &mut memory)?;
        drop(pool);
        progress.step("SQLite, in memory");
        measure_sqlite(&Sqlite::in_memory()?, &load, &mut sqlite)?;
        progress.step("SQLite, with a log");
        let path = scratch.path().join("tatp.sqlite");
        measure_sqlite(&Sqlite::with_log(&path)?, &load, &mut logged)?;
        logged
            .bytes
            .push(std::fs::metadata(&path)?.len() as f64 / f64::from(load.population.count()));
        progress.step("PostgreSQL");
        if let Some(postgres) = &postgres {
            measure_postgres(postgres, effort.pick(3, 2, 1), &mut served)?;
        }
    }
    drop(postgres);
    let subscribers = load.population.count();
    let all = [&nvram, &encoded, &memory, &sqlite, &logged, &served];
    tell(&mut report, ground.as_ref(), subscribers, all);
    let bytes = nvram.bytes.median() * f64::from(subscribers);
    let floor = Floor::measure(&setup.dir, bytes as usize, rounds)?;
    claim(&mut report, &floor, [&nvram, &memory, &sqlite, &logged]);
    claim_served(&mut report, [&nvram, &served]);
    claim_encoded(&mut report, [&nvram, &encoded]);
    fences::count(setup, &mut report)?;
    report.chart("kinds", "TATP: one transaction", LATENCY, "", Shape::Bars);
    Ok(report)
}

fn tell(report: &mut Report, ground: Option<&Ground>, subscribers: u32, all: [&Times; 6]) {
    let volatile = Ground::volatile();
    let ground = ground.unwrap_or(&volatile);
    let names = [
        ("remanent", ground),
        ("remanent, all columns encoded", ground),
        ("remanent in memory", &volatile),
        ("SQLite in memory", &volatile),
        ("SQLite with a log", ground),
        ("PostgreSQL by pgbench", ground),
    ];
    for ((series, ground), times) in names.into_iter().zip(all) {
        times.report(report, series, ground, subscribers);
    }
}

fn claim(report: &mut Report, floor: &Floor, [nvram, memory, sqlite, logged]: [&Times; 4]) {
    let mix = |times: &Times| times.mix_ktps[0].median();
    let all = format!(
        "k transactions/s of one thread: nvram {:.0}, memory {:.0}, SQLite in memory {:.0}, with a \
         log {:.0}",
        mix(nvram),
        mix(memory),
        mix(sqlite),
        mix(logged)
    );
    for (id, ours, theirs) in [
        ("tatp.memory_vs_sqlite_memory", memory, sqlite),
        ("tatp.nvram_vs_sqlite_wal", nvram, logged),
        ("tatp.nvram_vs_memory", nvram, memory),
    ] {
        let ratio = ours.mix_ktps[0].over(&theirs.mix_ktps[0]);
        report.claim(id, &ratio, "x", all.clone(), None);
    }
    let scaling = nvram.mix_ktps[1].over(&nvram.mix_ktps[0]);
    let against = "two threads over one, as nvram".to_owned();
    report.claim("tatp.scaling.2", &scaling, "x", against, None);
    let against = "600 ns, for 34 columns".to_owned();
    report.claim("tatp.get_subscriber_ns", &nvram.kind_ns[0], "ns", against, None);
    let against = "bytes of SQLite's file".to_owned();
    report.claim("tatp.bytes_vs_sqlite", &nvram.bytes.over(&logged.bytes), "x", against, None);
    for ((kind, _), samples) in Kind::ALL.iter().zip(&nvram.kind_ns) {
        // As `fences` counts them.
        let fences = match kind {
            Kind::GetSubscriberData | Kind::GetNewDestination | Kind::GetAccessData => 0,
            Kind::UpdateSubscriberData => 2,
            _ => 1,
        };
        let id = format!("tatp.{}_ns.vs_floor", kind.name().to_lowercase());
        let floor_ns = Samples::from_iter([floor.ns(fences)]);
        let against = format!("{fences} fences, or a load if there are none");
        report.claim(&id, &samples.over(&floor_ns), "x", against, None);
    }
}

fn claim_served(report: &mut Report, [nvram, served]: [&Times; 2]) {
    let against = "PostgreSQL, by prepared statements over a socket".to_owned();
    for (id, threads) in [("tatp.nvram_vs_postgresql", 0), ("tatp.nvram_vs_postgresql.2", 1)] {
        let ratio = nvram.mix_ktps[threads].over(&served.mix_ktps[threads]);
        report.claim(id, &ratio, "x", against.clone(), None);
    }
    if served.bytes.runs() > 0 {
        let ratio = Samples::from_iter([nvram.bytes.median() / served.bytes.median()]);
        report.claim(
            "tatp.bytes_vs_postgresql",
            &ratio,
            "x",
            "its tables and indexes".into(),
            None,
        );
    }
}

fn claim_encoded(report: &mut Report, [plain, encoded]: [&Times; 2]) {
    let against = "columns that have their values themselves".to_owned();
    let ratio = encoded.mix_ktps[0].over(&plain.mix_ktps[0]);
    report.claim("tatp.encoded_vs_plain", &ratio, "x", against.clone(), None);
    let ratio = encoded.bytes.over(&plain.bytes);
    report.claim("tatp.encoded_vs_plain.bytes", &ratio, "x", against, None);
}

/// Nanoseconds for each request of a kind; those that find nothing count, too.
fn kind_ns(
    mix: &mut Mix,
    kind: Kind,
    count: u64,
    run: impl Fn(&Request) -> Result<bool>,
) -> Result<f64> {
    let requests: Vec<Request> = (0..count).map(|_| mix.draw_of(kind)).collect();
    let begin = Instant::now();
    let mut done = 0;
    for request in &requests {
        done += u64::from(run(request)?);
    }
    let time_ns = begin.elapsed().as_nanos() as f64 / count as f64;
    let share = done as f64 / count as f64;
    ensure!(share > 0.05, "{}: {share} of the requests found what they asked for", kind.name());
    Ok(time_ns)
}

/// Thousands of requests of the mix in a second.
fn mix_ktps(mix: &mut Mix, count: u64, run: impl Fn(&Request) -> Result<bool>) -> Result<f64> {
    let requests: Vec<Request> = (0..count).map(|_| mix.draw()).collect();
    let begin = Instant::now();
    for request in &requests {
        run(request)?;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64() / 1e3)
}

fn measure_engine(
    pool: &Pool<Mapped>,
    specs: &[TableSpec; 4],
    load: &Load,
    times: &mut Times,
) -> Result<()> {
    let database = Database::create(pool, "tatp")?;
    load.population.load(&Tables::create_as(&database, specs)?)?;
    let used = pool.check()?.chunks_used * CHUNK_LEN;
    let subscribers = load.population.count();
    times.bytes.push(used as f64 / f64::from(subscribers));
    let client = Client::new(&database)?;
    let run = |request: &Request| Ok(client.run(request)?);
    let mut mix = Mix::new(subscribers, 5);
    for ((kind, _), samples) in Kind::ALL.iter().zip(&mut times.kind_ns) {
        samples.push(kind_ns(&mut mix, *kind, load.requests, run)?);
    }
    times.mix_ktps[0].push(mix_ktps(&mut mix, load.requests, run)?);
    let sum = std::thread::scope(|scope| {
        let threads = [6, 7].map(|seed| {
            let database = &database;
            scope.spawn(move || {
                let client = Client::new(database)?;
                let run = |request: &Request| Ok(client.run(request)?);
                mix_ktps(&mut Mix::new(subscribers, seed), load.requests, run)
            })
        });
        let done = threads.map(|thread| thread.join().expect("a client does not panic"));
        done.into_iter().sum::<Result<f64>>()
    })?;
    times.mix_ktps[1].push(sum);
    let wrong = client.check()?;
    ensure!(wrong.is_empty(), "the tables contradict themselves: {wrong:?}");
    Ok(())
}

fn measure_sqlite(sqlite: &Sqlite, load: &Load, times: &mut Times) -> Result<()> {
    sqlite.load(&load.population)?;
    let run = |request: &Request| sqlite.run(request);
    let mut mix = Mix::new(load.population.count(), 5);
    for ((kind, _), samples) in Kind::ALL.iter().zip(&mut times.kind_ns) {
        samples.push(kind_ns(&mut mix, *kind, load.requests, run)?);
    }
    times.mix_ktps[0].push(mix_ktps(&mut mix, load.requests, run)?);
    Ok(())
}

fn measure_postgres(postgres: &Postgres, seconds: u32, times: &mut Times) -> Result<()> {
    for ((kind, _), samples) in Kind::ALL.iter().zip(&mut times.kind_ns) {
        samples.push(postgres.kind_ns(*kind, seconds)?);
    }
    for (clients, samples) in (1..).zip(&mut times.mix_ktps) {
        samples.push(postgres.mix_ktps(clients, seconds)?);
    }
    Ok(())
}
