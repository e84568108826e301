//! The default ordered map compared with the paper's tree, the standard library's, and two
//! databases.
//!
//! All maps of a round exist at the same time. Each operation runs on each of them in turn before
//! the next operation begins, so compared values were measured within seconds.

use std::time::Instant;

use anyhow::{Context, Result};

use super::Effort;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, turns};
use crate::memory::floor::Floor;
use crate::peers::ordered::{Kind, Operation, Ordered, SCAN_LEN, Truth};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{distinct, shuffled};

/// One size of the experiment.
struct Stage {
    /// In the rows' names.
    label: &'static str,
    /// The end of the claims' names.
    suffix: &'static str,
    /// Keys inserted.
    keys: usize,
    /// Keys that are looked up and removed, drawn from those inserted.
    sample: usize,
    rounds: usize,
}

/// Lookups for each scan, because scans take longer.
const SCAN_SHARE: usize = 10;
/// Approximate bytes of an entry, for the cost of a load that misses the caches.
const ENTRY_LEN: usize = 32;
/// Keys of a map that stays in the caches.
const CACHED_KEYS: usize = 10_000;

/// Measures all sizes, and adds their rows, charts and claims.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let million = 1_000_000;
    let small = Stage { label: "1 m", suffix: "", keys: million, sample: million, rounds: 5 };
    let large = Stage { label: "10 m", suffix: ".10m", keys: 10 * million, rounds: 3, ..small };
    let quick = Stage { sample: million / 10, rounds: 2, ..small };
    let tiny = Stage { label: "2 k", keys: 2_000, sample: 1_000, rounds: 1, ..small };
    for stage in effort.pick(vec![small, large], vec![quick], vec![tiny]) {
        run_stage(&stage, setup, report)?;
    }
    run_cached(effort, setup, report)
}

/// A kind of map and its measurements.
struct Contender {
    kind: Kind,
    ground: Ground,
    /// Nanoseconds per operation.
    ns: [Samples; Operation::ALL.len()],
}

impl Contender {
    fn all() -> Vec<Contender> {
        let new = |&kind| Contender { kind, ground: Ground::volatile(), ns: Default::default() };
        Kind::ALL.iter().map(new).collect()
    }

    fn create(&mut self, scratch: &Scratch) -> Result<Box<dyn Ordered>> {
        let directory = scratch.path().join(self.kind.name());
        std::fs::create_dir(&directory)?;
        let (map, ground) = self.kind.create(&directory)?;
        self.ground = ground;
        Ok(map)
    }

    /// Performs an operation on all keys, and notes how long it took.
    fn sample(
        &mut self,
        map: &mut dyn Ordered,
        operation: Operation,
        keys: &[u64],
        truth: &Truth,
    ) -> Result<()> {
        let name = || format!("{} {}", self.kind.name(), operation.name());
        let start = Instant::now();
        let answer = map.run(operation, keys).with_context(name)?;
        let ns = start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64;
        truth.verify(operation, keys, answer).with_context(name)?;
        self.ns[operation as usize].push(ns);
        Ok(())
    }
}

fn run_stage(stage: &Stage, setup: &Setup, report: &mut Report) -> Result<()> {
    let keys: Vec<u64> = distinct(0, stage.keys);
    let sample = shuffled(&keys, stage.sample, 1);
    let scans = shuffled(&keys, stage.sample / SCAN_SHARE, 2);
    let removals = shuffled(&keys, stage.sample, 3);
    let truth = Truth::new(&keys);
    let batches = [keys, sample, scans, removals];
    let floor = Floor::measure(&setup.dir, stage.keys * ENTRY_LEN, stage.rounds)?;
    let mut contenders = Contender::all();
    let steps = stage.rounds * contenders.len() * Operation::ALL.len();
    let progress = Progress::new("maps, ordered", steps);
    for round in 0..stage.rounds {
        let scratch = Scratch::new(&setup.dir)?;
        let maps = contenders.iter_mut().map(|contender| contender.create(&scratch));
        let mut maps = maps.collect::<Result<Vec<_>>>()?;
        for (operation, keys) in Operation::ALL.into_iter().zip(&batches) {
            for turn in turns(maps.len(), round) {
                let contender = &mut contenders[turn];
                progress.step(format!("{} {}", contender.kind.name(), operation.name()));
                contender.sample(&mut *maps[turn], operation, keys, &truth)?;
            }
        }
    }
    drop(progress);
    add_rows(stage, &contenders, &floor, report);
    add_claims(stage, &contenders, &floor, report);
    Ok(())
}

/// Minimal number of fences for an operation of ours; `None` if no floor is measured.
fn fence_budget(operation: Operation) -> Option<u32> {
    match operation {
        Operation::Insert | Operation::Remove => Some(1),
        Operation::Lookup => Some(0),
        Operation::Scan => None,
    }
}

