//! The versioned B+-tree, with one entry for each key and with several.

mod scenarios;
pub(super) mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "bptree",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/papers/bptree"],
    sources_elsewhere: &[],
    images_min: 5_000,
    // Every flush and fence is needed or explained; two are noticed in longer runs only. The
    // omitted scenarios explore much, and notice nothing that the others do not.
    mutation: Some(MutationSample {
        scenarios: Chosen::AllBut(&["/lost", "/shift-wide", "/killed"]),
        seeds: 1,
        killed_min: 20,
        survivors_max: 2,
    }),
};
