//! The device of the nvramdisk paper.

mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "nvramdisk",
    scenarios: scenarios::scenarios,
    counterexamples: scenarios::counterexamples,
    sources: &["blockdev/src/papers/nvramdisk"],
    sources_elsewhere: &[],
    images_min: 10_000,
    // Every flush and fence is needed or explained.
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/recovery", "/masked-2", "/masked-5", "/masked-recovery"]),
        seeds: 2,
        killed_min: 14,
        survivors_max: 0,
    }),
};
