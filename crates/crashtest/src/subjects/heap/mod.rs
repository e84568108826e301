//! The allocator.

mod scenarios;
pub(super) mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "heap",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["pmem/src/heap"],
    sources_elsewhere: &[],
    images_min: 7_000,
    mutation: None,
};
