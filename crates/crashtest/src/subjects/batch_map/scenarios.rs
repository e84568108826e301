//! Scenarios of the map whose writes become safe in batches.

use remanent_crashsim::{Class, Config, Faults, Nested, Oracle, Points, SimOptions};

use super::subject::{Batched, Mix};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, by_priority, class, killed, pages, prepared, refusing, together,
};
use crate::scenario::Scenario;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = small_batch_maps();
    all.extend(filling_batch_maps());
    all.extend(shared_batch_maps());
    all.extend(paced_batch_maps());
    all
}

/// Short values, all in one segment.
const SMALL: Batched = Batched {
    keys: 5,
    lens: &[0, 8, 40, 150],
    churn: 0,
    base: 0,
    inherited: 0,
    lag_bytes: 1 << 20,
    mix: Mix::All,
    paced_by: None,
    size_max: SIZE_MAX,
};
/// Values of which three or six fill a segment.
const FILLING: Batched = Batched { lens: &[9_000, 20_000], keys: 4, ..SMALL };

fn scenario(name: &'static str, about: &'static str, subject: Batched, config: Config) -> Scenario {
    // All executed writes survive the death of the process.
    let oracle = match config.sim.class {
        Class::Process => Oracle::Durable,
        Class::Power => Oracle::Buffered,
    };
    Scenario::new(name, about, subject, Config { oracle, ..config })
}

/// Few images of each crash point, because there are many points.
fn few(config: Config) -> Config {
    Config { samples: 8, full_max: 16, ..config }
}

fn small_batch_maps() -> Vec<Scenario> {
    let eager = Batched { lag_bytes: 200, ..SMALL };
    let recovery = Config { nested: Nested { depth: 2, one_in: 2, samples: 4 }, ..alone(3, 5) };
    let stores = Config { points: Points::Stores, ..alone(2, 5) };
    let nested = Nested { depth: 2, one_in: 2, samples: 3 };
    let fresh = Config { nested, after: 3, ..alone(0, 2) };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(3, 5)
    };
    let process = class(Class::Process, alone(3, 5));
    vec![
        scenario("batch_map/sequence", "every operation", SMALL, alone(3, 7)),
        scenario("batch_map/eager", "writers make batches safe", eager, alone(3, 7)),
        scenario("batch_map/stores", "between any two stores", SMALL, stores),
        scenario("batch_map/recovery", "crashes inside recovery", SMALL, recovery),
        scenario("batch_map/killed", "killed, then power lost", SMALL, killed(alone(3, 7))),
        scenario("batch_map/fresh", "lives one after the other", SMALL, fresh),
        scenario("batch_map/faults", "lines that cannot be read", SMALL, faults),
        scenario("batch_map/process", "the process dies", SMALL, process),
        scenario("batch_map/pages", "a page-cache file", SMALL, pages(alone(3, 7))),
    ]
}

