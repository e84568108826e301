//! What is explored: every subject, in the ways that matter for it.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Granularity, Nested, Points, Schedule, SimOptions};
use remanent_pmem::heap::Reclamation;

use super::bytes::Bytes;
use super::cells::Cells;
use super::hashmap::{Map, Mix};
use super::heap::{Allocator, HELD_BACK, LENS, RETIRED_UNDER_READER, REUSED};
use super::line_tx::Objects;
use super::multimap::MultiMap;
use super::{Scenario, TestKey};

/// Room for the smallest pool and one growth.
pub(super) const SIZE_MAX: u64 = 40 << 20;
/// Chunks of 64 KiB that the smallest pool needs for itself.
pub(super) const OVERHEAD: u64 = 265;

/// Everything that is explored, structure by structure.
pub fn scenarios() -> Vec<Scenario> {
    let mut all = super::scenarios_pool::pools();
    all.extend(super::scenarios_pool::shrinking_pools());
    all.extend(super::scenarios_pool::reused_pools());
    all.extend(heaps());
    all.extend(reused_heaps());
    all.extend(hash_maps());
    all.extend(concurrent_hash_maps());
    all.extend(contended_hash_maps());
    all.extend(growing_hash_maps());
    all.extend(bytes());
    all.extend(multi_maps());
    all.extend(line_transactions());
    all.extend(kinds_of_objects());
    all.extend(checked_line_transactions());
    all.extend(super::scenarios_batch_list::batch_lists());
    all.extend(super::scenarios_batch::batch_maps());
    all.extend(super::scenarios_blink_tree::blink_trees());
    all.extend(super::scenarios_bptree::bptrees());
    all.extend(super::scenarios_sorted_sets::sorted_sets());
    all.extend(super::scenarios_disk::disks());
    all.extend(super::scenarios_disk::disturbed_disks());
    all.extend(super::scenarios_nvramdisk::nvramdisks());
    all.extend(super::scenarios_file::files());
    all
}

/// One thread, a few operations on what others have left.
pub(super) fn alone(setup: usize, ops: usize) -> Config {
    Config {
        setup,
        ops,
        full_max: 64,
        samples: 16,
        may_refuse: false,
        sim: SimOptions { len: 64 << 10, capacity: SIZE_MAX, ..SimOptions::default() },
        ..Config::default()
    }
}

/// As `config`; the creation is left alone, which prepares more than one operation's worth, and points
/// are so many that a few images of each must do.
pub(super) fn prepared(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 64, samples: 2 };
    Config { creation: false, full_max: 4, samples: 3, nested, ..config }
}

/// As `config`, of what has not room for all.
pub(super) fn refusing(config: Config) -> Config {
    Config { may_refuse: true, ..config }
}

/// As `config`; the process is killed, and the power fails in the life that follows.
pub(super) fn killed(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 4, samples: 12 };
    Config { killed: true, creation: false, nested, full_max: 16, ..config }
}

/// Several threads with a few operations each.
pub(super) fn together(threads: usize, setup: usize, ops: usize) -> Config {
    Config { threads, samples: 6, full_max: 16, ..alone(setup, ops) }
}

/// Short runs of threads that all want the same, to be repeated often.
pub(super) fn briefly(threads: usize, setup: usize, ops: usize) -> Config {
    let nested = Nested { depth: 0, one_in: 0, samples: 0 };
    // About as long as the run, so that the changes fall into it.
    let length = (threads * ops * 50) as u64;
    let schedule = Schedule::Priority { changes: 3, length };
    Config {
        creation: false,
        full_max: 8,
        samples: 4,
        nested,
        schedule,
        after: 3,
        ..together(threads, setup, ops)
    }
}

/// As [`together`], with long stretches of one thread in between.
pub(super) fn by_priority(threads: usize, setup: usize, ops: usize) -> Config {
    let schedule = Schedule::Priority { changes: 3, length: 400 };
    Config { schedule, ..together(threads, setup, ops) }
}

pub(super) fn class(class: Class, config: Config) -> Config {
    Config { sim: SimOptions { class, ..config.sim }, ..config }
}

