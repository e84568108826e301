//! The index of rows: made anew in memory, and kept in a pool, beside the map of several values for
//! a key that served as index before.

use std::hint::black_box;
use std::ops::ControlFlow;

use anyhow::{Result, ensure};
use remanent_pmem::{Medium, Pool};
use remanent_structures::{HashMultiMap, RowId, RowIndex};

use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{mix, shuffled};

pub(super) const BENCH: Bench = Bench::new(
    "row-index",
    "The index of rows: rebuilt, and changed and searched in a pool, beside HashMultiMap",
    run,
);

/// Rows that become durable with one fence: those of a transaction, say.
const ROWS_PER_FENCE: usize = 8;
/// Bytes beyond which no pool of this bench grows.
const SIZE_MAX: u64 = 8 << 30;
/// Rows of a partition at the most, about.
const PARTITION_ROWS: usize = 1_400;
const UNIT: &str = "ns/row";

/// Keys of rows; a row is the key's number.
type Rows = [(u64, RowId)];

/// Times of one contender.
#[derive(Default)]
struct Times {
    insert_ns: Samples,
    find_ns: Samples,
    remove_ns: Samples,
    row_len: Samples,
}

/// Measures all sizes.
///
/// # Errors
///
/// When a pool cannot be made, or a row is not found.
fn run(setup: &Setup) -> Result<Report> {
    let effort = Effort::of(setup);
    let mut report = Report::new("row-index")?;
    let million = 1_000_000;
    let rounds = effort.pick(7, 3, 1);
    stage("", effort.pick(million, million, 2_000), rounds, setup, &mut report)?;
    if let Effort::Full = effort {
        stage(".10m", 10 * million, 3, setup, &mut report)?;
    }
    report.chart("rows", "Rows of an index", UNIT, "", Shape::Bars);
    Ok(report)
}

fn stage(
    suffix: &str,
    count: usize,
    rounds: usize,
    setup: &Setup,
    report: &mut Report,
) -> Result<()> {
    let row = |number| RowId::new(number).expect("far below the greatest number");
    let rows: Vec<(u64, RowId)> = (0..count as u64).map(|n| (mix(n), row(n))).collect();
    let searched = shuffled(&rows, count, 7);
    let progress = Progress::new("row-index", rounds);
    let [mut one_ns, mut two_ns, mut sorted_ns] = [const { Samples::new() }; 3];
    let (mut ours, mut other) = (Times::default(), Times::default());
    let mut ground = None;
    for _ in 0..rounds {
        progress.step(format!("{count} rows"));
        one_ns.push(rebuild_ns(&rows, 1)?);
        two_ns.push(rebuild_ns(&rows, 2)?);
        sorted_ns.push(partitions_ns(&rows)?);
        let scratch = Scratch::new(&setup.dir)?;
        let create = |name| Pool::options().size_max(SIZE_MAX).create(scratch.path().join(name));
        let pool = create("index.pool")?;
        ground = Some(Ground::of_pool(&pool));
        measure_index(&pool, &rows, &searched, &mut ours)?;
        drop(pool);
        measure_multimap(&create("map.pool")?, &rows, &searched, &mut other)?;
    }
    let ground = ground.unwrap_or_else(Ground::volatile);
    let x = |name: &str| format!("{count} rows: {name}");
    let memory = Ground::volatile();
    report.row("RowIndex in memory, 1 thread", &x("rebuild"), &memory, UNIT, &one_ns);
    report.row("RowIndex in memory, 2 threads", &x("rebuild"), &memory, UNIT, &two_ns);
    report.row("RowIndex in memory, sorted", &x("rebuild"), &memory, UNIT, &sorted_ns);
    for (series, times) in [("RowIndex", &ours), ("HashMultiMap", &other)] {
        report.row(series, &x("insert"), &ground, UNIT, &times.insert_ns);
        report.row(series, &x("find"), &ground, UNIT, &times.find_ns);
        report.row(series, &x("remove"), &ground, UNIT, &times.remove_ns);
        report.row(series, &x("space"), &ground, "bytes/row", &times.row_len);
    }
    let id = |name: &str| format!("row_index.{name}{suffix}");
    let against = format!("50 ns; one thread {:.0}, two {:.0}", one_ns.median(), two_ns.median());
    report.claim(&id("rebuild_ns"), &one_ns, UNIT, against, Some(two_ns.median()));
    let against = format!("rows sorted by partitions; in their order {:.0}", one_ns.median());
    report.claim(&id("partitions_ns"), &sorted_ns, UNIT, against, Some(one_ns.median()));
    for (name, other, ours) in [
        ("insert_vs_multimap", &other.insert_ns, &ours.insert_ns),
        ("find_vs_multimap", &other.find_ns, &ours.find_ns),
        ("remove_vs_multimap", &other.remove_ns, &ours.remove_ns),
    ] {
        let against = format!(
            "ns a row: HashMultiMap {:.0}, with fences of its own; RowIndex {:.0}, with one \
                     for {ROWS_PER_FENCE} rows",
            other.median(),
            ours.median()
        );
        report.claim(&id(name), &other.over(ours), "x", against, Some(1.0));
    }
    let against = "the row's word".to_owned();
    report.claim(&id("bytes_per_row"), &ours.row_len, "bytes", against, Some(8.0));
    Ok(())
}

