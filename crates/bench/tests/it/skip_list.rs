//! `remanent-bench skip-list`.

use crate::{assert_charts, assert_claim, run, scratch, temporary};

#[test]
fn every_claim_and_chart_is_there() {
    let out = scratch();
    let report = run(&["skip-list", "--tiny", "--dir", &temporary()], out.path());
    for work in ["read", "write.transient", "write.persistent"] {
        for latency in ["", ".700ns"] {
            assert_claim(&report, &format!("skip_list.{work}.nvram_vs_memory{latency}"));
        }
    }
    assert_charts("skip-list", &["figure6"], out.path());
}
