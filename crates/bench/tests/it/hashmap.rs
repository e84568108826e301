//! `remanent-bench hashmap`.

use crate::{assert_charts, assert_claim, has_series, list, run, scratch, temporary};

/// Claims that issues or the paper name, for stages of words.
const CLAIMS: [&str; 16] = [
    "extendible.insert.nvram_vs_hashmap",
    "extendible.lookup.nvram_vs_hashmap",
    "extendible.remove.nvram_vs_hashmap",
    "extendible.insert.nvram_vs_tbb",
    "extendible.lookup.nvram_vs_tbb",
    "extendible.insert.nvram_vs_pmemobj",
    "extendible.insert.vs_floor",
    "extendible.bytes_per_entry",
    "extendible.scaling.2",
    "extendible.open_ms",
    "extendible.warm_ms",
    "hashmap.insert.nvram_vs_tbb",
    "hashmap.lookup.nvram_vs_tbb",
    "hashmap.insert.nvram_vs_pmemobj",
    "hashmap.insert.memory_vs_tbb",
    "hashmap.lookup.memory_vs_tbb",
];

/// Claims of other stages.
const CLAIMS_OF_STAGES: [&str; 5] = [
    "extendible.insert.nvram_vs_hashmap.2t",
    "extendible.remove.nvram_vs_hashmap.2t",
    "extendible.bytes_per_entry.2t",
    "extendible.insert.nvram_vs_hashmap.record",
    "extendible.insert.vs_floor.record",
];

/// Series, and the end of the claims that need them.
const RIVALS: [(&str, &str); 6] = [
    ("TBB volatile", "_vs_tbb"),
    ("TBB hash map volatile", ""),
    ("libcuckoo volatile", ""),
    ("libpmemobj", "_vs_pmemobj"),
    ("dashmap volatile", ""),
    ("papaya volatile", ""),
];

#[test]
fn every_claim_and_chart_is_there_and_every_map_has_its_rows() {
    let out = scratch();
    let report = run(&["hashmap", "--tiny", "--dir", &temporary()], out.path());
    let is_absent = |series: &str| !has_series(&report, series);
    if std::env::var_os("REMANENT_REQUIRE_CLIENTS").is_some() {
        let absent: Vec<_> = RIVALS.iter().filter(|(series, _)| is_absent(series)).collect();
        assert!(absent.is_empty(), "{absent:?}");
    }
    let lacks_rival = |id: &str| {
        let of = |(series, end): &(&str, &str)| {
            !end.is_empty() && id.ends_with(end) && is_absent(series)
        };
        RIVALS.iter().any(of)
    };
    for id in CLAIMS.into_iter().chain(CLAIMS_OF_STAGES).filter(|id| !lacks_rival(id)) {
        assert_claim(&report, id);
    }
    for row in list(&report, "rows") {
        let is_volatile = row["series"].as_str().is_some_and(|name| name.ends_with("volatile"));
        let promise = row["promise"].as_str().expect("a row says what it promises");
        assert!(!is_volatile || promise == "nothing survives", "{row}");
    }
    let charts = ["u64-2000-1t", "u64-2000-2t", "key40+100-2000-1t", "opened"];
    assert_charts("hashmap", &charts, out.path());
}
