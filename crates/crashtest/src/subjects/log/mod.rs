//! Logs.

mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "log",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/log"],
    sources_elsewhere: &[],
    images_min: 4_000,
    // Every flush and fence is needed or explained.
    mutation: Some(MutationSample {
        scenarios: Chosen::AllBut(&["-full", "-no-room"]),
        seeds: 1,
        killed_min: 4,
        survivors_max: 0,
    }),
};
