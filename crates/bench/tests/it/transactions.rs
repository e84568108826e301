//! `remanent-bench transactions`.

use crate::{assert_claim, run, scratch, temporary};

#[test]
fn every_claim_is_there() {
    let out = scratch();
    let report = run(&["transactions", "--tiny", "--dir", &temporary()], out.path());
    for what in ["serializable_vs_snapshot", "at_commit_vs_each_statement"] {
        for threads in [1, 2] {
            assert_claim(&report, &format!("transactions.{what}.{threads}"));
        }
    }
    for what in ["batch_100_vs_single", "ordered_vs_hash.insert", "HashMultiMap_vs_hash.get"] {
        assert_claim(&report, &format!("transactions.{what}"));
    }
}
