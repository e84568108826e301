//! Batches over several maps, beside operations on one.

mod scenarios;
mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "batch",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &[],
    sources_elsewhere: &[],
    images_min: 1_000,
    mutation: None,
};
