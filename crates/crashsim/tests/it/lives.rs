//! Lives before and after a crash: creation and preparation, a kill followed by a power failure,
//! and what only a second recovery reads.

use std::sync::Arc;

use remanent_crashsim::{Broken, Config, Nested, Outcome, Rng, Sim, Subject, explore};
use remanent_pmem::Medium;

use super::log::{Log, SOUND, expect_violation};

/// A pair of words that change together, with a journal that recovery redoes.
#[derive(Clone, Copy)]
struct Pair {
    care: Care,
    /// Whether the journal is streamed.
    streams_journal: bool,
}

/// Whether recovery makes the journal durable before it redoes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    Never,
    Always,
    /// If a note says that a process may have been killed. Recovery forgets that once the journal
    /// is durable, or too early.
    Noted {
        forgets_early: bool,
    },
}

const LEFT: u64 = 0;
const RIGHT: u64 = 64;
/// Value and complement; zeros if there is nothing to redo.
const JOURNAL: u64 = 128;
const NOTE: u64 = 192;

impl Pair {
    fn make_journal_durable(self, medium: &Sim) {
        match self.care {
            Care::Never => {}
            Care::Always => medium.persist(JOURNAL, 16),
            Care::Noted { forgets_early: true } if medium.load(NOTE) != 0 => {
                medium.store(NOTE, 0);
                medium.persist(JOURNAL, 16);
            }
            Care::Noted { .. } if medium.load(NOTE) != 0 => {
                medium.persist(JOURNAL, 16);
                medium.store(NOTE, 0);
            }
            Care::Noted { .. } => {}
        }
    }

    fn redo(medium: &Sim) {
        let value = medium.load(JOURNAL);
        medium.store(LEFT, value);
        medium.store(RIGHT, value);
        medium.flush(LEFT, 8);
        medium.persist(RIGHT, 8);
        medium.store(JOURNAL, 0);
        medium.store(JOURNAL + 8, 0);
        medium.persist(JOURNAL, 16);
    }
}

impl Subject for Pair {
    type Op = u64;
    type Ret = ();
    type State = (u64, u64);
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        let value = medium.load(JOURNAL);
        if value != 0 && medium.load(JOURNAL + 8) == !value {
            self.make_journal_durable(&medium);
            Pair::redo(&medium);
        }
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, value: &u64) {
        if let Care::Noted { .. } = self.care {
            medium.store(NOTE, 1);
        }
        let mut journal = [0; 16];
        journal[..8].copy_from_slice(&value.to_le_bytes());
        journal[8..].copy_from_slice(&(!value).to_le_bytes());
        match self.streams_journal {
            true => medium.write_streaming(JOURNAL, &journal),
            false => medium.write(JOURNAL, &journal),
        }
        medium.persist(JOURNAL, 16);
        Pair::redo(medium);
    }

    fn model(&self, state: &mut (u64, u64), value: &u64) {
        *state = (*value, *value);
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<(u64, u64)> {
        Ok((medium.load(LEFT), medium.load(RIGHT)))
    }

    fn op(&self, rng: &mut Rng) -> u64 {
        1 + rng.below(99)
    }
}

fn often() -> Config {
    let nested = Nested { depth: 1, one_in: 1, samples: 64 };
    Config { seeds: 0..4, ops: 3, nested, ..Config::default() }
}

#[test]
fn recovery_from_caches_is_not_more_durable_than_what_it_read() {
    let killed = Config { kills: 1, ..often() };
    let careless = Pair { care: Care::Never, streams_journal: false };
    // Each crash alone is survived: what recovery reads after a power failure is durable.
    assert!(explore(&careless, &often()).is_clean());
    let report = expect_violation(&careless, &killed, Broken::State);
    assert!(report.violations[0].crashes[0].survived.contains("killed"), "{report}");
    assert_eq!(report.violations[0].crashes.len(), 2, "{report}");
    let report = explore(&Pair { care: Care::Always, ..careless }, &killed);
    assert!(report.is_clean() && report.nested_images > 100, "{report}");
}

/// What the next process does about a kill must be done again if it is killed itself.
#[test]
fn recovery_is_killed_as_well() {
    let nested = Nested { depth: 2, ..often().nested };
    let [once, twice] = [1, 2].map(|kills| Config { kills, nested, ..often() });
    let early = Pair { care: Care::Noted { forgets_early: true }, streams_journal: false };
    assert!(explore(&early, &once).is_clean());
    let report = expect_violation(&early, &twice, Broken::State);
    assert_eq!(report.violations[0].crashes.len(), 3, "{report}");
    assert!(report.violations[0].crashes[1].survived.contains("killed"), "{report}");
    let late = Pair { care: Care::Noted { forgets_early: false }, ..early };
    let report = explore(&late, &twice);
    assert!(report.is_clean() && report.nested_images > 100, "{report}");
}