/// Makes an index in anonymous memory, and returns the wall-clock time for each row.
fn rebuild_ns(rows: &Rows, threads: usize) -> Result<f64> {
    let pool = Pool::options().size_max(SIZE_MAX).create_in_memory()?;
    let index = RowIndex::create(&pool, "index")?;
    let add = |rows: &Rows| Ok(index.insert_all(rows.iter().copied())?);
    let (cost, _) = timed(rows, threads, add)?;
    ensure!(holds(&index, rows[0])?, "a row that was added is not found");
    Ok(cost.wall.as_nanos() as f64 / rows.len() as f64)
}

/// Makes an index in anonymous memory from rows that are sorted by its partitions already, and
/// returns the time for each row by one thread.
fn partitions_ns(rows: &Rows) -> Result<f64> {
    let pool = Pool::options().size_max(SIZE_MAX).create_in_memory()?;
    let index = RowIndex::create(&pool, "index")?;
    let bits = rows.len().div_ceil(PARTITION_ROWS).next_power_of_two().ilog2();
    let mut sorted = rows.to_vec();
    sorted.sort_by_key(|(key, _)| index.partition(*key, bits));
    let add = |rows: &Rows| {
        let mut partitions = rows.chunk_by(|(one, _), (other, _)| {
            index.partition(*one, bits) == index.partition(*other, bits)
        });
        Ok(partitions.try_for_each(|rows| index.insert_partition(bits, rows))?)
    };
    let ns = each_ns(&sorted, add)?;
    ensure!(holds(&index, rows[0])?, "a row that was added is not found");
    Ok(ns)
}

fn holds<M: Medium>(index: &RowIndex<M>, (key, row): (u64, RowId)) -> Result<bool> {
    let is_row = |found| match found == row {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    Ok(index.find(key, is_row)?.is_some())
}

/// Nanoseconds for each row of `work`, by one thread.
fn each_ns(rows: &Rows, work: impl Fn(&Rows) -> Result<()> + Sync) -> Result<f64> {
    let (cost, _) = timed(rows, 1, work)?;
    Ok(cost.wall.as_nanos() as f64 / rows.len() as f64)
}

fn measure_index(pool: &Pool, rows: &Rows, searched: &Rows, times: &mut Times) -> Result<()> {
    let index = RowIndex::create(pool, "index")?;
    times.insert_ns.push(each_ns(rows, |rows| {
        for together in rows.chunks(ROWS_PER_FENCE) {
            together.iter().try_for_each(|&(key, row)| index.insert(key, row))?;
            pool.medium().fence();
        }
        Ok(())
    })?);
    times.row_len.push(index.usage()?.chunk_bytes as f64 / rows.len() as f64);
    times.find_ns.push(each_ns(searched, |rows| {
        for &row in rows {
            ensure!(holds(&index, row)?, "a row is not found");
        }
        Ok(())
    })?);
    times.remove_ns.push(each_ns(searched, |rows| {
        for together in rows.chunks(ROWS_PER_FENCE) {
            for &(key, row) in together {
                ensure!(index.remove(key, row)?, "a row is not found");
            }
            pool.medium().fence();
        }
        Ok(())
    })?);
    Ok(())
}

fn measure_multimap(pool: &Pool, rows: &Rows, searched: &Rows, times: &mut Times) -> Result<()> {
    let map: HashMultiMap<u64, u64> = HashMultiMap::create(pool, "index")?;
    times.insert_ns.push(each_ns(rows, |rows| {
        Ok(rows.iter().try_for_each(|(key, row)| map.insert(key, &row.get()))?)
    })?);
    times.find_ns.push(each_ns(searched, |rows| {
        for (key, row) in rows {
            ensure!(black_box(map.get_all(key)?).contains(&row.get()), "a row is not found");
        }
        Ok(())
    })?);
    times.remove_ns.push(each_ns(searched, |rows| {
        for (key, row) in rows {
            ensure!(map.remove_one(key, &row.get())?, "a row is not found");
        }
        Ok(())
    })?);
    Ok(())
}
