//! What is explored, and how far.

use std::ops::Range;

use serde::Serialize;

use crate::crash::fault::Faults;
use crate::oracle::Oracle;
use crate::rng::mix;
use crate::sim::SimOptions;
use crate::sim::schedule::Schedule;

/// Where a run is crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Points {
    /// Before every flush and every fence, and at the end.
    ///
    /// Between two of them only images with fewer stores arise, so this loses little but precision.
    #[default]
    Fences,
    /// Also between any two stores. Always so with [`Class::Process`](crate::Class::Process).
    Stores,
}

/// Crashes in the life after a crash: inside recovery, and in the operations that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nested {
    /// How many crashes may follow the first one; 0 for none.
    pub depth: u32,
    /// One in so many images has its second life crashed, and its clean close checked; 0 for none.
    pub one_in: u64,
    /// Images at each crash point of a second life.
    pub samples: u64,
}

impl Default for Nested {
    fn default() -> Self {
        Nested { depth: 1, one_in: 16, samples: 8 }
    }
}

/// One image and nothing else: what a printed command asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Only {
    /// Crash point and image, first crash first; more than one when a second life was crashed.
    ///
    /// Empty for all images of one seed.
    pub path: Vec<(u64, u64)>,
}

/// A configuration: everything that a result depends on beside the subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Config {
    /// One run for each seed.
    pub seeds: Range<u64>,
    /// Operations before the threads start.
    pub setup: usize,
    /// Simulated threads.
    pub threads: usize,
    /// Operations of each thread.
    pub ops: usize,
    /// Where a run is crashed.
    pub points: Points,
    /// Whether the creation is crashed too; it is the same for all seeds, so only the first one's is.
    pub creation: bool,
    /// At a crash point with at most so many images, all of them are explored.
    pub full_max: u64,
    /// At other crash points so many are sampled.
    pub samples: u64,
    /// Crashes inside recovery and after it.
    pub nested: Nested,
    /// Operations that are done, and compared with the model, after each recovery.
    pub after: usize,
    /// Whether operations may be [refused](crate::Subject::is_refused): else a refusal is a violation, but for one
    /// after a fault.
    pub may_refuse: bool,
    /// Whether the first crash kills the process alone, and the power fails in the life after it.
    ///
    /// Recovery then finds everything that was executed, while nothing of it is more durable than it was. Only the
    /// second crash takes away what neither life has flushed and fenced. One crash point in [`Nested::one_in`] is
    /// explored so; the medium is of [`Class::Power`](crate::Class::Power).
    pub killed: bool,
    /// Mixed into every seed, so that subjects that draw from the same operations do not draw the same ones.
    pub salt: u64,
    /// Whether images are left out that differ from an explored one only where recovery never looks.
    pub prune: bool,
    /// How threads are switched.
    pub schedule: Schedule,
    /// Which recovered states are right.
    pub oracle: Oracle,
    /// What else goes wrong.
    pub faults: Faults,
    /// The medium.
    pub sim: SimOptions,
    /// Calls of the medium after which a run counts as endless.
    pub steps_max: u64,
    /// The exploration ends at so many violations.
    pub violations_max: usize,
    /// Seeds explored at the same time.
    pub jobs: usize,
    /// Explores one image alone.
    pub only: Option<Only>,
    /// Command that a failure prints, to which `--seed`, `--point` and `--image` are added.
    pub command: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seeds: 0..1,
            setup: 0,
            threads: 1,
            ops: 8,
            points: Points::default(),
            creation: true,
            full_max: 1 << 12,
            samples: 256,
            nested: Nested::default(),
            after: 4,
            may_refuse: true,
            killed: false,
            salt: 0,
            prune: true,
            schedule: Schedule::default(),
            oracle: Oracle::default(),
            faults: Faults::default(),
            sim: SimOptions::default(),
            steps_max: 4 << 20,
            violations_max: 1,
            jobs: 1,
            only: None,
            command: "remanent crash-test".to_owned(),
        }
    }
}

impl Config {
    /// What everything is drawn from that belongs to a seed: [`Workload::generate`](crate::Workload::generate) is given
    /// this number for it.
    pub fn chance(&self, seed: u64) -> u64 {
        if self.salt == 0 { seed } else { mix(self.salt ^ mix(seed)) }
    }

    /// What a result depends on, in a line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "setup {}, {} × {} ops, {:?}, {:?}, {:?}{}, {:?}, {:?}, full {}, samples {}, {:?}, {:?}",
            self.setup,
            self.threads,
            self.ops,
            self.points,
            self.sim.class,
            self.sim.granularity,
            if self.killed { ", killed first" } else { "" },
            self.oracle,
            self.schedule,
            self.full_max,
            self.samples,
            self.nested,
            self.faults
        )
    }
}