fn add_rows(stage: &Stage, contenders: &[Contender], floor: &Floor, report: &mut Report) {
    let label = format!("ordered {}", stage.label);
    for contender in contenders {
        for operation in Operation::ALL {
            let x = format!("{label} {}", operation.name());
            let ns = &contender.ns[operation as usize];
            let name = contender.kind.name();
            report.row(name, &x, &contender.ground, "Mops/s", &ns.reciprocal(1e3));
            report.row(name, &x, &contender.ground, "ns/op", ns);
        }
    }
    let ground = &contenders[0].ground;
    floor.add_rows(&label, ground, report);
    for operation in Operation::ALL {
        if let Some(fences) = fence_budget(operation) {
            let x = format!("{label} {}", operation.name());
            let mops = Samples::from_iter([1e3 / floor.ns(fences)]);
            report.row("floor of remanent", &x, ground, "Mops/s", &mops);
        }
    }
    let title = format!("Ordered maps of {} u64 keys, one thread", stage.label);
    report.chart(&label.replace(' ', "-"), &title, "Mops/s", &label, Shape::BarsLog);
}

fn add_claims(stage: &Stage, contenders: &[Contender], floor: &Floor, report: &mut Report) {
    let find = |name| contenders.iter().find(|contender| contender.kind.name() == name);
    for (id, rival, operation) in [
        ("insert_vs_nvbtree", "NVB+-Tree", Operation::Insert),
        ("insert_vs_std", "std BTreeMap", Operation::Insert),
        ("lookup_vs_std", "std BTreeMap", Operation::Lookup),
        ("insert_vs_lmdb", "LMDB", Operation::Insert),
        ("insert_vs_redb", "redb", Operation::Insert),
        ("lookup_vs_lmdb", "LMDB", Operation::Lookup),
        ("scan_vs_lmdb", "LMDB", Operation::Scan),
        ("lookup_vs_redb", "redb", Operation::Lookup),
        ("scan_vs_redb", "redb", Operation::Scan),
    ] {
        let (ours, Some(rival)) = (&contenders[0], find(rival)) else { continue };
        let (mine, theirs) = (&ours.ns[operation as usize], &rival.ns[operation as usize]);
        let floor_ns = fence_budget(operation).map(|fences| floor.ns(fences));
        let mut against = format!(
            "ns per {}: {} {:.0}, {} {:.0}",
            operation.name(),
            rival.kind.name(),
            theirs.median(),
            ours.kind.name(),
            mine.median(),
        );
        if let Some(floor_ns) = floor_ns {
            against += &format!(", floor {floor_ns:.0}");
        }
        let best = floor_ns.map(|floor_ns| theirs.median() / floor_ns);
        let id = format!("ordered.{id}{}", stage.suffix);
        report.claim(&id, &theirs.over(mine), "x", against, best);
    }
}

/// Scans of maps that stay in the caches, which measures the work alone.
fn run_cached(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let rounds = effort.pick(7, 5, 1);
    let scans = effort.pick(100_000, 10_000, 100);
    let keys: Vec<u64> = distinct(0, CACHED_KEYS);
    let froms: Vec<u64> = shuffled(&keys, CACHED_KEYS, 2).into_iter().cycle().take(scans).collect();
    let truth = Truth::new(&keys);
    let mut contenders = Contender::all();
    let scratch = Scratch::new(&setup.dir)?;
    let maps = contenders.iter_mut().map(|contender| contender.create(&scratch));
    let mut maps = maps.collect::<Result<Vec<_>>>()?;
    for (map, contender) in maps.iter_mut().zip(&mut contenders) {
        contender.sample(&mut **map, Operation::Insert, &keys, &truth)?;
    }
    for round in 0..rounds {
        for turn in turns(maps.len(), round) {
            contenders[turn].sample(&mut *maps[turn], Operation::Scan, &froms, &truth)?;
        }
    }
    let rate = |contender: &Contender| {
        contender.ns[Operation::Scan as usize].reciprocal(SCAN_LEN as f64 * 1e3)
    };
    for contender in &contenders {
        let x = "scan, cached 10 k";
        report.row(contender.kind.name(), x, &contender.ground, "Mentries/s", &rate(contender));
    }
    let others = contenders[1..].iter();
    let others = others.map(|other| format!("{} {:.0}", other.kind.name(), rate(other).median()));
    let against = format!(
        "nobody: ranges of {SCAN_LEN} of {CACHED_KEYS} entries, one thread; others: {}",
        others.collect::<Vec<_>>().join(", ")
    );
    let ours = rate(&contenders[0]);
    report.claim("ordered.scan_mentries", &ours, "million entries a second", against, None);
    Ok(())
}
