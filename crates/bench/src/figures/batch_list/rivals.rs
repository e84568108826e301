//! One thread that puts entries of 100 bytes into a file on a real disk, compared with LMDB,
//! SQLite, RocksDB and redb, in each [`Mode`] in which they are comparable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use remanent_pmem::PAGE_LEN;

use crate::cleanup::Scratch;
use crate::measure::{Anova, Progress, Samples, turns};
use crate::peers::stores::{Mode, Store, rivals, tell_what_is_absent, value_of, verify};
use crate::report::{Ground, Report, Shape, backing_of, number};
use crate::setup::Setup;
use crate::workloads::keys::BenchKey;

/// Duration and number of measurements.
struct Effort {
    rounds: usize,
    /// Time of one sample.
    sample: Duration,
}

const QUICK: Effort = Effort { rounds: 3, sample: Duration::from_millis(250) };
const FULL: Effort = Effort { rounds: 10, sample: Duration::from_secs(1) };

/// Puts between two readings of the clock, so that these cost a fast store nothing.
const PUTS_PER_LOOK: u64 = 16;
/// Entries that are read back after a sample, evenly spread over the puts.
const VERIFIED: u64 = 10_000;

/// Name of the floor of durable puts.
const FLOOR: &str = "write + fdatasync";

const UNIT_TIME: &str = "µs/put";
const UNIT_RATE: &str = "puts/s";

/// Measures all contenders, and adds their rows, the table and the charts.
///
/// # Errors
///
/// When a store cannot be opened, or answers wrongly.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<()> {
    tell_what_is_absent();
    if backing_of(&setup.disk)? == "memory" {
        let disk = setup.disk.display();
        eprintln!("{disk} is in memory: syncs cost nothing there; `--disk` names a real disk");
    }
    let effort = if setup.quick { QUICK } else { FULL };
    let mut contenders = contenders(&setup.disk)?;
    let mut floor_us = Samples::new();
    let progress = Progress::new("batch-list", effort.rounds * (contenders.len() + 1));
    for round in 0..effort.rounds {
        progress.step(FLOOR);
        floor_us.push(page_sync_us(&setup.disk, effort.sample)?);
        for turn in turns(contenders.len(), round) {
            let contender = &mut contenders[turn];
            progress.step(format!("{}, {}", contender.name, contender.mode.name()));
            contender
                .sample(&setup.disk, effort.sample)
                .with_context(|| format!("{}, {}", contender.name, contender.mode.name()))?;
        }
    }
    drop(progress);
    add_rows(&contenders, &floor_us, &setup.disk, report)?;
    add_table(&contenders, report);
    add_charts(report);
    Ok(())
}

/// Opens an empty store in a directory of its own.
type Open = Box<dyn Fn(&Path) -> Result<Box<dyn Store>>>;

/// A store in a mode, and its measurements.
struct Contender {
    name: &'static str,
    mode: Mode,
    open: Open,
    ground: Ground,
    /// Microseconds per put, the sync of the last ones included.
    us: Samples,
    /// Percent of the time in which puts waited because a bound was reached.
    waited: Samples,
    /// Maximal milliseconds from the return of a put until it was durable.
    behind_ms: Samples,
}

impl Contender {
    fn new(name: &'static str, mode: Mode, ground: Ground, open: Open) -> Self {
        let [us, waited, behind_ms] = [const { Samples::new() }; 3];
        Contender { name, mode, open, ground, us, waited, behind_ms }
    }

    /// Puts new entries into an empty store for so long, waits until they are durable, and reads
    /// them back.
    fn sample(&mut self, directory: &Path, sample: Duration) -> Result<()> {
        let scratch = Scratch::new(directory)?;
        let mut store = (self.open)(scratch.path())?;
        let start = Instant::now();
        let mut puts = 0;
        while start.elapsed() < sample {
            for _ in 0..PUTS_PER_LOOK {
                let key = u64::from_number(puts);
                store.put(key, &value_of(key))?;
                puts += 1;
            }
        }
        store.sync()?;
        let time = start.elapsed().as_secs_f64();
        self.us.push(time * 1e6 / puts as f64);
        if self.mode != Mode::CommitEach {
            let lag = store.lag();
            if let Some(waited) = lag.waited {
                self.waited.push(waited.as_secs_f64() / time * 100.0);
            }
            self.behind_ms.push(lag.longest.as_secs_f64() * 1e3);
        }
        let step = puts.div_ceil(VERIFIED) as usize;
        verify(&mut *store, (0..puts).step_by(step).map(u64::from_number))
    }
}

