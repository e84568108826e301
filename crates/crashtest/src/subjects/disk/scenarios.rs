//! Scenarios of the block device.

use remanent_crashsim::{Class, Config, Faults, Nested};

use super::subject::{Disks, Kind};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, briefly, class, killed, pages, prepared, refusing, together,
};
use crate::scenario::Scenario;

/// Blocks of one leaf, few enough that operations compete; some at the edge between two leaves, and
/// the first one behind a node of leaves.
const LBAS: &[std::ops::Range<u64>] = &[0..5, 446..450, 200_703..200_706];
/// Sizes in sectors: behind all of these blocks; and in the middle of a block of the last leaf, of
/// the second, of the first.
const SIZES: &[u64] = &[1_700_000, 200_704 * 8 + 3, 448 * 8 + 5, 21];

/// Like [`SIZES`], beginning with 0.
const SMALL_FIRST: &[u64] = &[0, 21, 448 * 8 + 5, 1_700_000];

/// Blocks of three lines of the map.
const ROW: &[std::ops::Range<u64>] = &[0..8, 8..16];

/// Some of the blocks of writes of thirty blocks or so.
const LONG: &[std::ops::Range<u64>] = &[0..2, 15..17, 31..33, 48..50];

/// Blocks in one line of the map, and in the next line.
const FEW: &[std::ops::Range<u64>] = &[0..2, 6..8];

const WRITES: &[(Kind, u64)] = &[(Kind::Write, 4), (Kind::Part, 2), (Kind::Read, 1)];
const TRANSACTIONS: &[(Kind, u64)] = &[(Kind::Transact, 4), (Kind::Write, 1), (Kind::Read, 1)];
const SPILLED: &[(Kind, u64)] =
    &[(Kind::Transact, 4), (Kind::Write, 2), (Kind::Snapshot, 1), (Kind::RemoveSnapshot, 2)];
const ROWS: &[(Kind, u64)] = &[(Kind::Row, 6), (Kind::Write, 1), (Kind::Snapshot, 1)];
const LONG_WRITES: &[(Kind, u64)] = &[(Kind::Long, 4), (Kind::Write, 1), (Kind::Snapshot, 1)];
const TRIMS: &[(Kind, u64)] = &[(Kind::Write, 3), (Kind::Trim, 2), (Kind::Zero, 2)];
/// Trims have one fence, the last one after an opening that could hide a missing fence of the
/// opening.
const RECOVERED: &[(Kind, u64)] =
    &[(Kind::Write, 2), (Kind::Trim, 4), (Kind::Resize, 2), (Kind::Snapshot, 1)];
const RESIZES: &[(Kind, u64)] = &[(Kind::Write, 3), (Kind::Part, 1), (Kind::Resize, 3)];
const GROWTH: &[(Kind, u64)] =
    &[(Kind::Grow, 4), (Kind::Resize, 2), (Kind::Write, 2), (Kind::Read, 1)];
const SNAPSHOTS: &[(Kind, u64)] = &[
    (Kind::Write, 4),
    (Kind::Transact, 2),
    (Kind::Part, 1),
    (Kind::Trim, 1),
    (Kind::Snapshot, 2),
    (Kind::RemoveSnapshot, 2),
];
/// Operations that hold up the other lanes, or read what they left.
const LANES: &[(Kind, u64)] = &[
    (Kind::Write, 4),
    (Kind::Trim, 1),
    (Kind::Resize, 2),
    (Kind::Snapshot, 2),
    (Kind::RemoveSnapshot, 2),
];
/// Operations with few stores, so that a crash between any two of them is explored.
const QUICK: &[(Kind, u64)] = &[
    (Kind::Part, 1),
    (Kind::Trim, 2),
    (Kind::Resize, 2),
    (Kind::Snapshot, 2),
    (Kind::RemoveSnapshot, 1),
];
const ALL: &[(Kind, u64)] = &[
    (Kind::Write, 4),
    (Kind::Part, 2),
    (Kind::Transact, 2),
    (Kind::Trim, 1),
    (Kind::Zero, 1),
    (Kind::Resize, 1),
    (Kind::Snapshot, 1),
    (Kind::RemoveSnapshot, 1),
    (Kind::Read, 2),
];

