//! Several structures in one heap, and steps over them.

mod owner;
mod scenarios;
mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "shared",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &[],
    sources_elsewhere: &[],
    images_min: 1_000,
    mutation: None,
};
