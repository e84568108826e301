//! Plain files: synced bytes survive; unsynced words are old or new.

mod scenarios;
mod subject;

use super::{Chosen, MutationSample, Subject};

pub(super) const SUBJECT: Subject = Subject {
    name: "file",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["blockdev/src/file"],
    sources_elsewhere: &[],
    images_min: 1_000,
    // Every flush and fence is needed or explained.
    mutation: Some(MutationSample {
        scenarios: Chosen::Only(&["/writes", "/lives", "/extents", "/threads-extents"]),
        seeds: 4,
        killed_min: 6,
        survivors_max: 0,
    }),
};
