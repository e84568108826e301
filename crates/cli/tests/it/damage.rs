//! Pools that are damaged in hundreds of ways (`remanent damage-test`).

use super::support::{directory, remanent};

/// `REMANENT_SEED` begins elsewhere.
#[test]
fn damaged_pools_answer_nothing_wrong_that_has_a_checksum() {
    let directory = directory();
    let report = directory.path().join("report.json");
    let seed = std::env::var("REMANENT_SEED").unwrap_or_else(|_| "1".to_owned());
    let arguments = ["damage-test", "--pools", "150", "--seed", &seed, "--report"];
    let output = remanent(&[&arguments[..], &[report.to_str().unwrap()]].concat());
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let kinds = report["kinds"].as_array().unwrap_or_else(|| panic!("{report:#}"));
    assert!(kinds.len() >= 14, "{table}");
    for kind in kinds {
        let count = |what: &str| kind[what].as_u64().unwrap_or_else(|| panic!("{kind:#}"));
        assert_eq!(count("pools"), 150);
        assert!(count("told") > 5, "damage that nobody meets shows nothing: {table}");
    }
}
