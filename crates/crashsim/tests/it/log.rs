//! A log of words: a small structure that can be wrong in most of the ways that matter.

use std::sync::Arc;

use remanent_crashsim::{
    Broken, Class, Config, Nested, Outcome, Points, Report, Rng, Sim, SimOptions, Subject, explore,
};
use remanent_pmem::Medium;

/// Which of its duties the log does.
#[derive(Clone, Copy)]
pub(crate) struct Log {
    pub(crate) flush_entry: bool,
    pub(crate) fence_entry: bool,
    pub(crate) flush_count: bool,
    /// Whether it asks for faults before it answers. It always refuses to append when the medium is
    /// full.
    pub(crate) report_faults: bool,
}

pub(crate) const SOUND: Log =
    Log { flush_entry: true, fence_entry: true, flush_count: true, report_faults: true };

const MAGIC: u64 = 0x10c;
const COUNT: u64 = 64;
/// Four entries from the end of the first page. The fifth needs growth if there is no second page.
const ENTRIES: u64 = 4096 - 32;

impl Subject for Log {
    type Op = u64;
    type Ret = Option<u64>;
    type State = Vec<u64>;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        medium.store(0, MAGIC);
        medium.persist(0, 8);
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        if medium.load(0) != MAGIC {
            return Err("no log here".into());
        }
        // A count from a damaged line must not lead out of the medium.
        let count_max = (medium.len() - ENTRIES) / 8;
        if medium.load(COUNT) > count_max { Err("damaged".into()) } else { Ok(medium) }
    }

    fn apply(&self, medium: &Arc<Sim>, value: &u64) -> Option<u64> {
        let count = medium.load(COUNT);
        let entry = ENTRIES + count * 8;
        let is_short = medium.len() < entry + 8;
        if is_short && medium.grow(entry + 8).and_then(|()| medium.sync_file()).is_err() {
            return None;
        }
        medium.store(entry, *value);
        if self.flush_entry {
            medium.flush(entry, 8);
        }
        if self.fence_entry {
            medium.fence();
        }
        medium.store(COUNT, count + 1);
        if self.flush_count {
            medium.persist(COUNT, 8);
        }
        (!self.report_faults || medium.fault().is_none()).then_some(count)
    }

    fn model(&self, state: &mut Vec<u64>, value: &u64) -> Option<u64> {
        state.push(*value);
        Some(state.len() as u64 - 1)
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<Vec<u64>> {
        let count = medium.load(COUNT);
        let entries = (0..count).map(|index| medium.load(ENTRIES + index * 8)).collect();
        match medium.fault() {
            Some(fault) if self.report_faults => Err(format!("{fault:?}").into()),
            _ => Ok(entries),
        }
    }

    fn op(&self, rng: &mut Rng) -> u64 {
        1 + rng.below(1000)
    }

    fn is_refused(&self, ret: &Option<u64>) -> bool {
        ret.is_none()
    }
}

pub(crate) fn config() -> Config {
    Config { seeds: 0..4, points: Points::Stores, ..Config::default() }
}

/// Explores, expects one violation of this kind, and checks that its path alone reproduces it.
pub(crate) fn expect_violation<S: Subject>(subject: &S, config: &Config, broken: Broken) -> Report {
    let report = explore(subject, config);
    assert_eq!(report.violations.len(), 1, "{report}");
    let violation = &report.violations[0];
    assert_eq!(violation.broken, broken, "{report}");
    let only = Some(violation.only());
    let seeds = violation.seed..violation.seed + 1;
    let again = explore(subject, &Config { only, seeds, ..config.clone() });
    assert_eq!(again.violations.len(), 1, "{again}");
    assert_eq!(again.violations[0].what, violation.what);
    report
}

#[test]
fn a_sound_log_is_clean() {
    let report = explore(&SOUND, &config());
    assert!(report.is_clean(), "{report}");
    assert!(report.images > 100, "{report}");
    assert!(report.distinct_states.len() > 20, "{report}");
    assert_eq!(report.sites.len(), 6, "{report}");
}

#[test]
fn an_entry_that_is_not_flushed_is_lost() {
    for points in [Points::Stores, Points::Fences] {
        let log = Log { flush_entry: false, ..SOUND };
        expect_violation(&log, &Config { points, ..config() }, Broken::State);
    }
}

#[test]
fn an_entry_that_is_not_fenced_is_lost() {
    expect_violation(&Log { fence_entry: false, ..SOUND }, &config(), Broken::State);
}

#[test]
fn an_acknowledged_append_that_is_not_flushed_is_lost() {
    let report = expect_violation(&Log { flush_count: false, ..SOUND }, &config(), Broken::State);
    let violation = &report.violations[0];
    assert!(violation.what.starts_with("found []; expected ["), "{report}");
    assert!(violation.command.starts_with("remanent crash-test --seed 0 --point "), "{report}");
    assert!(violation.ops[0].contains("answered Some(0)"), "{report}");
}

#[test]
fn without_flushes_a_log_survives_the_death_of_its_process() {
    let sim = SimOptions { class: Class::Process, ..SimOptions::default() };
    let careless = Log { flush_entry: false, fence_entry: false, flush_count: false, ..SOUND };
    let report = explore(&careless, &Config { sim, ..config() });
    assert!(report.is_clean(), "{report}");
    assert!(report.crash_points > 4 * 16, "{report}");
}

#[test]
fn a_seed_decides_everything() {
    let digest = |seed| explore(&SOUND, &Config { seeds: seed..seed + 1, ..config() }).digest;
    assert_eq!(digest(3), digest(3));
    assert_ne!(digest(3), digest(4));
    let one = explore(&SOUND, &config());
    let two = explore(&SOUND, &Config { jobs: 2, ..config() });
    assert_eq!((one.digest, one.images), (two.digest, two.images));
}

#[test]
fn what_is_pruned_would_have_shown_nothing_else() {
    let nested = Nested { depth: 0, ..Nested::default() };
    // Nothing is appended after recovery, so entries behind the count are never read.
    let explore = |prune| explore(&SOUND, &Config { prune, nested, after: 0, ..config() });
    let (pruned, full) = (explore(true), explore(false));
    assert_eq!(pruned.distinct_states.len(), full.distinct_states.len());
    assert_eq!(pruned.images + pruned.pruned, full.images);
    assert!(pruned.pruned > 0 && full.pruned == 0, "{pruned}");
}

#[test]
fn a_report_is_serialised() {
    let report = explore(&Log { flush_count: false, ..SOUND }, &config());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["violations"][0]["broken"], "state");
    assert_eq!(json["distinct_states"], report.distinct_states.len());
}
