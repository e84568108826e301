//! Report of an exploration.

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
    /// Runs explored, with one schedule each.
    pub schedules: u64,
    /// Crash points explored.
    pub crash_points: u64,
    /// Images on which recovery ran, nested ones included.
    pub images: u64,
    /// Images skipped because the same image was explored before.
    pub duplicates: u64,
    /// Images skipped because they differ from an explored one only where recovery never reads.
    pub pruned: u64,
    /// Crash points with more images than were explored.
    pub sampled_points: u64,
    /// Images of crashes during and after recovery.
    pub nested_images: u64,
    /// Images with an injected fault.
    pub faulty_images: u64,
    /// Distinct states observed after recovery.
    #[serde(serialize_with = "count")]
    pub distinct_states: States,
    /// Every flush, fence and sync site in the source that was called.
    pub sites: BTreeSet<Site>,
    /// How often each event was reached that the subject counts with
    /// [`Sim::reach`](crate::Sim::reach).
    pub reached: BTreeMap<&'static str, u64>,
    /// The violations found.
    pub violations: Vec<Violation>,
    /// The fate of each mutant, if sites were mutated.
    pub mutation: Option<Mutation>,
    /// A hash of everything that the runs did to the medium.
    pub digest: u64,
    /// Duration of the exploration.
    pub seconds: f64,
}

impl Report {
    /// Whether there is no violation.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Adds the results of another exploration of the same subject.
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
        // Addition commutes, so the order in which seeds end does not matter.
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
    /// How many distinct states were observed.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no state was observed.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }
}

fn count<S: Serializer>(states: &States, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(states.len() as u64)
}
