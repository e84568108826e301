//! Scenarios of the engine.

use remanent_crashsim::{Config, Nested};
use remanent_engine::Rebuild;

use super::promises::Promises;
use super::subject::{Mix, SPLIT, Tables};
use super::unique::Works;
use super::{copies, dictionaries, foreign, sequences, serial, sessions};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, by_priority, few_images, interleaved, killed,
    killed_twice, pages, prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [
        by_one_thread(),
        of_transactions(),
        going_back(),
        of_many_rows(),
        of_transfers(),
        of_unique_keys(),
        foreign::scenarios(),
        in_dram(),
        ordered(),
        ordered_in_trouble(),
        online(),
        sequences::scenarios(),
        columns(),
        dictionaries::scenarios(),
        copies::scenarios(),
        promises(),
        serial::scenarios(),
        sessions::scenarios(&rows()),
        in_trouble(),
        by_threads(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Tiles of three rows, which a few inserts fill.
pub(super) fn rows() -> Tables {
    Tables {
        keys: 5,
        tile_rows: 3,
        more_indexes: 0,
        is_ordered: false,
        dictionaries: None,
        mix: Mix::Rows,
        waits: false,
        dram: None,
        size_max: SIZE_MAX,
    }
}

pub(super) fn raced() -> Tables {
    Tables { mix: Mix::Together, ..rows() }
}

pub(super) fn transactions() -> Tables {
    Tables { keys: 4, mix: Mix::Transactions, ..rows() }
}

/// The same in a pool that a few rows fill: there are many keys.
fn full(tables: Tables) -> Tables {
    Tables { keys: 4_000, size_max: (OVERHEAD + 9) << 16, ..tables }
}

pub(super) fn schema() -> Tables {
    Tables { keys: 4, mix: Mix::Schema, ..rows() }
}

fn by_one_thread() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 8, samples: 3 };
    vec![
        Scenario::new("engine/rows", "rows are inserted and read", rows(), prepared(alone(4, 8)))
            .with_weight(4),
        Scenario::new(
            "engine/rows-stores",
            "the same; between any two stores",
            rows(),
            at_stores(Config { creation: false, ..few_images(alone(5, 3)) }),
        )
        .with_weight(2),
        Scenario::new(
            "engine/rows-recovery",
            "the same; crashes inside recovery and after it",
            rows(),
            Config { nested: recovery, after: 6, creation: false, ..few_images(alone(4, 4)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/keys",
            "rows get keys that they had before; crashes inside recovery and after it",
            Tables { keys: 3, mix: Mix::Keys, ..rows() },
            Config { nested: recovery, after: 6, creation: false, ..few_images(alone(6, 6)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/schema",
            "tables are made, used and dropped",
            schema(),
            few_images(alone(2, 8)),
        ),
        Scenario::new(
            "engine/schema-recovery",
            "the same; crashes inside recovery and after it",
            schema(),
            Config { nested: recovery, after: 6, creation: false, ..few_images(alone(2, 4)) },
        ),
        Scenario::new(
            "engine/schema-indexes",
            "tables with more indexes than two chunks have room for",
            Tables { more_indexes: 12, ..schema() },
            Config { creation: false, ..few_images(alone(0, 3)) },
        ),
        Scenario::new(
            "engine/schema-large",
            "tables with tiles of whole chunks are made, used and dropped",
            Tables { keys: 3, tile_rows: u32::MAX, mix: Mix::Drops, ..rows() },
            Config { creation: false, ..few_images(alone(4, 6)) },
        )
        .with_weight(4),
        Scenario::new(
            "engine/rows-pages",
            "on a page-cache file",
            rows(),
            pages(prepared(alone(4, 4))),
        ),
    ]
}

fn of_transactions() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 8, samples: 3 };
    let in_recovery =
        |config| Config { nested: recovery, after: 8, creation: false, ..few_images(config) };
    vec![
        Scenario::new(
            "engine/transactions",
            "a transaction of several statements, and statements beside it",
            transactions(),
            prepared(alone(4, 12)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/transactions-stores",
            "the same; between any two stores",
            transactions(),
            at_stores(Config { creation: false, ..few_images(alone(6, 4)) }),
        )
        .with_weight(2),
        Scenario::new(
            "engine/transactions-recovery",
            "the same; crashes inside recovery and after it",
            transactions(),
            in_recovery(alone(6, 8)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/transactions-killed",
            "the same; killed, then power lost",
            transactions(),
            killed(alone(6, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/transactions-killed-twice",
            "the same; killed twice, then power lost",
            transactions(),
            killed_twice(alone(6, 4)),
        ),
        Scenario::new(
            "engine/transactions-pages",
            "the same, on a page-cache file",
            transactions(),
            pages(prepared(alone(6, 5))),
        ),
        Scenario::new(
            "engine/transactions-no-room",
            "the same; each call for room fails once",
            transactions(),
            without_room(4, prepared(alone(6, 6))),
        ),
        Scenario::new(
            "engine/transactions-full",
            "the same; the pool is full",
            full(transactions()),
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 12) }),
        ),
    ]
}

/// Transactions that go back to earlier statements.
fn going_back() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 8, samples: 3 };
    let in_recovery =
        |config| Config { nested: recovery, after: 8, creation: false, ..few_images(config) };
    vec![
        Scenario::new(
            "engine/back",
            "a transaction goes back to earlier statements",
            Tables { mix: Mix::Back, ..transactions() },
            prepared(alone(4, 12)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/back-recovery",
            "the same; crashes inside recovery and after it",
            Tables { mix: Mix::Back, ..transactions() },
            in_recovery(alone(6, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/back-killed",
            "the same; killed, then power lost",
            Tables { mix: Mix::Back, ..transactions() },
            few_images(killed(alone(6, 5))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/back-killed-twice",
            "the same; killed twice, then power lost",
            Tables { mix: Mix::Back, ..transactions() },
            killed_twice(alone(6, 3)),
        ),
        Scenario::new(
            "engine/back-no-room",
            "the same; each call for room fails once",
            Tables { mix: Mix::Back, ..transactions() },
            without_room(4, prepared(alone(6, 6))),
        ),
        Scenario::new(
            "engine/back-full",
            "the same; the pool is full",
            full(Tables { mix: Mix::Back, ..transactions() }),
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 12) }),
        ),
    ]
}

/// Batches that need another list of rows than those before.
fn of_many_rows() -> Vec<Scenario> {
    let many = || Tables { keys: 70, tile_rows: 64, mix: Mix::Many, ..rows() };
    let nested = Nested { depth: 1, one_in: 64, samples: 2 };
    let config = || Config { nested, creation: false, ..few_images(alone(3, 4)) };
    let splits = || Tables { mix: Mix::Splits, ..many() };
    let none = Nested { depth: 0, one_in: 0, samples: 0 };
    // Each image has many rows, all of which are looked up by all indexes.
    let split = Config { full_max: 1, samples: 1, nested: none, creation: false, ..alone(4, 2) };
    vec![
        Scenario::new(
            "engine/transactions-many",
            "batches of many rows, and of more than before",
            many(),
            config(),
        ),
        Scenario::new(
            "engine/leaves",
            "ordered indexes get more rows than a leaf has room for",
            Tables { keys: 80, is_ordered: true, ..splits() },
            split,
        )
        .reaching(&[SPLIT]),
    ]
}

/// Rows that get unique keys in transactions of threads.
fn keyed(works: Works) -> Tables {
    Tables { keys: 4, mix: Mix::Keyed(works), ..rows() }
}

/// Transactions of threads that want the same unique keys.
fn of_unique_keys() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "engine/unique-batches",
            "threads whose batches give rows unique keys, and are taken back",
            keyed(Works::TakenBack),
            interleaved(2, 2, 2, 600),
        )
        .with_weight(2_000),
        Scenario::new(
            "engine/unique-commits",
            "threads whose transactions give rows unique keys",
            keyed(Works::Committed),
            interleaved(2, 2, 2, 350),
        )
        .with_weight(4_000),
        Scenario::new(
            "engine/renewals",
            "statements that look for a row that a transaction exchanges for one with the same key",
            keyed(Works::Renewals),
            interleaved(2, 2, 2, 600),
        )
        .with_weight(2_000),
        Scenario::new(
            "engine/unique-crashed",
            "the same, and batches that are taken back; crashes meanwhile",
            keyed(Works::TakenBack),
            Config { creation: false, ..few_images(together(2, 3, 3)) },
        )
        .with_weight(2),
    ]
}

