//! The engine: tables, their rows and indexes, by one model.

mod columns;
mod copies;
mod dictionaries;
mod draw;
mod foreign;
mod foreign_model;
mod model;
mod online;
mod ordered;
mod promises;
mod promises_model;
mod rows;
mod scenarios;
mod sequences;
mod serial;
mod sessions;
mod sessions_model;
mod subject;
mod sums;
mod transactions;
mod unique;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "engine",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["engine/src", "pmem/src/heap/sweep.rs"],
    sources_elsewhere: &[],
    images_min: 4_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&[
            "/rows",
            "/dictionaries",
            "/killed",
            "/schema",
            "/schema-killed",
            "/transactions",
            "/transactions-killed",
        ]),
        seeds: 1,
        killed_min: 15,
        survivors_max: 0,
    }),
};
