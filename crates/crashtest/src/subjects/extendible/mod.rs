//! The extendible map, of words and of records. The subjects are those of the hash map.

mod scenarios;

use super::Subject;

pub(super) const SUBJECT: Subject = Subject {
    name: "extendible",
    scenarios: scenarios::scenarios,
    counterexamples: Vec::new,
    sources: &["structures/src/extendible"],
    sources_elsewhere: &["structures/src/extendible/multi", "structures/src/extendible/rows"],
    images_min: 10_000,
    mutation: None,
};
