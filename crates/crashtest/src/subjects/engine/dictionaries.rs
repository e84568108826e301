//! Scenarios of tables whose columns are encoded by dictionaries.

use remanent_crashsim::{Config, Nested};
use remanent_engine::{Placement, Rebuild};

use super::scenarios::{raced, rows, schema, transactions};
use super::subject::{Mix, Tables};
use crate::presets::{
    OVERHEAD, alone, at_stores, few_images, interleaved, killed, killed_twice, prepared, refusing,
    together, without_room,
};
use crate::scenario::Scenario;

/// Tables whose dictionaries have their indexes in the pool.
fn in_pool(tables: Tables) -> Tables {
    Tables { dictionaries: Some(Placement::Pmem), ..tables }
}

/// Tables whose dictionaries have their indexes in DRAM.
fn in_dram(tables: Tables) -> Tables {
    Tables { dictionaries: Some(Placement::Dram), ..tables }
}

/// Every scenario with dictionaries.
pub(super) fn scenarios() -> Vec<Scenario> {
    let all = [alone_with_them(), in_trouble(), by_threads(), moved(), moved_in_trouble()];
    all.into_iter().flatten().collect()
}

fn alone_with_them() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    let in_recovery =
        |config| Config { nested: recovery, after: 6, creation: false, ..few_images(config) };
    vec![
        Scenario::new(
            "engine/dictionaries",
            "encoded columns; rows are inserted, changed and read",
            in_pool(rows()),
            prepared(alone(3, 8)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/dictionaries-stores",
            "the same; between any two stores",
            in_pool(rows()),
            at_stores(Config { creation: false, ..few_images(alone(2, 3)) }),
        ),
        Scenario::new(
            "engine/dictionaries-recovery",
            "the same; crashes inside recovery and after it",
            in_pool(rows()),
            in_recovery(alone(3, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/dictionaries-dram",
            "the same; indexes of dictionaries in DRAM, which are rebuilt when they are needed",
            Tables { dram: Some(Rebuild::Steps), ..in_dram(rows()) },
            in_recovery(alone(4, 6)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/dictionaries-keys",
            "rows get keys that they had before; crashes inside recovery and after it",
            Tables { keys: 3, mix: Mix::Keys, ..in_dram(rows()) },
            in_recovery(alone(4, 4)),
        ),
        Scenario::new(
            "engine/dictionaries-transactions",
            "encoded columns; a transaction of several statements, and statements beside it",
            in_pool(transactions()),
            few_images(prepared(alone(3, 8))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/dictionaries-ordered",
            "ordered indexes over encoded columns",
            Tables { is_ordered: true, ..in_dram(rows()) },
            few_images(prepared(alone(3, 5))),
        ),
        Scenario::new(
            "engine/dictionaries-online",
            "indexes of encoded columns are made, dropped and moved, and columns added",
            Tables { keys: 4, mix: Mix::Columns, ..in_dram(rows()) },
            few_images(prepared(alone(4, 6))),
        )
        .with_weight(2),
        Scenario::new(
            "engine/dictionaries-schema",
            "tables with encoded columns are made, used and dropped",
            in_pool(schema()),
            few_images(alone(2, 6)),
        )
        .with_weight(2),
    ]
}

fn in_trouble() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "engine/dictionaries-killed",
            "encoded columns; killed, then power lost",
            in_pool(rows()),
            few_images(killed(alone(3, 4))),
        ),
        Scenario::new(
            "engine/dictionaries-killed-twice",
            "the same; killed twice, then power lost",
            in_dram(rows()),
            killed_twice(alone(2, 2)),
        ),
        Scenario::new(
            "engine/dictionaries-full",
            "encoded columns; the pool is full",
            Tables { keys: 4_000, size_max: (OVERHEAD + 11) << 16, ..in_pool(schema()) },
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 10) }),
        ),
        Scenario::new(
            "engine/dictionaries-no-room",
            "encoded columns; each call for room fails once",
            in_pool(schema()),
            without_room(4, prepared(alone(4, 6))),
        )
        .with_weight(2),
    ]
}

fn by_threads() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "engine/dictionaries-threads",
            "encoded columns; two threads",
            in_pool(raced()),
            Config { creation: false, ..few_images(together(2, 1, 3)) },
        ),
        Scenario::new(
            "engine/dictionaries-interleaved",
            "interleavings of three threads that insert the same values into encoded columns",
            Tables { keys: 3, ..in_pool(raced()) },
            interleaved(3, 0, 2, 900),
        )
        .with_weight(40),
        Scenario::new(
            "engine/dictionaries-interleaved-dram",
            "the same; indexes of dictionaries in DRAM",
            Tables { keys: 3, ..in_dram(raced()) },
            interleaved(3, 0, 2, 900),
        )
        .with_weight(40),
    ]
}

/// Indexes of dictionaries are moved; they lie in the pool at first.
fn tables_to_move() -> Tables {
    Tables { keys: 6, mix: Mix::Moved, ..in_pool(rows()) }
}

/// The same by threads, or where there may be no room: nothing that takes several steps.
fn simple_moves() -> Tables {
    Tables { keys: 4, mix: Mix::MovedTogether, ..in_pool(rows()) }
}

/// Indexes of dictionaries that are moved.
fn moved() -> Vec<Scenario> {
    let recovery = Nested { depth: 2, one_in: 16, samples: 2 };
    let in_recovery =
        |config| Config { nested: recovery, after: 6, creation: false, ..few_images(config) };
    vec![
        Scenario::new(
            "engine/dictionaries-moved",
            "indexes of dictionaries are moved, one by one and by plans, beside statements",
            tables_to_move(),
            few_images(prepared(alone(6, 8))),
        )
        .with_weight(4),
        Scenario::new(
            "engine/dictionaries-moved-stores",
            "the same; between any two stores",
            tables_to_move(),
            at_stores(Config { creation: false, ..few_images(alone(5, 3)) }),
        ),
        Scenario::new(
            "engine/dictionaries-moved-recovery",
            "the same; crashes inside recovery and after it",
            tables_to_move(),
            in_recovery(alone(5, 5)),
        )
        .with_weight(2),
        Scenario::new(
            "engine/dictionaries-moved-threads",
            "two threads move indexes of dictionaries, and change rows",
            simple_moves(),
            Config { creation: false, ..few_images(together(2, 3, 3)) },
        ),
        Scenario::new(
            "engine/dictionaries-moved-interleaved",
            "interleavings of three threads that move indexes of dictionaries and add values",
            simple_moves(),
            interleaved(3, 2, 3, 2_000),
        )
        // Few of them add a value just while an index is built.
        .with_weight(200),
    ]
}

fn moved_in_trouble() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "engine/dictionaries-moved-killed",
            "indexes of dictionaries are moved; killed, then power lost",
            tables_to_move(),
            few_images(killed(alone(5, 4))),
        ),
        Scenario::new(
            "engine/dictionaries-moved-full",
            "indexes of dictionaries are moved; the pool is full",
            Tables { keys: 4_000, size_max: (OVERHEAD + 11) << 16, ..simple_moves() },
            refusing(Config { samples: 4, full_max: 8, creation: false, ..alone(24, 12) }),
        ),
        Scenario::new(
            "engine/dictionaries-moved-no-room",
            "indexes of dictionaries are moved; each call for room fails once",
            simple_moves(),
            without_room(4, prepared(alone(5, 6))),
        )
        .with_weight(2),
    ]
}
