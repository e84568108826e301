//! Crashes during recovery, recoveries that panic or never end, and operations after recovery.

use std::sync::Arc;

use remanent_crashsim::{Broken, Config, Nested, Outcome, Points, Rng, Sim, Subject, explore};
use remanent_pmem::Medium;

use super::log::expect_violation;

/// Two accounts that change together, with a journal that recovery redoes.
struct Accounts {
    recovery: Recovery,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Recovery {
    Sound,
    /// Changes the accounts without a journal.
    HasNoJournal,
    /// Marks the journal as done before it is.
    ClearsFirst,
    /// Leaves the journal as it is, so that recovery undoes the next change with it.
    NeverClears,
    FailsItsCheck,
    Panics,
    NeverEnds,
    LeavesThePool,
}

const LEFT: u64 = 0;
const RIGHT: u64 = 64;
/// One line: both new values, then the mark that makes them valid, in this order.
const JOURNAL: u64 = 128;

impl Accounts {
    fn redo(&self, medium: &Sim) {
        medium.store(LEFT, medium.load(JOURNAL));
        medium.store(RIGHT, medium.load(JOURNAL + 8));
        medium.flush(LEFT, 8);
        medium.persist(RIGHT, 8);
    }

    fn clear(&self, medium: &Sim) {
        medium.store(JOURNAL + 16, 0);
        medium.persist(JOURNAL + 16, 8);
    }
}

impl Subject for Accounts {
    type Op = u64;
    type Ret = ();
    type State = (u64, u64);
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        if medium.load(JOURNAL + 16) == 1 {
            match self.recovery {
                Recovery::Sound | Recovery::HasNoJournal | Recovery::FailsItsCheck => {
                    self.redo(&medium);
                    self.clear(&medium);
                }
                Recovery::ClearsFirst => {
                    self.clear(&medium);
                    self.redo(&medium);
                }
                Recovery::NeverClears => self.redo(&medium),
                Recovery::Panics => panic!("journal in use"),
                Recovery::NeverEnds => while medium.load(JOURNAL + 16) == 1 {},
                Recovery::LeavesThePool => assert_eq!(medium.load(1 << 40), 0),
            }
        }
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, amount: &u64) {
        medium.store(JOURNAL, medium.load(LEFT) + amount);
        medium.store(JOURNAL + 8, medium.load(RIGHT).wrapping_sub(*amount));
        medium.store(JOURNAL + 16, 1);
        if self.recovery != Recovery::HasNoJournal {
            medium.persist(JOURNAL, 24);
        }
        self.redo(medium);
        self.clear(medium);
    }

    fn model(&self, (left, right): &mut (u64, u64), amount: &u64) {
        *left += amount;
        *right = right.wrapping_sub(*amount);
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<(u64, u64)> {
        Ok((medium.load(LEFT), medium.load(RIGHT)))
    }

    fn check(&self, medium: &Arc<Sim>) -> Outcome {
        match self.recovery {
            Recovery::FailsItsCheck if medium.load(LEFT) > 0 => Err("not my day".into()),
            _ => Ok(()),
        }
    }

    fn op(&self, rng: &mut Rng) -> u64 {
        1 + rng.below(99)
    }
}

fn config() -> Config {
    Config {
        seeds: 0..3,
        nested: Nested { one_in: 1, ..Nested::default() },
        points: Points::Stores,
        ..Config::default()
    }
}

#[test]
fn a_sound_recovery_is_clean() {
    let report = explore(&Accounts { recovery: Recovery::Sound }, &config());
    assert!(report.is_clean(), "{report}");
    assert!(report.nested_images > 50, "{report}");
}

#[test]
fn half_an_operation_is_found() {
    let accounts = Accounts { recovery: Recovery::HasNoJournal };
    expect_violation(&accounts, &config(), Broken::State);
}

#[test]
fn a_recovery_that_cannot_be_repeated_is_found_by_crashing_it() {
    let accounts = Accounts { recovery: Recovery::ClearsFirst };
    let shallow = Config { nested: Nested { depth: 0, ..config().nested }, ..config() };
    let report = explore(&accounts, &shallow);
    assert!(report.is_clean() && report.nested_images == 0, "{report}");
    let report = expect_violation(&accounts, &config(), Broken::State);
    assert_eq!(report.violations[0].crashes.len(), 2, "{report}");
}

#[test]
fn a_recovery_that_leaves_a_trap_is_found_by_crashing_what_follows() {
    let accounts = Accounts { recovery: Recovery::NeverClears };
    let shallow = Config { nested: Nested { depth: 0, ..config().nested }, ..config() };
    let report = explore(&accounts, &shallow);
    assert!(report.is_clean(), "{report}");
    let report = expect_violation(&accounts, &config(), Broken::State);
    assert_eq!(report.violations[0].crashes.len(), 2, "{report}");
}

#[test]
fn a_check_that_fails_is_found() {
    let accounts = Accounts { recovery: Recovery::FailsItsCheck };
    let report = expect_violation(&accounts, &config(), Broken::Check);
    assert_eq!(report.violations[0].what, "not my day");
}

#[test]
fn a_recovery_that_panics_is_found() {
    let report =
        expect_violation(&Accounts { recovery: Recovery::Panics }, &config(), Broken::Panic);
    assert!(report.violations[0].what.contains("journal in use"), "{report}");
}

#[test]
fn a_recovery_without_end_is_found() {
    let config = Config { steps_max: 1000, ..config() };
    let report =
        expect_violation(&Accounts { recovery: Recovery::NeverEnds }, &config, Broken::Panic);
    assert!(report.violations[0].what.contains("no end after 1000 steps"), "{report}");
}

#[test]
fn a_link_out_of_the_pool_is_found() {
    let accounts = Accounts { recovery: Recovery::LeavesThePool };
    let report = expect_violation(&accounts, &config(), Broken::Fault);
    assert!(report.violations[0].what.contains("OutOfRange"), "{report}");
}