/// What a killed process has streamed is durable, so the next process need not flush it.
#[test]
fn what_a_killed_process_streamed_is_durable() {
    let killed = Config { kills: 1, ..often() };
    let report = explore(&Pair { care: Care::Never, streams_journal: true }, &killed);
    assert!(report.is_clean() && report.nested_images > 100, "{report}");
}

/// A counter behind a header of two words. Its preparation counts to three.
#[derive(Clone, Copy)]
struct Counter {
    /// Whether a half-written header can be completed.
    completes: bool,
}

const MAGIC: u64 = 0xc0;

impl Subject for Counter {
    type Op = ();
    type Ret = u64;
    type State = u64;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        if !self.completes && medium.load(64) == MAGIC {
            return Err("something is there already".into());
        }
        medium.store(64, MAGIC);
        medium.persist(64, 8);
        medium.store(0, MAGIC);
        medium.persist(0, 8);
        Ok(medium)
    }

    fn prepare(&self, medium: &Arc<Sim>, handle: Arc<Sim>) -> Outcome<Arc<Sim>> {
        for count in medium.load(128)..3 {
            medium.reach("prepared");
            medium.store(128, count + 1);
            medium.persist(128, 8);
        }
        Ok(handle)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        if medium.load(0) == MAGIC { Ok(medium) } else { Err("no counter".into()) }
    }

    fn apply(&self, medium: &Arc<Sim>, (): &()) -> u64 {
        let count = medium.load(128) + 1;
        medium.store(128, count);
        medium.persist(128, 8);
        count
    }

    fn model(&self, state: &mut u64, (): &()) -> u64 {
        *state += 1;
        *state + 3
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
        let count = medium.load(128);
        count.checked_sub(3).ok_or_else(|| format!("{count} is not prepared").into())
    }

    fn op(&self, _: &mut Rng) {}
}

#[test]
fn what_a_crash_leaves_of_a_creation_is_completed_and_its_preparation_is_not_crashed() {
    let report = explore(&Counter { completes: true }, &often());
    assert!(report.is_clean(), "{report}");
    // Once in each run, and after each crash during the first creation.
    assert!(report.reached["prepared"] > 4 * 3, "{report}");
}

#[test]
fn a_creation_that_cannot_be_repeated_is_found() {
    let report = expect_violation(&Counter { completes: false }, &often(), Broken::Creation);
    assert!(report.violations[0].what.contains("something is there already"), "{report}");
}

#[test]
fn a_refusal_where_there_is_room_is_found() {
    let config = Config { sim: remanent_crashsim::SimOptions::default(), ..often() };
    let sim = remanent_crashsim::SimOptions { len: 4096, capacity: 4096, ..config.sim.clone() };
    let full = Config { sim, ops: 8, ..config };
    let log: &Log = &SOUND;
    assert!(explore(log, &full).is_clean());
    expect_violation(log, &Config { may_refuse: false, ..full }, Broken::Refused);
}

#[test]
fn subjects_with_another_salt_do_other_things() {
    let digest = |salt| explore(&SOUND, &Config { salt, ..often() }).digest;
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}

/// A word and a hint beside it, which only a recovery reads that follows an interrupted one.
struct Hinted;

const HINT: u64 = 64;
const RECOVERED: u64 = 128;
const OBSERVED: u64 = 192;

impl Subject for Hinted {
    type Op = ();
    type Ret = u64;
    type State = u64;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        if medium.load(RECOVERED) == 0 {
            medium.store(RECOVERED, 1);
            medium.persist(RECOVERED, 8);
        } else if medium.load(OBSERVED) == 0 && medium.load(HINT) == 7 {
            medium.store(0, 1_000);
        }
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, (): &()) -> u64 {
        // A crash may leave the seven, but need not.
        medium.store(HINT, 7);
        medium.store(HINT, 0);
        medium.persist(HINT, 8);
        let count = medium.load(0) + 1;
        medium.store(0, count);
        medium.persist(0, 8);
        count
    }

    fn model(&self, state: &mut u64, (): &()) -> u64 {
        *state += 1;
        *state
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
        medium.store(OBSERVED, 1);
        medium.persist(OBSERVED, 8);
        Ok(medium.load(0))
    }

    fn op(&self, _: &mut Rng) {}
}

#[test]
fn what_only_a_second_recovery_reads_is_not_pruned() {
    let config = Config { after: 0, seeds: 0..1, ..often() };
    expect_violation(&Hinted, &config, Broken::State);
}
