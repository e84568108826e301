//! Time until an ordered map answers after its process was killed, and until it reaches its full
//! speed.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use remanent_pmem::Emulation;
use remanent_structures::BlinkTree;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Effort, count_label};
use crate::cleanup::{Guarded, Scratch};
use crate::measure::{FULL, Progress, Samples, Windows};
use crate::memory::pool;
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{BenchKey, mix};

/// Length of a window in which throughput is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// How long a process writes before it is killed.
const WRITING: Duration = Duration::from_millis(50);
/// Keys that are inserted and removed while the process is killed, apart from the permanent ones.
const TRANSIENT: u64 = 100_000;

const READY: &str = "filled";
const FILE: &str = "restart.pool";
const ROOT: &str = "ordered";

fn entry_count(effort: Effort) -> u64 {
    effort.pick(10_000_000, 1_000_000, 2_000)
}

/// The process that is killed: fills the map in `setup.dir` if there is none, reports that on
/// stdout, and inserts and removes other entries without end.
///
/// # Errors
///
/// When the map cannot be made or written to.
pub(super) fn write_until_killed(setup: &Setup) -> Result<Infallible> {
    // The process that kills this one may be killed first.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let entries = entry_count(Effort::of(setup));
    let pool = pool::options(Emulation::Nvram).open_or_create(setup.dir.join(FILE))?;
    let map: BlinkTree<u64, u64> = BlinkTree::open_or_create(&pool, ROOT)?;
    if map.is_empty()? {
        for key in (0..entries).map(u64::from_number) {
            map.insert(&key, &key)?;
        }
    }
    println!("{READY}");
    std::io::stdout().flush()?;
    for key in (entries..entries + TRANSIENT).map(u64::from_number).cycle() {
        if !map.insert(&key, &key)? {
            map.discard(&key)?;
        }
    }
    unreachable!("a cycle does not end")
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
        kill_a_writer(effort, scratch.path())?;
        progress.step("restarting");
        restarts.push(restart(scratch.path(), entry_count(effort), windows)?);
    }
    drop(progress);
    add_to(report, &restarts, count_label(entry_count(effort) as usize));
    Ok(())
}

/// Starts a process that writes, and kills it meanwhile.
fn kill_a_writer(effort: Effort, directory: &Path) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.arg("maps-writer").arg("--dir").arg(directory).stdout(Stdio::piped());
    command.args(effort.pick(None, Some("--quick"), Some("--tiny")));
    let mut child = command.spawn().context("cannot execute this program again")?;
    let stdout = child.stdout.take().context("the writer has no stdout")?;
    // Dropping it kills with SIGKILL.
    let _child = Guarded::new(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(line.trim() == READY, "the process that was to write says {line:?}");
    std::thread::sleep(WRITING);
    Ok(())
}

fn restart(directory: &Path, entries: u64, windows: usize) -> Result<Restart> {
    let draw = |turn: u64| u64::from_number(mix(turn) % entries);
    let start = Instant::now();
    let pool = pool::options(Emulation::Nvram).open(directory.join(FILE))?;
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
