//! The pool: roots that are created and removed, growth, and memory that is reused.

mod kinds;
mod scenarios;
mod subject;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "pool",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["pmem/src/pool"],
    sources_elsewhere: &["pmem/src/pool/double_write.rs"],
    images_min: 500,
    mutation: None,
};