/// As `config`, on a file system on which one call for room fails, another one with each seed.
pub(super) fn without_room(calls: u64, config: Config) -> Config {
    refusing(Config { faults: Faults { full: calls, ..config.faults }, ..config })
}

pub(super) fn pages(config: Config) -> Config {
    Config { sim: SimOptions { granularity: Granularity::Page, ..config.sim }, ..config }
}

/// Blocks of size classes.
fn small_blocks() -> Allocator {
    Allocator {
        slots: 4,
        lens: &LENS[..4],
        churn: (1, 0),
        gets: 1,
        reclamation: Reclamation::default(),
        size_max: SIZE_MAX,
    }
}

/// Blocks that are soon used again.
fn reused_heaps() -> Vec<Scenario> {
    // Three blocks to a chunk, and each is freed as soon as no reader is left.
    let eager = Reclamation { batch: 1, attempt: 1 };
    let reused = Allocator {
        lens: &[21_800],
        slots: 2,
        churn: (1, 5),
        reclamation: eager,
        size_max: (OVERHEAD + 8) << 16,
        ..small_blocks()
    };
    let shared = Allocator { churn: (4, 5), ..reused.clone() };
    let read = Allocator { slots: 1, gets: 2, size_max: (OVERHEAD + 24) << 16, ..shared.clone() };
    // A chunk each, and few of them: each is taken by whoever comes first.
    let scarce = Allocator { lens: &LENS[4..5], size_max: (OVERHEAD + 7) << 16, ..shared.clone() };
    vec![
        Scenario::new("heap/reused", "blocks are reused", reused.clone(), alone(4, 8))
            .reaching(&[REUSED]),
        Scenario::new(
            "heap/threads-reused",
            "two threads reuse what the other one has freed",
            shared,
            prepared(by_priority(2, 3, 8)),
        )
        .with_weight(2)
        .reaching(&[REUSED]),
        Scenario::new(
            "heap/contention-reused",
            "blocks are reused beside their readers",
            read,
            briefly(3, 3, 14),
        )
        .with_weight(30)
        .reaching(&[REUSED, RETIRED_UNDER_READER, HELD_BACK]),
        Scenario::new(
            "heap/contention-chunks",
            "chunks are taken by one thread while another gives them back",
            scarce,
            refusing(briefly(3, 3, 14)),
        )
        .with_weight(30)
        .reaching(&[REUSED]),
        Scenario::new("heap/killed", "killed, then power lost", reused, killed(alone(3, 6)))
            .with_weight(2),
    ]
}

fn heaps() -> Vec<Scenario> {
    let small = small_blocks();
    // Freeing a batch empties chunks, which are given back.
    let reclaim = Allocator { lens: &[21_800, 9_000, 24], churn: (1, 31), ..small.clone() };
    let chunks = Allocator { slots: 8, lens: &[21_800], ..small.clone() };
    let large = Allocator { lens: &LENS[4..], ..small.clone() };
    let all = Allocator { lens: &LENS, ..small.clone() };
    let full = Allocator {
        slots: 7,
        lens: &[9_000, 21_800, 70_000],
        size_max: (OVERHEAD + 6) << 16,
        ..small.clone()
    };
    let churned = Allocator { churn: (3, 31), slots: 2, ..reclaim.clone() };
    vec![
        Scenario::new("heap/small", "blocks of size classes", small.clone(), alone(2, 8)),
        Scenario::new("heap/large", "runs of chunks", large.clone(), alone(2, 6))
            .reaching(&["release"]),
        Scenario::new(
            "heap/no-room",
            "each call for room fails once",
            all.clone(),
            without_room(8, prepared(alone(2, 8))),
        )
        .with_weight(8)
        .reaching(&["release", "no room"]),
        Scenario::new(
            "heap/reclaim",
            "batches freed, chunks emptied",
            reclaim,
            prepared(alone(1, 8)),
        ),
        Scenario::new("heap/chunks", "chunks left behind half full", chunks, prepared(alone(8, 8))),
        Scenario::new("heap/full", "the pool is full", full, refusing(alone(7, 8))),
        Scenario::new("heap/threads", "two threads", all.clone(), together(2, 2, 4)),
        Scenario::new(
            "heap/threads-reclaim",
            "two threads free batches",
            churned,
            prepared(by_priority(2, 1, 5)),
        ),
        Scenario::new(
            "heap/process",
            "the process dies",
            all,
            class(Class::Process, together(2, 2, 4)),
        ),
        Scenario::new("heap/pages", "a page-cache file", small, pages(alone(2, 5))),
        Scenario::new(
            "heap/stores",
            "between any two stores",
            large,
            Config { points: Points::Stores, ..alone(1, 3) },
        ),
    ]
}