fn filling_batch_maps() -> Vec<Scenario> {
    let sparse = Batched { churn: 10, mix: Mix::Compaction, ..FILLING };
    let buried = Batched { lens: &[30_000], keys: 3, ..sparse.clone() };
    let long = Batched { lens: &[30, 70_000, 140_000], keys: 3, ..SMALL };
    // So little room that memory is soon reused.
    let size_max = (OVERHEAD + 14) << 16;
    let reused = Batched { lens: &[30, 140_000], mix: Mix::Compaction, size_max, ..long.clone() };
    let full = Batched { size_max: (OVERHEAD + 7) << 16, keys: 7, ..FILLING };
    let unpunched =
        |config: Config| Config { sim: SimOptions { releases: false, ..config.sim }, ..config };
    // The first segments lie where those of an earlier map lay, and all records have the same
    // length.
    let size_max = (OVERHEAD + 7) << 16;
    let inherited = Batched { inherited: 1_700, lens: &[40], size_max, ..SMALL };
    let fails = {
        let config = refusing(few(alone(1, 6)));
        Config { sim: SimOptions { grow_fails_at: Some(3), ..config.sim }, ..config }
    };
    let in_file = pages(few(alone(1, 6)));
    // With a few more segments the directory takes its first table.
    let many = Batched { lens: &[60_000], base: 62, mix: Mix::Compaction, ..FILLING };
    vec![
        scenario(
            "batch_map/directory",
            "more segments than the header names",
            many,
            prepared(alone(0, 8)),
        ),
        scenario("batch_map/segments", "segments are filled", FILLING, few(alone(1, 9))),
        scenario("batch_map/filled", "segments are filled, often", FILLING, few(alone(1, 9)))
            .with_weight(20),
        scenario("batch_map/compact", "segments are emptied", sparse, prepared(alone(2, 8)))
            .with_weight(40),
        scenario(
            "batch_map/buried",
            "tombstones and what they hide",
            buried,
            prepared(alone(2, 12)),
        ),
        scenario(
            "batch_map/reused",
            "segments in the place of long values",
            reused,
            unpunched(prepared(alone(1, 12))),
        ),
        scenario(
            "batch_map/inherited",
            "memory that held something else",
            inherited,
            unpunched(few(Config { creation: false, ..alone(0, 4) })),
        ),
        scenario("batch_map/long", "values longer than a segment", long, few(alone(1, 6))),
        scenario("batch_map/full", "the pool is full", full, refusing(few(alone(6, 6)))),
        scenario("batch_map/growth-fails", "the disk is full", FILLING, fails),
        scenario("batch_map/pages-segments", "segments in a file", FILLING, in_file),
    ]
}

fn shared_batch_maps() -> Vec<Scenario> {
    // Three keys have the same hash, so their writers wait for each other; with more keys two
    // writers use the log at once.
    let entries = Batched { mix: Mix::Entries, keys: 5, ..SMALL };
    let eager = Batched { lag_bytes: 200, ..entries.clone() };
    let sparse = Batched { lens: &[9_000, 20_000], churn: 6, ..entries.clone() };
    let emptying = prepared(by_priority(2, 2, 5));
    let process = class(Class::Process, together(2, 2, 5));
    let in_file = pages(together(2, 2, 4));
    vec![
        scenario("batch_map/threads", "two threads", entries.clone(), together(2, 2, 5)),
        scenario(
            "batch_map/threads-late",
            "one falls behind while the other goes on",
            Batched { mix: Mix::Batches, ..entries.clone() },
            prepared(by_priority(2, 2, 5)),
        )
        .with_weight(40),
        scenario("batch_map/threads-eager", "both make batches safe", eager, together(2, 2, 5)),
        scenario("batch_map/threads-compact", "one empties while others write", sparse, emptying),
        scenario("batch_map/threads-process", "the process dies", entries.clone(), process),
        scenario("batch_map/threads-pages", "two threads on a file", entries, in_file),
    ]
}

/// Scenarios with so many dead values from the start that the next values exceed the log's bound:
/// writers have to compact, or to wait.
fn paced_batch_maps() -> Vec<Scenario> {
    let paced = |threads| Batched {
        lens: &[20_000, 60_000],
        keys: 3,
        churn: 16,
        mix: Mix::Entries,
        paced_by: Some(threads),
        ..SMALL
    };
    let cleared = Batched { mix: Mix::All, ..paced(1) };
    let long = Batched { lens: &[30, 140_000], churn: 10, ..paced(1) };
    vec![
        scenario("batch_map/paced", "writers compact", cleared, prepared(alone(0, 6))),
        scenario(
            "batch_map/paced-long",
            "long values make writers compact",
            long,
            prepared(alone(0, 5)),
        ),
        scenario(
            "batch_map/threads-paced",
            "one compacts, others wait",
            paced(2),
            prepared(by_priority(2, 0, 4)),
        ),
        scenario(
            "batch_map/threads-paced-three",
            "one compacts, others wait or read",
            paced(3),
            prepared(together(3, 0, 3)),
        ),
    ]
}
