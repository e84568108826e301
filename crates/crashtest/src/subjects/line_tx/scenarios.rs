//! Scenarios of line transactions.

use std::marker::PhantomData;

use remanent_crashsim::{Class, Config, Faults, Nested};

use super::handles::Cells;
use super::subject::Objects;
use crate::presets::{SIZE_MAX, alone, at_stores, briefly, class, killed, pages, together};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [line_transactions(), kinds_of_objects(), checked_line_transactions()]
        .into_iter()
        .flatten()
        .collect()
}

fn objects<T>(count: u64) -> Objects<T> {
    Objects { count, size_max: SIZE_MAX, disturbed: false, hot: &[], types: PhantomData }
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

/// Every kind of transactional object; and objects after a process was killed in a transaction.
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

fn checked_line_transactions() -> Vec<Scenario> {
    fn disturbed<T>(count: u64) -> Objects<T> {
        Objects { disturbed: true, ..objects(count) }
    }
    // The pool's own lines must be at rest, so neither creation nor the life after a crash is
    // explored.
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
            // One byte in each line, so that a later transaction is likely to make the same change
            // as an earlier one.
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
