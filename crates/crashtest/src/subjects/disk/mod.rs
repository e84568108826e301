//! Disks: writes of any length, transactions, trim, resizing, snapshots.

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
    // Every flush and fence is needed or explained, with at most one exception: the voiding of torn
    // records is noticed in few of the second crashes.
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