fn map(mix: Mix) -> Map {
    Map {
        keys: 0..6,
        base: 0,
        churn: (1, 0),
        mix,
        size_max: SIZE_MAX,
        reopened: false,
        counts: true,
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
    // Each thread has a chunk to allocate from already, so that runs are short.
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
    // Each thread's next new entry makes it look after the bucket array.
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
        .with_weight(20),
        Scenario::new(
            "hashmap/threads-linking",
            "two threads link buckets and write",
            concurrent(40),
            prepared(by_priority(2, 1, 4)),
        ),
    ]
}

fn bytes() -> Vec<Scenario> {
    fn of<K: ?Sized>(keys: u64, lens: &'static [u64]) -> Bytes<K> {
        Bytes { keys, lens, size_max: SIZE_MAX, key: PhantomData }
    }
    let full = Bytes { size_max: (OVERHEAD + 6) << 16, ..of::<TestKey>(7, &[21_500, 9_000]) };
    vec![
        Scenario::new(
            "bytes/sequence",
            "values of many lengths",
            of::<TestKey>(4, &[0, 1, 8, 40, 150, 700]),
            alone(3, 6),
        ),
        Scenario::new(
            "bytes/large",
            "values of several chunks",
            of::<TestKey>(3, &[30, 9_000, 24_000, 70_000]),
            Config { samples: 8, full_max: 16, ..alone(1, 4) },
        ),
        Scenario::new(
            "bytes/keys",
            "keys of several lengths, 8192 buckets",
            of::<[u8]>(5, &[0, 8, 40, 150]),
            Config { samples: 6, full_max: 16, ..alone(3, 5) },
        ),
        Scenario::new(
            "bytes/full",
            "the pool is full",
            full,
            refusing(Config { samples: 8, full_max: 16, ..alone(7, 5) }),
        ),
        Scenario::new(
            "bytes/killed",
            "killed, then power lost",
            of::<TestKey>(3, &[0, 40, 700, 9_000]),
            killed(alone(3, 5)),
        ),
        Scenario::new(
            "bytes/no-room",
            "each call for room fails once, with values of several chunks",
            of::<TestKey>(3, &[30, 9_000, 24_000, 70_000]),
            without_room(6, prepared(alone(2, 7))),
        )
        .with_weight(6)
        .reaching(&["release", "no room"]),
        Scenario::new(
            "bytes/threads",
            "two threads",
            of::<TestKey>(3, &[0, 40, 150]),
            together(2, 2, 4),
        ),
        Scenario::new(
            "bytes/threads-clear",
            "two threads, in long stretches",
            of::<TestKey>(2, &[8, 40]),
            by_priority(2, 2, 4),
        ),
    ]
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

fn objects<T>(count: u64) -> Objects<T> {
    Objects { count, size_max: SIZE_MAX, disturbed: false, hot: &[], types: PhantomData }
}

/// As `config`, with a few images of each point, of which there are many.
pub(super) fn few_images(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 32, samples: 2 };
    Config { full_max: 4, samples: 4, nested, ..config }
}

/// As `config`, with crashes between any two stores.
pub(super) fn at_stores(config: Config) -> Config {
    Config { points: Points::Stores, ..config }
}

