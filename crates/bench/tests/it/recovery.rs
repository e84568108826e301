//! `remanent-bench recovery`.

use serde_json::Value;

use crate::{assert_charts, assert_claim, list, run, scratch, temporary};

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
    // Of so few rows, the difference is noise, which may be below zero.
    let is_saving = |claim: &Value| claim["id"] == "recovery.area_saving.all_pmem";
    let saving = list(&report, "claims").iter().find(|claim| is_saving(claim));
    assert!(saving.is_some_and(|claim| claim["value"].is_number()), "{saving:?}");
    assert_charts("recovery", &["throughput", "response"], out.path());
}
