//! Scenarios of the index of rows.

use remanent_crashsim::{Config, Nested};

use super::subject::{Index, Mix};
use super::table::Indexed;
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, by_priority, few_images, interleaved, killed, pages,
    prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [by_one_thread(), chained(), of_tables(), in_trouble(), by_threads()]
        .into_iter()
        .flatten()
        .collect()
}

/// Segments of two lines, which a few rows fill.
fn index(mix: Mix) -> Index {
    Index { keys: 24, prepared: 0, bits: 1, mix, size_max: SIZE_MAX }
}

/// Keys whose rows are in chains.
fn chains(mix: Mix) -> Index {
    Index { keys: 2, prepared: 7, ..index(mix) }
}

/// A key whose rows fill both lines, 13 words, and a first block of 11, one of which was a word of
/// the lines.
fn emptied() -> Index {
    Index { keys: 1, prepared: 13 - 1 + 11, ..index(Mix::All) }
}

fn by_one_thread() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 2, samples: 4 };
    vec![
        Scenario::new(
            "row_index/rows",
            "every operation, in segments of the usual size",
            Index { keys: 6, bits: 8, ..index(Mix::All) },
            alone(4, 8),
        ),
        Scenario::new("row_index/growth", "segments are split", index(Mix::All), alone(12, 8))
            .with_weight(2),
        Scenario::new(
            "row_index/growth-stores",
            "the same; between any two stores",
            index(Mix::All),
            at_stores(alone(13, 4)),
        ),
        Scenario::new(
            "row_index/growth-recovery",
            "the same; crashes inside recovery and after it",
            index(Mix::All),
            Config { nested: recovery, after: 6, ..alone(13, 4) },
        ),
    ]
}

fn chained() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 2, samples: 4 };
    vec![
        Scenario::new(
            "row_index/chains",
            "more rows of a key than its buckets have room for",
            chains(Mix::All),
            alone(3, 10),
        )
        .with_weight(3),
        Scenario::new(
            "row_index/chains-stores",
            "the same; between any two stores",
            chains(Mix::All),
            at_stores(alone(4, 5)),
        ),
        Scenario::new(
            "row_index/chains-recovery",
            "the same; crashes inside recovery and after it",
            chains(Mix::All),
            Config { nested: recovery, after: 6, ..alone(4, 5) },
        ),
        Scenario::new(
            "row_index/chains-emptied",
            "blocks come before a full one, and are taken out again",
            emptied(),
            alone(1, 8),
        )
        .with_weight(4),
        Scenario::new(
            "row_index/chains-emptied-stores",
            "the same; between any two stores",
            emptied(),
            at_stores(alone(1, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "row_index/chains-long",
            "chains of several blocks",
            Index { prepared: 60, ..chains(Mix::All) },
            prepared(alone(4, 8)),
        )
        .with_weight(2),
        Scenario::new(
            "row_index/pages",
            "on a page-cache file",
            index(Mix::All),
            pages(alone(12, 4)),
        ),
    ]
}

fn of_tables() -> Vec<Scenario> {
    let table = Indexed { keys: 3, prepared: 3, ensures: false, size_max: SIZE_MAX };
    let chained = Indexed { keys: 1, prepared: 13 - 1 + 9, ..table.clone() };
    let killed_table = Indexed { ensures: true, ..table.clone() };
    let again = Nested { depth: 2, one_in: 32, samples: 2 };
    vec![
        Scenario::new(
            "row_index/table",
            "steps on an index and its rows in one heap",
            table.clone(),
            prepared(alone(3, 8)),
        )
        .with_weight(12),
        Scenario::new(
            "row_index/table-chains",
            "the same, with more rows of a key than its buckets have room for",
            chained,
            prepared(alone(2, 8)),
        )
        .with_weight(12),
        Scenario::new(
            "row_index/table-recovery",
            "the same; crashes inside recovery and after it",
            table,
            Config { nested: again, after: 4, ..prepared(alone(3, 4)) },
        )
        .with_weight(8),
        Scenario::new(
            "row_index/table-killed",
            "the same; killed, then power lost",
            killed_table,
            few_images(killed(alone(3, 6))),
        )
        .with_weight(12),
    ]
}

fn in_trouble() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "row_index/killed",
            "killed, then power lost",
            index(Mix::Additions),
            killed(alone(12, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "row_index/chains-killed",
            "the same, with chains",
            chains(Mix::Additions),
            killed(alone(3, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "row_index/full",
            "the pool is full",
            Index { size_max: (OVERHEAD + 3) << 16, ..index(Mix::All) },
            refusing(Config { samples: 8, full_max: 16, ..alone(20, 10) }),
        ),
        Scenario::new(
            "row_index/no-room",
            "each call for room fails once",
            index(Mix::All),
            without_room(4, prepared(alone(13, 6))),
        )
        .with_weight(2),
    ]
}

fn by_threads() -> Vec<Scenario> {
    vec![
        Scenario::new("row_index/threads", "two threads", index(Mix::Blind), together(2, 12, 4)),
        Scenario::new(
            "row_index/threads-priority",
            "two threads, in long stretches",
            index(Mix::Blind),
            by_priority(2, 12, 4),
        ),
        Scenario::new(
            "row_index/threads-chains",
            "three threads with rows of the same keys",
            chains(Mix::Blind),
            together(3, 3, 3),
        ),
        Scenario::new(
            "row_index/partitions-growth",
            "threads add rows of partitions while others split segments",
            index(Mix::Partitions),
            interleaved(3, 10, 4, 600),
        )
        .with_weight(400),
        // Crashed at their end alone: what a thread has found is durable by then.
        Scenario::new(
            "row_index/readers-growth",
            "threads look up rows while others split segments",
            index(Mix::Reads),
            interleaved(3, 12, 6, 1200),
        )
        .with_weight(600),
    ]
}
