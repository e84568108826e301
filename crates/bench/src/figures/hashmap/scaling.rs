//! Throughput of the bucketed map by two threads over that by one, measured in turns, beside what
//! the machine's second core adds.

use anyhow::Result;
use remanent_pmem::{LINE_LEN, Medium};

use super::contenders::{Contender, extendible};
use super::rounds::{Workload, run_rounds};
use super::{Effort, Entries, Stage, label};
use crate::measure::{Samples, timed};
use crate::memory::area::Area;
use crate::memory::floor::FLOOR_LEN;
use crate::peers::Operation;
use crate::report::Report;
use crate::setup::Setup;
use crate::workloads::keys::{distinct, mix};

/// Operations that the claim covers.
const OPERATIONS: [Operation; 4] =
    [Operation::Insert, Operation::Lookup, Operation::Update, Operation::Remove];
/// Lines of the floor that each round touches.
const LINES: usize = 200_000;
const UNIT: &str = "x";

/// Measures all sizes.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let million = 1_000_000;
    let stage = |suffix, keys, rounds| Stage {
        suffix,
        entries: Entries::Words,
        keys,
        sample: effort.pick(million, million, 1_000),
        threads: 1,
        rounds,
        group: super::ALL,
    };
    run_stage(
        &stage("", effort.pick(million, million, 2_000), effort.pick(7, 3, 1)),
        setup,
        report,
    )?;
    if let Effort::Full = effort {
        run_stage(&stage(".10m", 10 * million, 3), setup, report)?;
    }
    Ok(())
}

fn run_stage(stage: &Stage, setup: &Setup, report: &mut Report) -> Result<()> {
    let workload = Workload::<u64>::new(stage);
    let mut contenders = [1, 2].map(extendible::<u64, u64>);
    run_rounds(stage, setup, &workload, &mut contenders)?;
    let machine = machine(setup, stage.rounds)?;
    let [one, two] = &contenders;
    let label = label::<u64, u64>(stage.keys);
    let series = format!("{}, 2 threads over 1", one.name);
    let mut worst: Option<(Operation, Samples)> = None;
    for operation in OPERATIONS {
        let gain = gain(one, two, operation);
        report.row(&series, &format!("{label} {}", operation.name()), &one.ground, UNIT, &gain);
        if worst.as_ref().is_none_or(|(_, worst)| gain.median() < worst.median()) {
            worst = Some((operation, gain));
        }
    }
    let [fence, load] = &machine;
    for (x, gain) in [("store + flush + fence", fence), ("load from a random line", load)] {
        let x = format!("{label} {x}");
        report.row("the machine, 2 threads over 1", &x, &one.ground, UNIT, gain);
    }
    let Some((operation, gain)) = worst else { return Ok(()) };
    let mops = |contender: &Contender<u64>| 1e3 / contender.wall_ns[operation as usize].median();
    let against = format!(
        "one thread, in Mops/s of {}, which gains least: two {:.2}, one {:.2}; the machine gains \
         {:.2} with fences, {:.2} with loads",
        operation.name(),
        mops(two),
        mops(one),
        fence.median(),
        load.median(),
    );
    let floor = if operation == Operation::Lookup { load } else { fence };
    let id = format!("extendible.scaling.2{}", stage.suffix);
    report.claim(&id, &gain, UNIT, against, Some(floor.median()));
    Ok(())
}

/// Throughput by two threads over that by one, round by round.
fn gain(one: &Contender<u64>, two: &Contender<u64>, operation: Operation) -> Samples {
    one.wall_ns[operation as usize].over(&two.wall_ns[operation as usize])
}

/// What a second thread gains where threads have nothing in common: fences of random lines, and
/// loads from them.
fn machine(setup: &Setup, rounds: usize) -> Result<[Samples; 2]> {
    let area = Area::new(&setup.dir, FLOOR_LEN)?;
    let medium = area.medium();
    let lines: Vec<u64> = distinct(0, LINES);
    let mut gains = [const { Samples::new() }; 2];
    for round in 0..rounds as u64 {
        let place = |line: &u64| area.place(LINE_LEN, mix(line ^ round));
        let wall_s = |threads, has_fence: bool| -> Result<f64> {
            let (cost, _) = timed(&lines, threads, |share| {
                let mut sum = 0;
                for offset in share.iter().map(place) {
                    sum ^= medium.load(offset);
                    if has_fence {
                        medium.store(offset, sum);
                        medium.persist(offset, 8);
                    }
                }
                Ok(std::hint::black_box(sum))
            })?;
            Ok(cost.wall.as_secs_f64())
        };
        for (gain, has_fence) in gains.iter_mut().zip([true, false]) {
            gain.push(wall_s(1, has_fence)? / wall_s(2, has_fence)?);
        }
    }
    Ok(gains)
}
