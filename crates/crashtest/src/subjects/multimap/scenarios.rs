//! Scenarios of the map with several entries for each key.

use super::subject::MultiMap;
use crate::presets::{SIZE_MAX, alone, by_priority, together};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [multi_maps()].into_iter().flatten().collect()
}

fn multi_maps() -> Vec<Scenario> {
    let alone_map = MultiMap { keys: 4, alone: true, size_max: SIZE_MAX };
    let shared = MultiMap { keys: 2, alone: false, ..alone_map.clone() };
    vec![
        Scenario::new("multimap/sequence", "every operation", alone_map, alone(3, 6)),
        Scenario::new("multimap/threads", "two threads", shared.clone(), together(2, 3, 4)),
        Scenario::new(
            "multimap/threads-priority",
            "two threads, in long stretches",
            shared,
            by_priority(2, 3, 4),
        ),
    ]
}
