//! The paper's Figures 4 and 5: time of an insert and of a search in maps of several sizes.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use remanent_structures::OrderedKey;

use super::{Effort, Flush, Variant, count_label};
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed, turns};
use crate::peers::Answer;
use crate::peers::multi::Kind;
use crate::report::{Ground, Report, Shape};
use crate::setup::Setup;
use crate::workloads::entries::{Entries, Step};
use crate::workloads::keys::{BenchKey, Key40};

const SIZES: [usize; 7] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
/// Minimal number of inserts in a sample; small maps are filled several times.
const INSERTS_MIN: usize = 100_000;

const UNIT: &str = "ns/op";
const CPU_UNIT: &str = "CPU ns/op";

/// Measurements of one variant at one size.
struct Measured {
    variant: Variant,
    ground: Ground,
    insert_ns: Samples,
    /// CPU time, which excludes the time that other programs take.
    insert_cpu_ns: Samples,
    /// Only for variants that flush in the best way or not at all, because searching flushes
    /// nothing.
    search_ns: Samples,
    search_cpu_ns: Samples,
}

/// All variants at one size.
struct Stage {
    entries: usize,
    measured: Vec<Measured>,
}

/// Measures both key types, and adds their rows, charts and claims.
///
/// # Errors
///
/// When a map cannot be made, or answers wrongly.
pub(super) fn run(effort: Effort, setup: &Setup, report: &mut Report) -> Result<()> {
    run_keys::<u64>("int", "", effort, setup, report)?;
    run_keys::<Key40>("40 bytes", ".key40", effort, setup, report)
}

fn run_keys<K: BenchKey + OrderedKey>(
    label: &str,
    suffix: &str,
    effort: Effort,
    setup: &Setup,
    report: &mut Report,
) -> Result<()> {
    let sizes = effort.pick(&SIZES[..], &SIZES[..3], &[1_000, 2_000]);
    let rounds = effort.pick(3, 3, 1);
    let searches = effort.pick(1_000_000, 100_000, 1_000);
    let progress = Progress::new(
        &format!("maps, {label}"),
        sizes.len() * rounds * Variant::all_with_clflush().len(),
    );
    let mut stages = Vec::new();
    for &size in sizes {
        stages.push(run_size::<K>(size, searches, rounds, setup, &progress)?);
    }
    drop(progress);
    for stage in &stages {
        for measured in &stage.measured {
            let (name, ground) = (measured.variant.name(), &measured.ground);
            let x = |what| format!("{what} {label} {}", stage.entries);
            report.row(&name, &x("insert"), ground, UNIT, &measured.insert_ns);
            report.row(&name, &x("insert"), ground, CPU_UNIT, &measured.insert_cpu_ns);
            report.row(&name, &x("search"), ground, UNIT, &measured.search_ns);
            report.row(&name, &x("search"), ground, CPU_UNIT, &measured.search_cpu_ns);
        }
    }
    for (figure, what, title) in [
        (4, "insert", "Inserts into a map of so many entries"),
        (5, "search", "Searches for all entries of a key in a map of so many entries"),
    ] {
        let file = format!("figure-{figure}-{}", label.replace(' ', "-"));
        let title = format!("{title}, keys: {label}, one thread");
        report.chart(&file, &title, UNIT, &format!("{what} {label} "), Shape::LinesLogX);
    }
    add_claims(suffix, &stages, report);
    Ok(())
}

fn run_size<K: BenchKey + OrderedKey>(
    size: usize,
    searches: usize,
    rounds: usize,
    setup: &Setup,
    progress: &Progress,
) -> Result<Stage> {
    let entries = Entries::new(size);
    let workload = Workload {
        inserts: entries.inserts::<K>(),
        searches: entries.searches(searches),
        audit: entries.audit(),
    };
    let new = |variant| {
        let [insert_ns, insert_cpu_ns, search_ns, search_cpu_ns] = [const { Samples::new() }; 4];
        let ground = Ground::volatile();
        Measured { variant, ground, insert_ns, insert_cpu_ns, search_ns, search_cpu_ns }
    };
    let mut measured: Vec<Measured> = Variant::all_with_clflush().into_iter().map(new).collect();
    for round in 0..rounds {
        for turn in turns(measured.len(), round) {
            let measured = &mut measured[turn];
            let name = measured.variant.name();
            progress.step(format!("{name}, {size} entries"));
            workload.sample(measured, setup).with_context(|| format!("{name}, {size} entries"))?;
        }
    }
    Ok(Stage { entries: size, measured })
}

/// The operations on every map of one size.
struct Workload<K> {
    inserts: Vec<Step<K>>,
    searches: (Vec<Step<K>>, Answer),
    audit: (Vec<Step<K>>, Answer),
}

