//! `remanent-bench tatp`.

use crate::{assert_charts, assert_claim, run, scratch, temporary};

#[test]
fn every_claim_and_chart_is_there() {
    let out = scratch();
    let report = run(&["tatp", "--tiny", "--dir", &temporary()], out.path());
    for id in [
        "tatp.get_subscriber_ns",
        "tatp.get_subscriber.nvram_vs_sqlite_memory",
        "tatp.get_access_ns",
        "tatp.get_access.nvram_vs_sqlite_memory",
        "tatp.insert.nvram_vs_sqlite_memory",
    ] {
        assert_claim(&report, id);
    }
    assert_charts("tatp", &["rows"], out.path());
}
