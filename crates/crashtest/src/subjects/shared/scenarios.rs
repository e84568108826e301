//! What is explored of structures that share a heap.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Nested};

use super::subject::{Shared, Target};
use crate::maps::{ExtendibleMaps, HashMaps};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, few_images, killed, pages,
    prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;

use Target::{Log, Object, Others, Records, Texts, Tree, Vector, Words};

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [by_one_thread(), in_trouble(), by_threads(), of_extendible_maps()]
        .into_iter()
        .flatten()
        .collect()
}

fn shared(targets: &'static [Target]) -> Shared<HashMaps> {
    of_maps(targets)
}

fn of_maps<D>(targets: &'static [Target]) -> Shared<D> {
    let (keys, changes_max, is_mixed) = (10, 6, false);
    Shared { keys, changes_max, targets, is_mixed, size_max: SIZE_MAX, kind: PhantomData }
}

const ALL: &[Target] = &[Words, Others, Texts, Tree, Records, Vector, Log, Object];
const MAPS: &[Target] = &[Words, Others, Texts];
const TREES: &[Target] = &[Tree, Records];
const GROWING: &[Target] = &[Texts, Records, Vector];
const REST: &[Target] = &[Vector, Log, Object, Words];

fn by_one_thread() -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 64, samples: 2 };
    let some = |config| Config { creation: false, ..few_images(config) };
    vec![
        Scenario::new("shared/all", "every structure", shared(ALL), few_images(alone(3, 5)))
            .with_weight(2),
        Scenario::new("shared/maps", "hash maps alone", shared(MAPS), some(alone(4, 6)))
            .with_weight(2),
        Scenario::new("shared/trees", "trees alone", shared(TREES), some(alone(6, 6)))
            .with_weight(2),
        Scenario::new(
            "shared/rest",
            "a vector, a log and an object",
            shared(REST),
            some(alone(3, 6)),
        ),
        Scenario::new(
            "shared/stores",
            "between any two stores",
            shared(ALL),
            at_stores(some(alone(1, 2))),
        ),
        Scenario::new(
            "shared/recovery",
            "crashes inside recovery and after it",
            shared(ALL),
            Config { nested: again, after: 3, ..some(alone(3, 4)) },
        ),
        Scenario::new("shared/pages", "a page-cache file", shared(ALL), pages(some(alone(2, 4)))),
        Scenario::new(
            "shared/process",
            "the process dies",
            shared(ALL),
            class(Class::Process, some(alone(3, 5))),
        ),
        Scenario::new(
            "shared/killed",
            "killed, then power lost",
            shared(ALL),
            few_images(killed(alone(3, 5))),
        )
        .with_weight(4),
    ]
}

fn in_trouble() -> Vec<Scenario> {
    // Few changes a step: any of those of a step that was refused may be there.
    let full = Shared { size_max: (OVERHEAD + 30) << 16, changes_max: 2, ..shared(GROWING) };
    vec![
        Scenario::new("shared/full", "the pool is full", full, refusing(prepared(alone(30, 4)))),
        Scenario::new(
            "shared/no-room",
            "each call for room fails once",
            shared(ALL),
            without_room(4, prepared(alone(0, 6))),
        )
        .with_weight(2),
    ]
}

fn by_threads() -> Vec<Scenario> {
    let mixed = |targets| Shared { is_mixed: true, keys: 6, changes_max: 3, ..shared(targets) };
    vec![
        Scenario::new(
            "shared/threads",
            "two threads, every structure",
            mixed(ALL),
            few_images(together(2, 2, 3)),
        )
        .with_weight(2),
        Scenario::new(
            "shared/threads-maps",
            "two threads on hash maps",
            mixed(MAPS),
            few_images(briefly(2, 2, 2)),
        )
        .with_weight(6),
        Scenario::new(
            "shared/threads-trees",
            "two threads on trees",
            mixed(TREES),
            few_images(briefly(2, 4, 2)),
        )
        .with_weight(6),
        Scenario::new(
            "shared/threads-rest",
            "three threads on a vector, a log and an object",
            mixed(REST),
            few_images(briefly(3, 2, 2)),
        )
        .with_weight(4),
        Scenario::new(
            "shared/threads-killed",
            "two threads killed, then power lost",
            mixed(ALL),
            few_images(killed(by_priority(2, 2, 3))),
        )
        .with_weight(2),
    ]
}

fn of_extendible_maps() -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 64, samples: 2 };
    let some = |config| Config { creation: false, ..few_images(config) };
    let maps = || of_maps::<ExtendibleMaps>(MAPS);
    let mixed = || Shared { is_mixed: true, keys: 6, changes_max: 3, ..maps() };
    vec![
        Scenario::new("shared/extendible", "extendible maps alone", maps(), some(alone(4, 6)))
            .with_weight(2),
        Scenario::new(
            "shared/extendible-all",
            "every structure, with extendible maps",
            of_maps::<ExtendibleMaps>(ALL),
            few_images(alone(3, 5)),
        ),
        Scenario::new(
            "shared/extendible-recovery",
            "crashes inside recovery and after it",
            maps(),
            Config { nested: again, after: 3, ..some(alone(3, 4)) },
        ),
        Scenario::new(
            "shared/extendible-killed",
            "killed, then power lost",
            maps(),
            few_images(killed(alone(3, 5))),
        )
        .with_weight(2),
        Scenario::new(
            "shared/extendible-long-killed",
            "steps on more segments than a lane names; killed, then power lost",
            Shared { keys: 30, changes_max: 12, ..of_maps::<ExtendibleMaps>(&[Words]) },
            few_images(killed(alone(5, 4))),
        )
        .with_weight(2),
        Scenario::new(
            "shared/extendible-no-room",
            "each call for room fails once",
            maps(),
            without_room(4, prepared(alone(0, 6))),
        ),
        Scenario::new(
            "shared/extendible-threads",
            "two threads on extendible maps",
            mixed(),
            few_images(briefly(2, 2, 2)),
        )
        .with_weight(6),
        Scenario::new(
            "shared/extendible-threads-killed",
            "two threads killed, then power lost",
            mixed(),
            few_images(killed(by_priority(2, 2, 3))),
        )
        .with_weight(2),
    ]
}