impl<K: BenchKey + OrderedKey> Workload<K> {
    fn sample(&self, measured: &mut Measured, setup: &Setup) -> Result<()> {
        let variant = measured.variant;
        let repeats = INSERTS_MIN.div_ceil(self.inserts.len()).min(10);
        let (mut insert_ns, mut insert_cpu_ns) = (0.0, 0.0);
        for repeat in 1..=repeats {
            let scratch = Scratch::new(&setup.dir)?;
            let (map, ground) = variant.kind.create_in::<K>(scratch.path(), &variant.options())?;
            measured.ground = ground;
            let (cost, _) = timed(&self.inserts, 1, |steps| map.run(steps))?;
            insert_ns += cost.wall.as_secs_f64() * 1e9;
            insert_cpu_ns += cost.cpu.as_secs_f64() * 1e9;
            let (audit, expected) = &self.audit;
            let found = map.run(audit)?;
            ensure!(found == *expected, "there is {found:?} and should be {expected:?}");
            if repeat == repeats && variant.flush == Flush::Best {
                let (searches, expected) = &self.searches;
                let (cost, answers) = timed(searches, 1, |steps| map.run(steps))?;
                ensure!(answers == [*expected], "found {answers:?}, expected {expected:?}");
                let ns = |time: Duration| time.as_secs_f64() * 1e9 / searches.len() as f64;
                measured.search_ns.push(ns(cost.wall));
                measured.search_cpu_ns.push(ns(cost.cpu));
            }
        }
        let inserts = (repeats * self.inserts.len()) as f64;
        measured.insert_ns.push(insert_ns / inserts);
        measured.insert_cpu_ns.push(insert_cpu_ns / inserts);
        Ok(())
    }
}

fn add_claims(suffix: &str, stages: &[Stage], report: &mut Report) {
    let variant = |kind| move |flush| Variant { kind, flush };
    let (hashmap, tree) = (variant(Kind::Hashmap), variant(Kind::Tree));
    let (Some(small), Some(large)) = (stages.first(), stages.last()) else { return };
    add_search_claim(suffix, large, report);
    for (flush, flushed_by) in [(Flush::Best, ""), (Flush::Clflush, ".clflush")] {
        for (id, stage, above, below, paper) in [
            ("insert.hashmap_vs_nvbtree", large, tree(flush), hashmap(flush), "2 to 2.5"),
            ("flush_overhead.hashmap", large, hashmap(flush), hashmap(Flush::None), "1.4 to 1.8"),
            (
                "flush_overhead.nvbtree.small",
                small,
                tree(flush),
                tree(Flush::None),
                "10 where small",
            ),
            (
                "flush_overhead.nvbtree.large",
                large,
                tree(flush),
                tree(Flush::None),
                "4 where large",
            ),
        ] {
            let id = format!("maps.{id}{flushed_by}{suffix}");
            add_claim(&id, stages, stage, above, below, paper, report);
        }
    }
}

/// Time of a search by the hash map over that by the tree.
fn add_search_claim(suffix: &str, stage: &Stage, report: &mut Report) {
    let find = |kind| stage.find(Variant { kind, flush: Flush::Best });
    let (Some(hashmap), Some(tree)) = (find(Kind::Hashmap), find(Kind::Tree)) else { return };
    let against = format!(
        "ns per search in {} entries: {} {:.0}, {} {:.0}; {:.2} by CPU time; the paper: above 1",
        count_label(stage.entries),
        hashmap.variant.name(),
        hashmap.search_ns.median(),
        tree.variant.name(),
        tree.search_ns.median(),
        hashmap.search_cpu_ns.over(&tree.search_cpu_ns).median(),
    );
    let ratio = hashmap.search_ns.over(&tree.search_ns);
    report.claim(&format!("maps.search.nvbtree_vs_hashmap{suffix}"), &ratio, "x", against, None);
}

/// Time of an insert by one variant over that by another, if both were measured.
fn add_claim(
    id: &str,
    stages: &[Stage],
    stage: &Stage,
    above: Variant,
    below: Variant,
    paper: &str,
    report: &mut Report,
) {
    let (Some(upper), Some(lower)) = (stage.find(above), stage.find(below)) else { return };
    let medians: Samples = stages
        .iter()
        .filter_map(|stage| Some((stage.find(above)?, stage.find(below)?)))
        .map(|(upper, lower)| upper.insert_ns.over(&lower.insert_ns).median())
        .collect();
    let against = format!(
        "ns per insert into {} entries: {} {:.0}, {} {:.0}; {:.2} by CPU time; {:.2} to {:.2} over all sizes; the paper: {paper}",
        count_label(stage.entries),
        above.name(),
        upper.insert_ns.median(),
        below.name(),
        lower.insert_ns.median(),
        upper.insert_cpu_ns.over(&lower.insert_cpu_ns).median(),
        medians.min(),
        medians.max(),
    );
    report.claim(id, &upper.insert_ns.over(&lower.insert_ns), "x", against, None);
}

impl Stage {
    fn find(&self, variant: Variant) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.variant == variant)
    }
}
