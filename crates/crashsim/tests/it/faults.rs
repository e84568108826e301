//! Injected faults.

use std::sync::Arc;

use remanent_crashsim::{
    Broken, Config, Faults, Nested, Outcome, Rng, Sim, SimOptions, Subject, explore,
};
use remanent_pmem::Medium;

use super::log::{Log, SOUND, config, expect_violation};

#[test]
fn a_log_without_checksums_does_not_survive_disturbed_writes() {
    let faults = Faults { disturbed: 4, ..Faults::default() };
    let report = expect_violation(&SOUND, &Config { faults, ..config() }, Broken::Open);
    assert!(report.violations[0].crashes[0].survived.contains("garbage"), "{report}");
}

#[test]
fn a_fault_that_is_reported_is_no_violation() {
    let faults = Faults { poisoned: 4, truncated: 4, ..Faults::default() };
    let report = explore(&SOUND, &Config { faults, ..config() });
    assert!(report.is_clean(), "{report}");
    assert!(report.faulty_images > 100, "{report}");
}

#[test]
fn an_answer_over_a_fault_is_found() {
    let log = Log { report_faults: false, ..SOUND };
    let faults = Faults { poisoned: 4, ..Faults::default() };
    let report = expect_violation(&log, &Config { faults, ..config() }, Broken::Fault);
    assert!(report.violations[0].crashes[0].survived.contains("poisoned"), "{report}");
}

#[test]
fn an_append_for_which_there_is_no_room_changes_nothing() {
    let sim = SimOptions { len: 4096, ..SimOptions::default() };
    let grows = explore(&SOUND, &Config { sim: sim.clone(), ..config() });
    assert!(grows.is_clean(), "{grows}");
    let mut digests = vec![grows.digest];
    for grow_fails_at in [Some(1), Some(2)] {
        let sim = SimOptions { grow_fails_at, ..sim.clone() };
        let report = explore(&SOUND, &Config { sim, ..config() });
        assert!(report.is_clean(), "{report}");
        digests.push(report.digest);
    }
    assert_ne!(digests[0], digests[1], "the first growth failed");
    assert_eq!(digests[0], digests[2], "there is no second growth");
}

/// A number in two copies beside each other in one line. Writing overwrites the older copy, and
/// each copy tells whether it is whole.
struct Neighbours;

impl Neighbours {
    /// The newest whole copy: its place, its sequence number, and the number.
    fn newest(medium: &Arc<Sim>) -> Option<(u64, u32, u32)> {
        let copies = [0, 1].map(|place| (place, medium.load(place * 8)));
        let whole = copies.iter().filter(|(_, word)| word >> 32 == Self::sum(*word as u32));
        let decoded =
            whole.map(|&(place, word)| (place, (word as u32) >> 16, word as u32 & 0xffff));
        decoded.max_by_key(|copy| copy.1)
    }

    /// A checksum of 32 bits. Many of them change with each bit of `low`, since garbage may be the
    /// old word with a bit flipped, twice.
    fn sum(low: u32) -> u64 {
        u64::from(low).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }

    fn put(medium: &Arc<Sim>, place: u64, sequence: u32, number: u32) {
        let low = sequence << 16 | number;
        medium.store(place * 8, Self::sum(low) << 32 | u64::from(low));
        medium.persist(place * 8, 8);
    }
}

impl Subject for Neighbours {
    type Op = u32;
    type Ret = ();
    type State = u32;
    type Handle = Arc<Sim>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        Self::put(&medium, 0, 1, 0);
        Ok(medium)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
        let (place, sequence, number) = Self::newest(&medium).ok_or("no copy is whole")?;
        // With a higher sequence number, the other copy would count as newer, whatever it holds.
        Self::put(&medium, 1 - place, sequence - 1, number);
        Ok(medium)
    }

    fn apply(&self, medium: &Arc<Sim>, number: &u32) {
        if let Some((place, sequence, _)) = Self::newest(medium) {
            Self::put(medium, 1 - place, sequence + 1, *number);
        }
    }

    fn model(&self, state: &mut u32, number: &u32) {
        *state = *number;
    }

    fn observe(&self, medium: &Arc<Sim>) -> Outcome<u32> {
        Ok(Self::newest(medium).ok_or("no copy is whole")?.2)
    }

    fn op(&self, rng: &mut Rng) -> u32 {
        1 + rng.below(1000) as u32
    }
}

#[test]
fn what_is_masked_leaves_the_neighbours_of_a_word_alone() {
    let nested = Nested { depth: 2, one_in: 1, samples: 8 };
    let config = Config { nested, creation: false, ..config() };
    let with = |faults| Config { faults, ..config.clone() };
    let masked = with(Faults { disturbed_words: 8, ..Faults::default() });
    let report = explore(&Neighbours, &masked);
    assert!(report.is_clean(), "{report}");
    assert!(report.faulty_images > 100, "{report}");
    let lines = with(Faults { disturbed: 8, ..Faults::default() });
    expect_violation(&Neighbours, &lines, Broken::Open);
}

#[test]
fn a_word_that_is_being_written_may_hold_garbage_in_a_second_life_too() {
    /// A structure whose recovery writes the count again.
    struct Rewriting;

    impl Subject for Rewriting {
        type Op = ();
        type Ret = ();
        type State = u64;
        type Handle = Arc<Sim>;

        fn create(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
            Ok(medium)
        }

        fn open(&self, medium: Arc<Sim>) -> Outcome<Arc<Sim>> {
            // Writes the present count, so that a crash without garbage leaves nothing else.
            let found = medium.load(0);
            medium.write_streaming(0, &found.to_le_bytes());
            medium.fence();
            Ok(medium)
        }

        fn apply(&self, _: &Arc<Sim>, (): &()) {}

        fn model(&self, _: &mut u64, (): &()) {}

        fn observe(&self, medium: &Arc<Sim>) -> Outcome<u64> {
            Ok(medium.load(0).min(2))
        }

        fn op(&self, _: &mut Rng) {}
    }

    let faults = Faults { disturbed_words: 8, ..Faults::default() };
    let nested = Nested { depth: 1, one_in: 1, samples: 1 };
    let report =
        expect_violation(&Rewriting, &Config { faults, nested, ..config() }, Broken::State);
    let violation = &report.violations[0];
    assert_eq!(violation.crashes.len(), 2, "{report}");
    assert!(violation.crashes[1].survived.contains("garbage in 1 words"), "{report}");
}
