//! Images that need not run, because one that ran looks the same to whoever recovers it.
//!
//! A run that never read a line would have gone the same way with any other content of it. So each run
//! that ends notes which components it read, and stands for all images that agree on those. Where the life after
//! the crash was crashed as well, later recoveries count as readers: such a run stands for others that would be
//! crashed again, and one whose life was not crashed does not.

use crate::crash::image::Choice;
use crate::hashes::Hashes;
use crate::rng::mix;
use crate::sim::Sim;

/// What the runs of one crash point looked at.
#[derive(Debug, Default)]
pub(crate) struct Prune {
    /// By component, its lines; empty to prune nothing.
    lines: Vec<Vec<u32>>,
    /// By components that some run read, what they were in those runs.
    covered: Covered,
    /// The same of runs whose life was crashed, with what was read in all lives.
    covered_deeply: Covered,
}

type Covered = Vec<(Vec<usize>, Hashes)>;

impl Prune {
    pub(crate) fn new(lines: Vec<Vec<u32>>) -> Self {
        Prune { lines, ..Prune::default() }
    }

    /// Whether an image that ran stands for this one, whose life after the crash is to be crashed or not.
    pub(crate) fn covers(&self, choice: &Choice, deeply: bool) -> bool {
        let covered = if deeply { &self.covered_deeply } else { &self.covered };
        covered.iter().any(|(read, seen)| seen.contains(&digest(read, choice)))
    }

    /// Starts to note what is read.
    pub(crate) fn watch(&self, sim: &Sim) {
        sim.watch(self.lines.iter().flatten().copied());
    }

    /// Notes that the image of this choice ran, and what was read of it since it was watched; `deeply` when its life was
    /// crashed.
    pub(crate) fn note(&mut self, sim: &Sim, choice: &Choice, deeply: bool) {
        if self.lines.is_empty() {
            return;
        }
        // The length has no line, and everybody reads it.
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
