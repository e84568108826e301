//! The index of rows, whose changes ride on the caller's fence.

mod scenarios;
mod subject;
mod table;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "row_index",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/extendible/rows"],
    sources_elsewhere: &[],
    images_min: 4_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::AllBut(&["-full", "-no-room", "/partitions-growth"]),
        seeds: 2,
        killed_min: 6,
        survivors_max: 0,
    }),
};
