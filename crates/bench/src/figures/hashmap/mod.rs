//! The hash map compared with TBB's volatile map, from which the paper started, and with one on
//! libpmemobj.
//!
//! All maps of a round exist at the same time. Each operation runs on each of them in turn before
//! the next operation begins, so compared values were measured within seconds.

use std::path::Path;

use anyhow::{Context, Result};
use remanent_pmem::Emulation;
use remanent_structures::Key;

use super::bench::Bench;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed, turns};
use crate::memory::floor::Floor;
use crate::peers::remanent_map::RemanentMap;
use crate::peers::{Map, Operation, tbb, verify};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{BenchKey, Key40, distinct, shuffled};

pub(super) const BENCH: Bench = Bench::new(
    "hashmap",
    "The hash map beside TBB's and one on libpmemobj (NVC-Hashmap, section 5)",
    run,
);

const NVRAM: &str = "remanent nvram";
const MEMORY: &str = "remanent memory";
const TBB: &str = "TBB volatile";
const PMEMOBJ: &str = "libpmemobj";

/// One size of the experiment.
struct Stage {
    /// The end of the claims' names.
    suffix: &'static str,
    /// Keys inserted.
    keys: usize,
    /// Keys of every other operation, drawn from those inserted.
    sample: usize,
    threads: usize,
    rounds: usize,
}

/// Approximate bytes of an entry and its bucket slot, for the cost of a load that misses the
/// caches.
const ENTRY_LEN: usize = 64;
/// Bytes for each key by which a pool may grow: several times what a key needs.
const POOL_LEN_PER_KEY: u64 = 512;

/// Runs all sizes: one thread and two, a million keys and ten, 8-byte keys and 40-byte ones.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
fn run(setup: &Setup) -> Result<Report> {
    tell_what_is_absent();
    let mut report = Report::new("hashmap")?;
    let million = 1_000_000;
    let stage =
        |suffix, keys, threads, rounds| Stage { suffix, keys, sample: million, threads, rounds };
    if setup.quick {
        let quick = Stage { sample: million / 4, ..stage("", million, 1, 3) };
        run_stage::<u64>(&quick, setup, &mut report)?;
    } else {
        run_stage::<u64>(&stage("", million, 1, 5), setup, &mut report)?;
        run_stage::<u64>(&stage(".2t", million, 2, 5), setup, &mut report)?;
        run_stage::<Key40>(&stage(".key40", million, 1, 5), setup, &mut report)?;
        run_stage::<u64>(&stage(".10m", 10 * million, 1, 3), setup, &mut report)?;
        run_stage::<u64>(&stage(".10m.2t", 10 * million, 2, 3), setup, &mut report)?;
    }
    Ok(report)
}

fn tell_what_is_absent() {
    if !cfg!(has_tbb) {
        eprintln!(
            "TBB was not found when this was built (libtbb-dev): no rows and claims beside it"
        );
    }
    if !cfg!(has_pmemobj) {
        eprintln!(
            "PMDK was not found when this was built (libpmemobj-dev): no rows and claims beside it"
        );
    }
}

/// Makes an empty map for so many keys in a directory.
type Build<K> = fn(&Path, usize) -> Result<(Box<dyn Map<K>>, Ground)>;

/// A kind of map and what it took.
struct Contender<K> {
    name: &'static str,
    build: Build<K>,
    ground: Ground,
    /// Wall-clock nanoseconds per operation, all threads together.
    wall_ns: [Samples; Operation::ALL.len()],
    /// CPU nanoseconds per operation.
    cpu_ns: [Samples; Operation::ALL.len()],
}

impl<K> Contender<K> {
    fn new(name: &'static str, build: Build<K>) -> Self {
        let ground = Ground::volatile();
        Contender { name, build, ground, wall_ns: Default::default(), cpu_ns: Default::default() }
    }
}

fn contenders<K: BenchKey + Key + tbb::TbbKey>() -> Vec<Contender<K>> {
    vec![
        Contender::new(NVRAM, |dir, keys| remanent(dir, keys, Emulation::Nvram)),
        Contender::new(MEMORY, |dir, keys| remanent(dir, keys, Emulation::None)),
        #[cfg(has_tbb)]
        Contender::new(TBB, |_, _| Ok((Box::new(tbb::TbbMap::new()), Ground::volatile()))),
        #[cfg(has_pmemobj)]
        Contender::new(PMEMOBJ, |dir, keys| {
            let map = crate::peers::pmemobj::PmemobjMap::create(dir, keys)?;
            let ground = map.ground()?;
            Ok((Box::new(map), ground))
        }),
    ]
}

fn remanent<K: BenchKey + Key>(
    dir: &Path,
    keys: usize,
    emulation: Emulation,
) -> Result<(Box<dyn Map<K>>, Ground)> {
    let size_max = (1 << 30) + keys as u64 * POOL_LEN_PER_KEY;
    let map = RemanentMap::create(dir, size_max, emulation)?;
    let ground = map.ground();
    Ok((Box::new(map), ground))
}

/// The keys of each operation.
struct Workload<K> {
    batches: [Vec<K>; Operation::ALL.len()],
}

impl<K: BenchKey> Workload<K> {
    fn new(stage: &Stage) -> Self {
        let all: Vec<K> = distinct(0, stage.keys);
        let sample = shuffled(&all, stage.sample, 1);
        let fresh = distinct(stage.keys as u64, sample.len() / 2);
        let mixed = shuffled(&sample, fresh.len(), 3).into_iter().zip(fresh);
        let mixed = mixed.flat_map(|(old, new)| [old, new]).collect();
        let update = shuffled(&sample, sample.len(), 2);
        let remove = shuffled(&sample, sample.len(), 4);
        Workload { batches: [all, sample, update, mixed, remove] }
    }
}

