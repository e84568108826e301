//! What goes wrong beside the crash.

use remanent_pmem::{PAGE_LEN, WORD_LEN};
use serde::Serialize;

use super::pending::Pending;
use crate::rng::{Rng, mix};
use crate::sim::Sim;
use crate::sim::trace::Event;

/// Faults to inject, each in so many more images at every crash point of a run.
///
/// With write disturbance the oracle stays as it is: a structure declares to survive it. With the others
/// an error from `open`, `observe` or `check` is right too, and so is a refused operation; what is never
/// right is a panic, an endless loop, or an answer after the medium reported a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// A line that was being written back holds garbage in some or all of its words.
    pub disturbed: u64,
    /// A line that was being written back holds garbage, but only in words that were stored to and not yet durable: on
    /// memory whose writes mask the words of a line that they do not mean. In lives after a crash, too.
    pub disturbed_words: u64,
    /// A line that holds data cannot be read.
    pub poisoned: u64,
    /// The medium ends early, at a page.
    pub truncated: u64,
    /// The file system is full: of the calls of `grow`, `commit` and `release` that follow the creation, one of the first
    /// so many fails, another one with each seed; and so does one in each life after a crash. No images of its own.
    pub full: u64,
}

/// One fault in one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Injected {
    /// A unit of so many words, from the given one, was disturbed.
    Disturbed {
        word: u32,
        words: u32,
    },
    /// Words that were disturbed, each by itself or all in the same way.
    DisturbedWords {
        words: Vec<u32>,
        are_alike: bool,
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
    pub(crate) fn excuses_errors(&self) -> bool {
        !matches!(self, Injected::Disturbed { .. } | Injected::DisturbedWords { .. })
    }

    /// Whether a second crash is explored after it, as after a crash without a fault.
    pub(crate) fn may_be_followed(&self) -> bool {
        matches!(self, Injected::DisturbedWords { .. })
    }

    /// Puts the fault into the medium; what changes can be rolled back but for poison.
    pub(crate) fn inject(&self, sim: &Sim, rng: &mut Rng) {
        match *self {
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
            Injected::DisturbedWords { ref words, are_alike } => {
                let alike = are_alike.then(|| plausible(rng, 0));
                let garbage = words
                    .iter()
                    .map(|&word| (word, alike.unwrap_or_else(|| plausible(rng, sim.peek(word)))));
                sim.poke_all(garbage.collect::<Vec<_>>());
            }
            Injected::Poisoned { line } => sim.poison(u64::from(line) * 64, 64),
            Injected::Truncated { pages } => sim.set_len(pages),
        }
    }

    /// Ends what a roll back does not.
    pub(crate) fn heal(&self, sim: &Sim) {
        if let Injected::Poisoned { line } = *self {
            sim.unmark([line]);
        }
    }

    pub(crate) fn describe(&self) -> String {
        match *self {
            Injected::Disturbed { word, words } => {
                let (offset, len) = (u64::from(word) * WORD_LEN, u64::from(words) * WORD_LEN);
                format!("garbage in the {len} bytes at offset {offset:#x} that were being written")
            }
            Injected::DisturbedWords { ref words, .. } => {
                let offsets =
                    words.iter().map(|word| format!("{:#x}", u64::from(*word) * WORD_LEN));
                let shown: Vec<String> = offsets.take(SHOWN_MAX).collect();
                let count = words.len();
                format!("garbage in {count} words that were being written, at {}", shown.join(", "))
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
    /// The call that fails in the run of this seed for want of room, from 1.
    pub(crate) fn full_at(&self, seed: u64) -> Option<u64> {
        Some(seed.checked_rem(self.full)? + 1)
    }

    /// The same in lives after a crash of that run: these are short.
    pub(crate) fn full_at_again(&self, seed: u64) -> Option<u64> {
        let number = mix(seed) % self.full.clamp(1, CALLS_OF_A_LIFE);
        (self.full > 0).then_some(number + 1)
    }

    /// Images that these faults add to a crash point.
    pub(crate) fn images(&self) -> u64 {
        self.disturbed + self.poisoned + self.truncated + self.disturbed_words
    }

    /// Those that a second crash may meet as well: what the medium does at every crash.
    pub(crate) fn nested(&self) -> Faults {
        Faults { disturbed_words: self.disturbed_words, ..Faults::default() }
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
            let unit = (!places.in_flight.is_empty()).then(|| *rng.pick(&places.in_flight))?;
            let words = places.unit_words;
            return Some(Injected::Disturbed { word: unit * words, words });
        }
        if number < self.disturbed + self.poisoned {
            let line = (!places.written.is_empty()).then(|| *rng.pick(places.written))?;
            return Some(Injected::Poisoned { line });
        }
        if number >= self.disturbed + self.poisoned + self.truncated {
            return choose_words(places, rng);
        }
        let pages = u64::from(sim.words_len()) * WORD_LEN / PAGE_LEN;
        let used = places.written.last().map_or(0, |line| u64::from(*line) * 64 / PAGE_LEN + 1);
        // Half of the cuts go through what is in use, the rest anywhere.
        let end = if rng.one_in(2) { used.clamp(1, pages.max(1)) } else { pages.max(1) };
        Some(Injected::Truncated { pages: rng.below(end) as u32 })
    }
}

/// Where faults may strike at one crash point.
#[derive(Clone, Debug)]
pub(crate) struct Places<'a> {
    /// Units that are being written back.
    in_flight: Vec<u32>,
    /// Words that are being written back, ascending.
    words: Vec<u32>,
    /// Words of a unit.
    unit_words: u32,
    /// Lines that were ever written, ascending.
    written: &'a [u32],
}

impl<'a> Places<'a> {
    /// The places at a moment at which this is pending.
    pub(crate) fn new(pending: &Pending, written: &'a [u32]) -> Self {
        let (in_flight, words) = (pending.in_flight(), pending.words_in_flight());
        Places { in_flight, words, unit_words: pending.unit_words(), written }
    }
}

/// Lines that were ever written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    lines: Vec<u32>,
    is_sorted: bool,
}

