//! Everything that is explored: a folder for each subject, with its scenarios beside it.

mod batch;
mod batch_list;
mod batch_map;
mod blink_tree;
mod bptree;
mod disk;
mod file;
mod hashmap;
mod heap;
mod line_tx;
mod log;
mod multimap;
mod nvramdisk;
mod pool;
mod shapes;
mod shared;
mod sorted_sets;
mod vector;

use crate::scenario::Scenario;
pub use shapes::{Shape, shapes};

/// Every subject, in the order in which they are explored.
pub const SUBJECTS: &[Subject] = &[
    pool::SUBJECT,
    heap::SUBJECT,
    hashmap::SUBJECT,
    multimap::SUBJECT,
    line_tx::SUBJECT,
    batch_list::SUBJECT,
    batch_map::SUBJECT,
    blink_tree::SUBJECT,
    bptree::SUBJECT,
    vector::SUBJECT,
    log::SUBJECT,
    shared::SUBJECT,
    batch::SUBJECT,
    sorted_sets::SUBJECT,
    disk::SUBJECT,
    nvramdisk::SUBJECT,
    file::SUBJECT,
];

/// What is explored of one structure, and what that must have shown.
#[derive(Debug)]
pub struct Subject {
    /// Name of its folder, with which the names of its scenarios begin.
    pub name: &'static str,
    /// Makes all of its scenarios.
    pub scenarios: fn() -> Vec<Scenario>,
    /// Makes scenarios that are known to be violated, and are explored only when they are asked for by name.
    pub counterexamples: fn() -> Vec<Scenario>,
    /// Files and folders, from `crates/` on, whose every flush and fence its scenarios execute.
    pub sources: &'static [&'static str],
    /// Those of them that other subjects execute.
    pub sources_elsewhere: &'static [&'static str],
    /// Images that its scenarios judge at least.
    pub images_min: u64,
    /// A sample of what `remanent crash-test --mutate` does for its sources.
    pub mutation: Option<MutationSample>,
}

/// Some scenarios, and how many flushes and fences they must miss when these are left out.
#[derive(Clone, Copy, Debug)]
pub struct MutationSample {
    /// Which scenarios.
    pub scenarios: Chosen,
    /// Seeds of each, times its weight.
    pub seeds: u64,
    /// Mutants that are killed at least.
    pub killed_min: usize,
    /// Mutants that survive without an explanation, at most.
    pub survivors_max: usize,
}

/// Some of a subject's scenarios, by the ends of their names.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// Those that end so.
    Only(&'static [&'static str]),
    /// Those that do not.
    AllBut(&'static [&'static str]),
}

impl Chosen {
    /// Whether the scenario of this name is one of them.
    #[must_use]
    pub fn has(self, name: &str) -> bool {
        match self {
            Chosen::Only(ends) => ends.iter().any(|end| name.ends_with(end)),
            Chosen::AllBut(ends) => !ends.iter().any(|end| name.ends_with(end)),
        }
    }
}

/// Everything that is explored, subject by subject.
pub fn scenarios() -> Vec<Scenario> {
    SUBJECTS.iter().flat_map(|subject| (subject.scenarios)()).collect()
}

/// Scenarios that are known to be violated.
pub fn counterexamples() -> Vec<Scenario> {
    SUBJECTS.iter().flat_map(|subject| (subject.counterexamples)()).collect()
}
