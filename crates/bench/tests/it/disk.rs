//! `remanent-bench disk` in process, without NBD.

use crate::{assert_charts, assert_claim, has_series, run, scratch, temporary};

/// Claims that docs/block-device.md and the issues name. Those beside libpmemblk are absent where
/// the bench was built without it.
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
    let out = scratch();
    let report = run(&["disk", "--tiny", "--dir", &temporary()], out.path());
    let has_pmemblk = has_series(&report, "libpmemblk");
    assert!(has_pmemblk || std::env::var_os("REMANENT_REQUIRE_CLIENTS").is_none());
    for id in CLAIMS.iter().filter(|id| has_pmemblk || !id.ends_with("pmemblk")) {
        assert_claim(&report, id);
    }
    for policy in ["P1", "P2", "P3", "P4", "P5", "P6", "async"] {
        assert!(has_series(&report, &format!("nvramdisk {policy}")), "{policy}");
    }
    assert_charts("disk", &["figure8", "figure10", "reads"], out.path());
}
