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
/// Lines of the floor that each round visits, for each key of a sample: about half a second by one
/// thread. A scheduler may keep two new threads on one busy core for some milliseconds.
const FENCES_PER_KEY: usize = 2;
const LOADS_PER_KEY: usize = 10;
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
    let machine = machine(setup, stage)?;
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
fn machine(setup: &Setup, stage: &Stage) -> Result<[Samples; 2]> {
    let area = Area::new(&setup.dir, FLOOR_LEN)?;
    let medium = area.medium();
    let lines: Vec<u64> = distinct(0, LOADS_PER_KEY * stage.sample);
    let fenced = &lines[..FENCES_PER_KEY * stage.sample];
    let [mut fence, mut load] = [const { Samples::new() }; 2];
    for round in 0..stage.rounds as u64 {
        let place = |line: &u64| area.place(LINE_LEN, mix(line ^ round));
        let persist = |share: &[u64]| {
            for (offset, value) in share.iter().map(place).zip(0..) {
                medium.store(offset, value);
                medium.persist(offset, 8);
            }
            Ok(())
        };
        let read = |share: &[u64]| {
            let sum = share.iter().map(place).fold(0, |sum, offset| sum ^ medium.load(offset));
            // The sum is used, so that the compiler cannot omit the loads.
            std::hint::black_box(sum);
            Ok(())
        };
        let wall_s = |lines, threads, work: &(dyn Fn(&[u64]) -> Result<()> + Sync)| {
            let (cost, _) = timed(lines, threads, work)?;
            Ok::<_, anyhow::Error>(cost.wall.as_secs_f64())
        };
        fence.push(wall_s(fenced, 1, &persist)? / wall_s(fenced, 2, &persist)?);
        load.push(wall_s(&lines, 1, &read)? / wall_s(&lines, 2, &read)?);
    }
    Ok([fence, load])
}
