//! `remanent-bench sqlite`.

use crate::{assert_charts, assert_claim, list, run, scratch};

/// Claims that docs/sqlite.md and the issues name.
const CLAIMS: [&str; 10] = [
    "sqlite.wal_vs_disk",
    "sqlite.only_wal_vs_disk",
    "sqlite.wal_vs_tmpfs",
    "sqlite.batch_vs_disk_wal",
    "sqlite.batch_vs_tmpfs_delete",
    "sqlite.batch_vs_tmpfs_wal",
    "sqlite.journal_vs_tmpfs_delete",
    "sqlite.latency_200.batches_in_the_pool",
    "sqlite.latency_200.wal_in_the_pool",
    "sqlite.latency_200.only_the_wal_in_the_pool",
];

#[test]
fn every_claim_mode_and_chart_is_there() {
    let out = scratch();
    let report = run(&["sqlite", "--quick"], out.path());
    for id in CLAIMS {
        assert_claim(&report, id);
    }
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "WAL", "MEMORY", "OFF"] {
        let rows = list(&report, "rows").iter().filter(|row| row["x"] == mode);
        assert_eq!(rows.count(), 5, "{mode}");
    }
    assert_charts("sqlite", &["figure13", "figure15"], out.path());
}
