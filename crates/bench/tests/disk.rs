//! `remanent-bench disk` from end to end, in process, with sizes whose numbers mean nothing.

use std::process::Command;

use serde_json::Value;

/// Claims that the issue names, and those beside them. The ones beside libpmemblk are missing where it was when the bench
/// was built.
const CLAIMS: [&str; 10] = [
    "disk.write4k_vs_pmemblk",
    "disk.write4k_vs_ntcopy",
    "disk.write256k_vs_ntcopy",
    "disk.write4k_vs_nvramdisk",
    "disk.write4k_vs_memcpy",
    "disk.write4k_vs_pwrite",
    "disk.write256k_vs_pmemblk",
    "disk.read4k_vs_memcpy",
    "disk.read4k_vs_pmemblk",
    "disk.write4k_scaling_2t",
];

#[test]
fn every_claim_policy_and_chart_is_there() {
    let out = tempfile::tempdir().expect("the temporary directory is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_remanent-bench"));
    command.args(["disk", "--tiny", "--dir"]).arg(std::env::temp_dir());
    let output = command.arg("--out").arg(out.path()).output().expect("the bench can be executed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(out.path().join("disk.json")).expect("it was written");
    let report: Value = serde_json::from_str(&text).expect("it is JSON");
    let list = |name: &str| report[name].as_array().expect("it is a list").clone();
    let (claims, rows) = (list("claims"), list("rows"));
    let has_pmemblk = rows.iter().any(|row| row["series"] == "libpmemblk");
    assert!(has_pmemblk || std::env::var_os("REMANENT_REQUIRE_CLIENTS").is_none());
    for id in CLAIMS.iter().filter(|id| has_pmemblk || !id.ends_with("pmemblk")) {
        let claim = claims.iter().find(|claim| claim["id"] == *id);
        let value = claim.and_then(|claim| claim["value"].as_f64());
        assert!(value.is_some_and(|value| value > 0.0), "{id}: {value:?}");
    }
    for policy in ["P1", "P2", "P3", "P4", "P5", "P6", "async"] {
        let series = format!("nvramdisk {policy}");
        assert!(rows.iter().any(|row| row["series"] == *series), "{series}");
    }
    for chart in ["figure8", "figure10", "reads"] {
        assert!(out.path().join(format!("disk-{chart}.svg")).is_file(), "{chart}");
    }
}
