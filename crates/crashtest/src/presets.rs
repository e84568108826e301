//! Settings of explorations that scenarios share.

use remanent_crashsim::{Class, Config, Faults, Granularity, Nested, Points, Schedule, SimOptions};

/// Size with room for the smallest pool and one growth.
pub(crate) const SIZE_MAX: u64 = 40 << 20;
/// Chunks of 64 KiB that the smallest pool needs for its metadata.
pub(crate) const OVERHEAD: u64 = 265;

/// One thread, with a few operations after the setup.
pub(crate) fn alone(setup: usize, ops: usize) -> Config {
    Config {
        setup,
        ops,
        full_max: 64,
        samples: 16,
        may_refuse: false,
        sim: SimOptions { len: 64 << 10, capacity: SIZE_MAX, ..SimOptions::default() },
        ..Config::default()
    }
}

/// Like `config`, without exploring the creation, which prepares more than one operation needs.
/// There are many crash points, so few images of each are explored.
pub(crate) fn prepared(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 64, samples: 2 };
    Config { creation: false, full_max: 4, samples: 3, nested, ..config }
}

/// Like `config`, for a subject without room for all operations.
pub(crate) fn refusing(config: Config) -> Config {
    Config { may_refuse: true, ..config }
}

/// Like `config`; the process is killed, and the power fails in the next life.
pub(crate) fn killed(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 4, samples: 12 };
    Config { kills: 1, creation: false, nested, full_max: 16, ..config }
}

/// As [`killed`]; the next process is killed, too, before the power fails.
pub(crate) fn killed_twice(config: Config) -> Config {
    let nested = Nested { depth: 2, one_in: 2, samples: 4 };
    Config { kills: 2, nested, after: 2, ..killed(config) }
}

/// Several threads with a few operations each.
pub(crate) fn together(threads: usize, setup: usize, ops: usize) -> Config {
    Config { threads, samples: 6, full_max: 16, ..alone(setup, ops) }
}

/// Short runs of threads that compete for the same thing, to be repeated often.
pub(crate) fn briefly(threads: usize, setup: usize, ops: usize) -> Config {
    let nested = Nested { depth: 0, one_in: 0, samples: 0 };
    // About the length of the run, so that the changes of priority fall into it.
    let length = (threads * ops * 50) as u64;
    let schedule = Schedule::Priority { changes: 3, length };
    Config {
        creation: false,
        full_max: 8,
        samples: 4,
        nested,
        schedule,
        after: 3,
        ..together(threads, setup, ops)
    }
}

/// Interleavings alone, of short runs that are crashed only at their end. `length` is about the
/// length of a run in calls of the medium.
pub(crate) fn interleaved(threads: usize, setup: usize, ops: usize, length: u64) -> Config {
    let schedule = Schedule::Priority { changes: 4, length };
    Config { points: Points::End, schedule, ..briefly(threads, setup, ops) }
}

/// Like [`together`], with long stretches of one thread.
pub(crate) fn by_priority(threads: usize, setup: usize, ops: usize) -> Config {
    let schedule = Schedule::Priority { changes: 3, length: 400 };
    Config { schedule, ..together(threads, setup, ops) }
}

/// Like `config`, on a medium that loses what this class of crashes loses.
pub(crate) fn class(class: Class, config: Config) -> Config {
    Config { sim: SimOptions { class, ..config.sim }, ..config }
}

/// Like `config`, on a file system on which one request for space fails; the seed decides which.
pub(crate) fn without_room(calls: u64, config: Config) -> Config {
    refusing(Config { faults: Faults { full: calls, ..config.faults }, ..config })
}

/// Like `config`, on a page-cache file: the unit of a flush is the page.
pub(crate) fn pages(config: Config) -> Config {
    Config { sim: SimOptions { granularity: Granularity::Page, ..config.sim }, ..config }
}

/// Like `config`, with few images of each crash point, because there are many points. Of a killed
/// run, where only nested crash points have images, more points are chosen.
pub(crate) fn few_images(config: Config) -> Config {
    let one_in = if config.kills > 0 { 8 } else { 32 };
    let nested = Nested { depth: 1, one_in, samples: 2 };
    Config { full_max: 4, samples: 4, nested, ..config }
}

/// Like `config`, with crashes between any two stores.
pub(crate) fn at_stores(config: Config) -> Config {
    Config { points: Points::Stores, ..config }
}
