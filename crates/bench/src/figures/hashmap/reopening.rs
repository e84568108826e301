//! Time to open the bucketed map after its process was killed, and until lookups have their full
//! speed again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use remanent_pmem::Emulation;
use remanent_structures::ExtendibleMap;

use super::{Effort, label};
use crate::cleanup::Scratch;
use crate::measure::{FULL, Progress, Samples, Windows};
use crate::memory::pool;
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{BenchKey, mix};

const SERIES: &str = "extendible nvram, reopened";
const ROOT: &str = "bench";
/// Length of a window in which throughput is measured.
const WINDOW: Duration = Duration::from_millis(20);
/// Lookups that are timed one by one. There are more segments, so nearly each touches another one.
const TOUCHES: u64 = 100;

/// One opening.
struct Opening {
    /// Until the pool and the map are open.
    open_ms: f64,
    /// The median of the first lookups.
    touch_ns: f64,
    /// From opening until the end of those.
    touched_ms: f64,
    /// Lookups from then on.
    windows: Windows,
    ground: Ground,
}

/// Opens maps of all sizes.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let million = 1_000_000;
    run_size("", effort.pick(million, million, 2_000), effort, setup, report)?;
    if let Effort::Full = effort {
        run_size(".10m", 10 * million, effort, setup, report)?;
    }
    Ok(())
}

fn run_size(
    suffix: &str,
    entries: u64,
    effort: Effort,
    setup: &Setup,
    report: &mut Report,
) -> Result<()> {
    let rounds = effort.pick(7, 3, 1);
    let scratch = Scratch::new(&setup.dir)?;
    let progress = Progress::new("hashmap, reopening", 1 + rounds);
    progress.step("filling");
    let left = left_open(scratch.path(), entries)?;
    let mut openings = Vec::new();
    for _ in 0..rounds {
        progress.step("opening");
        openings.push(open(scratch.path(), &left, entries, effort.pick(75, 50, 3))?);
    }
    drop(progress);
    add_to(report, suffix, &label::<u64, u64>(entries as usize), &openings);
    Ok(())
}

/// Fills a map, and copies its pool's file while it is open, as a process leaves it that is killed.
fn left_open(directory: &Path, entries: u64) -> Result<PathBuf> {
    let path = directory.join("filled.pool");
    let pool = pool::options(Emulation::Nvram).create(&path)?;
    let map: ExtendibleMap<u64, u64> = ExtendibleMap::create(&pool, ROOT)?;
    for key in (0..entries).map(u64::from_number) {
        map.insert(&key, &key)?;
    }
    let left = directory.join("left.pool");
    fs::copy(&path, &left)?;
    drop((map, pool));
    fs::remove_file(&path)?;
    Ok(left)
}

/// Opens a copy of the pool, and looks entries up.
fn open(directory: &Path, left: &Path, entries: u64, windows: usize) -> Result<Opening> {
    let path = directory.join("opened.pool");
    fs::copy(left, &path)?;
    let start = Instant::now();
    let pool = pool::options(Emulation::Nvram).open(&path)?;
    let map: ExtendibleMap<u64, u64> = ExtendibleMap::open(&pool, ROOT)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(!pool.was_clean(), "the pool that was left open looks closed");
    let look_up = |turn: u64| -> Result<()> {
        let key = u64::from_number(mix(turn) % entries);
        ensure!(map.get(&key)? == Some(key), "key {key:#x} was inserted and is not found");
        Ok(())
    };
    let mut touches = Samples::new();
    for turn in 0..TOUCHES {
        let start = Instant::now();
        look_up(turn)?;
        touches.push(start.elapsed().as_secs_f64() * 1e9);
    }
    let touched_ms = start.elapsed().as_secs_f64() * 1e3;
    let windows = Windows::measure(WINDOW, windows, |turn| look_up(TOUCHES + turn))?;
    let ground = Ground::of_pool(&pool);
    drop((map, pool));
    fs::remove_file(&path)?;
    Ok(Opening { open_ms, touch_ns: touches.median(), touched_ms, windows, ground })
}

fn add_to(report: &mut Report, suffix: &str, label: &str, openings: &[Opening]) {
    let ground = openings.first().map_or_else(Ground::volatile, |opening| opening.ground.clone());
    let samples = |of: fn(&Opening) -> f64| openings.iter().map(of).collect::<Samples>();
    let open_ms = samples(|opening| opening.open_ms);
    let touch_ns = samples(|opening| opening.touch_ns);
    let warm_ms = samples(|opening| opening.touched_ms + opening.windows.full_ms());
    let final_mops = samples(|opening| opening.windows.final_mops());
    for (x, unit, samples) in [
        ("pool and map open", "ms", &open_ms),
        ("first lookups, each in another segment", "ns", &touch_ns),
        ("full speed", "ms", &warm_ms),
        ("lookups in the end", "Mops/s", &final_mops),
    ] {
        report.row(SERIES, &format!("{label} {x}"), &ground, unit, samples);
    }
    let counts = openings.iter().map(|opening| opening.windows.count_to_full());
    let shown = counts.max().unwrap_or(0) + 1;
    let window_ms = WINDOW.as_secs_f64() * 1e3;
    let lookups = format!("{label} lookups, ms after opening:");
    for window in 0..shown {
        let mops = openings.iter().filter_map(|opening| opening.windows.mops(window));
        let x = format!("{lookups} {}", (window + 1) as f64 * window_ms);
        report.row(SERIES, &x, &ground, "Mops/s", &mops.collect());
    }
    let title = format!("Lookups of {label} entries, over ms after opening");
    report.chart(&format!("opened{suffix}"), &title, "Mops/s", &lookups, Shape::Lines);
    let against = format!(
        "nobody: from opening a pool of {label} entries, whose process was killed, to an open map; \
         then {:.0} ns for the first lookup in a segment",
        touch_ns.median()
    );
    report.claim(&format!("extendible.open_ms{suffix}"), &open_ms, "ms", against, None);
    let against = format!(
        "nobody: from the same to the end of the first {window_ms} ms in which lookups reach {} % \
         of {:.2} Mops/s",
        FULL * 100.0,
        final_mops.median()
    );
    let id = format!("extendible.warm_ms{suffix}");
    report.claim(&id, &warm_ms, "ms", against, Some(window_ms));
}
