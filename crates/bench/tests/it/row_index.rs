//! `remanent-bench row-index`.

use crate::{assert_charts, assert_claim, run, scratch, temporary};

#[test]
fn every_claim_and_chart_is_there() {
    let out = scratch();
    let report = run(&["row-index", "--tiny", "--dir", &temporary()], out.path());
    for id in [
        "row_index.rebuild_ns",
        "row_index.partitions_ns",
        "row_index.insert_vs_multimap",
        "row_index.find_vs_multimap",
        "row_index.remove_vs_multimap",
        "row_index.bytes_per_row",
    ] {
        assert_claim(&report, id);
    }
    assert_charts("row-index", &["rows"], out.path());
}
