//! `remanent-bench berkeley-db` on its own disks, and in directories that the caller names.

use std::path::Path;
use std::process::Output;

use crate::{assert_claim, execute, list, report, scratch, temporary};

fn bench(out: &Path, more: &[&str]) -> Output {
    let directory = temporary();
    let mut arguments =
        vec!["berkeley-db", "--quick", "--operations", "300", "--dir", directory.as_str()];
    arguments.extend(more);
    execute(&arguments, out)
}

/// Whether the bench was built with Berkeley DB. Where CI requires it, its absence is a failure.
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

#[test]
fn every_place_is_compared_with_every_disk_of_ours() {
    let out = scratch();
    if !is_built_in(&bench(out.path(), &[])) {
        return;
    }
    let report = report("berkeley-db", out.path());
    for mode in ["sync", "nosync"] {
        for phase in ["insert", "update", "delete"] {
            for names in ["remanent_vs_tmpfs", "remanent_nvram_vs_tmpfs", "remanent_vs_tmpfs.cpu"] {
                assert_claim(&report, &format!("berkeley_db.{mode}.{phase}.{names}"));
            }
        }
    }
}

#[test]
fn directories_are_measured_that_are_named() {
    let [out, one, other] = [scratch(), scratch(), scratch()];
    let named = |name: &str, path: &Path| format!("--on={name}={}", path.display());
    let places = [named("one", one.path()), named("remanent", other.path())];
    if !is_built_in(&bench(out.path(), &[&places[0], &places[1]])) {
        return;
    }
    let report = report("berkeley-db", out.path());
    let claims = list(&report, "claims");
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
