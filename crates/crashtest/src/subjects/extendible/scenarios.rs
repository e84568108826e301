//! Scenarios of the extendible map.

use std::marker::PhantomData;
use std::sync::Arc;

use remanent_crashsim::{Class, Config, Faults, Nested, Points, Sim};
use remanent_structures::{ExtendibleMap, Key};

use crate::keys::{TestKey, WideKey};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, few_images, interleaved,
    killed, killed_twice, pages, prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;
use crate::subjects::hashmap::records::Records;
use crate::subjects::hashmap::subject::{Map, Mix};

type Words = Map<ExtendibleMap<TestKey, u64, Arc<Sim>>>;
/// Values of one word in records.
type Counts = Map<ExtendibleMap<WideKey, u64, Arc<Sim>>, WideKey>;
type Texts<K> = Records<K, ExtendibleMap<K, [u8], Arc<Sim>>>;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [words(), words_by_threads(), contended_words(), growth(), shrinking(), shapes(), counts()]
        .into_iter()
        .chain([records(), records_of_all_lengths()])
        .flatten()
        .collect()
}

fn map(mix: Mix) -> Words {
    map_of(mix)
}

fn map_of<T, K>(mix: Mix) -> Map<T, K> {
    Map {
        keys: 0..6,
        base: 0,
        churn: (1, 0),
        removed: 0,
        mix,
        size_max: SIZE_MAX,
        reopened: false,
        counts: true,
        map: PhantomData,
    }
}

