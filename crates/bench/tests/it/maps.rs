//! `remanent-bench maps`.

use crate::{assert_charts, assert_claim, has_series, list, run, scratch, temporary};

/// Claims that issues or the paper name. Those beside LMDB are absent where the bench was built
/// without it.
const CLAIMS: [&str; 29] = [
    "maps.insert.hashmap_vs_nvbtree",
    "maps.insert.hashmap_vs_nvbtree.key40",
    "maps.flush_overhead.hashmap",
    "maps.flush_overhead.hashmap.key40",
    "maps.flush_overhead.nvbtree.small",
    "maps.flush_overhead.nvbtree.large",
    "ordered.insert_vs_nvbtree",
    "ordered.insert_vs_std",
    "ordered.lookup_vs_std",
    "ordered.lookup_vs_redb",
    "ordered.scan_vs_redb",
    "ordered.scan_mentries",
    "ordered.url_insert_vs_u64",
    "ordered.url_lookup_vs_u64",
    "ordered.restart_ms",
    "ordered.full_speed_ms",
    "ordered.scaling.insert.2t",
    "ordered.scaling.lookup.2t",
    "ordered.scaling.insert.2t_vs_std",
    "ordered.insert_vs_redb",
    "ordered.insert_vs_lmdb",
    "ordered.lookup_vs_lmdb",
    "ordered.scan_vs_lmdb",
    "maps.search.nvbtree_vs_hashmap",
    "maps.search.nvbtree_vs_hashmap.key40",
    "maps.mixed.nvbtree_vs_hashmap.1t",
    "maps.mixed.hashmap_vs_nvbtree.8t",
    "maps.mixed.flush_overhead.hashmap.8t",
    "maps.mixed.scaling.hashmap.2t",
];

const CHARTS: [&str; 9] = [
    "figure-4-int",
    "figure-5-40-bytes",
    "figure-6-1t",
    "figure-6-8t",
    "figure-7-30",
    "figure-7-failed-cas",
    "ordered-2-k",
    "ordered-scaling-insert",
    "restart",
];

#[test]
fn every_claim_and_chart_is_there_and_every_row_says_what_it_stands_on() {
    let out = scratch();
    let report = run(&["maps", "--tiny", "--dir", &temporary()], out.path());
    let has_lmdb = has_series(&report, "LMDB");
    for id in CLAIMS.iter().filter(|id| has_lmdb || !id.ends_with("lmdb")) {
        assert_claim(&report, id);
    }
    for row in list(&report, "rows") {
        for field in ["backing", "durability", "emulation", "promise"] {
            assert!(row[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {row}");
        }
    }
    assert_charts("maps", &CHARTS, out.path());
}
