//! What the command line refuses.

use super::rig;

#[test]
fn a_scenario_that_is_not_there_is_refused_with_those_that_are() {
    let output = rig(&["run", "none"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("ext4-baseline"), "{error}");
}
