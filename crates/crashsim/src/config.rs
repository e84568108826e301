//! Configuration of an exploration: what is explored, and how far.

use std::ops::Range;

use serde::Serialize;

use crate::crash::fault::Faults;
use crate::oracle::Oracle;
use crate::rng::mix;
use crate::sim::SimOptions;
use crate::sim::schedule::Schedule;

/// The points at which a run is crashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Points {
    /// Before every flush, fence, sync, and change of the file's length and holes, and at the end.
    ///
    /// A crash between two of these points leaves only images with fewer stores, so little but
    /// precision is lost.
    #[default]
    Fences,
    /// Also between any two stores. [`Class::Process`](crate::Class::Process) always uses these
    /// points.
    Stores,
    /// Only at the end, when the object was closed: for explorations of interleavings, whose runs
    /// are then quick.
    End,
}

/// Crashes in the life after a crash: during recovery, and during the operations that follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nested {
    /// How many crashes may follow the first one; 0 for none.
    pub depth: u32,
    /// One in this many images has its second life crashed and its clean close checked; 0 for none.
    pub one_in: u64,
    /// Images at each crash point of a second life.
    pub samples: u64,
}

impl Default for Nested {
    fn default() -> Self {
        Nested { depth: 1, one_in: 16, samples: 8 }
    }
}

/// A single image to explore, as a printed command asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Only {
    /// Crash point and image of each crash, first crash first. A second pair is in the life after
    /// the first crash.
    ///
    /// Empty for all images of one seed.
    pub path: Vec<(u64, u64)>,
}

/// Everything that a result depends on, apart from the subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Config {
    /// Seeds; each is one run.
    pub seeds: Range<u64>,
    /// Operations before the threads start.
    pub setup: usize,
    /// Number of simulated threads.
    pub threads: usize,
    /// Operations of each thread.
    pub ops: usize,
    /// The points at which a run is crashed.
    pub points: Points,
    /// Whether creation is crashed as well. Creation is the same for all seeds, so only the first
    /// seed crashes it.
    pub creation: bool,
    /// Up to this many images of a crash point, all are explored.
    pub full_max: u64,
    /// Images sampled at a crash point that has more than `full_max`.
    pub samples: u64,
    /// Crashes during and after recovery.
    pub nested: Nested,
    /// Operations executed after each recovery, and compared with the model.
    pub after: usize,
    /// Whether operations may be [refused](crate::Subject::is_refused). Otherwise a refusal is a
    /// violation, unless a fault was injected.
    pub may_refuse: bool,
    /// How many crashes only kill the process, before the power fails in the life after them.
    ///
    /// Recovery then finds everything that was executed, though none of it is more durable than
    /// before. Only the crash after those takes away what no life has flushed and fenced, so
    /// [`Nested::depth`] is at least this. One in [`Nested::one_in`] crash points is explored this
    /// way. The medium must be of [`Class::Power`](crate::Class::Power).
    pub kills: u32,
    /// Mixed into every seed, so that subjects that draw from the same operations draw different
    /// ones.
    pub salt: u64,
    /// Whether to skip images that differ from an explored one only where recovery never reads.
    pub prune: bool,
    /// How the simulator switches between threads.
    pub schedule: Schedule,
    /// Which recovered states are right.
    pub oracle: Oracle,
    /// Faults to inject.
    pub faults: Faults,
    /// The simulated medium.
    pub sim: SimOptions,
    /// Calls of the medium after which a run counts as endless.
    pub steps_max: u64,
    /// Violations after which the exploration ends.
    pub violations_max: usize,
    /// Seeds explored at the same time.
    pub jobs: usize,
    /// Explores this image alone.
    pub only: Option<Only>,
    /// Command that a violation prints; `--seed`, `--point` and `--image` are added to it.
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
            kills: 0,
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
    /// The number from which everything random in the run of a seed is drawn,
    /// [`Workload::generate`](crate::Workload::generate) included.
    pub fn chance(&self, seed: u64) -> u64 {
        if self.salt == 0 { seed } else { mix(self.salt ^ mix(seed)) }
    }

    /// All settings that the result depends on, in one line.
    pub(crate) fn summary(&self) -> String {
        format!(
            "setup {}, {} × {} ops, {:?}, {:?}, {:?}{}, {:?}, {:?}, full {}, samples {}, {:?}, {:?}",
            self.setup,
            self.threads,
            self.ops,
            self.points,
            self.sim.class,
            self.sim.granularity,
            match self.kills {
                0 => String::new(),
                1 => ", killed first".to_owned(),
                kills => format!(", killed {kills} times first"),
            },
            self.oracle,
            self.schedule,
            self.full_max,
            self.samples,
            self.nested,
            self.faults
        )
    }
}
