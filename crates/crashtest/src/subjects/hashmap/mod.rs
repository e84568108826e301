//! The hash map, of words and of records.

pub(super) mod records;
mod scenarios;
pub(super) mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "hashmap",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/hashmap"],
    sources_elsewhere: &["structures/src/hashmap/multi.rs", "structures/src/hashmap/step.rs"],
    images_min: 14_000,
    mutation: None,
};
