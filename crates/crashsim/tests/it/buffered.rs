//! A log that only a sync makes durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_crashsim::{Broken, Config, Oracle, Outcome, Rng, Sim, Subject, explore};
use remanent_pmem::Medium;

use super::log::{config, expect_violation};

struct Batches {
    /// Whether a sync flushes the entries before the count.
    flush_entries: bool,
    /// Whether a sync does anything.
    syncs: bool,
}

struct Open {
    medium: Arc<Sim>,
    count: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Append(u64),
    Sync,
}

impl Subject for Batches {
    type Op = Op;
    type Ret = ();
    type State = Vec<u64>;
    type Handle = Open;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Open> {
        self.open(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Open> {
        let count = AtomicU64::new(medium.load(0));
        Ok(Open { medium, count })
    }

    fn apply(&self, open: &Open, op: &Op) {
        let count = open.count.load(Ordering::Relaxed);
        match *op {
            Op::Append(value) => {
                open.medium.store(64 + 8 * count, value);
                open.count.store(count + 1, Ordering::Relaxed);
            }
            Op::Sync if self.syncs => {
                if self.flush_entries {
                    open.medium.persist(64, 8 * count);
                }
                open.medium.store(0, count);
                open.medium.persist(0, 8);
            }
            Op::Sync => {}
        }
    }

    fn model(&self, state: &mut Vec<u64>, op: &Op) {
        if let Op::Append(value) = *op {
            state.push(value);
        }
    }

    fn observe(&self, open: &Open) -> Outcome<Vec<u64>> {
        let count = open.count.load(Ordering::Relaxed);
        Ok((0..count).map(|index| open.medium.load(64 + 8 * index)).collect())
    }

    fn op(&self, rng: &mut Rng) -> Op {
        if rng.one_in(3) { Op::Sync } else { Op::Append(1 + rng.below(99)) }
    }

    fn is_sync(&self, op: &Op) -> bool {
        matches!(op, Op::Sync)
    }
}

/// A clean close also loses what was appended last, so nothing is appended after recovery.
fn buffered() -> Config {
    Config { oracle: Oracle::Buffered, after: 0, ops: 16, seeds: 0..8, ..config() }
}

#[test]
fn a_buffered_log_keeps_a_prefix_not_older_than_the_last_sync() {
    let report = explore(&Batches { flush_entries: true, syncs: true }, &buffered());
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_buffered_log_is_not_durable() {
    let config = Config { oracle: Oracle::Durable, ..buffered() };
    expect_violation(&Batches { flush_entries: true, syncs: true }, &config, Broken::State);
}

#[test]
fn a_sync_that_does_not_flush_is_found() {
    expect_violation(&Batches { flush_entries: false, syncs: true }, &buffered(), Broken::State);
    expect_violation(&Batches { flush_entries: true, syncs: false }, &buffered(), Broken::State);
}
