//! The hash maps: the bucketed one (`ExtendibleMap`) and the paper's, compared with volatile maps,
//! among them the one from which the paper started, and with one on libpmemobj.
//!
//! All maps of a round exist at the same time, unless memory is short. Each operation runs on each
//! of them in turn before the next operation begins, so compared values were measured within
//! seconds.

mod claims;
mod contenders;
mod reopening;
mod rounds;
mod scaling;

use anyhow::Result;

use super::bench::Bench;
use super::effort::Effort;
use crate::peers::MapKey;
use crate::report::{Report, Shape};
use crate::setup::Setup;
use crate::workloads::keys::Key40;
use crate::workloads::values::{BenchValue, Value100};
use claims::{add_claims, add_rows};
use contenders::contenders;
use rounds::{Workload, run_rounds};

pub(super) const BENCH: Bench = Bench::new(
    "hashmap",
    "The hash maps beside TBB's, libcuckoo, dashmap, papaya and one on libpmemobj",
    run,
);

/// The process that `hashmap` kills: fills a map in `--dir` and writes to it without end.
pub(super) const WRITER: Bench = Bench {
    is_hidden: true,
    ..Bench::new("hashmap-writer", "Writes until it is killed", |setup| {
        match reopening::write(setup)? {}
    })
};

/// What keys and values are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entries {
    /// Words to words.
    Words,
    /// Keys of 40 bytes to words: the paper's index.
    Key40,
    /// Keys of 40 bytes to values of 100.
    Records,
}

/// One size of the experiment.
#[derive(Clone, Copy)]
struct Stage {
    /// The end of the claims' names.
    suffix: &'static str,
    entries: Entries,
    /// Keys inserted.
    keys: usize,
    /// Keys of every other operation, drawn from those inserted.
    sample: usize,
    threads: usize,
    rounds: usize,
    /// Maps that exist at the same time, at most.
    group: usize,
}

/// More than there are contenders: all maps of a round exist at the same time.
const ALL: usize = 16;
/// Records of ten million keys take 2 to 3.5 GB in each map.
const FEW: usize = 4;

/// All sizes: one thread and two, a million keys and ten, and each kind of entries.
fn stages(effort: Effort) -> Vec<Stage> {
    use Entries::{Key40, Records, Words};
    let million = 1_000_000;
    let stage = |suffix, entries, threads| Stage {
        suffix,
        entries,
        keys: effort.pick(million, million, 2_000),
        sample: effort.pick(million, million / 4, 1_000),
        threads,
        rounds: effort.pick(5, 3, 1),
        group: ALL,
    };
    let large = |suffix, entries, threads, group| Stage {
        keys: 10 * million,
        rounds: 3,
        group,
        ..stage(suffix, entries, threads)
    };
    let (one, records) = (stage("", Words, 1), stage(".record", Records, 1));
    let full = || {
        vec![
            one,
            stage(".2t", Words, 2),
            stage(".key40", Key40, 1),
            records,
            stage(".record.2t", Records, 2),
            large(".10m", Words, 1, ALL),
            large(".10m.2t", Words, 2, ALL),
            large(".record.10m", Records, 1, FEW),
            large(".record.10m.2t", Records, 2, FEW),
        ]
    };
    let quick = vec![one, Stage { rounds: 2, ..records }];
    match effort {
        Effort::Full => full(),
        Effort::Quick => quick,
        Effort::Tiny => vec![Stage { group: FEW, ..one }, stage(".2t", Words, 2), records],
    }
}

/// Runs all sizes, then two threads over one, then opening.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
fn run(setup: &Setup) -> Result<Report> {
    tell_what_is_absent();
    let effort = Effort::of(setup);
    let mut report = Report::new("hashmap")?;
    for stage in stages(effort) {
        match stage.entries {
            Entries::Words => run_stage::<u64, u64>(&stage, setup, &mut report)?,
            Entries::Key40 => run_stage::<Key40, u64>(&stage, setup, &mut report)?,
            Entries::Records => run_stage::<Key40, Value100>(&stage, setup, &mut report)?,
        }
    }
    scaling::run(effort, setup, &mut report)?;
    reopening::run(effort, setup, &mut report)?;
    Ok(report)
}

fn tell_what_is_absent() {
    for (is_here, name, package) in [
        (cfg!(has_tbb), "TBB", "libtbb-dev"),
        (cfg!(has_libcuckoo), "libcuckoo", "libcuckoo-dev"),
        (cfg!(has_pmemobj), "PMDK", "libpmemobj-dev"),
    ] {
        if !is_here {
            eprintln!(
                "{name} was not found when this was built ({package}): no rows and claims beside it"
            );
        }
    }
}

fn run_stage<K: MapKey, V: BenchValue>(
    stage: &Stage,
    setup: &Setup,
    report: &mut Report,
) -> Result<()> {
    let workload = Workload::<K>::new(stage);
    let mut contenders = contenders::<K, V>(stage.threads);
    let floors = run_rounds(stage, setup, &workload, &mut contenders)?;
    let label = format!("{} {}t", label::<K, V>(stage.keys), stage.threads);
    let entry_len = size_of::<K>() + size_of::<V>();
    add_rows(&label, stage, entry_len, &contenders, &floors, report);
    add_claims(stage, entry_len, &contenders, &floors, report);
    report.chart(
        &label.replace(' ', "-"),
        &format!("Hash maps, {label}"),
        "Mops/s",
        &label,
        Shape::Bars,
    );
    Ok(())
}

/// Entries of a stage, for rows and titles: `u64 1m`.
fn label<K: MapKey, V: BenchValue>(keys: usize) -> String {
    let count = match keys {
        keys if keys.is_multiple_of(1_000_000) => format!("{}m", keys / 1_000_000),
        keys => keys.to_string(),
    };
    format!("{}{} {count}", K::NAME, V::SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_one_stage() {
        let suffixes = |effort| -> Vec<_> {
            stages(effort).into_iter().map(|stage| (stage.suffix, stage.entries)).collect()
        };
        let full = suffixes(Effort::Full);
        for (at, (suffix, _)) in full.iter().enumerate() {
            assert!(full[..at].iter().all(|(other, _)| other != suffix), "{suffix} occurs twice");
        }
        for effort in [Effort::Quick, Effort::Tiny] {
            assert!(suffixes(effort).iter().all(|stage| full.contains(stage)), "{effort:?}");
        }
    }
}
