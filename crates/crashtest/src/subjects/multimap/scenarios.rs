//! Scenarios of the maps with several entries for each key.

use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Class, Config, Faults, Nested, Sim};
use remanent_structures::{ExtendibleMultiMap, HashMultiMap};

use super::subject::{Mix, MultiMap, Several};
use crate::keys::{TestKey, WideKey};
use crate::presets::{
    SIZE_MAX, alone, at_stores, briefly, by_priority, class, few_images, interleaved, killed,
    pages, prepared, together, without_room,
};
use crate::scenario::Scenario;

type Paper = HashMultiMap<TestKey, u64, Arc<Sim>>;
type Extendible = ExtendibleMultiMap<TestKey, u64, Arc<Sim>>;
type Collisions = ExtendibleMultiMap<WideKey, u64, Arc<Sim>>;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [of_the_paper(), by_one_thread(), in_trouble(), by_threads(), contended()]
        .into_iter()
        .flatten()
        .collect()
}

fn map<T: Several>() -> MultiMap<T> {
    MultiMap {
        keys: 4,
        prepared: 0,
        keys_prepared: 2,
        mix: Mix::All,
        alone: true,
        size_max: SIZE_MAX,
        map: PhantomData,
    }
}

fn of_the_paper() -> Vec<Scenario> {
    let shared = MultiMap::<Paper> { keys: 2, alone: false, ..map() };
    vec![
        Scenario::new("multimap/sequence", "every operation", map::<Paper>(), alone(3, 6)),
        Scenario::new("multimap/threads", "two threads", shared.clone(), together(2, 3, 4)),
        Scenario::new(
            "multimap/threads-priority",
            "two threads, in long stretches",
            shared,
            by_priority(2, 3, 4),
        ),
    ]
}

/// Keys in several segments, each with a value, that are removed.
fn shrinking() -> MultiMap<Extendible> {
    MultiMap { keys: 12, prepared: 1, keys_prepared: 12, mix: Mix::Removals, ..map() }
}

fn by_one_thread() -> Vec<Scenario> {
    let nested = Nested { depth: 2, one_in: 6, samples: 2 };
    let chains = MultiMap::<Extendible> { keys: 2, prepared: 2, ..map() };
    vec![
        Scenario::new("multimap/extendible", "every operation", map::<Extendible>(), alone(3, 6)),
        Scenario::new(
            "multimap/extendible-stores",
            "between any two stores",
            map::<Extendible>(),
            at_stores(alone(4, 4)),
        ),
        Scenario::new(
            "multimap/extendible-recovery",
            "crashes inside recovery and after it",
            chains.clone(),
            Config { nested, after: 6, creation: false, ..alone(4, 3) },
        ),
        Scenario::new(
            "multimap/extendible-recovery-removals",
            "crashes after recovery has taken values out of their chains",
            MultiMap { keys: 1, mix: Mix::Values, ..map::<Extendible>() },
            Config { nested, after: 2, creation: false, ..alone(8, 2) },
        )
        .with_weight(2),
        Scenario::new(
            "multimap/extendible-killed",
            "killed, then power lost",
            chains.clone(),
            killed(alone(4, 6)),
        )
        .with_weight(4),
        Scenario::new(
            "multimap/extendible-long",
            "so many values of a key that a clear frees them in parts",
            MultiMap { keys: 1, prepared: 130, ..chains.clone() },
            prepared(alone(1, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "multimap/extendible-growth",
            "segments are split",
            MultiMap { keys: 40, mix: Mix::Values, ..map::<Extendible>() },
            few_images(alone(30, 20)),
        ),
        Scenario::new(
            "multimap/extendible-shrinking",
            "segments are joined",
            shrinking(),
            few_images(alone(0, 16)),
        )
        .with_weight(4),
        Scenario::new(
            "multimap/extendible-collisions",
            "keys that are no words, of which several have one hash",
            map::<Collisions>(),
            alone(3, 6),
        ),
        Scenario::new(
            "multimap/extendible-process",
            "the process dies",
            map::<Extendible>(),
            class(Class::Process, alone(3, 6)),
        ),
        Scenario::new("multimap/extendible-pages", "a page-cache file", chains, pages(alone(3, 4))),
    ]
}

fn in_trouble() -> Vec<Scenario> {
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(4, 4)
    };
    vec![
        Scenario::new(
            "multimap/extendible-faults",
            "lines that cannot be read, a file cut short",
            map::<Extendible>(),
            faults,
        ),
        Scenario::new(
            "multimap/extendible-no-room",
            "each call for room fails once",
            MultiMap { keys: 30, ..map::<Extendible>() },
            without_room(8, prepared(alone(0, 10))),
        )
        .with_weight(6),
    ]
}

fn by_threads() -> Vec<Scenario> {
    let shared = MultiMap::<Extendible> { keys: 2, prepared: 1, alone: false, ..map() };
    vec![
        Scenario::new(
            "multimap/extendible-threads",
            "two threads",
            shared.clone(),
            together(2, 3, 4),
        ),
        Scenario::new(
            "multimap/extendible-threads-three",
            "three threads on one key",
            MultiMap { keys: 1, ..shared.clone() },
            together(3, 3, 2),
        ),
        Scenario::new(
            "multimap/extendible-threads-killed",
            "two threads killed, then power lost",
            MultiMap { mix: Mix::Values, ..shared },
            killed(together(2, 3, 4)),
        )
        .with_weight(2),
    ]
}

fn contended() -> Vec<Scenario> {
    let values =
        MultiMap::<Extendible> { keys: 1, prepared: 2, alone: false, mix: Mix::Values, ..map() };
    let readers = MultiMap { mix: Mix::Reads, ..values.clone() };
    let removals = MultiMap { keys: 2, prepared: 1, mix: Mix::Removals, ..values.clone() };
    vec![
        Scenario::new(
            "multimap/extendible-additions",
            "threads read values that others add",
            MultiMap { prepared: 0, mix: Mix::Additions, ..values.clone() },
            briefly(3, 1, 3),
        )
        .with_weight(20),
        Scenario::new(
            "multimap/extendible-removals",
            "threads read values that others remove",
            removals,
            briefly(3, 0, 3),
        )
        .with_weight(40),
        Scenario::new(
            "multimap/extendible-contention",
            "short runs of threads that change the values of one key",
            values.clone(),
            briefly(3, 2, 2),
        )
        .with_weight(20),
        Scenario::new(
            "multimap/extendible-clears",
            "threads read values while others clear the map and free them in parts",
            MultiMap { keys: 1, prepared: 110, mix: Mix::Clears, ..values.clone() },
            interleaved(2, 0, 1, 1500),
        )
        .with_weight(200),
        Scenario::new(
            "multimap/extendible-readers",
            "threads read values that others add and remove",
            readers.clone(),
            briefly(3, 3, 3),
        )
        .with_weight(40),
        Scenario::new(
            "multimap/extendible-visitors",
            "threads visit values while others add and remove them, and split segments",
            MultiMap { keys: 24, prepared: 1, keys_prepared: 3, ..readers },
            interleaved(3, 6, 8, 1500),
        )
        .with_weight(400),
        Scenario::new(
            "multimap/extendible-contention-shrinking",
            "threads read values while others remove them, and join segments",
            MultiMap { alone: false, ..shrinking() },
            interleaved(3, 0, 10, 1500),
        )
        .with_weight(200),
    ]
}
