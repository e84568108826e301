//! Threads on one medium, and what schedules reveal.

use std::sync::Arc;

use remanent_crashsim::{
    Broken, Config, Outcome, Rng, Schedule, Sim, Subject, Workload, explore, explore_workload,
};
use remanent_pmem::Medium;

use super::log::expect_violation;

/// A counter that several threads increment and read.
#[derive(Clone, Copy)]
struct Counter {
    /// Whether adding is one instruction, not a load and a store.
    atomic: bool,
    /// Whether readers make durable what they read before they answer.
    flush_on_read: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Get,
}

const SOUND: Counter = Counter { atomic: true, flush_on_read: true };

impl Subject for Counter {
    type Op = Op;
    type Ret = u64;
    type State = u64;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, op: &Op) -> u64 {
        let value = match op {
            Op::Add if self.atomic => medium.fetch_add(0, 1),
            Op::Add => {
                let value = medium.load(0);
                medium.store(0, value + 1);
                value
            }
            Op::Get => medium.load(0),
        };
        if matches!(op, Op::Add) || self.flush_on_read {
            medium.persist(0, 8);
        }
        value
    }

    fn model(&self, state: &mut u64, op: &Op) -> u64 {
        let before = *state;
        if matches!(op, Op::Add) {
            *state += 1;
        }
        before
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
        Ok(medium.load(0))
    }

    fn op(&self, rng: &mut Rng) -> Op {
        if rng.one_in(2) { Op::Get } else { Op::Add }
    }
}

fn config() -> Config {
    Config { seeds: 0..200, threads: 3, ops: 4, setup: 1, ..Config::default() }
}

#[test]
fn a_sound_counter_is_clean_under_every_kind_of_schedule() {
    for schedule in [Schedule::Random { one_in: 2 }, Schedule::Priority { changes: 3, length: 100 }]
    {
        let report = explore(&SOUND, &Config { schedule, ..config() });
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.schedules, 200);
    }
}

#[test]
fn a_lost_update_is_found() {
    let counter = Counter { atomic: false, ..SOUND };
    for schedule in [Schedule::Random { one_in: 4 }, Schedule::Priority { changes: 3, length: 60 }]
    {
        let config = Config { schedule, ..config() };
        let report = expect_violation(&counter, &config, Broken::Linearizability);
        assert!(report.violations[0].what.contains("no order of the operations"), "{report}");
    }
}

/// A common bug of lock-free structures: a reader acts on a value that a crash then takes away.
#[test]
fn an_answer_from_a_value_that_is_not_durable_is_found() {
    let counter = Counter { flush_on_read: false, ..SOUND };
    let report = expect_violation(&counter, &config(), Broken::State);
    assert!(report.violations[0].ops.iter().any(|op| op.contains("Get answered")), "{report}");
}

#[test]
fn a_seed_decides_the_schedule() {
    let run = |seed| {
        let workload =
            Workload { setup: vec![], threads: vec![vec![Op::Add; 5], vec![Op::Add; 5]] };
        let config = Config { seeds: seed..seed + 1, ..config() };
        explore_workload(&SOUND, &config, &workload).digest
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A lock in pool memory that threads wait for.
struct Locked {
    /// Whether waiting lets other threads run, as it must.
    unlocks: bool,
}

impl Subject for Locked {
    type Op = ();
    type Ret = ();
    type State = u64;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        medium.store(64, 0);
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, (): &()) {
        while medium.compare_exchange(64, 0, 1).is_err() {
            medium.pause();
        }
        let value = medium.load(0);
        medium.store(0, value + 1);
        medium.persist(0, 8);
        if self.unlocks {
            medium.store(64, 0);
        }
    }

    fn model(&self, state: &mut u64, (): &()) {
        *state += 1;
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
        Ok(medium.load(0))
    }

    fn op(&self, _: &mut Rng) {}
}

#[test]
fn threads_that_wait_for_each_other_come_to_an_end() {
    let report = explore(&Locked { unlocks: true }, &config());
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_deadlock_is_found() {
    let config = Config { steps_max: 10_000, ..config() };
    let report = expect_violation(&Locked { unlocks: false }, &config, Broken::Run);
    assert!(report.violations[0].what.contains("no end after 10000 steps"), "{report}");
}
