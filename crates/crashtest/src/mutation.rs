//! Mutation: leaves out every flush and fence in turn, and checks that a scenario fails.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use remanent_crashsim::{Fate, Mutant, Mutation, Site, Sources};

use crate::scenario::Scenario;

/// Progress of a mutation run.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The present scenario.
    pub scenario: &'a str,
    /// Sites met so far.
    pub met: usize,
    /// Mutants killed so far.
    pub killed: usize,
}

/// Paths of all sources whose flushes and fences can be left out.
pub const SOURCES: [&str; 4] = ["pmem/src/", "structures/src/", "blockdev/src/", "engine/src/"];

/// Treatment of a flush or fence that the source explains as redundant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundant {
    /// Left out like any other; in all scenarios, if the explanation is right.
    Tried,
    /// Not left out: such sites would take most of the time, because no scenario fails.
    Believed,
}

/// Leaves out each flush and each fence that the scenarios execute in source files whose path
/// contains one of `paths`: in all scenarios that execute it, until one of them fails.
///
/// A mutant for which none fails survives. It is explained if the source has `// Redundant: reason`
/// above it. Each scenario explores `seeds` seeds, times its weight. `observer` may break off.
pub fn mutate(
    paths: &[&str],
    scenarios: &[Scenario],
    seeds: u64,
    jobs: usize,
    redundant: Redundant,
    mut observer: impl FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Mutation {
    let is_ours = |site: &Site| paths.iter().any(|path| site.file.contains(path));
    let sources = sources();
    let is_tried = |site: &Site| redundant == Redundant::Tried || sources.reason(site).is_none();
    let mut killed: Vec<Mutant> = Vec::new();
    let mut met: BTreeSet<Site> = BTreeSet::new();
    for scenario in scenarios {
        let mut config = scenario.config.clone();
        (config.seeds, config.jobs, config.violations_max) = (0..seeds * scenario.weight, jobs, 1);
        let sites = scenario.explore(&config, |_| ControlFlow::Continue(())).sites;
        met.extend(sites.iter().filter(|site| is_ours(site)));
        for site in sites {
            if !is_ours(&site)
                || !is_tried(&site)
                || killed.iter().any(|mutant| mutant.site == site)
            {
                continue;
            }
            let progress =
                Progress { scenario: scenario.name, met: met.len(), killed: killed.len() };
            if observer(progress).is_break() {
                return finish(killed, &met, &sources);
            }
            config.sim.mutant = Some(site);
            let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
            if let Some(violation) = report.violations.into_iter().next() {
                let (broken, seed) = (violation.broken, violation.seed);
                let what = format!("{}: {}", scenario.name, violation.what);
                killed.push(Mutant { site, fate: Fate::Killed { broken, seed, what } });
            }
        }
    }
    finish(killed, &met, &sources)
}

fn finish(killed: Vec<Mutant>, met: &BTreeSet<Site>, sources: &Sources) -> Mutation {
    let mut mutants = killed;
    for &site in met {
        if mutants.iter().all(|mutant| mutant.site != site) {
            let fate = match sources.reason(&site) {
                Some(reason) => Fate::Explained { reason },
                None => Fate::Survived,
            };
            mutants.push(Mutant { site, fate });
        }
    }
    mutants.sort_by_key(|mutant| mutant.site);
    Mutation { mutants }
}

/// The source texts with explanations of survivors.
fn sources() -> Sources {
    let texts = remanent_pmem::SOURCES.iter().chain(remanent_structures::SOURCES);
    let texts = texts.chain(remanent_blockdev::SOURCES).chain(remanent_engine::SOURCES);
    texts.fold(Sources::new(), |sources, (path, text)| sources.file(path, text))
}
