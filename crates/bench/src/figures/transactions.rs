//! What transactions of the engine cost by their isolation and durability, and rows by the size of
//! their batch, the kind of their index, and the map that it stands on.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use remanent_engine::{
    Database, Durability, Get, Isolation, PRIMARY, Placement, Table, TableSpec, TransactionOptions,
    Type, Update,
};
use remanent_pmem::Emulation;

use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, turns};
use crate::memory::pool;
use crate::peers::row_maps::Kind;
use crate::report::{Ground, Report};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "transactions",
    "Transactions of the engine by isolation and durability; rows by batches and kinds of index",
    run,
);

/// Reads by key before the update of a transaction.
const READS: u64 = 4;
const THREADS: [u64; 2] = [1, 2];
/// Rows of a batch. One row is a statement that is a transaction.
const BATCHES: [u32; 3] = [10, 100, 1_000];

/// Transactions that are begun with the same options.
struct Case {
    name: &'static str,
    options: TransactionOptions,
    /// For each number of threads, nanoseconds that a transaction takes its thread.
    transaction_ns: [Samples; THREADS.len()],
}

fn cases() -> [Case; 4] {
    let case = |name, isolation, durability| Case {
        name,
        options: TransactionOptions::new().isolation(isolation).durability(durability),
        transaction_ns: [const { Samples::new() }; THREADS.len()],
    };
    let (each, at_commit) = (Durability::EachStatement, Durability::AtCommit);
    [
        case("snapshot", Isolation::Snapshot, each),
        case("serializable", Isolation::Serializable, each),
        case("snapshot, durable at the commit", Isolation::Snapshot, at_commit),
        case("serializable, durable at the commit", Isolation::Serializable, at_commit),
    ]
}

/// One table, and its statements.
struct Rows<'d> {
    database: &'d Database,
    get: Get,
    update: Update,
    rows: u64,
}

impl Rows<'_> {
    /// Transactions of one thread, on rows that no other thread has: `READS` reads and an update.
    /// Returns nanoseconds for each.
    fn work(
        &self,
        options: &TransactionOptions,
        thread: u64,
        threads: u64,
        count: u64,
    ) -> Result<f64> {
        let row = |turn: u64| {
            let spread = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            (spread % (self.rows / threads) * threads + thread) as u32
        };
        let begin = Instant::now();
        for turn in 0..count {
            let mut transaction = self.database.begin_with(options)?;
            let mut sum = 0u64;
            for read in 0..READS {
                let id = row(turn * (READS + 1) + read);
                let value: Option<u64> =
                    self.get.run(&transaction, &[id.into()], |row| row.get(1))?;
                sum = sum.wrapping_add(value.context("a row is gone")?);
            }
            let id = row(turn * (READS + 1) + READS);
            // Another value than before, so that there is something to write.
            let value = sum.wrapping_add(turn + 1);
            let done =
                self.update.run_in(&mut transaction, &[id.into()], |_, row| row.set(1, value))?;
            ensure!(done.is_some(), "row {id} is gone");
            transaction.commit()?;
        }
        Ok(begin.elapsed().as_nanos() as f64 / count as f64)
    }

    /// The same by several threads; the mean.
    fn work_together(&self, options: &TransactionOptions, threads: u64, count: u64) -> Result<f64> {
        let of_threads: Vec<Result<f64>> = thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || self.work(options, thread, threads, count)))
                .collect();
            let joined = spawned.into_iter().map(|thread| thread.join().expect("no panic"));
            joined.collect()
        });
        let all = of_threads.into_iter().collect::<Result<Vec<f64>>>()?;
        Ok(all.iter().sum::<f64>() / threads as f64)
    }
}

fn spec(name: &str) -> TableSpec {
    TableSpec::new(name)
        .column("id", Type::U32)
        .column("value", Type::U64)
        .column("text", Type::Text { max: 40 })
        .primary_key(["id"])
}

/// Inserts rows with these keys, so many by each batch. Returns nanoseconds for each row.
fn insert(database: &Database, table: &Table, ids: &[u32], batch: u32) -> Result<f64> {
    let values = |id: u32| [id.into(), 0.into(), "as it was".into()];
    let begin = Instant::now();
    for of_batch in ids.chunks(batch as usize) {
        if let [id] = of_batch {
            table.insert(&values(*id))?;
            continue;
        }
        let mut transaction = database.begin()?;
        transaction.batch(|batch| {
            of_batch.iter().try_for_each(|id| table.insert_in(batch, &values(*id)).map(drop))
        })?;
        transaction.commit()?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / ids.len() as f64)
}

/// Keys in an order of their own.
fn shuffled(count: u32) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..count).collect();
    ids.sort_unstable_by_key(|id| id.wrapping_mul(0x9e37_79b9));
    ids
}

/// What leads to the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Hash,
    Ordered,
    /// Our hash index in DRAM.
    Dram,
    /// Another map in its place.
    Map(Kind),
}

impl Index {
    fn name(self) -> String {
        match self {
            Index::Hash => "hash index".to_owned(),
            Index::Ordered => "ordered index".to_owned(),
            Index::Dram => "hash index in DRAM".to_owned(),
            Index::Map(kind) => format!("{} in its place", kind.name()),
        }
    }

    /// What names of claims have.
    fn id(self) -> &'static str {
        match self {
            Index::Hash => "hash",
            Index::Ordered => "ordered",
            Index::Dram => "dram",
            Index::Map(kind) => kind.name(),
        }
    }
}

/// What a table takes that is filled and read.
struct Filled {
    index: Index,
    batch: u32,
    insert_ns: Samples,
    get_ns: Samples,
}

