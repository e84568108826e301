//! Sorted sets and strings of the server, by the commands that clients send.

mod lagging;
mod scenarios;
mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "sorted_sets",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &[],
    sources_elsewhere: &[],
    images_min: 6_000,
    mutation: None,
};
