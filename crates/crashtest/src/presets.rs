//! How subjects are explored: settings that scenarios share.

use remanent_crashsim::{Class, Config, Faults, Granularity, Nested, Points, Schedule, SimOptions};

/// Room for the smallest pool and one growth.
pub(crate) const SIZE_MAX: u64 = 40 << 20;
/// Chunks of 64 KiB that the smallest pool needs for itself.
pub(crate) const OVERHEAD: u64 = 265;

/// One thread, a few operations on what others have left.
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

/// As `config`; the creation is left alone, which prepares more than one operation's worth, and points
/// are so many that a few images of each must do.
pub(crate) fn prepared(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 64, samples: 2 };
    Config { creation: false, full_max: 4, samples: 3, nested, ..config }
}

/// As `config`, of what has not room for all.
pub(crate) fn refusing(config: Config) -> Config {
    Config { may_refuse: true, ..config }
}

/// As `config`; the process is killed, and the power fails in the life that follows.
pub(crate) fn killed(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 4, samples: 12 };
    Config { killed: true, creation: false, nested, full_max: 16, ..config }
}

/// Several threads with a few operations each.
pub(crate) fn together(threads: usize, setup: usize, ops: usize) -> Config {
    Config { threads, samples: 6, full_max: 16, ..alone(setup, ops) }
}

/// Short runs of threads that all want the same, to be repeated often.
pub(crate) fn briefly(threads: usize, setup: usize, ops: usize) -> Config {
    let nested = Nested { depth: 0, one_in: 0, samples: 0 };
    // About as long as the run, so that the changes fall into it.
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

/// As [`together`], with long stretches of one thread in between.
pub(crate) fn by_priority(threads: usize, setup: usize, ops: usize) -> Config {
    let schedule = Schedule::Priority { changes: 3, length: 400 };
    Config { schedule, ..together(threads, setup, ops) }
}

/// As `config`, on a medium that loses what this class of crashes loses.
pub(crate) fn class(class: Class, config: Config) -> Config {
    Config { sim: SimOptions { class, ..config.sim }, ..config }
}

/// As `config`, on a file system on which one call for room fails, another one with each seed.
pub(crate) fn without_room(calls: u64, config: Config) -> Config {
    refusing(Config { faults: Faults { full: calls, ..config.faults }, ..config })
}

/// As `config`, on a page-cache file: pages are flushed, not lines.
pub(crate) fn pages(config: Config) -> Config {
    Config { sim: SimOptions { granularity: Granularity::Page, ..config.sim }, ..config }
}

/// As `config`, with a few images of each point, of which there are many.
pub(crate) fn few_images(config: Config) -> Config {
    let nested = Nested { depth: 1, one_in: 32, samples: 2 };
    Config { full_max: 4, samples: 4, nested, ..config }
}

/// As `config`, with crashes between any two stores.
pub(crate) fn at_stores(config: Config) -> Config {
    Config { points: Points::Stores, ..config }
}
