//! A process that writes to a map until it is killed, so that others can measure what comes after.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use remanent_pmem::{Emulation, Pool};
use remanent_structures::Map;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::bench::Bench;
use super::effort::Effort;
use crate::cleanup::Guarded;
use crate::memory::pool;
use crate::setup::Setup;
use crate::workloads::keys::BenchKey;

/// How long a process writes before it is killed.
const WRITING: Duration = Duration::from_millis(50);
/// Keys that are inserted and removed while the process is killed, apart from the permanent ones.
const TRANSIENT: u64 = 100_000;

const READY: &str = "filled";
const FILE: &str = "restart.pool";

/// Entries that stay.
pub(super) fn entry_count(effort: Effort) -> u64 {
    effort.pick(10_000_000, 1_000_000, 2_000)
}

/// The process that is killed: fills the map in `setup.dir` if there is none, reports that on
/// stdout, and inserts and removes other entries without end.
///
/// # Errors
///
/// When the map cannot be made or written to.
pub(super) fn write_until_killed<T: Map<u64, u64>>(
    setup: &Setup,
    open_or_create: impl FnOnce(&Pool) -> remanent_structures::Result<T>,
) -> Result<Infallible> {
    // The process that kills this one may be killed first.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let entries = entry_count(Effort::of(setup));
    let pool = pool::options(Emulation::Nvram).open_or_create(setup.dir.join(FILE))?;
    let map = open_or_create(&pool)?;
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

/// Starts the bench `writer`, a process that writes, and kills it meanwhile.
///
/// # Errors
///
/// When it cannot be executed, or says something else than that it has filled the map.
pub(super) fn kill_a_writer(writer: &Bench, effort: Effort, directory: &Path) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.arg(writer.name).arg("--dir").arg(directory).stdout(Stdio::piped());
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

/// Opens the pool that a killed writer left in the directory.
///
/// # Errors
///
/// When it cannot be opened.
pub(super) fn open_left(directory: &Path) -> Result<Pool> {
    Ok(pool::options(Emulation::Nvram).open(directory.join(FILE))?)
}
