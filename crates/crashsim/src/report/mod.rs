//! What an exploration found.

pub(crate) mod violation;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};

use crate::hashes::Hashes;
use crate::mutate::mutation::Mutation;
use crate::sim::trace::Site;
use violation::Violation;

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
