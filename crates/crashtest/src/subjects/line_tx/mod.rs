//! Line transactions: every kind of object, and every kind of handle.

mod handles;
mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "line_tx",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/line_tx"],
    sources_elsewhere: &[],
    images_min: 1_500,
    // Every flush and fence is needed, and the images of these few scenarios are enough to notice
    // it.
    mutation: Some(MutationSample {
        scenarios: Chosen::AllBut(&["/killed", "/killed-copies"]),
        seeds: 2,
        killed_min: 10,
        survivors_max: 0,
    }),
};
