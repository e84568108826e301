//! Time until an ordered map answers after its process was killed, and until it reaches its full
//! speed.

use std::convert::Infallible;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use remanent_structures::BlinkTree;

use super::super::killed::{entry_count, kill_a_writer, open_left, write_until_killed};
use super::{Effort, WRITER, count_label};
use crate::cleanup::Scratch;
use crate::measure::{FULL, Progress, Samples, Windows};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{BenchKey, mix};

/// Length of a window in which throughput is measured.
const WINDOW: Duration = Duration::from_millis(100);

const ROOT: &str = "ordered";

/// The process that is killed.
///
/// # Errors
///
/// When the map cannot be made or written to.
pub(super) fn write(setup: &Setup) -> Result<Infallible> {
    write_until_killed(setup, |pool| BlinkTree::open_or_create(pool, ROOT))
}

/// Measurements of a restart.
struct Restart {
    /// Until the first lookup was answered.
    first_ms: f64,
    /// Lookups from then on.
    windows: Windows,
    ground: Ground,
}

/// Kills and restarts, and adds rows, the chart and claims.
///
/// # Errors
///
/// When the map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let rounds = effort.pick(5, 3, 1);
    let windows = effort.pick(60, 15, 7);
    let scratch = Scratch::new(&setup.dir)?;
    let progress = Progress::new("maps, restart", 2 * rounds);
    let mut restarts = Vec::new();
    for _ in 0..rounds {
        progress.step("writing until killed");
        kill_a_writer(&WRITER, effort, scratch.path())?;
        progress.step("restarting");
        restarts.push(restart(scratch.path(), entry_count(effort), windows)?);
    }
    drop(progress);
    add_to(report, &restarts, count_label(entry_count(effort) as usize));
    Ok(())
}

fn restart(directory: &Path, entries: u64, windows: usize) -> Result<Restart> {
    let draw = |turn: u64| u64::from_number(mix(turn) % entries);
    let start = Instant::now();
    let pool = open_left(directory)?;
    let map: BlinkTree<u64, u64> = BlinkTree::open(&pool, ROOT)?;
    let look_up = |turn: u64| -> Result<()> {
        let key = draw(turn);
        ensure!(map.get(&key)? == Some(key), "key {key:#x} was inserted and is not found");
        Ok(())
    };
    look_up(0)?;
    let first_ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(!pool.was_clean(), "the process that wrote was not killed");
    let windows = Windows::measure(WINDOW, windows, |turn| look_up(turn + 1))?;
    Ok(Restart { first_ms, windows, ground: Ground::of_pool(&pool) })
}

fn add_to(report: &mut Report, restarts: &[Restart], entries: String) {
    let ground = restarts.first().map_or_else(Ground::volatile, |restart| restart.ground.clone());
    let first_ms: Samples = restarts.iter().map(|restart| restart.first_ms).collect();
    let final_mops: Samples = restarts.iter().map(|restart| restart.windows.final_mops()).collect();
    let window_ms = WINDOW.as_secs_f64() * 1e3;
    let full_ms: Samples = restarts.iter().map(|restart| restart.windows.full_ms()).collect();
    let series = "remanent, restarted";
    report.row(series, &format!("{entries} first lookup"), &ground, "ms", &first_ms);
    let counts = restarts.iter().map(|restart| restart.windows.count_to_full());
    let shown = counts.max().unwrap_or(0) + 1;
    let label = format!("{entries} lookups, ms after restart:");
    for window in 0..shown {
        let mops = restarts.iter().filter_map(|restart| restart.windows.mops(window));
        let x = format!("{label} {}", (window + 1) as f64 * window_ms);
        report.row(series, &x, &ground, "Mops/s", &mops.collect());
    }
    report.row(series, &format!("{entries} lookups in the end"), &ground, "Mops/s", &final_mops);
    let title = format!("Lookups of {entries} entries, over ms after a restart");
    report.chart("restart", &title, "Mops/s", &label, Shape::Lines);
    let against = format!(
        "nobody: from opening a pool of {entries} entries, whose process was killed, to the first lookup"
    );
    report.claim("ordered.restart_ms", &first_ms, "ms", against, None);
    let against = format!(
        "nobody: the end of the first {window_ms} ms in which lookups of {entries} entries reach {} % of {:.2} Mops/s",
        FULL * 100.0,
        final_mops.median()
    );
    report.claim("ordered.full_speed_ms", &full_ms, "ms", against, Some(window_ms));
}
