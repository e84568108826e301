//! Scenarios of plain files.

use remanent_crashsim::{Class, Config, Faults, Nested};

use super::subject::{Files, Kind};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, briefly, class, killed, pages, prepared, refusing, together,
};
use crate::scenario::Scenario;

/// Places in one line, in the next ones, and at the end of a page.
const NEAR: &[u64] = &[0, 8, 64, 136, 4088];
/// Places at the end of the first extent, and in the next ones.
const FAR: &[u64] = &[0, 65_528, 65_536, 131_072];
/// Places in two extents, for threads: one thread takes an extent, the other thread's sync makes it
/// reachable.
const SHARED: &[u64] = &[0, 8, 65_536, 131_072];
/// Places so far apart that the pool becomes full.
const BEYOND: &[u64] = &[0, 65_536, 200_000, 400_000];
/// Whole lines, some of them neighbours.
const LINES: &[u64] = &[0, 64, 128, 512, 4096];

const WRITES: &[(Kind, u64)] = &[(Kind::Write, 4), (Kind::Put, 1), (Kind::Read, 1)];
const LIVES: &[(Kind, u64)] = &[
    (Kind::Write, 3),
    (Kind::Append, 3),
    (Kind::Abandon, 2),
    (Kind::SetLen, 2),
    (Kind::Create, 2),
    (Kind::Delete, 1),
    (Kind::Read, 1),
];
/// Atomic operations, for threads and for a full pool.
const STEPS: &[(Kind, u64)] =
    &[(Kind::Put, 6), (Kind::SetLen, 1), (Kind::Create, 1), (Kind::Delete, 1), (Kind::Read, 2)];
/// Operations that overwrite no synced bytes.
const APPENDS: &[(Kind, u64)] =
    &[(Kind::Append, 5), (Kind::SetLen, 1), (Kind::Create, 1), (Kind::Delete, 2), (Kind::Read, 1)];

/// A file on a medium without write disturbance.
const FILE: Files =
    Files { places: NEAR, unit: 8, mix: LIVES, size_max: SIZE_MAX, is_disturbed: false };

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let nested = Config { nested: Nested { depth: 2, one_in: 8, samples: 4 }, ..alone(3, 4) };
    let faulty = Faults { poisoned: 2, truncated: 2, ..Faults::default() };
    let threads = Files { mix: STEPS, ..FILE };
    let full = Files { places: BEYOND, mix: STEPS, size_max: (OVERHEAD + 4) << 16, ..FILE };
    let disturbed = Files { places: LINES, unit: 64, mix: APPENDS, is_disturbed: true, ..FILE };
    let disturbance = Faults { disturbed: 6, ..Faults::default() };
    vec![
        Scenario::new(
            "file/writes",
            "several writes, then a sync",
            Files { mix: WRITES, ..FILE },
            alone(3, 6),
        ),
        Scenario::new("file/lives", "deleted, created and cut off", FILE, alone(3, 8))
            .with_weight(4),
        Scenario::new(
            "file/extents",
            "growth from extent to extent",
            Files { places: FAR, ..FILE },
            alone(0, 6),
        ),
        Scenario::new("file/full", "the pool is full", full, refusing(prepared(alone(2, 8)))),
        Scenario::new(
            "file/threads",
            "two threads sync what both write",
            threads.clone(),
            together(2, 2, 4),
        ),
        Scenario::new(
            "file/threads-extents",
            "two threads, each with extents that the other syncs",
            Files { places: SHARED, ..threads.clone() },
            together(2, 0, 3),
        )
        .with_weight(4),
        Scenario::new(
            "file/threads-briefly",
            "two threads, many short runs",
            threads,
            briefly(2, 2, 2),
        )
        .with_weight(6),
        Scenario::new("file/recovery", "crashes during recovery", FILE, nested),
        Scenario::new("file/killed", "killed, then power lost", FILE, killed(alone(3, 6))),
        Scenario::new(
            "file/process",
            "the process dies",
            FILE,
            class(Class::Process, Config { creation: false, ..alone(3, 4) }),
        ),
        Scenario::new("file/pages", "a page-cache file", FILE, pages(alone(3, 5))),
        Scenario::new(
            "file/disturbed",
            "appended by lines, with write disturbance",
            disturbed,
            Config { faults: disturbance, ..alone(3, 6) },
        ),
        Scenario::new(
            "file/faults",
            "memory that cannot be read",
            FILE,
            Config { faults: faulty, ..alone(2, 4) },
        ),
    ]
}
