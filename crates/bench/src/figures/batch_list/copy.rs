//! Inserts compared with their minimum: copying the same bytes into the same mapping.

use std::time::Instant;

use anyhow::{Context, Result};
use remanent_pmem::{Durability, Emulation, Medium, PAGE_LEN, Pool};
use remanent_structures::batch_list::BatchList;
use remanent_structures::papers::AppendList;
use remanent_structures::{BatchMap, BatchOptions};

use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, turns};
use crate::report::{Ground, Report, number};
use crate::setup::Setup;

/// Bytes of a value, and whether a claim is about it.
const VALUE_LENS: [(usize, bool); 3] = [(100, true), (1000, false), (4000, false)];

const COPY: &str = "memcpy";
const APPEND: &str = "BOPL (insert-only)";
const INDEXED: &str = "indexed";

const UNIT: &str = "ns/value";

/// Measures inserts into an insert-only list and into the indexed map beside a copy.
///
/// # Errors
///
/// When a list cannot be made, or there is not enough memory.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<()> {
    // So many bytes that caches hold only a small part of them.
    let (rounds, bytes) = if setup.quick { (5, 32 << 20) } else { (21, 128 << 20) };
    let mut samples = VALUE_LENS.map(|_| [const { Samples::new() }; 3]);
    let progress = Progress::new("batch-list", rounds);
    let mut ground = None;
    for round in 0..rounds {
        progress.step("inserting and copying");
        for (&(len, _), samples) in VALUE_LENS.iter().zip(&mut samples) {
            for turn in turns(samples.len(), round) {
                let scratch = Scratch::new(&setup.dir)?;
                let options = Pool::options().size_max(8 << 30).durability(Durability::Process);
                let pool =
                    options.emulation(Emulation::Nvram).create(scratch.path().join("a.pool"))?;
                ground.get_or_insert_with(|| Ground::of_pool(&pool));
                let count = bytes / len;
                let ns = [copy, append, index][turn](&pool, len, count)?;
                samples[turn].push(ns / count as f64);
            }
        }
    }
    drop(progress);
    let copied =
        Ground { promise: "nothing is flushed".to_owned(), ..ground.context("no round was run")? };
    let batched = Ground {
        durability: "process, batched".to_owned(),
        promise: "a prefix, at most 8 MiB or 20 ms behind; ends with a sync".to_owned(),
        ..copied.clone()
    };
    for ((len, is_claim), [copy, append, indexed]) in VALUE_LENS.iter().zip(&samples) {
        let x = format!("{len}-byte values");
        report.row(COPY, &x, &copied, UNIT, copy);
        report.row(APPEND, &x, &batched, UNIT, append);
        report.row(INDEXED, &x, &batched, UNIT, indexed);
        let id = if *is_claim {
            "batch_list.insert_vs_memcpy".to_owned()
        } else {
            format!("batch_list.insert_vs_memcpy.{len}")
        };
        let [ours, theirs] = [append.median(), copy.median()].map(number);
        let against = format!(
            "{ours} ns an insert of {len} bytes, {theirs} ns a copy of them, both into fresh pages"
        );
        report.claim(&id, &append.over(copy), "×", against, Some(1.0));
    }
    Ok(())
}

/// Copies values, one after the other, into untouched pages of the mapping.
fn copy(pool: &Pool, len: usize, count: usize) -> Result<f64> {
    let medium = pool.medium();
    let value = vec![0x5a; len];
    let start = medium.len().next_multiple_of(PAGE_LEN);
    let bytes = (len * count) as u64;
    medium.grow(start + bytes).context("cannot grow the pool")?;
    medium.commit(start, bytes).context("not enough memory")?;
    let clock = Instant::now();
    for number in 0..count {
        medium.write(start + (number * len) as u64, &value);
    }
    Ok(clock.elapsed().as_nanos() as f64)
}

fn append(pool: &Pool, len: usize, count: usize) -> Result<f64> {
    insert(AppendList::create(pool, "list", BatchOptions::default())?, len, count)
}

fn index(pool: &Pool, len: usize, count: usize) -> Result<f64> {
    insert(BatchMap::<u64, [u8]>::create(pool, "list", BatchOptions::default())?, len, count)
}

fn insert(mut list: impl BatchList, len: usize, count: usize) -> Result<f64> {
    let value = vec![0x5a; len];
    let clock = Instant::now();
    for number in 0..count as u64 {
        list.insert(number, &value)?;
    }
    list.sync()?;
    Ok(clock.elapsed().as_nanos() as f64)
}
