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
    images_min: 20_000,
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/all", "/maps", "/rest", "/killed", "/threads-maps"]),
        seeds: 2,
        killed_min: 8,
        // A node that leads elsewhere when it is published: its fence is missed by one seed in 40.
        survivors_max: 2,
    }),
};
