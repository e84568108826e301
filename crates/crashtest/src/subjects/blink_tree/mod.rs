//! The B-link tree, with nodes so small that a few operations divide and join them.

mod scenarios;
pub(super) mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "blink_tree",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/blink_tree"],
    sources_elsewhere: &["structures/src/blink_tree/step.rs"],
    images_min: 2_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/split", "/merge", "/inherited", "/records-merge"]),
        seeds: 1,
        killed_min: 20,
        survivors_max: usize::MAX,
    }),
};
