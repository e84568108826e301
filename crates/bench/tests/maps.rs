//! `remanent-bench maps` from end to end, with sizes whose numbers mean nothing.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Claims that issues or the paper name. Those beside LMDB are missing where it was when the bench was built.
const CLAIMS: [&str; 29] = [
    "maps.insert.hashmap_vs_nvbtree",
    "maps.insert.hashmap_vs_nvbtree.key40",
    "maps.flush_overhead.hashmap",
    "maps.flush_overhead.hashmap.key40",
    "maps.flush_overhead.nvbtree.small",
    "maps.flush_overhead.nvbtree.large",
    "ordered.insert_vs_nvbtree",
    "ordered.insert_vs_std",
    "ordered.lookup_vs_std",
    "ordered.lookup_vs_redb",
    "ordered.scan_vs_redb",
    "ordered.scan_mentries",
    "ordered.url_insert_vs_u64",
    "ordered.url_lookup_vs_u64",
    "ordered.restart_ms",
    "ordered.full_speed_ms",
    "ordered.scaling.insert.2t",
    "ordered.scaling.lookup.2t",
    "ordered.scaling.insert.2t_vs_std",
    "ordered.insert_vs_redb",
    "ordered.insert_vs_lmdb",
    "ordered.lookup_vs_lmdb",
    "ordered.scan_vs_lmdb",
    "maps.search.nvbtree_vs_hashmap",
    "maps.search.nvbtree_vs_hashmap.key40",
    "maps.mixed.nvbtree_vs_hashmap.1t",
    "maps.mixed.hashmap_vs_nvbtree.8t",
    "maps.mixed.flush_overhead.hashmap.8t",
    "maps.mixed.scaling.hashmap.2t",
];

const CHARTS: [&str; 9] = [
    "figure-4-int",
    "figure-5-40-bytes",
    "figure-6-1t",
    "figure-6-8t",
    "figure-7-30",
    "figure-7-failed-cas",
    "ordered-2-k",
    "ordered-scaling-insert",
    "restart",
];

fn run(out: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent-bench"));
    command.args(["maps", "--tiny", "--dir"]).arg(std::env::temp_dir()).arg("--out").arg(out);
    let output = command.output().expect("the bench can be executed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = std::fs::read_to_string(out.join("maps.json")).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn every_claim_and_chart_is_there_and_every_row_says_what_it_stands_on() {
    let out = tempfile::tempdir().expect("the temporary directory is writable");
    let report = run(out.path());
    let list = |name: &str| report[name].as_array().expect("it is a list").clone();
    let claims = list("claims");
    let has_lmdb = list("rows").iter().any(|row| row["series"] == "LMDB");
    for id in CLAIMS.iter().filter(|id| has_lmdb || !id.ends_with("lmdb")) {
        let claim = claims.iter().find(|claim| claim["id"] == *id);
        let value = claim.and_then(|claim| claim["value"].as_f64());
        assert!(value.is_some_and(|value| value > 0.0), "{id}: {value:?}");
    }
    for row in list("rows") {
        for field in ["backing", "durability", "emulation", "promise"] {
            assert!(row[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {row}");
        }
    }
    for chart in CHARTS {
        let path = out.path().join(format!("maps-{chart}.svg"));
        let plot = std::fs::read_to_string(&path).expect("it was drawn");
        assert!(plot.starts_with("<svg"), "{}", path.display());
    }
}
