//! SQLite by journal mode: on a disk, on a tmpfs, and in a pool (nvramdisk, Figures 13 and 15).

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::bench::Bench;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, turns};
use crate::peers::sqlite_vfs::{Inserter, Mode, Place};
use crate::report::{Report, Shape, number};
use crate::setup::Setup;

pub(super) const BENCH: Bench = Bench::new(
    "sqlite",
    "Inserts into SQLite by journal mode, on a disk, a tmpfs and in a pool (nvramdisk, Figures 13, 15)",
    run,
);

/// How long and how often everything is measured.
struct Effort {
    rounds: usize,
    /// Time of one sample.
    sample: Duration,
}

const QUICK: Effort = Effort { rounds: 1, sample: Duration::from_millis(150) };
const FULL: Effort = Effort { rounds: 5, sample: Duration::from_millis(1000) };

/// Time of each access to the pool, in percent of the real time: the paper's sweep.
const LATENCIES_PERCENT: [u32; 6] = [100, 120, 140, 160, 180, 200];

/// Measures inserts, each a transaction of its own with full sync.
///
/// # Errors
///
/// When SQLite refuses something.
fn run(setup: &Setup) -> Result<Report> {
    let effort = if setup.quick { QUICK } else { FULL };
    let mut report = Report::new("sqlite")?;
    let steps = effort.rounds * (Place::ALL.len() + 1);
    let progress = Progress::new("sqlite", steps);
    let modes = measure_modes(setup, &effort, &progress, &mut report)?;
    add_claims(&modes, &mut report);
    measure_latencies(setup, &effort, &progress, &mut report)?;
    report.chart("figure13", "Inserts by journal mode", "inserts/s", "", Shape::BarsLog);
    let title = "Inserts by latency of the pool, in percent of this memory's";
    report.chart("figure15", title, "of the inserts at 100 %", "latency ", Shape::Lines);
    Ok(report)
}

/// Inserts a second, by place and mode.
type Modes = Vec<[Samples; Mode::ALL.len()]>;

fn measure_modes(
    setup: &Setup,
    effort: &Effort,
    progress: &Progress,
    report: &mut Report,
) -> Result<Modes> {
    let mut measured: Modes = Place::ALL.iter().map(|_| Default::default()).collect();
    for round in 0..effort.rounds {
        for index in turns(Place::ALL.len(), round) {
            let place = Place::ALL[index];
            progress.step(format!("round {}: {}", round + 1, place.name()));
            for (mode, samples) in Mode::ALL.into_iter().zip(&mut measured[index]) {
                samples.push(inserts_per_second(setup, place, mode, 100, effort.sample)?);
            }
        }
    }
    for (place, samples) in Place::ALL.into_iter().zip(&measured) {
        let ground = place.ground(&setup.dir, &setup.disk)?;
        for (mode, samples) in Mode::ALL.into_iter().zip(samples) {
            report.row(place.name(), mode.name(), &ground, "inserts/s", samples);
        }
    }
    Ok(measured)
}

/// Measures in a new database, which is removed afterwards.
fn inserts_per_second(
    setup: &Setup,
    place: Place,
    mode: Mode,
    latency_percent: u32,
    sample: Duration,
) -> Result<f64> {
    let (memory, disk) = (Scratch::new(&setup.dir)?, Scratch::new(&setup.disk)?);
    let paths: [&Path; 2] = [memory.path(), disk.path()];
    let mut inserter = Inserter::open(place, mode, paths, latency_percent)?;
    inserter.run(sample / 10)?;
    inserter.run(sample)
}

fn add_claims(modes: &Modes, report: &mut Report) {
    let of = |place: Place, mode: Mode| {
        let index = Place::ALL.iter().position(|known| *known == place).unwrap_or_default();
        &modes[index][mode as usize]
    };
    let mut claim = |id: &str, ours: (Place, Mode), theirs: (Place, Mode)| {
        let (our, their) = (of(ours.0, ours.1), of(theirs.0, theirs.1));
        let text = format!(
            "{} in mode {}: {} inserts/s; {} in mode {}: {}",
            theirs.0.name(),
            theirs.1.name(),
            number(their.median()),
            ours.0.name(),
            ours.1.name(),
            number(our.median()),
        );
        report.claim(id, &our.over(their), "x", text, None);
    };
    use Mode::{Delete, Wal};
    use Place::{Disk, Pool, PoolWithJournals, Tmpfs, WalInPool};
    claim("sqlite.wal_vs_disk", (Pool, Wal), (Disk, Wal));
    claim("sqlite.only_wal_vs_disk", (WalInPool, Wal), (Disk, Wal));
    claim("sqlite.wal_vs_tmpfs", (Pool, Wal), (Tmpfs, Wal));
    claim("sqlite.batch_vs_disk_wal", (Pool, Delete), (Disk, Wal));
    claim("sqlite.batch_vs_tmpfs_delete", (Pool, Delete), (Tmpfs, Delete));
    claim("sqlite.batch_vs_tmpfs_wal", (Pool, Delete), (Tmpfs, Wal));
    claim("sqlite.journal_vs_tmpfs_delete", (PoolWithJournals, Delete), (Tmpfs, Delete));
}

/// The paper's Figure 15: each access to the pool takes longer, by a share of its real time.
fn measure_latencies(
    setup: &Setup,
    effort: &Effort,
    progress: &Progress,
    report: &mut Report,
) -> Result<()> {
    const CASES: [(&str, Place, Mode); 3] = [
        ("batches in the pool", Place::Pool, Mode::Delete),
        ("WAL in the pool", Place::Pool, Mode::Wal),
        ("only the WAL in the pool", Place::WalInPool, Mode::Wal),
    ];
    let mut measured = vec![vec![Samples::new(); LATENCIES_PERCENT.len()]; CASES.len()];
    for round in 0..effort.rounds {
        progress.step(format!("round {}: latencies", round + 1));
        for index in turns(LATENCIES_PERCENT.len(), round) {
            let percent = LATENCIES_PERCENT[index];
            for ((_, place, mode), samples) in CASES.into_iter().zip(&mut measured) {
                let inserts = inserts_per_second(setup, place, mode, percent, effort.sample / 2)?;
                samples[index].push(inserts);
            }
        }
    }
    for ((name, place, _), samples) in CASES.into_iter().zip(&measured) {
        let ground = place.ground(&setup.dir, &setup.disk)?;
        for (percent, inserts) in LATENCIES_PERCENT.into_iter().zip(samples) {
            let share = inserts.over(&samples[0]);
            let unit = "of the inserts at 100 %";
            report.row(name, &format!("latency {percent}"), &ground, unit, &share);
        }
        let slowest = samples[LATENCIES_PERCENT.len() - 1].over(&samples[0]);
        let id = format!("sqlite.latency_200.{}", name.replace(' ', "_").to_lowercase());
        report.claim(&id, &slowest, "x", "the same at the latency of this memory".to_owned(), None);
    }
    Ok(())
}
