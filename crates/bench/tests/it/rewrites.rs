//! `remanent-bench rewrites`.

use crate::{assert_charts, assert_claim, run, scratch, temporary};

#[test]
fn every_claim_and_chart_is_there() {
    let out = scratch();
    let report = run(&["rewrites", "--tiny", "--dir", &temporary()], out.path());
    for what in ["lookup", "memory", "chunks", "file"] {
        assert_claim(&report, &format!("rewrites.{what}"));
    }
    assert_charts("rewrites", &["bytes", "times"], out.path());
}
