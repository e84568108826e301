//! Scenarios of vectors of words and of records, which change or only grow.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Nested};

use super::subject::{Mix, Vectors};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, few_images, killed, pages,
    prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;

/// A record that crosses lines.
type Record = [u64; 5];

/// Words that fit into run 0.
const RUN: u64 = 8192;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [by_one_thread(), by_runs(), in_trouble(), by_threads()].into_iter().flatten().collect()
}

fn vectors<T>(mix: Mix) -> Vectors<T> {
    Vectors { base: 0, counts: &[0, 1, 3, 9], mix, size_max: SIZE_MAX, element: PhantomData }
}

fn by_one_thread() -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 2, samples: 4 };
    vec![
        Scenario::new("vector/words", "every operation", vectors::<u64>(Mix::All), alone(4, 10)),
        Scenario::new(
            "vector/records",
            "every operation, on elements that cross lines",
            vectors::<Record>(Mix::All),
            alone(4, 10),
        ),
        Scenario::new(
            "vector/sets",
            "elements change again and again",
            vectors::<Record>(Mix::Sets),
            alone(4, 10),
        ),
        Scenario::new(
            "vector/stores",
            "between any two stores",
            vectors::<Record>(Mix::All),
            at_stores(alone(3, 6)),
        ),
        Scenario::new(
            "vector/recovery",
            "crashes inside recovery and after it",
            vectors::<Record>(Mix::All),
            Config { nested: again, after: 5, ..alone(4, 6) },
        ),
        Scenario::new(
            "vector/pages",
            "a page-cache file",
            vectors::<Record>(Mix::All),
            pages(alone(3, 8)),
        ),
        Scenario::new(
            "vector/process",
            "the process dies",
            vectors::<Record>(Mix::All),
            class(Class::Process, alone(4, 8)),
        ),
        Scenario::new(
            "vector/killed",
            "killed, then power lost",
            vectors::<Record>(Mix::All),
            killed(alone(3, 8)),
        )
        .with_weight(4),
        Scenario::new(
            "vector/append",
            "elements are added and read where they lie",
            vectors::<Record>(Mix::Appends),
            alone(4, 8),
        ),
    ]
}

fn by_runs() -> Vec<Scenario> {
    let near = |mix| Vectors { base: RUN - 6, ..vectors::<u64>(mix) };
    let many = &[2, 8_191, 8_192, 8_193, 30_000];
    vec![
        Scenario::new(
            "vector/runs",
            "runs are taken and given back",
            near(Mix::All),
            prepared(alone(0, 8)),
        )
        .with_weight(2),
        Scenario::new(
            "vector/runs-recovery",
            "runs are taken and given back, and recovery crashes",
            near(Mix::All),
            Config { nested: Nested { depth: 2, one_in: 8, samples: 3 }, ..prepared(alone(0, 6)) },
        ),
        Scenario::new(
            "vector/runs-killed",
            "runs are taken and given back; killed, then power lost",
            near(Mix::All),
            killed(alone(0, 6)),
        ),
        Scenario::new(
            "vector/many",
            "many elements at once, over several runs",
            Vectors { counts: many, ..vectors::<u64>(Mix::All) },
            few_images(prepared(alone(1, 5))),
        )
        .with_weight(2),
    ]
}

fn in_trouble() -> Vec<Scenario> {
    let near = |mix| Vectors { base: RUN - 6, ..vectors::<u64>(mix) };
    let full = Vectors {
        counts: &[1, 5, 9_000, 30_000],
        size_max: (OVERHEAD + 6) << 16,
        ..vectors::<u64>(Mix::All)
    };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(4, 5)
    };
    vec![
        Scenario::new(
            "vector/full",
            "the pool is full",
            full,
            refusing(few_images(prepared(alone(1, 8)))),
        )
        .with_weight(2),
        Scenario::new(
            "vector/no-room",
            "each call for room fails once",
            near(Mix::All),
            without_room(4, prepared(alone(0, 8))),
        )
        .with_weight(4),
        Scenario::new(
            "vector/faults",
            "lines that cannot be read, a file cut short",
            vectors::<Record>(Mix::All),
            faults,
        ),
    ]
}

fn by_threads() -> Vec<Scenario> {
    let near = |mix| Vectors { base: RUN - 4, ..vectors::<u64>(mix) };
    vec![
        Scenario::new(
            "vector/threads",
            "two threads, every operation",
            vectors::<Record>(Mix::Shared),
            together(2, 3, 4),
        )
        .with_weight(4),
        Scenario::new(
            "vector/threads-three",
            "three threads add, and share fences",
            vectors::<Record>(Mix::Appends),
            together(3, 1, 3),
        )
        .with_weight(4),
        Scenario::new(
            "vector/threads-brief",
            "short runs of threads on few elements",
            vectors::<Record>(Mix::Shared),
            briefly(3, 2, 2),
        )
        .with_weight(30),
        Scenario::new(
            "vector/threads-readers",
            "threads read what others just wrote",
            vectors::<u64>(Mix::Reads),
            briefly(3, 2, 2),
        )
        .with_weight(40),
        Scenario::new(
            "vector/threads-runs",
            "two threads take runs and give them back",
            near(Mix::Shared),
            prepared(by_priority(2, 0, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "vector/threads-pages",
            "two threads on a page-cache file",
            vectors::<u64>(Mix::Shared),
            pages(briefly(2, 2, 3)),
        )
        .with_weight(8),
        Scenario::new(
            "vector/threads-killed",
            "two threads killed, then power lost",
            vectors::<Record>(Mix::Shared),
            killed(together(2, 2, 3)),
        )
        .with_weight(2),
    ]
}
