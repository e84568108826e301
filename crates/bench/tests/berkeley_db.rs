//! `remanent-bench berkeley-db` from end to end, with sizes whose numbers mean nothing.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(out: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent-bench"));
    command.args(["berkeley-db", "--quick", "--operations", "300", "--out"]).arg(out);
    command.arg("--dir").arg(std::env::temp_dir()).args(more).output().expect("the bench runs")
}

/// Whether the bench was built with Berkeley DB. Where it must be, that it was not is a failure; else it is said.
fn is_built_in(output: &Output) -> bool {
    let required =
        ["CI", "REMANENT_REQUIRE_CLIENTS"].iter().any(|name| std::env::var_os(name).is_some());
    let error = String::from_utf8_lossy(&output.stderr);
    let is_missing = error.contains("libdb5.3-dev");
    assert!(!is_missing || !required, "{error}");
    assert!(is_missing || output.status.success(), "{error}");
    if is_missing {
        eprintln!("not run: {error}");
    }
    !is_missing
}

fn report(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("berkeley-db.json")).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn every_place_is_compared_with_every_disk_of_ours() {
    let out = tempfile::tempdir().expect("a directory");
    if !is_built_in(&bench(out.path(), &[])) {
        return;
    }
    let report = report(out.path());
    for mode in ["sync", "nosync"] {
        for phase in ["insert", "update", "delete"] {
            for names in ["remanent_vs_tmpfs", "remanent_nvram_vs_tmpfs", "remanent_vs_tmpfs.cpu"] {
                let id = format!("berkeley_db.{mode}.{phase}.{names}");
                let claims = report["claims"].as_array().expect("a list");
                let claim = claims.iter().find(|claim| claim["id"] == id.as_str());
                let value = claim.and_then(|claim| claim["value"].as_f64());
                assert!(value.is_some_and(|value| value > 0.0), "{id}: {value:?}");
            }
        }
    }
}

#[test]
fn directories_are_measured_that_are_named() {
    let (out, one, other) = (tempfile::tempdir(), tempfile::tempdir(), tempfile::tempdir());
    let [out, one, other] = [out, one, other].map(|directory| directory.expect("a directory"));
    let named = |name: &str, path: &Path| format!("--on={name}={}", path.display());
    let places = [named("one", one.path()), named("remanent", other.path())];
    if !is_built_in(&bench(out.path(), &[&places[0], &places[1]])) {
        return;
    }
    let report = report(out.path());
    let claims = report["claims"].as_array().expect("a list");
    assert_eq!(claims.len(), 6, "insert, update and delete, with and without sync: {claims:?}");
    assert!(
        claims
            .iter()
            .all(|claim| claim["id"].as_str().is_some_and(|id| id.ends_with("remanent_vs_one")))
    );
    for directory in [one, other] {
        assert_eq!(
            std::fs::read_dir(directory.path()).expect("listed").count(),
            0,
            "it is left as it was"
        );
    }
}
