//! Scenarios of the allocator.

use remanent_crashsim::{Class, Config, Points};
use remanent_pmem::heap::Reclamation;

use super::subject::{Allocator, HELD_BACK, LENS, RETIRED_UNDER_READER, REUSED};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, briefly, by_priority, class, killed, pages, prepared, refusing,
    together, without_room,
};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [heaps(), reused_heaps()].into_iter().flatten().collect()
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

/// Scenarios with blocks that are soon reused.
fn reused_heaps() -> Vec<Scenario> {
    // Three blocks in a chunk; each is freed as soon as no reader is left.
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
    // A chunk for each block, and few chunks: each is taken by the first thread that needs one.
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
