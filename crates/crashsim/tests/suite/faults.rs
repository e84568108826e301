//! Faults beside the crash.

use remanent_crashsim::{Broken, Config, Faults, SimOptions, explore};

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
