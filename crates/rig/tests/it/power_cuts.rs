//! Cuts the power of real machines: each scenario loses nothing, and each control is caught.
//!
//! These tests need QEMU and what goes into its machine (`ci/test` installs it); docs/power-cuts.md
//! says what they show. `REMANENT_RIG_CUTS` sets the number of cuts, `REMANENT_SEED` repeats a run.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::rig;

/// Each machine wants two cores: one at a time, or deadlines mean nothing.
static TURN: Mutex<()> = Mutex::new(());

/// Whether machines can be booted here. Where they must be, that they cannot is a failure; else it
/// is said.
fn available() -> bool {
    let output = rig(&["check"]);
    let required =
        ["CI", "REMANENT_REQUIRE_CLIENTS"].iter().any(|name| std::env::var_os(name).is_some());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || !required, "the rig cannot run here: {error}");
    if !output.status.success() {
        eprintln!("not run: {error}");
    }
    output.status.success()
}

/// Runs a scenario and returns its report, with whether it found no loss.
fn run(scenario: &str, cuts: &str, more: &[&str]) -> (Value, bool) {
    let seed = std::env::var("REMANENT_SEED").unwrap_or_else(|_| std::process::id().to_string());
    println!("remanent-rig run {scenario} --cuts {cuts} --seed {seed} repeats this run");
    let arguments = ["run", scenario, "--cuts", cuts, "--seed", &seed, "--json"];
    let output = rig(&[&arguments, more].concat());
    let report = serde_json::from_slice(&output.stdout);
    (
        report.unwrap_or_else(|error| panic!("no report: {error}: {output:#?}")),
        output.status.success(),
    )
}

fn loses_nothing(scenario: &str) {
    let _ = losing_nothing(scenario, "5");
}

/// Its report, unless machines cannot be booted here; `cuts` is the number unless another one is
/// set.
fn losing_nothing(scenario: &str, cuts: &str) -> Option<Value> {
    if !available() {
        return None;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let cuts = std::env::var("REMANENT_RIG_CUTS").unwrap_or_else(|_| cuts.to_owned());
    let (report, is_whole) = run(scenario, &cuts, &[]);
    println!("{report:#}");
    assert!(is_whole && report["losses"] == Value::Array(vec![]), "{report:#}");
    assert_eq!(report["cuts"].to_string(), cuts);
    assert!(report["acks"].as_u64() > report["cuts"].as_u64(), "there was no load: {report:#}");
    Some(report)
}

/// A control does what loses writes. A rig that does not notice it shows nothing by its other runs.
fn is_caught(scenario: &str) {
    if !available() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Its loss is no reason to keep anything.
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a path in UTF-8");
    let (report, is_whole) = run(scenario, "3", &["--keep", path]);
    let losses = report["losses"].as_array().expect("a list");
    assert!(!is_whole && !losses.is_empty(), "the rig did not notice what is lost: {report:#}");
}

#[test]
fn a_server_loses_nothing_that_it_acknowledged() {
    loses_nothing("server");
}

/// A pool that grew: the smallest has 17 MiB.
fn assert_grew(report: &Value) {
    let pool_mib = report["facts"]["pool_mib"]["max"].as_f64();
    assert!(pool_mib.is_some_and(|size| size > 32.0), "no pool grew: {report:#}");
}

#[test]
fn pools_on_persistent_memory_grow_and_shrink_without_a_loss() {
    if let Some(report) = losing_nothing("space", "3") {
        assert_grew(&report);
    }
}

/// And there was something to lose: the disk had not flushed all that was written. `space-unsynced`
/// shows what a lost sector does.
#[test]
fn pools_on_a_disk_with_a_write_cache_grow_and_shrink_without_a_loss() {
    let Some(report) = losing_nothing("space-on-disk", "3") else { return };
    assert_grew(&report);
    let most = |fact: &str| report["facts"][fact]["max"].as_f64().unwrap_or_default();
    let unflushed = most("sectors_lost") + most("sectors_kept");
    assert!(unflushed > 0.0, "each cut found all flushed: {report:#}");
}

#[test]
fn writes_that_nobody_has_flushed_to_the_disk_are_missed() {
    is_caught("space-unsynced");
}

#[test]
fn synced_files_stay() {
    loses_nothing("ext4-baseline");
}

#[test]
fn committed_transactions_of_sqlite_stay() {
    loses_nothing("sqlite");
}

#[test]
fn synced_files_on_a_served_disk_stay() {
    loses_nothing("disk");
}

/// And of the transactions that a cut left open, some were resumed after it.
#[test]
fn statements_of_tatp_stay_and_open_transactions_go_on() {
    let Some(report) = losing_nothing("tatp", "3") else { return };
    let resumed = report["facts"]["resumed_transactions"]["max"].as_f64();
    assert!(resumed.is_some_and(|count| count > 0.0), "no transaction was open: {report:#}");
}

#[test]
fn units_of_tatp_acknowledged_before_they_are_done_are_missed() {
    is_caught("tatp-too-early");
}

#[test]
fn writes_acknowledged_before_they_are_sent_are_missed() {
    is_caught("server-too-early");
}

#[test]
fn files_that_were_never_synced_are_missed() {
    is_caught("ext4-unsynced");
}

/// Also of what the bench does there: each disk is attached, and Berkeley DB finds on it what it
/// put there.
#[test]
fn berkeley_db_is_measured_on_every_disk() {
    if !available() {
        return;
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let output = rig(&["measure", "berkeley-db", "--operations", "10", "--json"]);
    assert!(output.status.success(), "{output:#?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    for rival in ["tmpfs", "nbdkit", "brd", "dax"] {
        let id = format!("berkeley_db.sync.update.remanent_vs_{rival}");
        let claims = report["claims"].as_array().expect("a list");
        assert!(claims.iter().any(|claim| claim["id"] == id.as_str()), "{id}: {claims:#?}");
    }
}
