//! Disks: writes of any length, transactions, trim, other sizes, snapshots.

mod scenarios;
pub(super) mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "disk",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["blockdev/src"],
    sources_elsewhere: &["blockdev/src/file", "blockdev/src/papers/nvramdisk"],
    images_min: 15_000,
    // Every flush and fence is needed or explained, but for one at most: what makes torn records harmless shows in few of
    // the second crashes.
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&[
            "/writes",
            "/trim",
            "/snapshots",
            "/spilled",
            "/threads",
            "/recovered",
            "/disturbed-threads",
        ]),
        seeds: 1,
        killed_min: 12,
        survivors_max: 1,
    }),
};
