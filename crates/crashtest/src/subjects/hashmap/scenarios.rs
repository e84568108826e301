//! Scenarios of the hash map.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Nested, Points};
use remanent_structures::Key;

use super::records::Records;
use super::subject::{Map, Mix};
use crate::keys::TestKey;
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, briefly, by_priority, class, killed, pages, prepared, refusing,
    together, without_room,
};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [hash_maps(), concurrent_hash_maps(), contended_hash_maps(), growing_hash_maps(), records()]
        .into_iter()
        .flatten()
        .collect()
}

fn map(mix: Mix) -> Map {
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

fn hash_maps() -> Vec<Scenario> {
    let reclaim = Map { churn: (1, 31), ..map(Mix::Entries) };
    let recovery = Config { nested: Nested { depth: 2, one_in: 2, samples: 4 }, ..alone(3, 4) };
    let stores = Config { points: Points::Stores, ..alone(3, 4) };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(4, 4)
    };
    vec![
        Scenario::new("hashmap/sequence", "every operation", map(Mix::All), alone(3, 6)),
        Scenario::new(
            "hashmap/reclaim",
            "batches of entries freed",
            reclaim,
            prepared(alone(2, 8)),
        ),
        Scenario::new("hashmap/recovery", "crashes inside recovery", map(Mix::All), recovery),
        Scenario::new(
            "hashmap/killed",
            "killed, then power lost",
            map(Mix::All),
            killed(alone(3, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "hashmap/threads-killed",
            "two threads killed, then power lost",
            Map { keys: 0..3, counts: false, ..map(Mix::Entries) },
            killed(together(2, 3, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "hashmap/exchanges",
            "changes by what a value is",
            Map { keys: 0..3, ..map(Mix::Exchanges) },
            alone(3, 6),
        ),
        Scenario::new("hashmap/stores", "between any two stores", map(Mix::All), stores),
        Scenario::new(
            "hashmap/process",
            "the process dies",
            map(Mix::All),
            class(Class::Process, alone(3, 6)),
        ),
        Scenario::new("hashmap/pages", "a page-cache file", map(Mix::All), pages(alone(3, 4))),
        Scenario::new(
            "hashmap/faults",
            "lines that cannot be read, a file cut short",
            map(Mix::All),
            faults,
        ),
    ]
}

fn concurrent_hash_maps() -> Vec<Scenario> {
    let concurrent = |mix, keys| Map { keys, counts: false, ..map(mix) };
    let churned = Map { churn: (3, 31), ..concurrent(Mix::Entries, 0..3) };
    let reopened = Map { reopened: true, ..concurrent(Mix::Entries, 0..3) };
    vec![
        Scenario::new(
            "hashmap/threads",
            "two threads write",
            concurrent(Mix::Entries, 0..4),
            together(2, 3, 4),
        ),
        Scenario::new(
            "hashmap/threads-exchanges",
            "two threads change values by what they are",
            concurrent(Mix::Exchanges, 0..2),
            together(2, 2, 4),
        ),
        Scenario::new(
            "hashmap/threads-priority",
            "two threads write, in long stretches",
            concurrent(Mix::Entries, 0..3),
            by_priority(2, 3, 4),
        ),
        Scenario::new(
            "hashmap/threads-reopened",
            "two threads write after a clean close",
            reopened,
            together(2, 0, 3),
        ),
        Scenario::new(
            "hashmap/threads-three",
            "three threads write",
            concurrent(Mix::Entries, 0..3),
            together(3, 3, 2),
        ),
        Scenario::new(
            "hashmap/readers",
            "three threads, mostly reading",
            concurrent(Mix::Reads, 0..3),
            together(3, 2, 4),
        ),
        Scenario::new(
            "hashmap/threads-clear",
            "two threads clear and write",
            concurrent(Mix::Clears, 0..4),
            together(2, 4, 3),
        ),
        Scenario::new(
            "hashmap/threads-reclaim",
            "two threads free batches",
            churned,
            prepared(by_priority(2, 2, 4)),
        ),
        Scenario::new(
            "hashmap/threads-process",
            "two threads, the process dies",
            concurrent(Mix::All, 0..3),
            class(Class::Process, together(2, 2, 4)),
        ),
    ]
}

fn contended_hash_maps() -> Vec<Scenario> {
    // Each thread already has a chunk to allocate from, which keeps runs short.
    let warm = |mix, keys| Map { keys, counts: false, churn: (4, 1), ..map(mix) };
    vec![
        Scenario::new(
            "hashmap/contention-scans",
            "threads visit all entries while others write",
            warm(Mix::Scans, 2..5),
            briefly(3, 0, 1),
        )
        .with_weight(60),
        Scenario::new(
            "hashmap/contention",
            "threads write two keys of one hash",
            warm(Mix::Entries, 0..2),
            briefly(3, 2, 3),
        )
        .with_weight(20),
        Scenario::new(
            "hashmap/contention-neighbours",
            "threads write side by side",
            warm(Mix::Entries, 0..3),
            briefly(2, 1, 1),
        )
        .with_weight(50),
        Scenario::new(
            "hashmap/contention-first",
            "threads write to an empty bucket",
            warm(Mix::Entries, 0..2),
            briefly(2, 0, 1),
        )
        .with_weight(60),
        Scenario::new(
            "hashmap/contention-readers",
            "threads read what others just wrote, in the first bucket",
            warm(Mix::Reads, 0..2),
            briefly(3, 0, 1),
        )
        .with_weight(100),
        Scenario::new(
            "hashmap/contention-visitors",
            "threads read what others just wrote, in another bucket",
            warm(Mix::Reads, 3..5),
            briefly(3, 0, 1),
        )
        .with_weight(100),
    ]
}

fn growing_hash_maps() -> Vec<Scenario> {
    let growing = |base, mix| Map { base, keys: 0..8, ..map(mix) };
    // Each thread's next new entry makes it check the bucket array.
    let concurrent = |base| Map { counts: false, churn: (4, 31), ..growing(base, Mix::Entries) };
    vec![
        Scenario::new(
            "hashmap/growth",
            "the bucket array doubles",
            growing(31, Mix::All),
            prepared(alone(0, 4)),
        ),
        Scenario::new(
            "hashmap/linking",
            "new buckets are linked",
            growing(62, Mix::Entries),
            prepared(alone(1, 4)),
        ),
        Scenario::new(
            "hashmap/threads-growth",
            "two threads double the bucket array",
            concurrent(33),
            prepared(together(2, 0, 3)),
        ),
        Scenario::new(
            "hashmap/contention-growth",
            "threads double the bucket array and link at once",
            concurrent(33),
            briefly(3, 0, 3),
        )
        .with_weight(10),
        Scenario::new(
            "hashmap/threads-linking",
            "two threads link buckets and write",
            concurrent(40),
            prepared(by_priority(2, 1, 4)),
        ),
    ]
}

fn records() -> Vec<Scenario> {
    fn of<K: Key + ?Sized>(keys: u64, lens: &'static [u64]) -> Records<K> {
        Records { keys, lens, removed: 0, size_max: SIZE_MAX, types: PhantomData }
    }
    let full = Records { size_max: (OVERHEAD + 6) << 16, ..of::<TestKey>(7, &[21_500, 9_000]) };
    vec![
        Scenario::new(
            "hashmap/records",
            "values of many lengths",
            of::<TestKey>(4, &[0, 1, 8, 40, 150, 700]),
            alone(3, 6),
        ),
        Scenario::new(
            "hashmap/records-large",
            "values of several chunks",
            of::<TestKey>(3, &[30, 9_000, 24_000, 70_000]),
            Config { samples: 8, full_max: 16, ..alone(1, 4) },
        ),
        Scenario::new(
            "hashmap/records-keys",
            "keys of several lengths, 8192 buckets",
            of::<[u8]>(5, &[0, 8, 40, 150]),
            Config { samples: 6, full_max: 16, ..alone(3, 5) },
        ),
        Scenario::new(
            "hashmap/records-full",
            "the pool is full",
            full,
            refusing(Config { samples: 8, full_max: 16, ..alone(7, 5) }),
        ),
        Scenario::new(
            "hashmap/records-killed",
            "killed, then power lost",
            of::<TestKey>(3, &[0, 40, 700, 9_000]),
            killed(alone(3, 5)),
        ),
        Scenario::new(
            "hashmap/records-no-room",
            "each call for room fails once, with values of several chunks",
            of::<TestKey>(3, &[30, 9_000, 24_000, 70_000]),
            without_room(6, prepared(alone(2, 7))),
        )
        .with_weight(6)
        .reaching(&["release", "no room"]),
        Scenario::new(
            "hashmap/records-threads",
            "two threads",
            of::<TestKey>(3, &[0, 40, 150]),
            together(2, 2, 4),
        ),
        Scenario::new(
            "hashmap/records-threads-clear",
            "two threads, in long stretches",
            of::<TestKey>(2, &[8, 40]),
            by_priority(2, 2, 4),
        ),
    ]
}
