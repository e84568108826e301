//! `remanent-bench tatp`.

use crate::{assert_charts, assert_claim, claim, run, scratch, temporary};

#[test]
fn every_claim_and_chart_is_there() {
    let out = scratch();
    let report = run(&["tatp", "--tiny", "--dir", &temporary()], out.path());
    for id in [
        "tatp.memory_vs_sqlite_memory",
        "tatp.nvram_vs_sqlite_wal",
        "tatp.nvram_vs_memory",
        "tatp.scaling.2",
        "tatp.get_subscriber_ns",
        "tatp.bytes_vs_sqlite",
        "tatp.encoded_vs_plain",
        "tatp.encoded_vs_plain.bytes",
        "tatp.update_subscriber_data_ns.vs_floor",
        "tatp.nvram_vs_postgresql",
        "tatp.nvram_vs_postgresql.2",
        "tatp.bytes_vs_postgresql",
    ] {
        assert_claim(&report, id);
    }
    // Which only reads; a delete has at least its own fence.
    assert_eq!(claim(&report, "engine.fences.get_access_data"), Some(0.0));
    let deleted = claim(&report, "engine.fences.delete_call_forwarding");
    assert!(deleted.is_some_and(|fences| fences >= 1.0), "{deleted:?}");
    assert_charts("tatp", &["kinds"], out.path());
}
