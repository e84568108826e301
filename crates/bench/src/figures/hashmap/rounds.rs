//! Rounds: every contender performs every operation once.

use anyhow::{Context, Result};

use super::Stage;
use super::contenders::Contender;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed, turns};
use crate::memory::floor::{Floor, chase_ns};
use crate::peers::{Map, Operation, verify};
use crate::setup::Setup;
use crate::workloads::keys::{BenchKey, distinct, shuffled};

/// Approximate bytes of an entry and its bucket slot, for the cost of a load that misses the
/// caches.
const ENTRY_LEN: usize = 64;

/// Measurements of a floor in a round, of which the median counts: each takes only milliseconds, so
/// that another program can spoil it.
const REPEATS: usize = 3;

/// The keys of each operation.
pub(super) struct Workload<K> {
    batches: [Vec<K>; Operation::ALL.len()],
}

impl<K: BenchKey> Workload<K> {
    pub(super) fn new(stage: &Stage) -> Self {
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

/// What the machine needs, a sample for each round.
#[derive(Default)]
pub(super) struct Floors {
    pub(super) floor: Floor,
    /// A load from a random line that nothing overlaps.
    pub(super) miss_ns: Samples,
}

impl Floors {
    fn sample(&mut self, stage: &Stage, setup: &Setup) -> Result<()> {
        let len = stage.keys * ENTRY_LEN;
        let floor = Floor::measure(&setup.dir, len, REPEATS)?;
        self.floor.fence_ns.push(floor.fence_ns.median());
        self.floor.load_ns.push(floor.load_ns.median());
        self.miss_ns.push(chase_ns(len, REPEATS).median());
        Ok(())
    }
}

/// Runs all rounds of a stage, and the machine's floors beside them.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run_rounds<K: BenchKey>(
    stage: &Stage,
    setup: &Setup,
    workload: &Workload<K>,
    contenders: &mut [Contender<K>],
) -> Result<Floors> {
    let steps = stage.rounds * contenders.len() * Operation::ALL.len();
    let progress = Progress::new("hashmap", steps);
    let mut floors = Floors::default();
    for round in 0..stage.rounds {
        floors.sample(stage, setup)?;
        for group in contenders.chunks_mut(stage.group) {
            run_round(stage, setup, workload, group, round, &progress)?;
        }
    }
    Ok(floors)
}

fn run_round<K: BenchKey>(
    stage: &Stage,
    setup: &Setup,
    workload: &Workload<K>,
    contenders: &mut [Contender<K>],
    round: usize,
    progress: &Progress,
) -> Result<()> {
    let mut maps = Vec::with_capacity(contenders.len());
    for contender in contenders.iter_mut() {
        let scratch = Scratch::new(&setup.dir)?;
        let built = (contender.build)(scratch.path(), stage.keys + stage.sample / 2);
        let (map, ground) =
            built.with_context(|| format!("cannot make the map of {}", contender.name))?;
        contender.ground = ground;
        maps.push((map, scratch));
    }
    for operation in Operation::ALL {
        let keys = &workload.batches[operation as usize];
        for turn in turns(maps.len(), round) {
            let (contender, (map, _)) = (&mut contenders[turn], &maps[turn]);
            progress.step(format!("{} {}", contender.name, operation.name()));
            if map.allows(operation, contender.threads) {
                sample(contender, &**map, operation, keys)
                    .with_context(|| format!("{} {}", contender.name, operation.name()))?;
            }
        }
    }
    Ok(())
}

/// Performs an operation on all keys, each thread on its share.
fn sample<K: BenchKey>(
    contender: &mut Contender<K>,
    map: &dyn Map<K>,
    operation: Operation,
    keys: &[K],
) -> Result<()> {
    let index = operation as usize;
    let (cost, answers) = timed(keys, contender.threads, |share| map.run(operation, share))?;
    verify(operation, keys, index > Operation::Update as usize, &answers)?;
    contender.wall_ns[index].push(cost.wall.as_secs_f64() * 1e9 / keys.len() as f64);
    contender.cpu_ns[index].push(cost.cpu.as_secs_f64() * 1e9 / keys.len() as f64);
    if operation == Operation::Insert
        && let Some(usage) = map.usage()?
    {
        contender.block_len.push(usage.block_bytes as f64 / keys.len() as f64);
        contender.chunk_len.push(usage.chunk_bytes as f64 / keys.len() as f64);
    }
    Ok(())
}
