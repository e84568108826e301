//! The allocator.

mod scenarios;
pub(super) mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "heap",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["pmem/src/heap"],
    // The engine sweeps.
    sources_elsewhere: &["pmem/src/heap/sweep.rs"],
    images_min: 7_000,
    mutation: None,
};
