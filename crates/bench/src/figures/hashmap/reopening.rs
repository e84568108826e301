//! Time to open the bucketed map after its process was killed, and until lookups have their full
//! speed again.

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use remanent_structures::ExtendibleMap;

use super::super::killed::{entry_count, kill_a_writer, open_left, write_until_killed};
use super::{Effort, WRITER, label};
use crate::cleanup::Scratch;
use crate::measure::{FULL, Progress, Samples, Windows};
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

/// The process that is killed.
///
/// # Errors
///
/// When the map cannot be made or written to.
pub(super) fn write(setup: &Setup) -> Result<Infallible> {
    write_until_killed(setup, |pool| ExtendibleMap::open_or_create(pool, ROOT))
}

/// Opens maps of all sizes.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    // The writer takes its size from its effort.
    match effort {
        Effort::Full => {
            run_size("", Effort::Quick, 7, setup, report)?;
            run_size(".10m", Effort::Full, 5, setup, report)
        }
        effort => run_size("", effort, effort.pick(7, 5, 1), setup, report),
    }
}

fn run_size(
    suffix: &str,
    size: Effort,
    rounds: usize,
    setup: &Setup,
    report: &mut Report,
) -> Result<()> {
    let windows = size.pick(100, 50, 3);
    let scratch = Scratch::new(&setup.dir)?;
    let progress = Progress::new("hashmap, reopening", 2 * rounds);
    let mut openings = Vec::new();
    for _ in 0..rounds {
        progress.step("writing until killed");
        kill_a_writer(&WRITER, size, scratch.path())?;
        progress.step("opening");
        openings.push(open(scratch.path(), entry_count(size), windows)?);
    }
    drop(progress);
    add_to(report, suffix, &label::<u64, u64>(entry_count(size) as usize), &openings);
    Ok(())
}

/// Opens the pool that was left, and looks entries up.
fn open(directory: &Path, entries: u64, windows: usize) -> Result<Opening> {
    let start = Instant::now();
    let pool = open_left(directory)?;
    let map: ExtendibleMap<u64, u64> = ExtendibleMap::open(&pool, ROOT)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(!pool.was_clean(), "the process that wrote was not killed");
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
    let (touch_ns, ground) = (touches.median(), Ground::of_pool(&pool));
    Ok(Opening { open_ms, touch_ns, touched_ms, windows, ground })
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
