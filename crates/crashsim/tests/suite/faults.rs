//! Faults beside the crash.

use remanent_crashsim::{Broken, Config, Faults, explore};

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
