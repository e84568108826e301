//! All subjects: a folder for each, with its scenarios.

mod batch;
mod batch_list;
mod batch_map;
mod blink_tree;
mod bptree;
mod disk;
mod engine;
mod extendible;
mod file;
mod hashmap;
mod heap;
mod line_tx;
mod log;
mod multimap;
mod nvramdisk;
mod pool;
mod row_index;
mod shapes;
mod shared;
mod sorted_sets;
mod vector;

use crate::scenario::Scenario;
pub use shapes::{Shape, shapes};

/// Every subject, in the order of exploration.
pub const SUBJECTS: &[Subject] = &[
    pool::SUBJECT,
    heap::SUBJECT,
    hashmap::SUBJECT,
    multimap::SUBJECT,
    extendible::SUBJECT,
    row_index::SUBJECT,
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
    engine::SUBJECT,
    disk::SUBJECT,
    nvramdisk::SUBJECT,
    file::SUBJECT,
];

/// A subject: its scenarios, and what they must show.
#[derive(Debug)]
pub struct Subject {
    /// Name of its folder, and common beginning of its scenarios' names.
    pub name: &'static str,
    /// Returns all of its scenarios.
    pub scenarios: fn() -> Vec<Scenario>,
    /// Returns scenarios that are known to fail. They are explored only when they are named.
    pub counterexamples: fn() -> Vec<Scenario>,
    /// Files and folders, from `crates/` on. Its scenarios must execute every flush and fence in
    /// them.
    pub sources: &'static [&'static str],
    /// Those of them that other subjects execute.
    pub sources_elsewhere: &'static [&'static str],
    /// Minimal number of images that its scenarios judge.
    pub images_min: u64,
    /// A sample of the mutation that `remanent crash-test --mutate` runs for its sources.
    pub mutation: Option<MutationSample>,
}

/// Some scenarios, and how many left-out flushes and fences must make them fail.
#[derive(Clone, Copy, Debug)]
pub struct MutationSample {
    /// The scenarios.
    pub scenarios: Chosen,
    /// Seeds of each, times its weight.
    pub seeds: u64,
    /// Minimal number of killed mutants.
    pub killed_min: usize,
    /// Maximal number of survivors without an explanation.
    pub survivors_max: usize,
}

/// Some of a subject's scenarios, by the ends of their names.
#[derive(Clone, Copy, Debug)]
pub enum Chosen {
    /// Those with such an end.
    Only(&'static [&'static str]),
    /// Those without such an end.
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

/// All scenarios, subject by subject.
pub fn scenarios() -> Vec<Scenario> {
    SUBJECTS.iter().flat_map(|subject| (subject.scenarios)()).collect()
}

/// Scenarios that are known to fail.
pub fn counterexamples() -> Vec<Scenario> {
    SUBJECTS.iter().flat_map(|subject| (subject.counterexamples)()).collect()
}
