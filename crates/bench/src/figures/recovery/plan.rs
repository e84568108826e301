//! What the processes of the bench tell each other: which database, and how it is opened.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use remanent_engine::{Placement, Rebuild, TableSpec};
use remanent_tatp::tables;
use serde::{Deserialize, Serialize};

const FILE: &str = "plan.json";

/// Who rebuilds indexes in DRAM, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Policy {
    Wait,
    Background,
}

/// A run of a process that executes TATP.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) subscribers: u32,
    /// Threads with a client each.
    pub(super) users: u64,
    /// Threads that rebuild.
    pub(super) threads: usize,
    pub(super) policy: Policy,
    /// Latency of the pool's lines, if it is not that of this machine's memory.
    pub(super) latency_ns: u32,
}

impl Plan {
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        fs::write(directory.join(FILE), serde_json::to_string(self)?).context("cannot write a plan")
    }

    pub(super) fn read(directory: &Path) -> Result<Self> {
        let text = fs::read_to_string(directory.join(FILE)).context("cannot read the plan")?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl Policy {
    pub(super) fn rebuild(self) -> Rebuild {
        match self {
            Policy::Wait => Rebuild::Wait,
            Policy::Background => Rebuild::Background,
        }
    }
}

/// TATP's indexes: table, index, and words for a subscriber. Those that a request of the mix reads
/// most often, for each word, come first.
const INDEXES: [(&str, &str, f64); 7] = [
    ("subscriber", "primary", 1.0),
    ("subscriber", "by_sub_nbr", 1.0),
    ("access_info", "primary", 2.5),
    ("special_facility", "primary", 2.5),
    ("call_forwarding", "by_facility", 3.75),
    ("special_facility", "by_subscriber", 2.5),
    ("call_forwarding", "primary", 3.75),
];

/// Words of all indexes for a subscriber.
pub(super) const WORDS: f64 = 17.0;

/// The tables of TATP, with indexes in the pool that have about so much of all words; the others
/// are in DRAM. Also the share that it is.
pub(super) fn placed(percent: u32) -> ([TableSpec; 4], f64) {
    let mut in_pool = 0.0;
    let placements = INDEXES.map(|(table, index, words)| {
        let fits = in_pool + words / 2.0 <= WORDS * f64::from(percent) / 100.0;
        in_pool += if fits { words } else { 0.0 };
        (table, index, if fits { Placement::Pmem } else { Placement::Dram })
    });
    let specs = tables().map(|spec| {
        let of_table: Vec<_> =
            placements.iter().filter(|(table, ..)| *table == spec.name()).collect();
        of_table
            .into_iter()
            .fold(spec, |spec, (_, index, placement)| spec.place([*index], *placement))
    });
    (specs, in_pool / WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_asked_for() {
        for percent in (0..=100).step_by(20) {
            let share = placed(percent).1;
            assert!((share * 100.0 - f64::from(percent)).abs() < 12.0, "{percent}: {share}");
        }
        assert_eq!((placed(0).1, placed(100).1), (0.0, 1.0));
    }
}
