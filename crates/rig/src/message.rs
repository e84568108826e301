//! Messages between host and guest: one line of JSON each, through a port of the machine.
//!
//! Acknowledged writes are recorded on the host only, because the machine loses its memory when the
//! power is cut.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The host's first message after each boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Test something until the power is cut.
    Test(Job),
    /// Run a measurement, by name, with further arguments for the program that measures.
    Measure(String, Vec<String>),
}

/// A test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    /// Whether the persistent memory is new.
    pub(crate) is_first: bool,
    pub(crate) past: Past,
}

/// The earlier writes of the writers. Each write is a function of seed, round, writer and number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Past {
    /// For each checked round, the number of writes of each writer that were found.
    pub(crate) kept: Vec<Vec<u64>>,
    /// For the round after those, which a cut ended, the number of acknowledged writes of each
    /// writer; empty if there was no such round.
    pub(crate) acknowledged: Vec<u64>,
    /// The last note of each writer, from whatever round; empty strings before the first ones.
    pub(crate) notes: Vec<String>,
}

impl Past {
    /// Number of the round that was not yet checked, or that comes next.
    pub(crate) fn round(&self) -> u64 {
        self.kept.len() as u64
    }
}

/// The host's answer to `Message::Checked`: load may begin.
///
/// Without it the host could miss that a round was checked, and count writes of the next round for
/// it.
pub(crate) const GO: &str = "go";

/// Messages of the guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The system is up, its memory is mounted, and the program under test is about to be started.
    Opening,
    /// Everything acknowledged is there.
    Checked {
        /// Number of writes found of each writer; empty if there was no earlier round.
        kept: Vec<u64>,
        /// Measured values, by name with unit.
        facts: BTreeMap<String, f64>,
    },
    /// `.1` writes of writer `.0` are acknowledged in this round.
    Acknowledged(usize, u64),
    /// Writer `.0` has to know `.1` after a cut, in place of its note before: what was acknowledged
    /// to it, if that is not just a number of writes.
    Noted(usize, String),
    /// Something acknowledged is gone, or damaged.
    Lost(Vec<String>),
    /// The result of a measurement: a table for people, and the same as JSON.
    Measured { table: String, report: serde_json::Value },
    /// The rig cannot go on.
    Failed(String),
}

/// Something acknowledged is gone or damaged: the failure that the rig searches for.
#[derive(Debug)]
pub(crate) struct Lost(pub(crate) Vec<String>);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for Lost {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_short_lines() {
        let message = Message::Acknowledged(3, 117);
        let line = serde_json::to_string(&message).expect("JSON");
        assert_eq!(line, r#"{"Acknowledged":[3,117]}"#);
        assert_eq!(serde_json::from_str::<Message>(&line).expect("a message"), message);
    }
}