/// A disk on a medium without write disturbance.
const DISK: Disks = Disks {
    lbas: LBAS,
    sizes: SIZES,
    mix: WRITES,
    lines_max: 24,
    spares_max: 64,
    size_max: SIZE_MAX,
    is_disturbed: false,
};

fn disturbed(config: Config) -> Config {
    Config { faults: Faults { disturbed: 6, ..Faults::default() }, ..config }
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [disks(), disturbed_disks()].into_iter().flatten().collect()
}

fn disks() -> Vec<Scenario> {
    let mut all = on_memory();
    all.extend(with_few_spares());
    all.extend(on_other_media());
    all
}

/// One thread and several, on memory.
fn on_memory() -> Vec<Scenario> {
    let with = |mix| Disks { mix, ..DISK };
    let full = Disks { mix: ALL, size_max: (OVERHEAD + 8) << 16, ..DISK };
    let spilled = Disks { mix: SPILLED, lines_max: 2, ..DISK };
    let spilled_config = Config {
        nested: Nested { depth: 1, one_in: 32, samples: 2 },
        after: 4,
        ..prepared(alone(4, 3))
    };
    let nested = Config { nested: Nested { depth: 2, one_in: 16, samples: 4 }, ..alone(3, 3) };
    let recovered = Disks { lbas: FEW, mix: RECOVERED, ..DISK };
    let recovered_config = Config {
        nested: Nested { depth: 1, one_in: 2, samples: 16 },
        creation: false,
        after: 2,
        ..alone(6, 3)
    };
    let rows = Disks { lbas: ROW, mix: ROWS, lines_max: 4, ..DISK };
    let long = Disks { lbas: LONG, mix: LONG_WRITES, lines_max: 4, ..DISK };
    let contended = Disks { lbas: FEW, mix: ALL, ..DISK };
    vec![
        Scenario::new("disk/writes", "blocks and parts of them", with(WRITES), alone(2, 5)),
        Scenario::new("disk/rows", "many blocks in a row", rows, prepared(alone(4, 4))),
        Scenario::new("disk/long", "several slabs at once", long, prepared(alone(0, 3)))
            .with_weight(4),
        Scenario::new("disk/transactions", "many blocks at once", with(TRANSACTIONS), alone(2, 5)),
        Scenario::new("disk/trim", "trim and zeros", with(TRIMS), alone(3, 5)),
        Scenario::new("disk/resize", "larger and smaller", with(RESIZES), alone(3, 5)),
        Scenario::new(
            "disk/grow",
            "larger within transactions",
            Disks { mix: GROWTH, sizes: SMALL_FIRST, ..DISK },
            alone(3, 5),
        ),
        Scenario::new(
            "disk/threads-grow",
            "three threads make it larger and smaller",
            Disks { mix: GROWTH, sizes: SMALL_FIRST, ..DISK },
            together(3, 2, 2),
        ),
        Scenario::new("disk/snapshots", "made and removed", with(SNAPSHOTS), alone(4, 6)),
        Scenario::new(
            "disk/snapshots-often",
            "made and removed, in many orders",
            with(SNAPSHOTS),
            prepared(alone(6, 10)),
        )
        .with_weight(12),
        Scenario::new("disk/spilled", "records in blocks", spilled, spilled_config).with_weight(4),
        Scenario::new("disk/full", "the pool is full", full, refusing(prepared(alone(12, 6)))),
        Scenario::new(
            "disk/threads",
            "three threads on a few blocks",
            contended.clone(),
            together(3, 3, 2),
        ),
        Scenario::new(
            "disk/threads-briefly",
            "two threads, many short runs",
            contended,
            briefly(2, 3, 2),
        )
        .with_weight(6),
        Scenario::new("disk/recovery", "crashes during recovery", with(ALL), nested),
        Scenario::new("disk/recovered", "crashes soon after one", recovered, recovered_config),
    ]
}

