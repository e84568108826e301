//! What many updates of the same rows leave behind: lookups, memory, and the pool.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use remanent_engine::{Database, Get, Table, TableSpec, Type, Update};
use remanent_pmem::pool::layout::CHUNK_LEN;
use remanent_pmem::{Emulation, Mapped, Pool};

use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples};
use crate::memory::pool;
use crate::report::{Ground, Report};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "rewrites",
    "The engine after a million updates of the same rows, and after a hundred million",
    run,
);

/// Updates of the whole bench, for each one that comes before the first measurement.
const FACTOR: u64 = 100;
/// Measurements in all: after 1, 2, 5, … % of the updates.
const MARKS: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];
const LOOKUPS: u64 = 100_000;
const ROUNDS: usize = 9;

/// What there is after so many updates.
struct Mark {
    updates: u64,
    lookup_ns: Samples,
    update_ns: Samples,
    /// Bytes of memory that are no file's.
    memory: Samples,
    /// Bytes of the chunks of the pool that are in use.
    chunks: Samples,
    /// Bytes that its file takes.
    file: Samples,
}

/// A database of one table, and statements.
struct Rows<'p> {
    pool: &'p Pool<Mapped>,
    path: &'p Path,
    database: Database,
    get: Get,
    update: Update,
    count: u64,
    /// Number of the next update.
    next: u64,
}

fn spec() -> TableSpec {
    TableSpec::new("rows")
        .column("id", Type::U32)
        .column("value", Type::U64)
        .column("text", Type::Text { max: 40 })
        .primary_key(["id"])
}

impl<'p> Rows<'p> {
    fn load(pool: &'p Pool<Mapped>, path: &'p Path, count: u64) -> Result<Self> {
        let database = Database::create(pool, "rows")?;
        let table: Table = database.create_table(&spec())?;
        for id in 0..count as u32 {
            table.insert(&[id.into(), 0.into(), "as it was".into()])?;
        }
        let (get, update) = (table.prepare_get("primary")?, table.prepare_update("primary")?);
        Ok(Rows { pool, path, database, get, update, count, next: 0 })
    }

    /// A row, in an order that has each of them equally often and none twice in succession.
    fn row(&self, turn: u64) -> u32 {
        (turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20 ^ turn) as u32 % self.count as u32
    }

    /// Updates rows until so many updates are done. Returns nanoseconds for each.
    fn update_until(&mut self, end: u64) -> Result<f64> {
        let (begin, first) = (Instant::now(), self.next);
        while self.next < end {
            let (id, value) = (self.row(self.next), self.next);
            let done = self.update.run(&[id.into()], |_, row| row.set(1, value))?;
            ensure!(done.is_some(), "row {id} is gone");
            self.next += 1;
        }
        Ok(begin.elapsed().as_nanos() as f64 / (end - first).max(1) as f64)
    }

    fn lookup_ns(&self, round: u64) -> Result<f64> {
        let (begin, mut sum) = (Instant::now(), 0u64);
        let now = self.database.snapshot();
        for turn in 0..LOOKUPS {
            let id = self.row(turn + round * LOOKUPS);
            let value: Option<u64> = self.get.run(&now, &[id.into()], |row| row.get(1))?;
            sum = sum.wrapping_add(value.context("a row is gone")?);
        }
        ensure!(sum > 0, "nothing was updated");
        Ok(begin.elapsed().as_nanos() as f64 / LOOKUPS as f64)
    }

    fn mark(&mut self, updates: u64) -> Result<Mark> {
        let update_ns = Samples::from_iter([self.update_until(updates)?]);
        let lookup_ns = (0..ROUNDS as u64).map(|round| self.lookup_ns(round));
        let lookup_ns = lookup_ns.collect::<Result<Vec<f64>>>()?.into_iter().collect();
        let used = self.pool.check()?.chunks_used * CHUNK_LEN;
        let bytes = |bytes: u64| Samples::from_iter([bytes as f64]);
        Ok(Mark {
            updates,
            lookup_ns,
            update_ns,
            memory: bytes(anonymous_memory()?),
            chunks: bytes(used),
            file: bytes(fs::metadata(self.path)?.blocks() * 512),
        })
    }
}

/// Bytes of memory of this process that belong to no file.
fn anonymous_memory() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).context("no RssAnon in /proc")?;
    Ok(kib.parse::<u64>()? << 10)
}

/// Updates the same rows again and again, and looks from time to time what that has left.
///
/// # Errors
///
/// When the pool cannot be made, or a row is not as it was made.
fn run(setup: &Setup) -> Result<Report> {
    let effort = Effort::of(setup);
    let rows = effort.pick(100_000, 100_000, 500);
    let updates: u64 = effort.pick(100_000_000, 10_000_000, 5_000);
    let mut report = Report::new("rewrites")?;
    let scratch = Scratch::new(&setup.dir)?;
    let path = scratch.path().join("rows.pool");
    let pool = pool::options(Emulation::Nvram).create(&path)?;
    let ground = Ground::of_pool(&pool);
    let progress = Progress::new("rewrites", 1 + MARKS.len());
    progress.step(format!("loading {rows} rows"));
    let mut all = Rows::load(&pool, &path, rows)?;
    let mut marks = Vec::new();
    for percent in MARKS {
        let until = updates / FACTOR * percent;
        progress.step(format!("until {until} updates"));
        marks.push(all.mark(until)?);
    }
    let violations = all.database.check()?;
    ensure!(violations.is_empty(), "the database is damaged: {violations:?}");
    tell(&mut report, &ground, rows, &marks);
    Ok(report)
}

fn tell(report: &mut Report, ground: &Ground, rows: u64, marks: &[Mark]) {
    for mark in marks {
        let x = format!("{rows} rows, {} updates", mark.updates);
        report.row("lookup", &x, ground, "ns/op", &mark.lookup_ns);
        report.row("update", &x, ground, "ns/op", &mark.update_ns);
        report.row("memory", &x, ground, "bytes", &mark.memory);
        report.row("chunks in use", &x, ground, "bytes", &mark.chunks);
        report.row("pool file", &x, ground, "bytes", &mark.file);
    }
    let (Some(first), Some(last)) = (marks.first(), marks.last()) else { return };
    let against = format!("after {} updates, over after {}", last.updates, first.updates);
    for (id, of) in [
        ("rewrites.lookup", [&last.lookup_ns, &first.lookup_ns]),
        ("rewrites.memory", [&last.memory, &first.memory]),
        ("rewrites.chunks", [&last.chunks, &first.chunks]),
        ("rewrites.file", [&last.file, &first.file]),
    ] {
        report.claim(id, &of[0].over(of[1]), "x", against.clone(), None);
    }
    let mut curve = |file, title, unit, series, of: fn(&Mark) -> &Samples| {
        let point = |mark: &Mark| (mark.updates as f64 / 1e6, of(mark).median());
        report.curve(file, title, unit, series, marks.iter().map(point).collect());
    };
    let title = "Rows that are rewritten: time, by millions of updates";
    curve("times", title, "ns/op", "lookup", |mark| &mark.lookup_ns);
    curve("times", title, "ns/op", "update", |mark| &mark.update_ns);
    let title = "Rows that are rewritten: bytes, by millions of updates";
    curve("bytes", title, "bytes", "memory", |mark| &mark.memory);
    curve("bytes", title, "bytes", "chunks in use", |mark| &mark.chunks);
    curve("bytes", title, "bytes", "pool file", |mark| &mark.file);
}
