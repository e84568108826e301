//! The map whose writes become safe in batches.

mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "batch_map",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/batch_map", "structures/src/segments.rs"],
    sources_elsewhere: &[],
    images_min: 2_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/sequence", "/recovery", "/segments", "/reused", "/inherited"]),
        seeds: 8,
        killed_min: 11,
        survivors_max: usize::MAX,
    }),
};
