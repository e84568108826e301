//! Scenarios of logs.

use remanent_crashsim::{Class, Config, Faults, Nested};

use super::subject::{Logs, Mix};
use crate::presets::{
    OVERHEAD, SIZE_MAX, alone, at_stores, briefly, by_priority, class, few_images, killed, pages,
    prepared, refusing, together, without_room,
};
use crate::scenario::Scenario;

const SEGMENT_LEN: u64 = 1 << 20;

/// Every scenario of the subject.
pub(super) fn scenarios() -> Vec<Scenario> {
    [by_one_thread(), by_segments(), by_threads()].into_iter().flatten().collect()
}

fn logs(mix: Mix, lens: &'static [u64]) -> Logs {
    Logs { base_len: 0, lens, mix, size_max: SIZE_MAX }
}

const LENS: &[u64] = &[0, 1, 8, 40, 100, 700];

fn by_one_thread() -> Vec<Scenario> {
    let again = Nested { depth: 2, one_in: 2, samples: 4 };
    let faults = Config {
        faults: Faults { poisoned: 4, truncated: 1, ..Faults::default() },
        samples: 4,
        full_max: 4,
        ..alone(4, 5)
    };
    vec![
        Scenario::new("log/sequence", "every operation", logs(Mix::All, LENS), alone(4, 10)),
        Scenario::new(
            "log/stores",
            "between any two stores",
            logs(Mix::All, &[0, 1, 40]),
            at_stores(alone(3, 6)),
        ),
        Scenario::new(
            "log/recovery",
            "crashes inside recovery and after it, on records of one length",
            logs(Mix::All, &[40]),
            Config { nested: again, after: 5, ..alone(4, 5) },
        )
        .with_weight(2),
        Scenario::new(
            "log/pages",
            "a page-cache file",
            logs(Mix::All, &[0, 40, 5_000]),
            pages(alone(3, 8)),
        ),
        Scenario::new(
            "log/process",
            "the process dies",
            logs(Mix::All, LENS),
            class(Class::Process, alone(4, 8)),
        ),
        Scenario::new(
            "log/killed",
            "killed, then power lost",
            logs(Mix::All, &[0, 40, 200]),
            killed(alone(3, 7)),
        )
        .with_weight(4),
        Scenario::new(
            "log/faults",
            "lines that cannot be read, a file cut short",
            logs(Mix::All, LENS),
            faults,
        ),
    ]
}

fn by_segments() -> Vec<Scenario> {
    // The first segment then has room for a few more records.
    let near = Logs { base_len: SEGMENT_LEN - 600, ..logs(Mix::All, &[0, 40, 200]) };
    let long = Logs { base_len: 0, ..logs(Mix::All, &[40, 400_000, SEGMENT_LEN + 100]) };
    let full = Logs { size_max: (OVERHEAD + 40) << 16, ..logs(Mix::All, &[40, 400_000, 900_000]) };
    vec![
        Scenario::new(
            "log/segments",
            "segments are taken and given back",
            near.clone(),
            prepared(alone(0, 8)),
        )
        .with_weight(2),
        Scenario::new(
            "log/segments-recovery",
            "segments are taken and given back, and recovery crashes",
            near.clone(),
            Config { nested: Nested { depth: 2, one_in: 8, samples: 3 }, ..prepared(alone(0, 6)) },
        ),
        Scenario::new(
            "log/segments-killed",
            "segments are taken and given back; killed, then power lost",
            near.clone(),
            killed(alone(0, 6)),
        ),
        Scenario::new(
            "log/long",
            "records of several segments",
            long,
            few_images(prepared(alone(0, 4))),
        ),
        Scenario::new(
            "log/full",
            "the pool is full",
            full,
            refusing(few_images(prepared(alone(0, 8)))),
        )
        .with_weight(2),
        Scenario::new(
            "log/no-room",
            "each call for room fails once",
            near,
            without_room(4, prepared(alone(0, 8))),
        )
        .with_weight(4),
    ]
}

fn by_threads() -> Vec<Scenario> {
    let near = Logs { base_len: SEGMENT_LEN - 200, ..logs(Mix::Shared, &[40]) };
    let shared = || logs(Mix::Shared, &[40]);
    vec![
        Scenario::new("log/threads", "two threads", shared(), together(2, 3, 4)).with_weight(4),
        Scenario::new(
            "log/threads-three",
            "three threads append, and share fences",
            shared(),
            together(3, 1, 3),
        )
        .with_weight(4),
        Scenario::new("log/threads-brief", "short runs of threads", shared(), briefly(3, 1, 2))
            .with_weight(30),
        Scenario::new(
            "log/threads-segments",
            "two threads take segments and give them back",
            near,
            prepared(by_priority(2, 0, 4)),
        )
        .with_weight(2),
        Scenario::new(
            "log/threads-pages",
            "two threads on a page-cache file",
            shared(),
            pages(briefly(2, 2, 3)),
        )
        .with_weight(8),
        Scenario::new(
            "log/threads-killed",
            "two threads killed, then power lost",
            shared(),
            killed(together(2, 2, 3)),
        )
        .with_weight(2),
    ]
}
