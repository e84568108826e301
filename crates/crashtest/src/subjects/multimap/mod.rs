//! The hash maps with several entries for each key.

mod scenarios;
mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "multimap",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/hashmap/multi.rs", "structures/src/extendible/multi"],
    sources_elsewhere: &[],
    images_min: 40_000,
    mutation: None,
};