impl Written {
    pub(crate) fn note(&mut self, event: &Event) {
        if let Event::Store { word, .. } = event
            && self.lines.last() != Some(&(word / 8))
        {
            self.lines.push(word / 8);
            self.is_sorted = false;
        }
    }

    pub(crate) fn lines(&mut self) -> &[u32] {
        if !self.is_sorted {
            self.lines.sort_unstable();
            self.lines.dedup();
            self.is_sorted = true;
        }
        &self.lines
    }
}

/// Some of the words that are being written, of one unit or of all: at least one.
fn choose_words(places: &Places<'_>, rng: &mut Rng) -> Option<Injected> {
    let mut units: Vec<u32> = places.words.iter().map(|word| word / places.unit_words).collect();
    units.dedup();
    let unit = (!units.is_empty()).then(|| *rng.pick(&units))?;
    let only = (!rng.one_in(4)).then_some(unit);
    let is_within = |word: &u32| only.is_none_or(|unit| word / places.unit_words == unit);
    let within: Vec<u32> = places.words.iter().copied().filter(is_within).collect();
    let (certain, one_in) = (*rng.pick(&within), 1 + rng.below(3));
    let mut words = within;
    words.retain(|word| *word == certain || rng.one_in(one_in));
    Some(Injected::DisturbedWords { words, are_alike: rng.one_in(3) })
}

/// Calls for room in the life after a crash, about.
const CALLS_OF_A_LIFE: u64 = 3;
/// Words that a description names.
const SHOWN_MAX: usize = 8;

/// Garbage, often of a kind that may be taken for something: nothing, a small number, what is there but for a bit.
fn plausible(rng: &mut Rng, found: u64) -> u64 {
    match rng.below(5) {
        0 => 0,
        1 | 2 => rng.below(48),
        3 => found ^ 1 << rng.below(64),
        _ => rng.next_u64(),
    }
}
