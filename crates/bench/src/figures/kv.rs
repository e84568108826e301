//! The server compared with Redis: throughput by redis-benchmark, and memory for each small entry.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::bench::Bench;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, turns};
use crate::peers::redis::{self, Append, Load};
use crate::peers::remanent_serve;
use crate::peers::resp::{Reply, SET_KEY};
use crate::peers::server::{Server, is_installed};
use crate::report::{Ground, Report, Shape, backing_of};
use crate::setup::Setup;

pub(super) const BENCH: Bench =
    Bench::new("kv", "Throughput and memory of the server beside Redis, by redis-benchmark", run);

/// The requests to one server in a round.
#[derive(Clone, Copy)]
struct Case {
    /// Name of the test in redis-benchmark, or of the command.
    test: &'static str,
    pipeline: u32,
    /// About a second of work at 130 thousand requests a second without pipelining.
    requests: u64,
}

/// The floor: what sockets and load generator allow for any command. Measured with our server only.
const PING: &str = "ping_mbulk";

/// Number of members removed in all rounds together; fewer than there are.
const SET_REQUESTS: u64 = 160_000;

const CASES: [Case; 10] = [
    Case { test: "set", pipeline: 1, requests: 160_000 },
    Case { test: "get", pipeline: 1, requests: 160_000 },
    Case { test: PING, pipeline: 1, requests: 160_000 },
    Case { test: "set", pipeline: 16, requests: 600_000 },
    Case { test: "get", pipeline: 16, requests: 600_000 },
    Case { test: PING, pipeline: 16, requests: 600_000 },
    Case { test: "zadd", pipeline: 16, requests: SET_REQUESTS },
    Case { test: "zscore", pipeline: 16, requests: SET_REQUESTS },
    Case { test: "zrange", pipeline: 16, requests: SET_REQUESTS },
    Case { test: "zpopmin", pipeline: 16, requests: SET_REQUESTS },
];

impl Case {
    /// Arguments for redis-benchmark: one of its own tests, or a command.
    fn words(self) -> &'static [&'static str] {
        match self.test {
            "set" => &["set"],
            "get" => &["get"],
            "zadd" => &["ZADD", SET_KEY, "__rand_int__", "member:__rand_int__"],
            "zscore" => &["ZSCORE", SET_KEY, "member:__rand_int__"],
            "zrange" => &["ZRANGE", SET_KEY, "0", "10"],
            "zpopmin" => &["ZPOPMIN", SET_KEY],
            _ => &[PING],
        }
    }

    fn is_on_set(self) -> bool {
        self.words().contains(&SET_KEY)
    }

    /// Whether the contender with this index is asked for it.
    fn is_for(self, contender: usize) -> bool {
        match self.test {
            PING => contender == OURS,
            _ => !self.is_on_set() || has_set(contender),
        }
    }

    fn x(self) -> String {
        format!("p{} {}", self.pipeline, self.test.to_uppercase())
    }
}

/// How much is measured.
struct Effort {
    rounds: usize,
    /// The cases' requests are divided by this.
    divisor: u64,
    /// Keys that requests are drawn from.
    keys: u64,
    /// Number of entries whose memory is measured.
    weighed: u64,
}

const QUICK: Effort = Effort { rounds: 3, divisor: 5, keys: 100_000, weighed: 1_000_000 };
const FULL: Effort = Effort { rounds: 5, divisor: 1, keys: 1_000_000, weighed: 10_000_000 };

/// A running server in the competition.
struct Contender {
    name: &'static str,
    ground: Ground,
    server: Server,
    /// Divisor of the requests, if every write waits for the disk.
    slowness: u64,
    /// Throughput of each case, in thousands a second.
    samples: [Samples; CASES.len()],
    _scratch: Scratch,
}

/// Index of the contenders that the claims are about.
const OURS: usize = 0;
const REDIS_VOLATILE: usize = 1;

/// Sorted sets are compared only with Redis at its fastest.
fn has_set(contender: usize) -> bool {
    [OURS, REDIS_VOLATILE].contains(&contender)
}

