//! Lists that are made safe in batches.

mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "batch_list",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &[
        "structures/src/batch_list",
        "structures/src/papers/append_list.rs",
        "structures/src/papers/flush_always_list.rs",
        "structures/src/papers/table_list.rs",
    ],
    sources_elsewhere: &[],
    images_min: 4_000,
    // Every flush and fence is needed or explained.
    mutation: Some(MutationSample {
        scenarios: Chosen::AllBut(&["-segments", "-long"]),
        seeds: 1,
        killed_min: 11,
        survivors_max: 0,
    }),
};
