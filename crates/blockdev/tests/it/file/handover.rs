//! One thread writes, another one syncs: a fence is for a thread's own stores, and the file's
//! `sync` for everybody's.

use std::sync::Arc;

use remanent_blockdev::file::File;
use remanent_crashsim::{
    Config, Oracle, Outcome, Rng, Sim, SimOptions, Subject, Workload, explore_workload,
};
use remanent_pmem::Pool;
use remanent_pmem::pool::Format;

const SIZE_MAX: u64 = 40 << 20;
/// Bytes of a file's first extents.
const EXTENT_LEN: u64 = 64 << 10;

struct Handover;

#[derive(Clone, Debug)]
enum Op {
    /// A word with this value at the end, so many extents behind the beginning as it has tens.
    Write(u64),
    Sync,
}

impl Subject for Handover {
    type Op = Op;
    type Ret = bool;
    /// The word at the end, once the file has one.
    type State = Option<u64>;
    type Handle = (File<Arc<Sim>>, Pool<Arc<Sim>>);

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let pool = Pool::format(medium, &Format::new(SIZE_MAX))?;
        Ok((File::create(&pool, "file")?, pool))
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        let pool = Pool::recover(medium)?;
        Ok((File::open(&pool, "file")?, pool))
    }

    fn apply(&self, (file, _): &Self::Handle, op: &Op) -> bool {
        match op {
            Op::Write(value) => file.write(value / 10 * EXTENT_LEN, &value.to_le_bytes()).is_ok(),
            Op::Sync => file.sync().is_ok(),
        }
    }

    fn model(&self, state: &mut Option<u64>, op: &Op) -> bool {
        match *op {
            // The end stays where it is.
            Op::Write(value) if state.is_some_and(|last| last / 10 > value / 10) => {}
            Op::Write(value) => *state = Some(value),
            Op::Sync => {}
        }
        true
    }

    fn observe(&self, (file, _): &Self::Handle) -> Outcome<Option<u64>> {
        let mut bytes = [0; 8];
        let count = file.read(file.len().saturating_sub(8), &mut bytes)?;
        Ok((count == 8).then(|| u64::from_le_bytes(bytes)))
    }

    fn op(&self, rng: &mut Rng) -> Op {
        if rng.below(2) == 0 { Op::Sync } else { Op::Write(1 + rng.below(9)) }
    }

    fn is_sync(&self, op: &Op) -> bool {
        matches!(op, Op::Sync)
    }
}

/// Explores what this thread has written before and these threads do at the same time.
fn explore(setup: Vec<Op>, threads: Vec<Vec<Op>>) {
    let config = Config {
        seeds: 0..8,
        oracle: Oracle::Buffered,
        sim: SimOptions { len: 64 << 10, capacity: SIZE_MAX, ..SimOptions::default() },
        creation: false,
        ..Config::default()
    };
    let report = explore_workload(&Handover, &config, &Workload { setup, threads });
    assert!(report.is_clean(), "{report}");
    assert!(report.images > 10, "{} images", report.images);
}

#[test]
fn what_was_written_by_another_thread_is_synced() {
    explore(vec![Op::Write(7)], vec![vec![Op::Sync], vec![Op::Sync]]);
    let lives = vec![Op::Write(1), Op::Sync, Op::Write(2)];
    explore(lives, vec![vec![Op::Sync, Op::Write(3), Op::Sync], vec![Op::Sync]]);
}

#[test]
fn an_extent_that_another_thread_has_taken_is_there() {
    let setup = vec![Op::Write(1), Op::Sync, Op::Write(17)];
    explore(setup, vec![vec![Op::Sync], vec![Op::Sync]]);
}