/// Runs redis-benchmark against all servers in turn, then weighs an entry in both.
///
/// # Errors
///
/// When `remanent` or redis-benchmark is missing, or a server fails.
fn run(setup: &Setup) -> Result<Report> {
    let program = remanent_serve::find()?;
    ensure!(
        is_installed("redis-benchmark"),
        "redis-benchmark is not installed: it is in Debian's package redis-tools"
    );
    let with_redis = redis::is_here();
    let mut report = Report::new("kv")?;
    let mut contenders = start_all(setup, &program, with_redis)?;
    let effort = if setup.quick { QUICK } else { FULL };
    measure_throughput(&mut contenders, &effort)?;
    for contender in &contenders {
        for (case, samples) in CASES.iter().zip(&contender.samples) {
            report.row(contender.name, &case.x(), &contender.ground, "kops/s", samples);
        }
    }
    add_throughput_claims(&contenders, &mut report);
    drop(contenders);
    weigh(setup, &program, with_redis, effort.weighed, &mut report)?;
    report.chart("p1", "50 clients, one request at a time", "kops/s", "p1 ", Shape::Bars);
    report.chart("p16", "50 clients, 16 requests at a time", "kops/s", "p16 ", Shape::Bars);
    Ok(report)
}

fn start_all(setup: &Setup, program: &Path, with_redis: bool) -> Result<Vec<Contender>> {
    let (dir, disk) = (backing_of(&setup.dir)?, backing_of(&setup.disk)?);
    let promise = "every acknowledged write survives the process";
    let ours = Ground::new(dir, "process", "none", promise);
    let scratch = Scratch::new(&setup.dir)?;
    let server = remanent_serve::start(program, &scratch.path().join("data.pool"))?;
    let mut contenders = vec![Contender::new("remanent", ours, server, 1, scratch)];
    if !with_redis {
        return Ok(contenders);
    }
    let power = if disk == "file" { "power" } else { "process" };
    let always_dir = Ground::new(dir, "process", "none", "appendfsync always");
    let everysec_disk = Ground::new(disk, "process", "none", "appendfsync everysec");
    let always_disk = Ground::new(disk, power, "none", "appendfsync always");
    for (name, ground, dir, append, slowness) in [
        ("redis volatile", Ground::volatile(), &setup.dir, Append::No, 1),
        ("redis always tmpfs", always_dir, &setup.dir, Append::Always, 1),
        ("redis everysec disk", everysec_disk, &setup.disk, Append::EverySec, 1),
        ("redis always disk", always_disk, &setup.disk, Append::Always, 8),
    ] {
        let scratch = Scratch::new(dir)?;
        let mut server = redis::start(scratch.path(), append)?;
        redis::stop_rewrites(&mut server)?;
        contenders.push(Contender::new(name, ground, server, slowness, scratch));
    }
    Ok(contenders)
}

impl Contender {
    fn new(
        name: &'static str,
        ground: Ground,
        server: Server,
        slowness: u64,
        scratch: Scratch,
    ) -> Self {
        Contender { name, ground, server, slowness, samples: Default::default(), _scratch: scratch }
    }
}

fn measure_throughput(contenders: &mut [Contender], effort: &Effort) -> Result<()> {
    let progress = Progress::new("kv", contenders.len() * (1 + effort.rounds * CASES.len()));
    for (index, contender) in contenders.iter_mut().enumerate() {
        progress.step(format!("loading {}", contender.name));
        contender.server.ready()?;
        // So that every GET finds its key.
        contender.server.client()?.load(0..effort.keys).context("cannot load the data")?;
        if has_set(index) {
            contender.server.client()?.load_set(0..effort.keys).context("cannot load a set")?;
        }
    }
    for round in 0..effort.rounds {
        for (index, case) in CASES.into_iter().enumerate() {
            for turn in turns(contenders.len(), round) {
                if !case.is_for(turn) {
                    continue;
                }
                let contender = &mut contenders[turn];
                progress.step(format!("{} {}", contender.name, case.x()));
                let slowness = if case.test == "set" { contender.slowness } else { 1 };
                let requests = case.requests / effort.divisor / slowness;
                let (words, pipeline) = (case.words(), case.pipeline);
                let load = Load { words, pipeline, requests, keys: effort.keys };
                let rate = redis::benchmark(contender.server.address(), load)
                    .with_context(|| format!("{} {}", contender.name, case.x()))?;
                contender.samples[index].push(rate / 1e3);
            }
        }
    }
    for (index, contender) in contenders.iter().enumerate() {
        if has_set(index) {
            let left = contender.server.client()?.call(&[b"ZCARD", SET_KEY.as_bytes()])?;
            // On an empty set ZPOPMIN removes nothing.
            let is_filled = matches!(left, Reply::Integer(count) if count > 0);
            ensure!(is_filled, "{} has no members left: {left:?}", contender.name);
        }
    }
    Ok(())
}

