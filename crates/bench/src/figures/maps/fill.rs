//! The paper's Figures 4 and 5: what an insert and a search take in maps of several sizes.

use anyhow::{Context, Result, ensure};
use remanent_pmem::Emulation;
use remanent_structures::OrderedKey;

use super::{Effort, Variant, count_label};
use crate::Setup;
use crate::cleanup::Scratch;
use crate::measure::{Progress, Samples, timed, turns};
use crate::peers::Answer;
use crate::peers::multi::Kind;
use crate::plot::Shape;
use crate::report::{Ground, Report};
use crate::workloads::entries::{Entries, Step};
use crate::workloads::keys::{BenchKey, Key40};

const SIZES: [usize; 7] = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000];
/// Inserts of a sample at the least: small maps are filled several times.
const INSERTS_MIN: usize = 100_000;

const UNIT: &str = "ns/op";

/// What one variant took at one size.
struct Measured {
    variant: Variant,
    ground: Ground,
    insert_ns: Samples,
    /// Of the variants that flush alone: searching flushes nothing.
    search_ns: Samples,
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
    let progress =
        Progress::new(&format!("maps, {label}"), sizes.len() * rounds * Variant::all().len());
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
            report.row(&name, &x("search"), ground, UNIT, &measured.search_ns);
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
        let [insert_ns, search_ns] = [const { Samples::new() }; 2];
        Measured { variant, ground: Ground::volatile(), insert_ns, search_ns }
    };
    let mut measured: Vec<Measured> = Variant::all().into_iter().map(new).collect();
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

/// What is done with every map of one size.
struct Workload<K> {
    inserts: Vec<Step<K>>,
    searches: (Vec<Step<K>>, Answer),
    audit: (Vec<Step<K>>, Answer),
}

impl<K: BenchKey + OrderedKey> Workload<K> {
    fn sample(&self, measured: &mut Measured, setup: &Setup) -> Result<()> {
        let Variant { kind, emulation } = measured.variant;
        let repeats = INSERTS_MIN.div_ceil(self.inserts.len()).min(10);
        let mut insert_ns = 0.0;
        for repeat in 1..=repeats {
            let scratch = Scratch::new(&setup.dir)?;
            let (map, ground) = kind.create_in::<K>(scratch.path(), emulation)?;
            measured.ground = ground;
            let (cost, _) = timed(&self.inserts, 1, |steps| map.run(steps))?;
            insert_ns += cost.wall.as_secs_f64() * 1e9;
            let (audit, expected) = &self.audit;
            let found = map.run(audit)?;
            ensure!(found == *expected, "there is {found:?} and should be {expected:?}");
            if repeat == repeats && measured.variant.flushes() {
                let (searches, expected) = &self.searches;
                let (cost, answers) = timed(searches, 1, |steps| map.run(steps))?;
                ensure!(answers == [*expected], "found {answers:?}, expected {expected:?}");
                let ns = cost.wall.as_secs_f64() * 1e9;
                measured.search_ns.push(ns / searches.len() as f64);
            }
        }
        measured.insert_ns.push(insert_ns / (repeats * self.inserts.len()) as f64);
        Ok(())
    }
}

fn add_claims(suffix: &str, stages: &[Stage], report: &mut Report) {
    let nvram = |kind| Variant { kind, emulation: Emulation::Nvram };
    let memory = |kind| Variant { kind, emulation: Emulation::None };
    let (Some(small), Some(large)) = (stages.first(), stages.last()) else { return };
    let (hashmap, tree) = (Kind::Hashmap, Kind::Tree);
    for (id, stage, above, below, paper) in [
        ("insert.hashmap_vs_nvbtree", large, nvram(tree), nvram(hashmap), "2 to 2.5"),
        ("flush_overhead.hashmap", large, nvram(hashmap), memory(hashmap), "1.4 to 1.8"),
        ("flush_overhead.nvbtree.small", small, nvram(tree), memory(tree), "10 where small"),
        ("flush_overhead.nvbtree.large", large, nvram(tree), memory(tree), "4 where large"),
    ] {
        let ratio = |stage: &Stage| stage.insert_ns(above).over(stage.insert_ns(below));
        let medians: Samples = stages.iter().map(|stage| ratio(stage).median()).collect();
        let against = format!(
            "ns per insert into {} entries: {} {:.0}, {} {:.0}; {:.2} to {:.2} over all sizes; the paper: {paper}",
            count_label(stage.entries),
            above.name(),
            stage.insert_ns(above).median(),
            below.name(),
            stage.insert_ns(below).median(),
            medians.min(),
            medians.max(),
        );
        report.claim(&format!("maps.{id}{suffix}"), &ratio(stage), "x", against, None);
    }
}

impl Stage {
    fn insert_ns(&self, variant: Variant) -> &Samples {
        let found = self.measured.iter().find(|measured| measured.variant == variant);
        &found.expect("every variant is measured at every size").insert_ns
    }
}
