//! Scenarios of pools: roots, growth, space that goes back to the file system, and space that is
//! reused.

use remanent_crashsim::{Class, Config, Faults, SimOptions};

use remanent_pmem::pool::layout::HEADER_ROOT_COUNT;

use super::kinds::Kinds;
use super::subject::{Roots, Superblock};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, class, few_images, killed, pages, prepared, refusing, together,
    without_room,
};
use crate::scenario::Scenario;
use crate::subjects::heap::subject::LENS;

/// A few roots, in a pool with room for all.
fn roots() -> Roots {
    Roots {
        names: 3,
        lens: &LENS[..5],
        ballast: 0,
        fillers: 0,
        size_max: SIZE_MAX,
        reserve_bytes: 4 << 20,
        is_watched: false,
    }
}

/// The ballast leaves five chunks of the first growth.
fn nearly_full() -> Roots {
    Roots { names: 4, lens: &[24, 190_000], ballast: 249 << 16, ..roots() }
}

/// As many roots as the header chunk has entries, or one less.
fn many(fillers: u16) -> Roots {
    Roots { names: 4, lens: &[24], fillers, ..roots() }
}

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [pools(), directories(), shrinking_pools(), reused_pools()].into_iter().flatten().collect()
}

/// Roots that are created and removed, alone and beside each other, in growing files.
fn pools() -> Vec<Scenario> {
    let full = Roots { names: 4, lens: &[24, 70_000], size_max: (OVERHEAD + 5) << 16, ..roots() };
    let refused = {
        let config = refusing(alone(1, 6));
        let sim = SimOptions { grow_fails_at: Some(3), ..config.sim };
        Config { sim, ..config }
    };
    let disturbed = Config {
        creation: false,
        setup: 0,
        ops: 1,
        faults: Faults { disturbed: 64, ..Faults::default() },
        ..alone(0, 1)
    };
    vec![
        Scenario::new("pool/roots", "roots created, filled, removed", roots(), alone(2, 6)),
        Scenario::new(
            "pool/many-roots",
            "roots created, filled, removed, in many orders",
            roots(),
            prepared(alone(3, 12)),
        )
        .with_weight(10),
        Scenario::new("pool/growth", "the file grows", nearly_full(), alone(2, 5))
            .reaching(&["growth", "sync"]),
        Scenario::new("pool/growth-fails", "the disk is full", nearly_full(), refused),
        Scenario::new("pool/full", "the pool is full", full, refusing(alone(3, 6))),
        // A root that another thread has open cannot be removed.
        Scenario::new(
            "pool/threads",
            "roots, by two threads",
            roots(),
            refusing(together(2, 2, 3)),
        ),
        Scenario::new("pool/pages", "a page-cache file", roots(), pages(alone(1, 4))),
        Scenario::new("pool/killed", "killed, then power lost", roots(), killed(alone(2, 6))),
        Scenario::new("pool/disturbed", "garbage in what was being written", Superblock, disturbed),
    ]
}

/// Directory chunks that are taken for more roots.
fn directories() -> Vec<Scenario> {
    let uncreated = |config| Config { creation: false, ..config };
    vec![
        Scenario::new(
            "pool/directory",
            "more roots than the header chunk has entries",
            many(HEADER_ROOT_COUNT - 1),
            uncreated(alone(2, 8)),
        )
        .with_weight(8),
        Scenario::new(
            "pool/directory-killed",
            "the same, killed, then power lost",
            many(HEADER_ROOT_COUNT),
            uncreated(killed(alone(2, 6))),
        )
        .with_weight(4),
        Scenario::new(
            "pool/directory-full",
            "the same, where there is no chunk for more of the directory",
            Roots {
                size_max: (OVERHEAD + 2 * HEADER_ROOT_COUNT as u64 + 1) << 16,
                ..many(HEADER_ROOT_COUNT)
            },
            uncreated(refusing(alone(2, 8))),
        )
        .with_weight(4),
    ]
}

/// Memory that goes back to the file system, which may be full.
fn shrinking_pools() -> Vec<Scenario> {
    // Free chunks hold zeros, and a new root relies on them.
    let released = Roots { names: 2, lens: &[24], reserve_bytes: 0, ..roots() };
    // Runs whose first chunk, and whose last one, becomes the heap chunk of a root, which must
    // begin with zeros.
    let space = Roots { names: 3, lens: &[190_000, 600_000], ..roots() };
    vec![
        Scenario::new("pool/released", "chunks go back to the disk", released, alone(2, 6))
            .reaching(&["release", "sync"]),
        Scenario::new(
            "pool/space",
            "runs are given back to the file system, and their chunks used again",
            space.clone(),
            prepared(alone(4, 8)),
        )
        .with_weight(4)
        .reaching(&["release", "allocation"]),
        Scenario::new(
            "pool/space-process",
            "the same, and the process dies",
            space.clone(),
            class(Class::Process, prepared(alone(4, 8))),
        )
        .with_weight(6)
        .reaching(&["release", "allocation"]),
        Scenario::new(
            "pool/no-room",
            "each call for room fails once, while the file grows and shrinks",
            nearly_full(),
            without_room(6, prepared(alone(2, 5))),
        )
        .with_weight(80)
        .reaching(&["growth", "release", "no room"]),
        Scenario::new(
            "pool/space-no-room",
            "each call for room fails once, while chunks are used again",
            space,
            without_room(8, prepared(alone(4, 8))),
        )
        .with_weight(8)
        .reaching(&["release", "no room"]),
    ]
}

/// Chunks that are reused for something else.
fn reused_pools() -> Vec<Scenario> {
    // A root has two chunks. So a new root soon takes those of a removed one.
    let reused = Roots {
        names: 1,
        lens: &[24],
        size_max: (OVERHEAD + 4) << 16,
        is_watched: true,
        ..roots()
    };
    vec![
        Scenario::new(
            "pool/reused",
            "chunks of roots that are gone",
            reused,
            refusing(Config { full_max: 16, samples: 8, ..alone(16, 10) }),
        )
        .with_weight(3)
        .reaching(&[super::subject::REUSED]),
        Scenario::new(
            "pool/kinds",
            "structures of every kind in each other's memory",
            Kinds { names: 2, size_max: SIZE_MAX },
            few_images(alone(2, 5)),
        )
        .with_weight(4),
        Scenario::new(
            "pool/kinds-full",
            "structures of every kind, where there is room for few",
            Kinds { names: 2, size_max: (OVERHEAD + 14) << 16 },
            refusing(few_images(Config { creation: false, ..alone(4, 5) })),
        )
        .with_weight(4),
    ]
}
