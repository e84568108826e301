//! Ordering methods on a medium without instructions for them.

use std::sync::Arc;

use remanent_crashsim::{
    Broken, Config, Counters, Granularity, Outcome, Points, Rng, Sim, SimOptions, Subject, explore,
};
use remanent_pmem::Medium;
use remanent_pmem::order::Method;

use super::log::{config, expect_violation};

/// Words of a range that begins and ends within lines.
const WORDS: usize = 20;
const RANGE: u64 = 5 * 8;
const DECIDED: u64 = 4096;

/// A range, and a word that says what the range holds.
struct Ranges(Method);

impl Subject for Ranges {
    type Op = u64;
    type Ret = ();
    type State = u64;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, value: &u64) {
        // The places alternate, so that the valid range stays as it is.
        let place = (medium.load(DECIDED) + 1) % 2 * 512;
        let bytes: Vec<u8> = [value.to_le_bytes(); WORDS].concat();
        self.0.write(medium, RANGE + place, &bytes);
        let decided = medium.load(DECIDED) + 1;
        self.0.write(medium, DECIDED, &decided.to_le_bytes());
    }

    fn model(&self, state: &mut u64, value: &u64) {
        *state = *value;
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
        let place = medium.load(DECIDED) % 2 * 512;
        let words: Vec<u64> =
            (0..WORDS as u64).map(|word| medium.load(RANGE + place + word * 8)).collect();
        match words.iter().all(|word| *word == words[0]) {
            true => Ok(words[0]),
            false => Err("the range is torn".into()),
        }
    }

    fn op(&self, rng: &mut Rng) -> u64 {
        1 + rng.below(1000)
    }
}

#[test]
fn what_a_method_has_written_is_durable_when_it_returns() {
    for method in Method::DURABLE {
        for granularity in [Granularity::Line, Granularity::Page] {
            let sim = SimOptions { granularity, ..SimOptions::default() };
            let config = Config { sim, points: Points::Fences, samples: 32, ..config() };
            let report = explore(&Ranges(method), &Config { full_max: 32, ..config });
            assert!(report.is_clean(), "{method}, {granularity:?}: {report}");
        }
    }
}

#[test]
fn what_is_not_ordered_is_lost() {
    let config = Config { samples: 32, full_max: 32, ..config() };
    expect_violation(&Ranges(Method::Async), &config, Broken::State);
}

#[test]
fn a_method_has_one_fence_or_one_a_word() {
    for method in Method::DURABLE {
        let sim = Sim::new(SimOptions::default());
        method.write(&sim, RANGE, &[7; WORDS * 8]);
        let Counters { stores, fences, flushed_lines, .. } = sim.counters();
        let expected = match method {
            Method::Uncacheable => (20, 20, 20),
            Method::CacheFlush | Method::WriteThrough => (20, 1, 4),
            _ => (20, 1, 0),
        };
        assert_eq!((stores, fences, flushed_lines), expected, "{method}");
    }
}

#[test]
#[should_panic(expected = "ordering methods write whole words")]
fn half_words_are_refused() {
    Sim::new(SimOptions::default()).write_ordered(Method::NonTemporal, 4, &[1; 8]);
}