fn run_stage<K>(stage: &Stage, setup: &Setup, report: &mut Report) -> Result<()>
where
    K: BenchKey + Key + tbb::TbbKey,
{
    let workload = Workload::<K>::new(stage);
    let mut contenders = contenders::<K>();
    let floor = Floor::measure(&setup.dir, stage.keys * ENTRY_LEN, stage.rounds)?;
    let steps = stage.rounds * contenders.len() * Operation::ALL.len();
    let progress = Progress::new("hashmap", steps);
    for round in 0..stage.rounds {
        run_round(stage, setup, &workload, &mut contenders, round, &progress)?;
    }
    drop(progress);
    let label = label::<K>(stage);
    add_rows(&label, stage, &contenders, &floor, report);
    add_claims(stage, &contenders, &floor, report);
    report.chart(
        &label.replace(' ', "-"),
        &format!("Hash maps, {label}"),
        "Mops/s",
        &label,
        Shape::Bars,
    );
    Ok(())
}

/// What was measured, for rows and titles: `u64 1m 1t`.
fn label<K: BenchKey>(stage: &Stage) -> String {
    format!("{} {}m {}t", K::NAME, stage.keys / 1_000_000, stage.threads)
}

fn run_round<K: BenchKey>(
    stage: &Stage,
    setup: &Setup,
    workload: &Workload<K>,
    contenders: &mut [Contender<K>],
    round: usize,
    progress: &Progress,
) -> Result<()> {
    let scratch = Scratch::new(&setup.dir)?;
    let mut maps = Vec::with_capacity(contenders.len());
    for contender in contenders.iter_mut() {
        let built = (contender.build)(scratch.path(), stage.keys + stage.sample / 2);
        let (map, ground) =
            built.with_context(|| format!("cannot make the map of {}", contender.name))?;
        contender.ground = ground;
        maps.push(map);
    }
    for (index, operation) in Operation::ALL.into_iter().enumerate() {
        let keys = &workload.batches[index];
        for turn in turns(maps.len(), round) {
            let (contender, map) = (&mut contenders[turn], &maps[turn]);
            progress.step(format!("{} {}", contender.name, operation.name()));
            if !map.allows(operation, stage.threads) {
                continue;
            }
            let (cost, answers) = timed(keys, stage.threads, |share| map.run(operation, share))
                .with_context(|| format!("{} {}", contender.name, operation.name()))?;
            verify(operation, keys, index > Operation::Update as usize, &answers)
                .with_context(|| contender.name.to_owned())?;
            contender.wall_ns[index].push(cost.wall.as_secs_f64() * 1e9 / keys.len() as f64);
            contender.cpu_ns[index].push(cost.cpu.as_secs_f64() * 1e9 / keys.len() as f64);
        }
    }
    Ok(())
}

/// Minimal number of fences for an operation of ours. The mixed one inserts every other time.
fn fence_budget(operation: Operation) -> u32 {
    match operation {
        Operation::Insert => 2,
        Operation::Lookup => 0,
        Operation::Update | Operation::Mixed | Operation::Remove => 1,
    }
}

fn add_rows<K>(
    label: &str,
    stage: &Stage,
    contenders: &[Contender<K>],
    floor: &Floor,
    report: &mut Report,
) {
    for contender in contenders {
        for (index, operation) in Operation::ALL.into_iter().enumerate() {
            let x = format!("{label} {}", operation.name());
            let throughput = contender.wall_ns[index].reciprocal(1e3);
            report.row(contender.name, &x, &contender.ground, "Mops/s", &throughput);
            let cpu_ns = &contender.cpu_ns[index];
            report.row(contender.name, &x, &contender.ground, "CPU ns/op", cpu_ns);
        }
    }
    let ground = &contenders[0].ground;
    floor.add_rows(label, ground, report);
    for operation in Operation::ALL {
        let x = format!("{label} {}", operation.name());
        let mops = stage.threads as f64 * 1e3 / floor.ns(fence_budget(operation));
        report.row("floor of nvram", &x, ground, "Mops/s", &Samples::from_iter([mops]));
    }
}

fn add_claims<K>(stage: &Stage, contenders: &[Contender<K>], floor: &Floor, report: &mut Report) {
    let find = |name| contenders.iter().find(|contender| contender.name == name);
    for (id, ours, rival, operation) in [
        ("insert.nvram_vs_tbb", NVRAM, TBB, Operation::Insert),
        ("lookup.nvram_vs_tbb", NVRAM, TBB, Operation::Lookup),
        ("insert.nvram_vs_pmemobj", NVRAM, PMEMOBJ, Operation::Insert),
        ("insert.memory_vs_tbb", MEMORY, TBB, Operation::Insert),
        ("lookup.memory_vs_tbb", MEMORY, TBB, Operation::Lookup),
    ] {
        let (Some(mine), Some(theirs)) = (find(ours), find(rival)) else { continue };
        let fences = if ours == NVRAM { fence_budget(operation) } else { 0 };
        let index = operation as usize;
        let describe = |contender: &Contender<K>| {
            let wall_ns = contender.wall_ns[index].median();
            format!("{} {wall_ns:.0} (CPU {:.0})", contender.name, contender.cpu_ns[index].median())
        };
        let against = format!(
            "ns per {}: {}, {}, floor {:.0}",
            operation.name(),
            describe(theirs),
            describe(mine),
            floor.ns(fences),
        );
        let ratio = theirs.wall_ns[index].over(&mine.wall_ns[index]);
        let best = theirs.wall_ns[index].median() * stage.threads as f64 / floor.ns(fences);
        report.claim(&format!("hashmap.{id}{}", stage.suffix), &ratio, "x", against, Some(best));
    }
}
