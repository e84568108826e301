//! Every subject is in a run, and a run is decided by its seed.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use remanent_crashsim::Config;
use remanent_crashtest::{SUBJECTS, counterexamples, one_in, scenarios};

/// The folders of `src/subjects`.
fn folders() -> Vec<PathBuf> {
    let subjects = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/subjects");
    let entries = fs::read_dir(subjects).expect("a folder");
    entries.map(|entry| entry.expect("listed").path()).filter(|path| path.is_dir()).collect()
}

#[test]
fn every_folder_is_a_subject_that_is_explored() {
    let folders: BTreeSet<String> = folders()
        .iter()
        .map(|folder| folder.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    let explored: BTreeSet<String> = SUBJECTS
        .iter()
        .filter(|subject| !(subject.scenarios)().is_empty())
        .map(|subject| subject.name.to_owned())
        .collect();
    assert_eq!(folders, explored);
}

/// A subject may be written for several types: each must be that of a scenario.
#[test]
fn every_type_that_is_a_subject_is_explored() {
    let explored: BTreeSet<&str> =
        scenarios().iter().map(|scenario| scenario.subject_type()).collect();
    let mut missing = Vec::new();
    for folder in folders() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("listed").path();
            let text = fs::read_to_string(&path).expect("a source file");
            for line in text.lines().filter(|line| line.starts_with("impl")) {
                let Some((_, name)) = line.split_once(" Subject for ") else { continue };
                let name = name.split(['<', ' ']).next().expect("a name");
                let is_it = |found: &&&str| {
                    found
                        .split('<')
                        .next()
                        .is_some_and(|found| found.ends_with(&format!("::{name}")))
                };
                if !explored.iter().any(|found| is_it(&found)) {
                    missing.push(format!("{name} in {}", path.display()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no scenario explores these: {missing:?}");
}

#[test]
fn names_of_scenarios_begin_with_their_subject_and_are_told_apart() {
    let mut seen = BTreeSet::new();
    for subject in SUBJECTS {
        for scenario in (subject.scenarios)().iter().chain(&(subject.counterexamples)()) {
            let aspect = scenario.name.strip_prefix(subject.name);
            assert!(aspect.is_some_and(|rest| rest.starts_with('/')), "{}", scenario.name);
            assert!(seen.insert(scenario.name), "two scenarios are called {}", scenario.name);
        }
    }
    assert!(!counterexamples().is_empty());
}

/// Else a failure is not found again, and a run says nothing of the next.
#[test]
fn a_seed_alone_decides_what_a_run_does() {
    for name in ["pool/roots", "disk/snapshots", "file/writes", "batch_map/sequence"] {
        let scenarios = scenarios();
        let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect("its name");
        let config = Config { seeds: 1..2, ..scenario.config.clone() };
        let run = || {
            let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
            (report.digest, report.crash_points, report.images, report.nested_images)
        };
        assert_eq!(run(), run(), "{name}");
    }
}

/// Numbers of images follow from the limits, which a command has to name.
#[test]
fn a_violation_within_divided_limits_is_repeated_by_its_command() {
    let mut found = 0;
    for scenario in counterexamples() {
        let config = Config { seeds: 0..scenario.weight, ..one_in(3, &scenario.config) };
        let report = scenario.explore(&config, |_| ControlFlow::Continue(()));
        let Some(violation) = report.violations.into_iter().next() else { continue };
        found += 1;
        assert!(violation.command.contains(" --share 3 --seed "), "{}", violation.command);
        let seeds = violation.seed..violation.seed + 1;
        let config = Config { seeds, only: Some(violation.only()), ..config };
        let repeated = scenario.explore(&config, |_| ControlFlow::Continue(()));
        let what = repeated.violations.into_iter().next().map(|repeated| repeated.what);
        assert_eq!(what, Some(violation.what), "{}", violation.command);
    }
    assert!(found > 0);
}