/// Every kind of transactional object; and what a process leaves that is killed in a transaction.
fn kinds_of_objects() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "line_tx/cells",
            "owned, shared, cells and the bounded buffer",
            Cells { size_max: SIZE_MAX },
            alone(4, 8),
        ),
        Scenario::new(
            "line_tx/cells-threads",
            "threads on objects of each kind",
            Cells { size_max: SIZE_MAX },
            together(2, 2, 4),
        )
        .with_weight(2),
        Scenario::new(
            "line_tx/killed",
            "killed, then power lost",
            Cells { size_max: SIZE_MAX },
            killed(alone(3, 6)),
        ),
        Scenario::new(
            "line_tx/killed-copies",
            "objects of several lines; killed, then power lost",
            objects::<[u8; 200]>(2),
            killed(alone(2, 5)),
        ),
    ]
}

fn line_transactions() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "line_tx/line",
            "objects of a line, between any two stores",
            objects::<[u8; 31]>(2),
            at_stores(alone(2, 6)),
        ),
        Scenario::new(
            "line_tx/words",
            "objects of three words",
            objects::<[u64; 3]>(2),
            at_stores(alone(2, 6)),
        ),
        Scenario::new(
            "line_tx/copies",
            "objects of several lines, between any two stores",
            objects::<[u8; 200]>(2),
            at_stores(alone(2, 5)),
        ),
        Scenario::new(
            "line_tx/large",
            "objects of a kibibyte",
            objects::<[u64; 128]>(1),
            alone(2, 5),
        ),
        Scenario::new(
            "line_tx/pages",
            "a page-cache file",
            objects::<[u8; 31]>(2),
            pages(alone(2, 4)),
        ),
        Scenario::new(
            "line_tx/process",
            "the process dies",
            objects::<[u8; 200]>(2),
            class(Class::Process, alone(2, 5)),
        ),
        Scenario::new(
            "line_tx/threads",
            "threads change and read one object",
            objects::<[u8; 31]>(1),
            together(3, 1, 3),
        ),
        Scenario::new(
            "line_tx/threads-copies",
            "threads change and read one object of several lines",
            objects::<[u8; 100]>(1),
            together(3, 1, 3),
        ),
        Scenario::new(
            "line_tx/contention",
            "short runs of threads on one object",
            objects::<[u8; 31]>(1),
            briefly(3, 1, 2),
        )
        .with_weight(20),
        Scenario::new(
            "line_tx/contention-last",
            "the bytes beside the selector",
            Objects { hot: &[24, 30], ..objects::<[u8; 31]>(1) },
            briefly(3, 2, 3),
        )
        .with_weight(100),
    ]
}

fn checked_line_transactions() -> Vec<Scenario> {
    fn disturbed<T>(count: u64) -> Objects<T> {
        Objects { disturbed: true, ..objects(count) }
    }
    // The pool's own lines must be at rest, so its creation and what follows a crash are left alone.
    let garbage = |config| Config {
        creation: false,
        faults: Faults { disturbed: 64, ..Faults::default() },
        nested: Nested { depth: 0, one_in: 0, samples: 0 },
        ..at_stores(config)
    };
    vec![
        Scenario::new(
            "line_tx/checked",
            "garbage in the line that was being written",
            disturbed::<[u8; 31]>(1),
            garbage(alone(2, 3)),
        ),
        Scenario::new(
            "line_tx/checked-lines",
            "garbage in one of several lines",
            disturbed::<[u8; 200]>(1),
            garbage(alone(2, 3)),
        ),
        Scenario::new(
            "line_tx/checked-twice",
            "checksummed objects of two lines, crashed again and again",
            // One byte in each line: a later transaction is likely to change one as an earlier one did.
            Objects { hot: &[0, 51], ..disturbed::<[u8; 52]>(1) },
            Config { nested: Nested { depth: 2, one_in: 2, samples: 8 }, ..alone(1, 3) },
        )
        .with_weight(10),
        Scenario::new(
            "line_tx/checked-stores",
            "checksummed objects, between any two stores",
            disturbed::<[u8; 31]>(2),
            at_stores(alone(2, 5)),
        ),
    ]
}