fn add_throughput_claims(contenders: &[Contender], report: &mut Report) {
    let Some(redis) = contenders.get(REDIS_VOLATILE) else { return };
    let ours = &contenders[OURS];
    for (index, case) in CASES.iter().enumerate() {
        if case.test == PING {
            continue;
        }
        let ping =
            CASES.iter().position(|other| other.test == PING && other.pipeline == case.pipeline);
        let floor = ping.map(|ping| ours.samples[ping].over(&redis.samples[index]).median());
        let (mine, theirs) = (&ours.samples[index], &redis.samples[index]);
        let against = format!(
            "Redis without persistence, thousand a second: {:.0}, remanent {:.0}",
            theirs.median(),
            mine.median()
        );
        let id = format!("kv.{}.p{}_vs_redis", case.test, case.pipeline);
        report.claim(&id, &mine.over(theirs), "x", against, floor);
    }
}

/// Bytes of key and value of an entry whose memory is measured.
const ENTRY_LEN: f64 = 32.0;

/// Loads fresh servers, and divides the growth of their memory by the entries.
fn weigh(
    setup: &Setup,
    program: &Path,
    with_redis: bool,
    entries: u64,
    report: &mut Report,
) -> Result<()> {
    let progress = Progress::new("kv", 2);
    progress.step(format!("weighing {entries} entries in remanent"));
    let scratch = Scratch::new(&setup.dir)?;
    let pool = scratch.path().join("data.pool");
    let mut server = remanent_serve::start(program, &pool)?;
    let ours = growth_per_entry(&mut server, entries, |server| {
        Ok(remanent_serve::physical_len(&pool)? + server.anonymous_len()?)
    })?;
    drop(server);
    let x = format!("{entries} entries of 16 + 16 bytes");
    let promise = "pool file and anonymous memory together";
    let ground = Ground::new(backing_of(&setup.dir)?, "process", "none", promise);
    report.row("remanent memory", &x, &ground, "bytes/entry", &ours);
    if !with_redis {
        return Ok(());
    }
    progress.step(format!("weighing {entries} entries in Redis"));
    let scratch = Scratch::new(&setup.dir)?;
    let mut server = redis::start(scratch.path(), Append::No)?;
    let theirs = growth_per_entry(&mut server, entries, |server| {
        server.client()?.info_number("memory", "used_memory")
    })?;
    report.row("redis used_memory", &x, &Ground::volatile(), "bytes/entry", &theirs);
    let against = format!(
        "bytes per entry of 16 + 16 bytes: Redis {:.1}, remanent {:.1}",
        theirs.median(),
        ours.median()
    );
    let floor = Some(ENTRY_LEN / theirs.median());
    report.claim("kv.bytes_per_entry_vs_redis", &ours.over(&theirs), "x", against, floor);
    Ok(())
}

fn growth_per_entry(
    server: &mut Server,
    entries: u64,
    memory: impl Fn(&Server) -> Result<f64>,
) -> Result<Samples> {
    server.ready()?;
    let before = memory(server)?;
    server.client()?.load(0..entries).context("cannot load the data")?;
    Ok(Samples::from_iter([(memory(server)? - before) / entries as f64]))
}
