//! Pruning: skips an image if recovery cannot distinguish it from one that ran.
//!
//! A run that never read a line would have been the same with any other content of the line. So
//! each run notes the components that it read, and stands for all images that agree on those.
//!
//! If the life after the crash was crashed as well, reads of later recoveries count, too. Only such
//! a run stands for images whose life would be crashed.

use crate::crash::image::Choice;
use crate::hashes::Hashes;
use crate::rng::mix;
use crate::sim::Sim;

/// What the runs of one crash point have read.
#[derive(Debug, Default)]
pub(crate) struct Prune {
    /// Lines of each component; empty if nothing is to be pruned.
    lines: Vec<Vec<u32>>,
    /// For each set of components that some run read: their outcomes in those runs.
    covered: Covered,
    /// The same for runs whose life was crashed, with the reads of all lives.
    covered_deeply: Covered,
}

type Covered = Vec<(Vec<usize>, Hashes)>;

impl Prune {
    pub(crate) fn new(lines: Vec<Vec<u32>>) -> Self {
        Prune { lines, ..Prune::default() }
    }

    /// Whether an image that ran stands for this one; `deeply` if the life of this one is to be
    /// crashed.
    pub(crate) fn covers(&self, choice: &Choice, deeply: bool) -> bool {
        let covered = if deeply { &self.covered_deeply } else { &self.covered };
        covered.iter().any(|(read, seen)| seen.contains(&digest(read, choice)))
    }

    /// Starts to note which lines are read.
    pub(crate) fn watch(&self, sim: &Sim) {
        sim.watch(self.lines.iter().flatten().copied());
    }

    /// Notes that the image of this choice ran, and what was read since [`watch`](Prune::watch);
    /// `deeply` if its life was crashed.
    pub(crate) fn note(&mut self, sim: &Sim, choice: &Choice, deeply: bool) {
        if self.lines.is_empty() {
            return;
        }
        // The file's length has no line, and every run reads it.
        let was_read =
            |lines: &Vec<u32>| lines.is_empty() || lines.iter().any(|&line| sim.was_read(line));
        let read: Vec<usize> =
            (0..self.lines.len()).filter(|&component| was_read(&self.lines[component])).collect();
        let seen = digest(&read, choice);
        let covered = if deeply { &mut self.covered_deeply } else { &mut self.covered };
        match covered.iter_mut().find(|(known, _)| *known == read) {
            Some((_, hashes)) => {
                hashes.insert(seen);
            }
            None => covered.push((read, Hashes::from_iter([seen]))),
        }
    }

    /// Ends what [`watch`](Prune::watch) began.
    pub(crate) fn end_watch(&self, sim: &Sim) {
        if !self.lines.is_empty() {
            sim.unmark(self.lines.iter().flatten().copied());
        }
    }
}

fn digest(read: &[usize], choice: &Choice) -> u64 {
    read.iter().fold(0, |digest, &component| mix(digest ^ u64::from(choice.outcome(component))))
}
