//! What is explored of batches.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Nested};

use super::subject::{Batches, Target};
use crate::maps::{ExtendibleMaps, HashMaps};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, few_images, interleaved,
    killed, pages, prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;

fn batches() -> Batches<HashMaps> {
    of_maps()
}

fn of_maps<D>() -> Batches<D> {
    Batches {
        keys: 8,
        targets: ALL,
        changes_max: 5,
        value_len: 20,
        expectations: 0,
        clears_one_in: 24,
        is_mixed: true,
        size_max: SIZE_MAX,
        kind: PhantomData,
    }
}

const ALL: &[Target] = &[Target::Words, Target::Texts, Target::Tree, Target::Records];

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [by_one_thread(), of_sizes(), by_threads(), of_extendible_maps()]
        .into_iter()
        .flatten()
        .collect()
}

fn by_one_thread() -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 64, samples: 2 };
    let never = Nested { depth: 0, ..again };
    let some = |config| Config { creation: false, ..few_images(config) };
    let only = Batches { value_len: 60, is_mixed: false, ..batches() };
    vec![
        Scenario::new(
            "batch/all",
            "batches and single changes",
            batches(),
            few_images(alone(3, 5)),
        ),
        Scenario::new(
            "batch/stores",
            "between any two stores",
            batches(),
            at_stores(some(alone(1, 2))),
        ),
        Scenario::new(
            "batch/recovery",
            "crashes inside recovery and after it",
            batches(),
            Config { nested: again, after: 3, ..some(alone(2, 3)) },
        )
        .with_weight(2),
        Scenario::new(
            "batch/intents",
            "batches alone, whose intents arrive in part",
            only,
            Config { creation: false, nested: never, ..alone(2, 1) },
        ),
        Scenario::new("batch/pages", "a page-cache file", batches(), pages(some(alone(2, 4)))),
        Scenario::new(
            "batch/process",
            "the process dies",
            batches(),
            class(Class::Process, some(alone(3, 5))),
        ),
        Scenario::new(
            "batch/killed",
            "killed, then power lost",
            batches(),
            few_images(killed(alone(3, 5))),
        )
        .with_weight(2),
    ]
}

/// Batches that need much room, and pools with little.
fn of_sizes() -> Vec<Scenario> {
    let full = Batches { size_max: (OVERHEAD + 26) << 16, keys: 200, ..batches() };
    let long = Batches { keys: 100, changes_max: 250, is_mixed: false, ..batches() };
    let large = Batches { keys: 2, value_len: 30_000, ..batches() };
    vec![
        Scenario::new(
            "batch/parts",
            "batches of more than 128 changes",
            long,
            Config { full_max: 1, samples: 1, ..prepared(alone(0, 1)) },
        )
        .reaching(&[super::subject::PARTS]),
        Scenario::new(
            "batch/large",
            "values that have chunks of their own",
            large,
            prepared(alone(1, 4)),
        ),
        Scenario::new(
            "batch/thirds",
            "values of a third of a chunk, so that a batch takes blocks of many chunks",
            Batches { keys: 24, changes_max: 24, value_len: 20_000, ..batches() },
            Config { full_max: 4, samples: 4, ..prepared(alone(0, 2)) },
        ),
        Scenario::new("batch/full", "the pool is full", full, refusing(prepared(alone(30, 8)))),
        Scenario::new(
            "batch/no-room",
            "each call for room fails once",
            batches(),
            without_room(4, prepared(alone(0, 6))),
        ),
    ]
}

fn by_threads() -> Vec<Scenario> {
    let few = Batches { keys: 3, changes_max: 3, ..batches() };
    let targets = &[Target::Words, Target::Tree];
    let same = Batches {
        keys: 1,
        targets,
        changes_max: 2,
        expectations: 8,
        clears_one_in: 4,
        ..batches()
    };
    vec![
        Scenario::new(
            "batch/threads",
            "two threads, batches and single changes",
            batches(),
            few_images(together(2, 2, 3)),
        )
        .with_weight(2),
        Scenario::new(
            "batch/threads-brief",
            "short runs of threads that want the same keys",
            few.clone(),
            few_images(briefly(3, 1, 2)),
        )
        .with_weight(4),
        Scenario::new(
            "batch/threads-same",
            "two threads that want the same two keys",
            same,
            interleaved(2, 3, 3, 1200),
        )
        .with_weight(800),
        Scenario::new(
            "batch/threads-killed",
            "two threads killed, then power lost",
            few,
            few_images(killed(by_priority(2, 2, 3))),
        )
        .with_weight(2),
    ]
}

fn of_extendible_maps() -> Vec<Scenario> {
    let maps =
        || Batches { targets: &[Target::Words, Target::Texts], ..of_maps::<ExtendibleMaps>() };
    let again = Nested { depth: 2, one_in: 64, samples: 2 };
    let some = |config| Config { creation: false, ..few_images(config) };
    let full =
        Batches { size_max: (OVERHEAD + 20) << 16, keys: 200, ..of_maps::<ExtendibleMaps>() };
    let long = Batches { keys: 100, changes_max: 250, is_mixed: false, ..maps() };
    let wide = Batches { keys: 24, changes_max: 14, is_mixed: false, ..maps() };
    let few = Batches { keys: 3, changes_max: 3, ..maps() };
    vec![
        Scenario::new(
            "batch/extendible",
            "batches and single changes of extendible maps and trees",
            of_maps::<ExtendibleMaps>(),
            few_images(alone(3, 5)),
        ),
        Scenario::new(
            "batch/extendible-recovery",
            "crashes inside recovery and after it",
            maps(),
            Config { nested: again, after: 3, ..some(alone(2, 3)) },
        )
        .with_weight(2),
        Scenario::new(
            "batch/extendible-killed",
            "killed, then power lost",
            maps(),
            few_images(killed(alone(3, 5))),
        ),
        Scenario::new(
            "batch/extendible-long-killed",
            "batches of more segments than a lane names; killed, then power lost",
            wide,
            few_images(killed(prepared(alone(2, 3)))),
        ),
        Scenario::new(
            "batch/extendible-parts",
            "batches of more than 128 changes",
            long,
            Config { full_max: 1, samples: 1, ..prepared(alone(0, 1)) },
        ),
        Scenario::new(
            "batch/extendible-full",
            "the pool is full",
            full,
            refusing(prepared(alone(30, 8))),
        ),
        Scenario::new(
            "batch/extendible-threads",
            "short runs of threads that want the same keys",
            few.clone(),
            few_images(briefly(3, 1, 2)),
        )
        .with_weight(4),
        Scenario::new(
            "batch/extendible-threads-killed",
            "two threads killed, then power lost",
            few,
            few_images(killed(by_priority(2, 2, 3))),
        )
        .with_weight(2),
    ]
}
