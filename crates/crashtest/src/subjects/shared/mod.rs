//! Several structures in one heap, and steps over them.

mod owner;
mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "shared",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &[
        "structures/src/shared",
        "structures/src/blink_tree/step.rs",
        "structures/src/hashmap/step.rs",
        "structures/src/line_tx/step.rs",
        "structures/src/log/step.rs",
        "structures/src/vector/step.rs",
    ],
    sources_elsewhere: &[],
    images_min: 1_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/all", "/maps", "/trees", "/rest", "/killed"]),
        seeds: 1,
        killed_min: 1,
        survivors_max: 0,
    }),
};
