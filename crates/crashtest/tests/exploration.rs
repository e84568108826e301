//! Crash exploration as it runs each time; `remanent crash-test` does the same at length.
//!
//! What survives *write disturbance*, garbage in a line that was being written when the power
//! failed: the superblock (`pool/disturbed`), since one of its two copies is always at rest; on a
//! pool that declares it, what else it keeps of itself, transactional objects (`line_tx/checked`),
//! disks (`disk/disturbed`), and files that are written by whole lines (`file/disturbed`). The maps
//! do not: they change lines that also hold what was at rest; nor does the nvramdisk paper's own
//! device with explicit cache flushes, which is asserted. Where writes mask the other words of a
//! line, it does (`nvramdisk/masked`).
//!
//! What survives *memory that cannot be read*: nothing can, so it must be told. `hashmap/faults`
//! poisons lines and cuts the file short, and every answer after the fault has to be an error.
//!
//! A program without Rust's own harness: its tests follow from the list of subjects.
//!
//! Usually, limits of images at a crash point are a third of what a scenario states, and a third as
//! many processes are killed and lives behind a crash crashed again. Seeds, events that have to be
//! reached, and flushes and fences that have to be executed are the same. `REMANENT_EXPLORE=full`
//! explores all that scenarios state, as is done before a release.
//!
//! With `REMANENT_QUICK` set (`./ci/test --quick`) each scenario runs with its first seed alone and
//! ends after some thousand images, mutation is left out, and nothing is asked of coverage: that
//! needs all seeds.

#![forbid(unsafe_code)]

#[path = "exploration/coverage.rs"]
mod coverage;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};
use remanent_crashsim::{Config, Mutation};
use remanent_crashtest::{
    MutationSample, Progress, Redundant, SOURCES, SUBJECTS, Scenario, Subject, mutate, one_in,
    scenarios,
};

fn main() {
    let mut subjects: Vec<&Subject> = SUBJECTS.iter().collect();
    // The longest first: the others keep the other threads busy meanwhile.
    subjects.sort_by_key(|subject| Reverse((subject.scenarios)().len()));
    let mut trials: Vec<Trial> = subjects.into_iter().flat_map(trials_of).collect();
    let any = timed("structures::a_missing_flush_or_fence_is_noticed".into(), miss_any);
    trials.push(any.with_ignored_flag(is_quick()));
    trials.push(Trial::test("coverage::calls_are_found", coverage::find_calls));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A trial that says how long it took: this program is half of what every change waits for.
fn timed(name: String, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name.clone(), move || {
        let start = Instant::now();
        let result = test();
        println!("{name} took {} s", start.elapsed().as_secs());
        result
    })
}

fn trials_of(subject: &'static Subject) -> Vec<Trial> {
    let name = subject.name;
    let quick = is_quick();
    let test = move || if quick { explore_quickly(subject) } else { explore(subject) };
    let mut trials = vec![timed(format!("{name}::survives_every_crash"), test)];
    if let Some(sample) = subject.mutation {
        let test = move || miss(subject, sample);
        let name = format!("{name}::a_missing_flush_or_fence_is_noticed");
        trials.push(timed(name, test).with_ignored_flag(quick));
    }
    trials
}

/// Explores a subject's scenarios: none may be violated, each must reach what it states, so many
/// images at least must be judged, and every flush and fence of its sources executed.
fn explore(subject: &Subject) -> Result<(), Failed> {
    let share = share();
    let (mut images, mut sites) = (0, BTreeSet::new());
    for scenario in (subject.scenarios)() {
        let config = Config { seeds: 0..scenario.weight, ..one_in(share, &scenario.config) };
        let start = Instant::now();
        let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
        ensure(report.is_clean(), || format!("{}: {report}", scenario.name))?;
        ensure(report.images > 0, || format!("{} explored nothing", scenario.name))?;
        println!("{} took {} ms", scenario.name, start.elapsed().as_millis());
        let missed = scenario.missed(&report);
        ensure(missed.is_empty(), || format!("{} never reached: {missed:?}", scenario.name))?;
        images += report.images;
        sites.extend(report.sites);
    }
    let images_min = subject.images_min / share;
    ensure(images >= images_min, || format!("{images} images, less than {images_min}"))?;
    let missed = coverage::unreached(subject, &sites);
    ensure(missed.is_empty(), || format!("no scenario comes to these: {missed:#?}"))
}

/// By how much the limits of scenarios are divided.
fn share() -> u64 {
    match std::env::var("REMANENT_EXPLORE") {
        Ok(value) if value == "full" => 1,
        Ok(value) => panic!("REMANENT_EXPLORE is {value:?}; only \"full\" is known"),
        Err(_) => 3,
    }
}

/// Explores a subject's scenarios with one seed each, until enough images were judged: none may be
/// violated.
fn explore_quickly(subject: &Subject) -> Result<(), Failed> {
    for scenario in (subject.scenarios)() {
        let config = Config { seeds: 0..1, ..scenario.config.clone() };
        let report = scenario.explore(&config, |report| match report.images >= QUICK_IMAGES {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        ensure(report.is_clean(), || format!("{}: {report}", scenario.name))?;
        ensure(report.images > 0, || format!("{} explored nothing", scenario.name))?;
    }
    Ok(())
}

/// Images after which a quick run of a scenario ends; it looks ten times a second.
const QUICK_IMAGES: u64 = 1000;

fn is_quick() -> bool {
    std::env::var_os("REMANENT_QUICK").is_some_and(|value| value != "0")
}

/// Leaves out each flush and fence of a subject's sources that some of its scenarios meet.
fn miss(subject: &Subject, sample: MutationSample) -> Result<(), Failed> {
    let mut chosen = (subject.scenarios)();
    chosen.retain(|scenario| sample.scenarios.has(scenario.name));
    let mutation = leave_out(subject.sources, &chosen, sample.seeds);
    let survivors: Vec<String> =
        mutation.survivors().map(|mutant| mutant.site.to_string()).collect();
    let is_enough = mutation.killed() >= sample.killed_min;
    ensure(is_enough && survivors.len() <= sample.survivors_max, || {
        format!("{} killed; survivors: {survivors:#?}", mutation.killed())
    })
}

/// Without any of these flushes and fences, wherever they are, one of two scenarios breaks.
fn miss_any() -> Result<(), Failed> {
    let mut chosen = scenarios();
    chosen.retain(|scenario| ["pool/roots", "hashmap/sequence"].contains(&scenario.name));
    let killed = leave_out(&SOURCES, &chosen, 1).killed();
    ensure(killed >= 15, || format!("{killed} killed"))
}

fn leave_out(sources: &[&str], chosen: &[Scenario], seeds: u64) -> Mutation {
    let go_on = |_: Progress<'_>| ControlFlow::Continue(());
    let mutation = mutate(sources, chosen, seeds, 1, Redundant::Believed, go_on);
    println!("{mutation}");
    mutation
}

fn ensure(holds: bool, told: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(told().into()) }
}
