//! Transactions of databases, crashed in simulation.
//!
//! A transaction reaches the disk as up to two batches: the writes that SQLite made without a
//! journal, and those of the transaction itself. After a crash all of it is there, or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use remanent_blockdev::{Disk, Shape};
use remanent_crashsim::{Config, Nested, Outcome, Rng, Sim, SimOptions, Subject, explore};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;

use super::{Batch, commit};

/// Bytes of a page. The disk's blocks are larger, so a transaction changes parts of them.
const PAGE_LEN: u64 = 1024;
const PAGES: u64 = 12;
const SIZE_MAX: u64 = 40 << 20;
const ROOT: &str = "database";

/// A database of a few pages, which is changed by transactions.
struct Database;

/// One transaction: pages and their new content, first without a journal and then with one.
#[derive(Clone, Debug)]
struct Commit {
    unjournaled: Vec<(u64, u8)>,
    journaled: Vec<(u64, u8)>,
    /// Minimal number of pages of the database.
    pages: u64,
}

/// An open database, closed before its pool.
struct Open {
    disk: Disk<Arc<Sim>>,
    pool: Pool<Arc<Sim>>,
}

/// The size, if it is not the first one, and the pages that are not zeros.
type State = (Option<u64>, BTreeMap<u64, u8>);

/// Pages of a new database.
const FIRST_PAGES: u64 = 2;

fn batch(pages: &[(u64, u8)], size: u64) -> Batch {
    let mut batch = Batch::new(size);
    for &(page, stamp) in pages {
        batch.put(page * PAGE_LEN, &[stamp; PAGE_LEN as usize]);
    }
    batch
}

impl Subject for Database {
    type Op = Commit;
    type Ret = bool;
    type State = State;
    type Handle = Open;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let pool = Pool::format(medium, &Format::new(SIZE_MAX))?;
        let size = FIRST_PAGES * PAGE_LEN;
        let shape = Shape { slab_blocks: 16, lines_max: 4, spares_max: 1 };
        Ok(Open { disk: Disk::create_with(&pool, ROOT, size, shape)?, pool })
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let pool = Pool::recover(medium)?;
        Ok(Open { disk: Disk::open(&pool, ROOT)?, pool })
    }

    fn apply(&self, open: &Open, op: &Commit) -> bool {
        let size = open.disk.size();
        let unjournaled = batch(&op.unjournaled, size);
        let journaled = batch(&op.journaled, unjournaled.size().max(op.pages * PAGE_LEN));
        commit(&open.disk, [&unjournaled, &journaled], journaled.size()).is_ok()
    }

    fn model(&self, (pages, content): &mut State, op: &Commit) -> bool {
        let written = op.unjournaled.iter().chain(&op.journaled);
        let end = written.clone().map(|(page, _)| page + 1).max().unwrap_or(0);
        let size = pages.unwrap_or(FIRST_PAGES).max(end).max(op.pages);
        *pages = (size != FIRST_PAGES).then_some(size);
        content.extend(written.copied());
        content.retain(|_, stamp| *stamp != 0);
        true
    }

    fn observe(&self, open: &Open) -> Outcome<State> {
        let pages = open.disk.size() / PAGE_LEN;
        let mut content = BTreeMap::new();
        for page in 0..pages {
            let mut bytes = [0; PAGE_LEN as usize];
            open.disk.read(page * PAGE_LEN, &mut bytes)?;
            if bytes.iter().any(|byte| *byte != bytes[0]) {
                return Err(format!("page {page} is torn").into());
            }
            content.extend((bytes[0] != 0).then_some((page, bytes[0])));
        }
        Ok(((pages != FIRST_PAGES).then_some(pages), content))
    }

    fn op(&self, rng: &mut Rng) -> Commit {
        let some = |rng: &mut Rng| {
            let count = rng.below(4);
            (0..count).map(|_| (rng.below(PAGES), rng.below(200) as u8)).collect()
        };
        Commit { unjournaled: some(rng), journaled: some(rng), pages: rng.below(PAGES) }
    }

    fn check(&self, open: &Open) -> Outcome {
        let violations = [open.disk.check()?, open.pool.check()?.violations].concat();
        let told: Vec<String> = violations.iter().map(ToString::to_string).collect();
        if told.is_empty() { Ok(()) } else { Err(told.join("; ").into()) }
    }
}

fn config() -> Config {
    let sim = SimOptions { len: 64 << 10, capacity: SIZE_MAX, ..SimOptions::default() };
    let nested = Nested { depth: 1, one_in: 16, samples: 4 };
    Config {
        seeds: 0..3,
        setup: 2,
        ops: 4,
        full_max: 16,
        samples: 8,
        nested,
        sim,
        ..Config::default()
    }
}

#[test]
fn transactions_survive_every_crash() {
    let report = explore(&Database, &config());
    assert!(report.is_clean() && report.images > 200, "{report}");
}

#[test]
fn transactions_survive_a_kill_and_then_a_power_failure() {
    let nested = Nested { depth: 1, one_in: 4, samples: 8 };
    let report = explore(&Database, &Config { kills: 1, creation: false, nested, ..config() });
    assert!(report.is_clean() && report.nested_images > 100, "{report}");
}
