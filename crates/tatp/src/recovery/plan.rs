//! What the observer tells the users process: which database, and how it is opened.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use remanent_engine::{Placement, Rebuild, TableSpec};
use serde::{Deserialize, Serialize};

use super::event::TokenText;
use crate::tables;

const FILE: &str = "plan.json";

/// Who rebuilds indexes in DRAM, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RebuildPolicy {
    /// Opening does, before there is any answer.
    Wait,
    /// Threads do, beside the users.
    Background,
}

/// How a users process is to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Subscribers in the database.
    pub subscribers: u32,
    /// Threads with a client each.
    pub users: u64,
    /// Threads that rebuild.
    pub threads: usize,
    /// When they do.
    pub policy: RebuildPolicy,
    /// Latency of the pool's lines; 0 means that of this machine's memory.
    pub latency_ns: u32,
    /// Transactions that the kill leaves open.
    pub long_transactions: u32,
    /// The first of as many subscribers that are not there, for the rows of these transactions.
    pub first_s_id: u32,
}

/// A plan, and what became of its long transactions: what the users process reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) plan: Plan,
    /// Transactions to resume; begins those of the plan if it is `None`.
    pub(super) resume: Option<Vec<PlannedTransaction>>,
}

/// A long transaction that an earlier process has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PlannedTransaction {
    /// The subscriber that it inserts.
    pub(super) s_id: u32,
    pub(super) token: TokenText,
}

impl Order {
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        fs::write(directory.join(FILE), serde_json::to_string(self)?).context("cannot write a plan")
    }

    pub(super) fn read(directory: &Path) -> Result<Self> {
        let text = fs::read_to_string(directory.join(FILE)).context("cannot read the plan")?;
        Ok(serde_json::from_str(&text)?)
    }
}

impl RebuildPolicy {
    pub(super) fn rebuild(self) -> Rebuild {
        match self {
            RebuildPolicy::Wait => Rebuild::Wait,
            RebuildPolicy::Background => Rebuild::Background,
        }
    }
}

/// TATP's indexes: table, index, and entries for a subscriber. Those come first that the mix reads
/// most often for each entry.
const INDEXES: [(&str, &str, f64); 7] = [
    ("subscriber", "primary", 1.0),
    ("subscriber", "by_sub_nbr", 1.0),
    ("access_info", "primary", 2.5),
    ("special_facility", "primary", 2.5),
    ("call_forwarding", "by_facility", 3.75),
    ("special_facility", "by_subscriber", 2.5),
    ("call_forwarding", "primary", 3.75),
];

/// Entries of all indexes for a subscriber.
pub const ENTRIES_PER_SUBSCRIBER: f64 = 17.0;

/// The tables of TATP, with about `percent` of all index entries in the pool; the others are in
/// DRAM. Indexes are placed whole, so the result also says which share is in the pool.
pub fn placed(percent: u32) -> ([TableSpec; 4], f64) {
    let (placements, share) = placements(percent);
    let specs = tables().map(|spec| {
        let of_table: Vec<_> =
            placements.iter().filter(|(table, ..)| *table == spec.name()).collect();
        of_table
            .into_iter()
            .fold(spec, |spec, (_, index, placement)| spec.place([*index], *placement))
    });
    (specs, share)
}

/// Where each index lies, by its table and name, with about `percent` of all entries in the pool;
/// and which share is there.
pub(super) fn placements(percent: u32) -> ([(&'static str, &'static str, Placement); 7], f64) {
    let mut in_pool = 0.0;
    let placements = INDEXES.map(|(table, index, entries)| {
        let fits = in_pool + entries / 2.0 <= ENTRIES_PER_SUBSCRIBER * f64::from(percent) / 100.0;
        in_pool += if fits { entries } else { 0.0 };
        (table, index, if fits { Placement::Pmem } else { Placement::Dram })
    });
    (placements, in_pool / ENTRIES_PER_SUBSCRIBER)
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
