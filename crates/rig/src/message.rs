//! What host and guest tell each other: one line of JSON a message, through a port of the machine.
//!
//! What was acknowledged is known outside the machine alone, which loses its memory when the power fails.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The host's first message of each boot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// To test something until the power fails.
    Test(Job),
    /// To measure something, by the name of the measurement, with more words for the program that measures.
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

/// What the writers did before, of which each is a function of the seed, the round, the writer and its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Past {
    /// Of each round that was checked, how many writes of each writer were found.
    pub(crate) kept: Vec<Vec<u64>>,
    /// Of the round after those, which a power cut ended, how many writes of each writer were
    /// acknowledged; nothing when there was none.
    pub(crate) acknowledged: Vec<u64>,
}

impl Past {
    /// The number of the round that was not yet checked, or that comes next.
    pub(crate) fn round(&self) -> u64 {
        self.kept.len() as u64
    }
}

/// The host's answer to `Message::Checked`: load may begin.
///
/// Without it the host could miss that a round was checked, and take writes of the next one for
/// its writes.
pub(crate) const GO: &str = "go";

/// What the guest says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The system is up, its memory is mounted, and what is under test is about to be started.
    Opening,
    /// Everything acknowledged is there.
    Checked {
        /// How many writes of each writer were found; nothing when there was no round before.
        kept: Vec<u64>,
        /// What was measured meanwhile, by name and unit.
        facts: BTreeMap<String, f64>,
    },
    /// So many writes of the writer are acknowledged, of this round.
    Acknowledged(usize, u64),
    /// Something acknowledged is gone, or damaged.
    Lost(Vec<String>),
    /// What was measured: a table for people, and the same as JSON.
    Measured { table: String, report: serde_json::Value },
    /// The rig cannot go on.
    Failed(String),
}

/// Something acknowledged is gone or damaged: what the rig looks for.
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