fn words() -> Vec<Scenario> {
    let recovery = Config { nested: Nested { depth: 2, one_in: 2, samples: 4 }, ..alone(3, 4) };
    let stores = Config { points: Points::Stores, ..alone(3, 4) };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(4, 4)
    };
    vec![
        Scenario::new("extendible/sequence", "every operation", map(Mix::All), alone(3, 6)),
        Scenario::new("extendible/recovery", "crashes inside recovery", map(Mix::All), recovery),
        Scenario::new(
            "extendible/killed",
            "killed, then power lost",
            map(Mix::All),
            killed(alone(3, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/exchanges",
            "changes by what a value is",
            Map { keys: 0..3, ..map(Mix::Exchanges) },
            alone(3, 6),
        ),
        Scenario::new("extendible/stores", "between any two stores", map(Mix::All), stores),
        Scenario::new(
            "extendible/process",
            "the process dies",
            map(Mix::All),
            class(Class::Process, alone(3, 6)),
        ),
        Scenario::new("extendible/pages", "a page-cache file", map(Mix::All), pages(alone(3, 4))),
        Scenario::new(
            "extendible/faults",
            "lines that cannot be read, a file cut short",
            map(Mix::All),
            faults,
        ),
    ]
}

fn words_by_threads() -> Vec<Scenario> {
    let concurrent = |mix, keys| Map { keys, counts: false, ..map(mix) };
    let reopened = Map { reopened: true, ..concurrent(Mix::Entries, 0..3) };
    vec![
        Scenario::new(
            "extendible/threads",
            "two threads write",
            concurrent(Mix::Entries, 0..4),
            together(2, 3, 4),
        ),
        Scenario::new(
            "extendible/threads-exchanges",
            "two threads change values by what they are",
            concurrent(Mix::Exchanges, 0..2),
            together(2, 2, 4),
        ),
        Scenario::new(
            "extendible/threads-reopened",
            "two threads write after a clean close",
            reopened,
            together(2, 0, 3),
        ),
        Scenario::new(
            "extendible/threads-three",
            "three threads write",
            concurrent(Mix::Entries, 0..3),
            together(3, 3, 2),
        ),
        Scenario::new(
            "extendible/readers",
            "three threads, mostly reading",
            concurrent(Mix::Reads, 0..3),
            together(3, 2, 4),
        ),
        Scenario::new(
            "extendible/threads-clear",
            "two threads clear and write",
            concurrent(Mix::Clears, 0..4),
            together(2, 4, 3),
        ),
        Scenario::new(
            "extendible/threads-killed",
            "two threads killed, then power lost",
            Map { keys: 0..3, counts: false, ..map(Mix::Entries) },
            killed(together(2, 3, 4)),
        )
        .with_weight(2),
    ]
}

fn contended_words() -> Vec<Scenario> {
    // Each thread already has a chunk to allocate from, which keeps runs short.
    let warm = |mix, keys| Map { keys, counts: false, churn: (4, 1), ..map(mix) };
    vec![
        Scenario::new(
            "extendible/contention-scans",
            "threads visit all entries while others write",
            warm(Mix::Scans, 2..5),
            briefly(3, 0, 1),
        )
        .with_weight(60),
        Scenario::new(
            "extendible/contention",
            "threads write two keys",
            warm(Mix::Entries, 0..2),
            briefly(3, 2, 3),
        )
        .with_weight(20),
        Scenario::new(
            "extendible/contention-replaced",
            "threads read what others just replaced",
            warm(Mix::Reads, 0..1),
            briefly(2, 2, 2),
        )
        .with_weight(400),
        Scenario::new(
            "extendible/contention-readers",
            "threads read what others just wrote",
            warm(Mix::Reads, 0..2),
            briefly(3, 0, 1),
        )
        .with_weight(100),
    ]
}

fn growth() -> Vec<Scenario> {
    // A segment has eight slots less one or two.
    let growing = |base, mix| Map { base, keys: 0..8, ..map(mix) };
    let concurrent = |base| Map { counts: false, churn: (4, 1), ..growing(base, Mix::Entries) };
    vec![
        Scenario::new(
            "extendible/growth",
            "entries are moved, and segments split",
            growing(4, Mix::Entries),
            prepared(alone(0, 8)),
        )
        .with_weight(60),
        Scenario::new(
            "extendible/growth-stores",
            "the same, between any two stores",
            growing(4, Mix::Entries),
            at_stores(prepared(alone(0, 8))),
        )
        .with_weight(8),
        Scenario::new(
            "extendible/growth-cleared",
            "a map of several segments is cleared",
            growing(20, Mix::Clears),
            prepared(alone(2, 4)),
        ),
        Scenario::new(
            "extendible/growth-cleared-killed",
            "the same; killed, then power lost",
            growing(20, Mix::Clears),
            killed(alone(2, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/growth-killed",
            "segments are split; killed, then power lost",
            growing(5, Mix::Entries),
            killed(alone(0, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/threads-growth",
            "two threads split segments",
            concurrent(5),
            prepared(together(2, 0, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/contention-growth",
            "threads move entries and split segments at once",
            concurrent(4),
            briefly(3, 0, 3),
        )
        .with_weight(60),
        Scenario::new(
            "extendible/visitors-growth",
            "threads visit all entries while others move them",
            Map { mix: Mix::Scans, ..concurrent(4) },
            interleaved(3, 1, 3, 800),
        )
        .with_weight(1600),
        Scenario::new(
            "extendible/readers-growth",
            "threads read what others move",
            Map { mix: Mix::Reads, ..concurrent(4) },
            interleaved(3, 1, 3, 800),
        )
        .with_weight(2400),
    ]
}

fn shrinking() -> Vec<Scenario> {
    let shrinking = || Map { removed: 20, ..map(Mix::Shrinks) };
    vec![
        Scenario::new(
            "extendible/shrinking",
            "segments are split, and joined again",
            shrinking(),
            Config { creation: false, ..alone(4, 6) },
        )
        .with_weight(2),
        Scenario::new(
            "extendible/shrinking-stores",
            "the same, between any two stores",
            shrinking(),
            at_stores(prepared(alone(4, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/shrinking-recovery",
            "the same; crashes inside recovery and after it",
            shrinking(),
            Config { nested: Nested { depth: 2, one_in: 16, samples: 4 }, ..prepared(alone(4, 4)) },
        )
        .with_weight(2),
        Scenario::new(
            "extendible/shrinking-killed",
            "the same; killed, then power lost",
            shrinking(),
            killed(alone(4, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/threads-shrinking",
            "two threads join segments",
            Map { counts: false, ..shrinking() },
            prepared(together(2, 4, 4)),
        )
        .with_weight(4),
        Scenario::new(
            "extendible/contention-shrinking",
            "threads join segments that others use",
            Map { counts: false, ..shrinking() },
            briefly(3, 4, 3),
        )
        .with_weight(100),
        Scenario::new(
            "extendible/contention-shapes",
            "threads split segments that others are about to join",
            Map { counts: false, keys: 0..40, removed: 30, ..map(Mix::Entries) },
            interleaved(3, 0, 24, 8000),
        )
        .with_weight(400),
        Scenario::new(
            "extendible/readers-shapes",
            "threads read and visit entries while others split segments and join them",
            Map { counts: false, keys: 0..40, removed: 30, ..map(Mix::Reads) },
            interleaved(3, 0, 24, 2000),
        )
        .with_weight(400),
        Scenario::new(
            "extendible/visitors-shrinking",
            "threads visit all entries while others join segments",
            Map { counts: false, mix: Mix::Scans, ..shrinking() },
            interleaved(3, 4, 3, 800),
        )
        .with_weight(600),
    ]
}

/// What growth and shrinking seldom come to.
fn shapes() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "extendible/growth-killed-twice",
            "segments are split; killed in two lives, then power lost",
            Map { base: 5, keys: 0..8, ..map(Mix::Entries) },
            killed_twice(alone(0, 2)),
        )
        .with_weight(4),
        Scenario::new(
            "extendible/displaced-shrinking",
            "segments are joined whose entries lie in their other buckets",
            Map { keys: 8..24, removed: 20, ..map(Mix::Shrinks) },
            interleaved(1, 12, 60, 8000),
        )
        .with_weight(100),
    ]
}

fn counts() -> Vec<Scenario> {
    let counts = |mix| -> Counts { map_of(mix) };
    vec![
        Scenario::new(
            "extendible/counts",
            "values of one word in records",
            counts(Mix::All),
            alone(3, 6),
        ),
        Scenario::new(
            "extendible/counts-killed",
            "killed, then power lost",
            counts(Mix::All),
            killed(alone(3, 6)),
        )
        .with_weight(4),
        Scenario::new(
            "extendible/counts-threads",
            "two threads, mostly reading",
            Map { keys: 0..3, counts: false, ..counts(Mix::Reads) },
            together(2, 3, 4),
        ),
    ]
}

fn of<K: Key + ?Sized>(keys: u64, lens: &'static [u64]) -> Texts<K> {
    Records { keys, lens, removed: 0, size_max: SIZE_MAX, types: PhantomData }
}

fn records() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "extendible/records",
            "values of many lengths",
            of::<TestKey>(4, &[0, 1, 8, 40, 150, 700]),
            alone(3, 6),
        ),
        Scenario::new(
            "extendible/records-recovery",
            "crashes inside recovery and after it; records in chunks that are not allocated from",
            of::<TestKey>(7, &[20_000]),
            Config { after: 6, ..prepared(alone(8, 3)) },
        )
        .with_weight(2),
        Scenario::new(
            "extendible/records-growth",
            "segments of records are split",
            of::<TestKey>(12, &[8, 40]),
            prepared(alone(6, 6)),
        ),
        Scenario::new(
            "extendible/records-growth-killed",
            "the same; killed, then power lost",
            of::<TestKey>(12, &[8, 40]),
            killed(alone(6, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "extendible/records-shrinking",
            "segments of records are joined",
            Records { removed: 20, ..of::<TestKey>(7, &[8, 40]) },
            few_images(killed(alone(4, 6))),
        )
        .with_weight(2),
    ]
}

fn records_of_all_lengths() -> Vec<Scenario> {
    let full = Records { size_max: (OVERHEAD + 6) << 16, ..of::<TestKey>(7, &[21_500, 9_000]) };
    vec![
        Scenario::new(
            "extendible/records-large",
            "values of several chunks",
            of::<TestKey>(3, &[30, 9_000, 24_000, 70_000]),
            Config { samples: 8, full_max: 16, ..alone(1, 4) },
        ),
        Scenario::new(
            "extendible/records-keys",
            "keys of several lengths, segments of the usual size",
            of::<[u8]>(5, &[0, 8, 40, 150]),
            Config { samples: 6, full_max: 16, ..alone(3, 5) },
        ),
        Scenario::new(
            "extendible/records-full",
            "the pool is full",
            full,
            refusing(Config { samples: 8, full_max: 16, ..alone(7, 5) }),
        ),
        Scenario::new(
            "extendible/records-killed",
            "killed, then power lost",
            of::<TestKey>(3, &[0, 40, 700, 9_000]),
            killed(alone(3, 5)),
        ),
        Scenario::new(
            "extendible/records-no-room",
            "each call for room fails once, with values of several chunks",
            of::<TestKey>(3, &[30, 9_000, 24_000, 70_000]),
            without_room(6, prepared(alone(2, 7))),
        )
        .with_weight(6)
        .reaching(&["release", "no room"]),
        Scenario::new(
            "extendible/records-threads",
            "two threads",
            of::<TestKey>(3, &[0, 40, 150]),
            together(2, 2, 4),
        ),
        Scenario::new(
            "extendible/records-threads-clear",
            "two threads, in long stretches",
            of::<TestKey>(2, &[8, 40]),
            by_priority(2, 2, 4),
        ),
    ]
}