/// Lanes with so few spares that a block freed by one lane is soon used by another.
fn with_few_spares() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "disk/spares",
            "what is replaced is free at once",
            Disks { lbas: FEW, mix: WRITES, spares_max: 0, ..DISK },
            alone(4, 4),
        ),
        Scenario::new(
            "disk/spares-recovery",
            "what is replaced is free soon, and crashes follow",
            Disks { lbas: FEW, mix: RECOVERED, spares_max: 1, ..DISK },
            Config {
                nested: Nested { depth: 2, one_in: 16, samples: 4 },
                creation: false,
                ..alone(5, 3)
            },
        ),
        Scenario::new(
            "disk/threads-spares",
            "threads reuse what others have replaced",
            Disks { lbas: FEW, mix: WRITES, spares_max: 0, ..DISK },
            together(3, 3, 3),
        )
        .with_weight(4),
        Scenario::new(
            "disk/spares-killed",
            "killed, then power lost",
            Disks { lbas: FEW, mix: ALL, spares_max: 1, ..DISK },
            killed(alone(3, 5)),
        ),
    ]
}

/// On memory with the death of the process alone, on files, and on faulty memory.
fn on_other_media() -> Vec<Scenario> {
    let with = |mix| Disks { mix, ..DISK };
    let not_nested = Nested { depth: 0, one_in: 0, samples: 0 };
    let faulty = Faults { poisoned: 2, truncated: 2, ..Faults::default() };
    vec![
        Scenario::new(
            "disk/process",
            "the process dies",
            with(QUICK),
            class(Class::Process, Config { creation: false, ..alone(3, 2) }),
        ),
        Scenario::new(
            "disk/process-writes",
            "the process dies while it writes",
            Disks { lbas: FEW, mix: WRITES, ..DISK },
            class(Class::Process, Config { nested: not_nested, ..prepared(alone(2, 1)) }),
        ),
        Scenario::new("disk/pages", "a page-cache file", with(ALL), pages(alone(2, 4))),
        Scenario::new(
            "disk/faults",
            "memory that cannot be read",
            with(ALL),
            Config { faults: faulty, ..alone(2, 4) },
        ),
    ]
}

/// On a medium with write disturbance.
fn disturbed_disks() -> Vec<Scenario> {
    let with = |mix| Disks { mix, is_disturbed: true, ..DISK };
    let rows = Disks { lbas: ROW, lines_max: 4, ..with(ROWS) };
    let long = Disks { lbas: LONG, lines_max: 4, ..with(LONG_WRITES) };
    vec![
        Scenario::new(
            "disk/disturbed-rows",
            "many blocks in a row, with write disturbance",
            rows,
            disturbed(prepared(alone(4, 4))),
        ),
        Scenario::new(
            "disk/disturbed-long",
            "several slabs at once, with write disturbance",
            long,
            disturbed(prepared(alone(0, 3))),
        ),
        Scenario::new(
            "disk/disturbed-writes",
            "writes, with write disturbance",
            with(WRITES),
            disturbed(alone(2, 3)),
        ),
        Scenario::new(
            "disk/disturbed",
            "everything, with write disturbance",
            with(ALL),
            disturbed(alone(4, 3)),
        ),
        Scenario::new(
            "disk/disturbed-threads",
            "three threads, with write disturbance",
            with(ALL),
            disturbed(together(3, 3, 2)),
        ),
        Scenario::new(
            "disk/disturbed-lanes",
            "snapshots and sizes beside writers, with write disturbance",
            Disks { lbas: FEW, ..with(LANES) },
            disturbed(together(3, 3, 2)),
        )
        .with_weight(4),
    ]
}
