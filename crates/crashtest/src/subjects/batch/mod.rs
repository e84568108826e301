//! Batches over several maps, beside operations on one.

mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "batch",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/batch"],
    sources_elsewhere: &[],
    images_min: 5_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/all", "/killed", "/threads-brief", "/threads-killed"]),
        seeds: 1,
        killed_min: 5,
        survivors_max: 0,
    }),
};