/// Transactions of threads that are in each other's way.
fn of_transfers() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "engine/transfers",
            "transactions of two threads on the same rows",
            Tables { keys: 3, mix: Mix::Transfers, ..rows() },
            Config { creation: false, ..together(2, 3, 3) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/transfers-waiting",
            "the same; statements wait, and find who waits for them",
            Tables { keys: 3, mix: Mix::Transfers, waits: true, ..rows() },
            interleaved(3, 2, 2, 900),
        )
        .with_weight(20),
        Scenario::new(
            "engine/transfers-interleaved",
            "interleavings of transactions of three threads on the same rows",
            Tables { keys: 3, mix: Mix::Transfers, ..rows() },
            interleaved(3, 2, 2, 900),
        )
        .with_weight(40),
    ]
}

/// Indexes that a crash takes away.
fn in_dram() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 8, samples: 3 };
    vec![
        Scenario::new(
            "engine/dram",
            "indexes in DRAM, which opening rebuilds",
            Tables { dram: Some(Rebuild::Wait), ..rows() },
            Config { creation: false, ..few_images(prepared(alone(4, 8))) },
        ),
        Scenario::new(
            "engine/dram-steps",
            "indexes in DRAM, which are rebuilt beside operations; crashes meanwhile",
            Tables { dram: Some(Rebuild::Steps), ..rows() },
            Config { nested: recovery, after: 8, creation: false, ..few_images(alone(6, 6)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/dram-transactions",
            "the same, with a transaction of several statements",
            Tables { dram: Some(Rebuild::Steps), ..transactions() },
            Config { nested: recovery, after: 8, creation: false, ..few_images(alone(6, 6)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/dram-keys",
            "the same; rows get keys that they had before",
            Tables { keys: 3, mix: Mix::Keys, dram: Some(Rebuild::Steps), ..rows() },
            Config { nested: recovery, after: 8, creation: false, ..few_images(alone(6, 6)) },
        )
        .with_weight(2),
    ]
}

/// Indexes that are trees.
fn ordered() -> Vec<Scenario> {
    // Each life revives the leaves of three trees, which are many crash points.
    let recovery = Nested { depth: 2, one_in: 32, samples: 2 };
    let in_recovery =
        |config| Config { nested: recovery, after: 6, creation: false, ..few_images(config) };
    let rows = || Tables { is_ordered: true, ..rows() };
    let transactions = || Tables { is_ordered: true, ..transactions() };
    vec![
        Scenario::new(
            "engine/ordered",
            "ordered indexes, whose ranges are read",
            rows(),
            prepared(alone(4, 8)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/ordered-stores",
            "the same; between any two stores",
            rows(),
            at_stores(Config { creation: false, ..few_images(alone(4, 2)) }),
        ),
        Scenario::new(
            "engine/ordered-recovery",
            "the same; crashes inside recovery and after it",
            rows(),
            in_recovery(alone(3, 3)),
        ),
        Scenario::new(
            "engine/ordered-keys",
            "ordered indexes; rows get keys that they had before; crashes inside recovery",
            Tables { keys: 3, mix: Mix::Keys, ..rows() },
            in_recovery(alone(4, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/ordered-transactions",
            "ordered indexes; a transaction of several statements, and statements beside it",
            transactions(),
            prepared(alone(4, 12)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/ordered-transactions-recovery",
            "the same; crashes inside recovery and after it",
            transactions(),
            in_recovery(alone(4, 5)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/ordered-schema",
            "tables with ordered indexes are made, used and dropped",
            Tables { is_ordered: true, ..schema() },
            alone(2, 8),
        ),
        Scenario::new(
            "engine/ordered-dram",
            "ordered indexes in DRAM, which are rebuilt beside operations; crashes meanwhile",
            Tables { dram: Some(Rebuild::Steps), ..transactions() },
            in_recovery(alone(6, 6)),
        )
        .with_weight(2),
    ]
}

fn ordered_in_trouble() -> Vec<Scenario> {
    let rows = || Tables { is_ordered: true, ..rows() };
    let schema = || Tables { is_ordered: true, ..schema() };
    vec![
        Scenario::new(
            "engine/ordered-killed",
            "ordered indexes; killed, then power lost",
            rows(),
            few_images(killed(alone(4, 3))),
        ),
        Scenario::new(
            "engine/ordered-full",
            "ordered indexes; the pool is full",
            full(schema()),
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 10) }),
        ),
        Scenario::new(
            "engine/ordered-no-room",
            "ordered indexes; each call for room fails once",
            schema(),
            without_room(4, prepared(alone(6, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/ordered-transactions-no-room",
            "ordered indexes and transactions; each call for room fails once",
            Tables { is_ordered: true, ..transactions() },
            without_room(4, prepared(alone(6, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/ordered-threads",
            "ordered indexes; two threads",
            Tables { is_ordered: true, ..raced() },
            Config { creation: false, ..together(2, 3, 3) },
        ),
        Scenario::new(
            "engine/ordered-interleaved",
            "interleavings of three threads that insert the same keys into ordered indexes",
            Tables { keys: 3, is_ordered: true, ..raced() },
            interleaved(3, 1, 3, 900),
        )
        .with_weight(100),
    ]
}

/// Indexes that are made, dropped and moved.
fn online() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    let in_recovery =
        |config| Config { nested: recovery, after: 6, creation: false, ..few_images(config) };
    let tables = || Tables { keys: 4, mix: Mix::Online, ..rows() };
    let raced = || Tables { keys: 3, mix: Mix::OnlineTogether, ..rows() };
    vec![
        Scenario::new(
            "engine/online-planned",
            "all indexes are placed by plans, beside statements; crashes between the moves",
            Tables { keys: 3, mix: Mix::Planned, ..rows() },
            Config { creation: false, ..few_images(alone(3, 4)) },
        ),
        Scenario::new(
            "engine/online",
            "indexes are made, dropped and moved beside statements and a transaction",
            tables(),
            prepared(alone(6, 10)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/online-stores",
            "the same; between any two stores",
            tables(),
            at_stores(Config { creation: false, ..few_images(alone(6, 3)) }),
        ),
        Scenario::new(
            "engine/online-recovery",
            "the same; crashes inside recovery and after it",
            tables(),
            in_recovery(alone(6, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/online-killed",
            "the same; killed, then power lost",
            tables(),
            few_images(killed(alone(6, 4))),
        ),
        Scenario::new(
            "engine/online-full",
            "the same; the pool is full",
            Tables { keys: 4_000, size_max: (OVERHEAD + 11) << 16, ..tables() },
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 12) }),
        ),
        Scenario::new(
            "engine/online-no-room",
            "the same; each call for room fails once",
            tables(),
            without_room(4, prepared(alone(6, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/online-threads",
            "indexes are made, dropped and moved by two threads that change rows, too",
            raced(),
            Config { creation: false, ..few_images(together(2, 3, 4)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/online-interleaved",
            "interleavings of three threads that make, drop and move indexes, and change rows",
            raced(),
            interleaved(3, 2, 3, 2_000),
        )
        .with_weight(40),
    ]
}

/// Changes of the schema in transactions.
fn promises() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 32, samples: 2 };
    let all = || Promises { is_raced: false, size_max: SIZE_MAX };
    vec![
        Scenario::new(
            "engine/promises",
            "a transaction changes the schema, beside statements of others",
            all(),
            few_images(alone(4, 10)),
        )
        .with_weight(6),
        Scenario::new(
            "engine/promises-stores",
            "the same; between any two stores",
            all(),
            at_stores(Config { creation: false, ..few_images(alone(6, 4)) }),
        ),
        Scenario::new(
            "engine/promises-recovery",
            "the same; crashes inside recovery and after it",
            all(),
            Config { nested: recovery, after: 6, creation: false, ..few_images(alone(6, 6)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/promises-killed",
            "the same; killed, then power lost",
            all(),
            few_images(killed(alone(4, 6))),
        ),
        Scenario::new(
            "engine/promises-full",
            "the same; the pool is full",
            Promises { size_max: (OVERHEAD + 9) << 16, ..all() },
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 12) }),
        ),
        Scenario::new(
            "engine/promises-no-room",
            "the same; each call for room fails once",
            all(),
            without_room(4, prepared(alone(6, 6))),
        ),
        Scenario::new(
            "engine/promises-interleaved",
            "interleavings of three threads, two of which change the schema in transactions",
            Promises { is_raced: true, size_max: SIZE_MAX },
            interleaved(3, 2, 2, 900),
        )
        .with_weight(20),
    ]
}

/// Columns that are added.
fn columns() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    let tables = || Tables { keys: 4, mix: Mix::Columns, ..rows() };
    let raced = || Tables { keys: 3, mix: Mix::ColumnsTogether, ..rows() };
    vec![
        Scenario::new(
            "engine/columns",
            "columns are added beside statements, a transaction, and changes of indexes",
            tables(),
            prepared(alone(8, 12)),
        )
        .with_weight(4),
        Scenario::new(
            "engine/columns-stores",
            "the same; between any two stores",
            tables(),
            at_stores(Config { creation: false, ..few_images(alone(10, 3)) }),
        ),
        Scenario::new(
            "engine/columns-recovery",
            "the same; crashes inside recovery and after it",
            tables(),
            Config { nested: recovery, after: 6, creation: false, ..few_images(alone(10, 6)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/columns-killed",
            "the same; killed, then power lost",
            tables(),
            few_images(killed(alone(8, 5))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/columns-full",
            "the same; the pool is full",
            Tables { keys: 4_000, size_max: (OVERHEAD + 11) << 16, ..tables() },
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 12) }),
        ),
        Scenario::new(
            "engine/columns-no-room",
            "the same; each call for room fails once",
            tables(),
            without_room(4, prepared(alone(8, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/columns-threads",
            "columns are added by two threads that change rows, too",
            raced(),
            Config { creation: false, ..few_images(together(2, 6, 4)) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/columns-interleaved",
            "interleavings of three threads that add columns, and change rows",
            raced(),
            interleaved(3, 6, 3, 1_200),
        )
        .with_weight(40),
    ]
}

fn in_trouble() -> Vec<Scenario> {
    vec![
        Scenario::new("engine/killed", "killed, then power lost", rows(), killed(alone(4, 4)))
            .with_weight(2),
        Scenario::new(
            "engine/killed-twice",
            "killed twice, then power lost",
            rows(),
            killed_twice(alone(4, 3)),
        ),
        Scenario::new(
            "engine/schema-killed",
            "tables are made and dropped; killed, then power lost",
            schema(),
            killed(alone(1, 4)),
        ),
        Scenario::new(
            "engine/rows-full",
            "the pool is full",
            full(schema()),
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 10) }),
        ),
        Scenario::new(
            "engine/rows-no-room",
            "each call for room fails once",
            schema(),
            without_room(4, prepared(alone(6, 6))),
        )
        .with_weight(2),
    ]
}

fn by_threads() -> Vec<Scenario> {
    let threads = Config { creation: false, ..together(2, 3, 3) };
    vec![
        Scenario::new("engine/threads", "two threads", raced(), threads),
        Scenario::new(
            "engine/threads-priority",
            "two threads, in long stretches",
            raced(),
            Config { creation: false, ..by_priority(2, 3, 3) },
        ),
        Scenario::new(
            "engine/threads-keys",
            "three threads that insert the same keys",
            Tables { keys: 2, ..raced() },
            Config { creation: false, ..together(3, 0, 2) },
        )
        .with_weight(2),
        Scenario::new(
            "engine/threads-interleaved",
            "interleavings of three threads that insert the same keys",
            Tables { keys: 3, ..raced() },
            interleaved(3, 1, 3, 900),
        )
        .with_weight(100),
        Scenario::new(
            "engine/threads-schema",
            "two threads that make and drop tables, too",
            schema(),
            Config { creation: false, ..few_images(together(2, 1, 3)) },
        ),
    ]
}