/// All contenders, strongest guarantee first.
fn contenders(disk: &Path) -> Result<Vec<Contender>> {
    let mut contenders = Vec::new();
    for mode in Mode::ALL {
        for rival in rivals() {
            let (name, ground) = (rival.name, rival.ground(disk, mode)?);
            let open: Open = Box::new(move |directory| rival.open(directory, mode));
            contenders.push(Contender::new(name, mode, ground, open));
        }
    }
    Ok(contenders)
}

/// The floor of durable puts: microseconds for a page that is overwritten and synced each time. The
/// file does not grow, so only the page itself must reach the disk.
fn page_sync_us(directory: &Path, sample: Duration) -> Result<f64> {
    let scratch = Scratch::new(directory)?;
    let path = scratch.path().join("page");
    let write = || -> Result<f64> {
        let file = File::create_new(&path)?;
        let mut page = [0; PAGE_LEN as usize];
        file.write_all_at(&page, 0)?;
        file.sync_all()?;
        let start = Instant::now();
        let mut syncs = 0u64;
        while start.elapsed() < sample {
            syncs += 1;
            page[..8].copy_from_slice(&syncs.to_le_bytes());
            file.write_all_at(&page, 0)?;
            file.sync_data()?;
        }
        Ok(start.elapsed().as_secs_f64() * 1e6 / syncs as f64)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn add_rows(
    contenders: &[Contender],
    floor_us: &Samples,
    disk: &Path,
    report: &mut Report,
) -> Result<()> {
    let backing = backing_of(disk)?;
    let promise = "one page written in place, the least that a durable put takes from this disk";
    let class = if backing == "file" { "power" } else { "process" };
    let ground = Ground::new(backing, class, "none", promise);
    let x = Mode::CommitEach.name();
    report.row(FLOOR, &x, &ground, UNIT_RATE, &floor_us.reciprocal(1e6));
    report.row(FLOOR, &x, &ground, UNIT_TIME, floor_us);
    for contender in contenders {
        let (x, ground) = (contender.mode.name(), &contender.ground);
        report.row(contender.name, &x, ground, UNIT_RATE, &contender.us.reciprocal(1e6));
        report.row(contender.name, &x, ground, UNIT_TIME, &contender.us);
        report.row(contender.name, &x, ground, "% waiting", &contender.waited);
        report.row(contender.name, &x, ground, "ms behind", &contender.behind_ms);
    }
    Ok(())
}

/// The table in the paper's terms: mean, standard deviation, and whether the stores differ.
fn add_table(contenders: &[Contender], report: &mut Report) {
    let head = ["terms", "store", "mean", "σ", "one-way ANOVA over the stores"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for mode in Mode::ALL {
        let equals: Vec<&Contender> = contenders.iter().filter(|c| c.mode == mode).collect();
        let groups: Vec<&Samples> = equals.iter().map(|contender| &contender.us).collect();
        let mut anova = Anova::of(&groups).map(|anova| anova.to_string());
        for contender in equals {
            let us = &contender.us;
            let [mean, sigma] = [us.mean(), us.sigma()].map(number);
            // Once for all stores of the mode.
            let anova = anova.take().unwrap_or_default();
            lines.push(vec![mode.name(), contender.name.to_owned(), mean, sigma, anova]);
        }
    }
    report.table("One thread, values of 100 bytes, a real disk: µs per put", lines);
}

fn add_charts(report: &mut Report) {
    let title = "One thread, values of 100 bytes, a real disk";
    report.chart("puts", title, UNIT_RATE, "", Shape::BarsLog);
    for mode in Mode::ALL {
        let name = mode.name();
        let file = format!("puts-{}", name.replace(' ', "-"));
        report.chart(&file, &format!("{title}: {name}"), UNIT_TIME, &name, Shape::BarsOfMeans);
    }
}