impl Filled {
    /// The single rows of each index first, that of a hash index before all.
    fn all() -> Vec<Filled> {
        let of = |index, batch| Filled {
            index,
            batch,
            insert_ns: Samples::new(),
            get_ns: Samples::new(),
        };
        let maps = Kind::ALL.into_iter().map(Index::Map);
        let singly = [Index::Hash, Index::Ordered, Index::Dram].into_iter().chain(maps);
        let batches = BATCHES.into_iter().map(|batch| of(Index::Hash, batch));
        singly.map(|index| of(index, 1)).chain(batches).collect()
    }

    /// Makes a table, fills it and reads each row by its key, and drops it.
    fn measure(&mut self, database: &Database, rows: u32) -> Result<()> {
        let spec = spec("filled");
        let spec = match self.index {
            Index::Hash => spec,
            Index::Ordered => spec.ordered([PRIMARY]),
            Index::Dram | Index::Map(_) => spec.place([PRIMARY], Placement::Dram),
        };
        if let Index::Map(kind) = self.index {
            let make = move || kind.make().expect("memory for an empty map");
            database.set_row_maps(Some(Arc::new(make)));
        }
        let table = database.create_table(&spec)?;
        database.set_row_maps(None);
        let ids = shuffled(rows);
        self.insert_ns.push(insert(database, &table, &ids, self.batch)?);
        let (get, now, begin) = (table.prepare_get(PRIMARY)?, database.snapshot(), Instant::now());
        for id in &ids {
            let value: Option<u64> = get.run(&now, &[(*id).into()], |row| row.get(1))?;
            ensure!(value == Some(0), "row {id} is not as it was made");
        }
        self.get_ns.push(begin.elapsed().as_nanos() as f64 / ids.len() as f64);
        drop((get, now, table));
        database.drop_table("filled")?;
        database.collect()?;
        Ok(())
    }
}

/// Measures all cases in turn, round by round.
///
/// # Errors
///
/// When the pool cannot be made, or a row is not as it was made.
fn run(setup: &Setup) -> Result<Report> {
    let effort = Effort::of(setup);
    let rows: u32 = effort.pick(100_000, 100_000, 500);
    let count: u64 = effort.pick(50_000, 10_000, 50);
    let rounds = effort.pick(9, 3, 1);
    let mut report = Report::new("transactions")?;
    let scratch = Scratch::new(&setup.dir)?;
    let pool = pool::options(Emulation::Nvram).create(scratch.path().join("transactions.pool"))?;
    let ground = Ground::of_pool(&pool);
    let progress = Progress::new("transactions", 1 + rounds);
    progress.step(format!("loading {rows} rows"));
    let database = Database::create(&pool, "transactions")?;
    let table = database.create_table(&spec("rows"))?;
    insert(&database, &table, &shuffled(rows), 1_000)?;
    let (get, update) = (table.prepare_get(PRIMARY)?, table.prepare_update(PRIMARY)?);
    let on_rows = Rows { database: &database, get, update, rows: rows.into() };
    let (mut cases, mut filled) = (cases(), Filled::all());
    for round in 1..=rounds {
        progress.step(format!("round {round}"));
        for turn in turns(cases.len(), round) {
            let case = &mut cases[turn];
            for (samples, threads) in case.transaction_ns.iter_mut().zip(THREADS) {
                samples.push(on_rows.work_together(&case.options, threads, count)?);
            }
        }
        for turn in turns(filled.len(), round) {
            filled[turn].measure(&database, rows)?;
        }
    }
    let violations = database.check()?;
    ensure!(violations.is_empty(), "the database is damaged: {violations:?}");
    tell(&mut report, &ground, (&cases, &filled), rows);
    Ok(report)
}

fn tell(report: &mut Report, ground: &Ground, (cases, filled): (&[Case], &[Filled]), rows: u32) {
    for case in cases {
        for (samples, threads) in case.transaction_ns.iter().zip(THREADS) {
            let x = format!("{READS} reads and an update, {threads} threads");
            report.row(case.name, &x, ground, "ns/op", samples);
        }
    }
    for table in filled {
        let x = |what: &str| format!("{rows} rows: {what}");
        let series = format!("{}, {} by batch", table.index.name(), table.batch);
        report.row(&series, &x("insert"), ground, "ns/op", &table.insert_ns);
        report.row(&series, &x("get by key"), ground, "ns/op", &table.get_ns);
    }
    let [snapshot, serializable, at_commit, serializable_at_commit] = cases else { return };
    for (name, [of, over]) in [
        ("serializable_vs_snapshot", [serializable, snapshot]),
        ("at_commit_vs_each_statement", [at_commit, snapshot]),
        ("serializable_vs_snapshot.at_commit", [serializable_at_commit, at_commit]),
    ] {
        for (index, threads) in THREADS.iter().enumerate() {
            let ratio = of.transaction_ns[index].over(&over.transaction_ns[index]);
            let id = format!("transactions.{name}.{threads}");
            let against = format!("time of a transaction, by {threads} threads");
            report.claim(&id, &ratio, "x", against, None);
        }
    }
    let Some((single, others)) = filled.split_first() else { return };
    for table in others {
        let (id, against) = (table.index.id(), "time of a row".to_owned());
        let insert = table.insert_ns.over(&single.insert_ns);
        if table.batch > 1 {
            let id = format!("transactions.batch_{}_vs_single", table.batch);
            report.claim(&id, &insert, "x", against, None);
            continue;
        }
        let get = table.get_ns.over(&single.get_ns);
        for (what, ratio) in [("insert", insert), ("get", get)] {
            let id = format!("transactions.{id}_vs_hash.{what}");
            report.claim(&id, &ratio, "x", against.clone(), None);
        }
    }
}
