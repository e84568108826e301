//! What an exploration found.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Serialize, Serializer};

use crate::config::Only;
use crate::mutate::Mutation;
use crate::trace::Site;

/// What a violation broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// The run itself panicked, blocked, did not end, or could not create the structure.
    Run,
    /// An operation was refused where the configuration leaves room for all.
    Refused,
    /// What a crash left of a creation is no structure, and none can be created there.
    Creation,
    /// The answers of the run contradict each other, before any crash.
    Linearizability,
    /// Something panicked after the crash, or did not end.
    Panic,
    /// Recovery refused an image that is not damaged.
    Open,
    /// The recovered state is none that the oracle allows.
    State,
    /// The structure's own check failed.
    Check,
    /// Operations after the recovery answered or left something wrong.
    After,
    /// Something was answered although the medium had reported a fault.
    Fault,
}

/// One crash on the way to a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// The crash point: how many events came before it, since the start or since the crash before.
    pub point: u64,
    /// The number of the image at this point.
    pub image: u64,
    /// The event before which the power failed.
    pub event: String,
    /// What survived of what was pending, by offset, and what else went wrong.
    pub survived: String,
}

/// Something on which the structure failed.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// What was broken.
    pub broken: Broken,
    /// What was found, and what was expected.
    pub what: String,
    /// The crash, and the one in the life after it when that was crashed too; none when the run itself failed.
    pub crashes: Vec<Crash>,
    /// The last operations before the first crash.
    pub ops: Vec<String>,
    /// The configuration, in short.
    pub config: String,
    /// The command that shows it again.
    pub command: String,
}

impl Violation {
    /// What [`Config::only`](crate::Config::only) must be to see this violation alone.
    pub fn only(&self) -> Only {
        Only { path: self.crashes.iter().map(|crash| (crash.point, crash.image)).collect() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violation ({:?}) with seed {}: {}", self.broken, self.seed, self.what)?;
        for (index, crash) in self.crashes.iter().enumerate() {
            let when = if index == 0 { "crashed" } else { "after recovery, crashed again" };
            writeln!(f, "  {when} at point {}, image {}", crash.point, crash.image)?;
            writeln!(f, "    before {}", crash.event)?;
            writeln!(f, "    survived: {}", crash.survived)?;
        }
        self.ops.iter().try_for_each(|op| writeln!(f, "  {op}"))?;
        writeln!(f, "  with {}", self.config)?;
        write!(f, "  again: {}", self.command)
    }
}

/// What was explored, and what was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Runs explored: one schedule each.
    pub schedules: u64,
    /// Crash points explored.
    pub crash_points: u64,
    /// Images on which recovery ran, nested ones included.
    pub images: u64,
    /// Images left out because the same one was explored before.
    pub duplicates: u64,
    /// Images left out because they differ from an explored one only where recovery never looks.
    pub pruned: u64,
    /// Crash points with more images than were explored.
    pub sampled_points: u64,
    /// Images of crashes inside recovery and after it.
    pub nested_images: u64,
    /// Images with a fault beside the crash.
    pub faulty_images: u64,
    /// Different states observed after recovery.
    #[serde(serialize_with = "count")]
    pub distinct_states: States,
    /// Every flush, fence and sync in the source that was called.
    pub sites: BTreeSet<Site>,
    /// How often the subject came to each of the [events](crate::Sim::reach) that it counts.
    pub reached: BTreeMap<&'static str, u64>,
    /// What was found.
    pub violations: Vec<Violation>,
    /// What became of each mutant, when flush and fence sites were mutated.
    pub mutation: Option<Mutation>,
    /// A number that differs, but for chance, when a run did anything else.
    pub digest: u64,
    /// Time it took.
    pub seconds: f64,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Adds what another exploration of the same subject found.
    pub fn merge(&mut self, other: Report) {
        self.schedules += other.schedules;
        self.crash_points += other.crash_points;
        self.images += other.images;
        self.duplicates += other.duplicates;
        self.pruned += other.pruned;
        self.sampled_points += other.sampled_points;
        self.nested_images += other.nested_images;
        self.faulty_images += other.faulty_images;
        self.distinct_states.hashes.extend(other.distinct_states.hashes);
        self.sites.extend(other.sites);
        for (event, count) in other.reached {
            *self.reached.entry(event).or_default() += count;
        }
        self.violations.extend(other.violations);
        self.mutation = self.mutation.take().or(other.mutation);
        // Addition, so that the order in which seeds end does not matter.
        self.digest = self.digest.wrapping_add(other.digest);
        self.seconds += other.seconds;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} schedules, {} crash points ({} sampled), {} images ({} nested, {} faulty; \
             {} duplicates and {} equivalent left out), {} distinct states, {} violations, {:.1} s",
            self.schedules,
            self.crash_points,
            self.sampled_points,
            self.images,
            self.nested_images,
            self.faulty_images,
            self.duplicates,
            self.pruned,
            self.distinct_states.len(),
            self.violations.len(),
            self.seconds
        )?;
        if let Some(mutation) = &self.mutation {
            write!(f, "\n{mutation}")?;
        }
        self.violations.iter().try_for_each(|violation| write!(f, "\n{violation}"))
    }
}

/// A set of observed states, by hash.
#[derive(Clone, Debug, Default)]
pub struct States {
    pub(crate) hashes: Hashes,
}

impl States {
    /// How many different states were observed.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

fn count<S: Serializer>(states: &States, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(states.len() as u64)
}

/// A set of numbers that are hashes already.
pub(crate) type Hashes = HashSet<u64, BuildHasherDefault<Identity>>;

/// Hashes a hash to itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
