//! Images that need not run, because one that ran looks the same to whoever recovers it.
//!
//! A run that never read a line would have gone the same way with any other content of it. So each run
//! that ends notes which components it read, and stands for all images that agree on those.

use crate::image::Choice;
use crate::report::Hashes;
use crate::rng::mix;
use crate::sim::Sim;

/// What the runs of one crash point looked at.
#[derive(Debug, Default)]
pub(crate) struct Prune {
    /// By component, its lines; empty to prune nothing.
    lines: Vec<Vec<u32>>,
    /// Components that some run read, and what they were in those runs.
    covered: Vec<(Vec<usize>, Hashes)>,
}

impl Prune {
    pub(crate) fn new(lines: Vec<Vec<u32>>) -> Self {
        Prune { lines, covered: Vec::new() }
    }

    /// Whether an image that ran stands for this one.
    pub(crate) fn covers(&self, choice: &Choice) -> bool {
        self.covered.iter().any(|(read, seen)| seen.contains(&digest(read, choice)))
    }

    /// Starts to note what is read.
    pub(crate) fn watch(&self, sim: &Sim) {
        sim.watch(self.lines.iter().flatten().copied());
    }

    /// Notes that the image of this choice ran, and what was read of it.
    pub(crate) fn note(&mut self, sim: &Sim, choice: &Choice) {
        if self.lines.is_empty() {
            return;
        }
        let was_read = |lines: &Vec<u32>| lines.iter().any(|&line| sim.was_read(line));
        let read: Vec<usize> =
            (0..self.lines.len()).filter(|&component| was_read(&self.lines[component])).collect();
        sim.unmark(self.lines.iter().flatten().copied());
        let seen = digest(&read, choice);
        match self.covered.iter_mut().find(|(known, _)| *known == read) {
            Some((_, hashes)) => {
                hashes.insert(seen);
            }
            None => self.covered.push((read, Hashes::from_iter([seen]))),
        }
    }
}

fn digest(read: &[usize], choice: &Choice) -> u64 {
    read.iter().fold(0, |digest, &component| mix(digest ^ u64::from(choice.outcome(component))))
}
