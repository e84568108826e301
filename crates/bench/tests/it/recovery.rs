//! `remanent-bench recovery`.

use crate::{assert_charts, assert_claim, run, scratch, temporary};

#[test]
fn every_claim_and_chart_is_there() {
    let out = scratch();
    let report = run(&["recovery", "--tiny", "--dir", &temporary()], out.path());
    for id in [
        "recovery.first_answer_ms.wait",
        "recovery.first_answer_ms.background",
        "recovery.first_answer_ms.all_pmem",
        "recovery.rebuild_ns_per_row",
        "recovery.lost_ms.background",
        "recovery.throughput.all_pmem_vs_dram",
        "recovery.response_us.p99.background",
    ] {
        assert_claim(&report, id);
    }
    // That of so few rows may be anything.
    let claims = report["claims"].as_array().unwrap();
    assert!(claims.iter().any(|claim| claim["id"] == "recovery.area_saving.all_pmem"));
    assert_charts("recovery", &["throughput", "response"], out.path());
}
