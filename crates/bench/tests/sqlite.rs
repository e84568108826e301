//! `remanent-bench sqlite` from end to end, for so short a time that its numbers mean little.

use std::process::Command;

use serde_json::Value;

/// Claims that the issue names, and those beside them.
const CLAIMS: [&str; 10] = [
    "sqlite.wal_vs_disk",
    "sqlite.only_wal_vs_disk",
    "sqlite.wal_vs_tmpfs",
    "sqlite.batch_vs_disk_wal",
    "sqlite.batch_vs_tmpfs_delete",
    "sqlite.batch_vs_tmpfs_wal",
    "sqlite.journal_vs_tmpfs_delete",
    "sqlite.latency_200.batches_in_the_pool",
    "sqlite.latency_200.wal_in_the_pool",
    "sqlite.latency_200.only_the_wal_in_the_pool",
];

#[test]
fn every_claim_mode_and_chart_is_there() {
    let out = tempfile::tempdir().expect("the temporary directory is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent-bench"));
    command.args(["sqlite", "--quick", "--out"]).arg(out.path());
    let output = command.output().expect("the bench can be executed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(out.path().join("sqlite.json")).expect("it was written");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    let list = |name: &str| report[name].as_array().expect("it is a list").clone();
    let (claims, rows) = (list("claims"), list("rows"));
    for id in CLAIMS {
        let claim = claims.iter().find(|claim| claim["id"] == *id);
        let value = claim.and_then(|claim| claim["value"].as_f64());
        assert!(value.is_some_and(|value| value > 0.0), "{id}: {value:?}");
    }
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "WAL", "MEMORY", "OFF"] {
        assert_eq!(rows.iter().filter(|row| row["x"] == mode).count(), 5, "{mode}");
    }
    for chart in ["figure13", "figure15"] {
        assert!(out.path().join(format!("sqlite-{chart}.svg")).is_file(), "{chart}");
    }
}
