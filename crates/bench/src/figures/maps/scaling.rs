//! The default ordered map in several threads, compared with the standard library's behind a lock.

use anyhow::{Context, Result};

use super::{Effort, count_label, threads_label};
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed, turns};
use crate::peers::Answer;
use crate::peers::ordered::{Operation, Truth};
use crate::peers::shared_tree::{Kind, SharedTree};
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::{distinct, shuffled};

const UNIT: &str = "Mops/s";
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// In the order in which a round performs them.
const OPERATIONS: [Operation; 3] = [Operation::Insert, Operation::Lookup, Operation::Remove];

/// A kind of map and what it did.
struct Contender {
    kind: Kind,
    ground: Ground,
    /// Millions of operations a second, all threads together.
    mops: [[Samples; OPERATIONS.len()]; THREADS.len()],
}

/// Measures all numbers of threads, and adds their rows, charts and claims.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    let count = effort.pick(1_000_000, 100_000, 1_000);
    let rounds = effort.pick(3, 2, 1);
    let keys: Vec<u64> = distinct(0, count);
    let batches = [1, 2].map(|seed| shuffled(&keys, count, seed));
    let [lookups, removals] = &batches;
    let truth = Truth::new(&keys);
    let new = |kind| Contender { kind, ground: Ground::volatile(), mops: Default::default() };
    let mut contenders = Kind::ALL.map(new);
    let progress = Progress::new("maps, scaling", rounds * THREADS.len() * contenders.len());
    for round in 0..rounds {
        for (index, threads) in THREADS.into_iter().enumerate() {
            for turn in turns(contenders.len(), round) {
                let contender = &mut contenders[turn];
                progress.step(format!("{}, {}", contender.kind.name(), threads_label(threads)));
                let scratch = Scratch::new(&setup.dir)?;
                let (map, ground) = contender.kind.create(scratch.path())?;
                contender.ground = ground;
                let samples = contender.mops[index].iter_mut();
                let batches = OPERATIONS.into_iter().zip([&keys, lookups, removals]);
                for ((operation, keys), samples) in batches.zip(samples) {
                    let mops = run_one(&*map, operation, keys, threads, &truth)
                        .with_context(|| format!("{}, {threads}", contender.kind.name()))?;
                    samples.push(mops);
                }
            }
        }
    }
    drop(progress);
    add_rows(count, &contenders, report);
    add_claims(&contenders, report);
    Ok(())
}

/// Executes an operation on all keys, each thread on its share. Returns millions of operations a
/// second.
fn run_one(
    map: &dyn SharedTree,
    operation: Operation,
    keys: &[u64],
    threads: usize,
    truth: &Truth,
) -> Result<f64> {
    let (cost, answers) = timed(keys, threads, |keys| map.run(operation, keys))?;
    truth.verify(operation, keys, answers.into_iter().fold(Answer::default(), Answer::plus))?;
    Ok(keys.len() as f64 / cost.wall.as_secs_f64() / 1e6)
}

fn add_rows(count: usize, contenders: &[Contender], report: &mut Report) {
    let most = threads_label(THREADS[THREADS.len() - 1]);
    for (index, operation) in OPERATIONS.into_iter().enumerate() {
        let label = format!("ordered, {}, threads:", operation.name());
        for contender in contenders {
            for (threads, mops) in THREADS.into_iter().zip(&contender.mops) {
                let x = format!("{label} {threads}");
                report.row(contender.kind.name(), &x, &contender.ground, UNIT, &mops[index]);
            }
        }
        let title = format!("{} u64 keys, {}, up to {most}", count_label(count), operation.name());
        let file = format!("ordered-scaling-{}", operation.name());
        report.chart(&file, &title, UNIT, &label, Shape::Lines);
    }
}

/// Results of two threads, over one thread of ours, and over two threads of the other.
fn add_claims(contenders: &[Contender; 2], report: &mut Report) {
    let [ours, other] = contenders;
    for (index, operation) in OPERATIONS.into_iter().enumerate() {
        let [one, two, rival] =
            [&ours.mops[0], &ours.mops[1], &other.mops[1]].map(|mops| &mops[index]);
        let id = format!("ordered.scaling.{}.2t", operation.name());
        let against = format!("{UNIT}: two threads {:.2}, one {:.2}", two.median(), one.median());
        report.claim(&id, &two.over(one), "x", against, None);
        let id = format!("ordered.scaling.{}.2t_vs_std", operation.name());
        let against = format!(
            "{UNIT} by two threads: {} {:.2}, {} {:.2}",
            ours.kind.name(),
            two.median(),
            other.kind.name(),
            rival.median()
        );
        report.claim(&id, &two.over(rival), "x", against, None);
    }
}
