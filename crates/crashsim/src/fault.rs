//! What goes wrong beside the crash.

use remanent_pmem::{PAGE_LEN, WORD_LEN};
use serde::Serialize;

use crate::rng::Rng;
use crate::sim::Sim;

/// Faults to inject, each in so many more images at every crash point of a run.
///
/// With write disturbance the oracle stays as it is: a structure declares to survive it. With the others
/// an error from `open`, `observe` or `check` is right too, and so is a refused operation; what is never
/// right is a panic, an endless loop, or an answer after the medium reported a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// A line that was being written back holds garbage in some or all of its words.
    pub disturbed: u64,
    /// A line that holds data cannot be read.
    pub poisoned: u64,
    /// The medium ends early, at a page.
    pub truncated: u64,
}

/// One fault in one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Injected {
    /// A unit of so many words, from the given one, was disturbed.
    Disturbed {
        word: u32,
        words: u32,
    },
    Poisoned {
        line: u32,
    },
    Truncated {
        pages: u32,
    },
}

impl Injected {
    /// Whether errors are right answers.
    pub(crate) fn excuses_errors(self) -> bool {
        !matches!(self, Injected::Disturbed { .. })
    }

    /// Puts the fault into the medium; what changes can be rolled back but for poison.
    pub(crate) fn inject(self, sim: &Sim, rng: &mut Rng) {
        match self {
            Injected::Disturbed { word, words } => {
                let one_in = 1 + rng.below(3);
                let mut garbage = Vec::new();
                for word in word..word + words {
                    if rng.one_in(one_in) {
                        garbage.push((word, rng.next_u64()));
                    }
                }
                sim.poke_all(garbage);
            }
            Injected::Poisoned { line } => sim.poison(u64::from(line) * 64, 64),
            Injected::Truncated { pages } => sim.set_len(pages),
        }
    }

    /// Ends what a roll back does not.
    pub(crate) fn heal(self, sim: &Sim) {
        if let Injected::Poisoned { line } = self {
            sim.unmark([line]);
        }
    }

    pub(crate) fn describe(self) -> String {
        match self {
            Injected::Disturbed { word, words } => {
                let (offset, len) = (u64::from(word) * WORD_LEN, u64::from(words) * WORD_LEN);
                format!("garbage in the {len} bytes at offset {offset:#x} that were being written")
            }
            Injected::Poisoned { line } => {
                format!("line at offset {:#x} poisoned", u64::from(line) * 64)
            }
            Injected::Truncated { pages } => {
                format!("medium truncated to {} bytes", u64::from(pages) * PAGE_LEN)
            }
        }
    }
}

impl Faults {
    /// Images that these faults add to a crash point.
    pub(crate) fn images(&self) -> u64 {
        self.disturbed + self.poisoned + self.truncated
    }

    /// The fault of one of these images; `None` where there is nothing to hurt.
    pub(crate) fn choose(
        &self,
        number: u64,
        places: &Places<'_>,
        sim: &Sim,
        rng: &mut Rng,
    ) -> Option<Injected> {
        if number < self.disturbed {
            let unit = (!places.in_flight.is_empty()).then(|| *rng.pick(places.in_flight))?;
            let words = places.unit_words;
            return Some(Injected::Disturbed { word: unit * words, words });
        }
        if number < self.disturbed + self.poisoned {
            let line = (!places.written.is_empty()).then(|| *rng.pick(places.written))?;
            return Some(Injected::Poisoned { line });
        }
        let pages = u64::from(sim.words_len()) * WORD_LEN / PAGE_LEN;
        let used = places.written.last().map_or(0, |line| u64::from(*line) * 64 / PAGE_LEN + 1);
        // Half of the cuts go through what is in use, the rest anywhere.
        let end = if rng.one_in(2) { used.clamp(1, pages.max(1)) } else { pages.max(1) };
        Some(Injected::Truncated { pages: rng.below(end) as u32 })
    }
}

/// Where faults may strike at one crash point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    /// Units that are being written back.
    pub(crate) in_flight: &'a [u32],
    /// Words of a unit.
    pub(crate) unit_words: u32,
    /// Lines that were ever written, ascending.
    pub(crate) written: &'a [u32],
}
