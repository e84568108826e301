//! Faults injected into images, beside the crash.

use remanent_pmem::{PAGE_LEN, WORD_LEN};
use serde::Serialize;

use super::pending::Pending;
use crate::rng::{Rng, mix};
use crate::sim::Sim;
use crate::sim::trace::Event;

/// Faults to inject. Each number is that of additional images at every crash point of a run.
///
/// Write disturbance leaves the oracle as it is: a structure that is tested with it claims to
/// survive it. With the other faults, errors from `open`, `observe` and `check` and refused
/// operations are accepted. A panic, an endless loop, or an answer after the medium reported a
/// fault never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// A line that was being written back holds garbage in some or all of its words.
    pub disturbed: u64,
    /// A line that was being written back holds garbage, but only in words that were stored and not
    /// yet durable. This is memory whose writes mask the other words of a line. Lives after a crash
    /// meet this fault, too.
    pub disturbed_words: u64,
    /// A line that holds data cannot be read.
    pub poisoned: u64,
    /// The medium is truncated at a page.
    pub truncated: u64,
    /// The file system is full, so that a call of `grow`, `commit` or `release` fails. Of the first
    /// so many calls after creation, one fails, another one with each seed. One fails in each life
    /// after a crash, too. This adds no images.
    pub full: u64,
}

/// One fault in one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Injected {
    /// A unit of this many words, starting at the given one, was disturbed.
    Disturbed {
        word: u32,
        words: u32,
    },
    /// These words were disturbed, each by itself or all with the same value.
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
    /// Whether the structure may answer with errors.
    pub(crate) fn excuses_errors(&self) -> bool {
        !matches!(self, Injected::Disturbed { .. } | Injected::DisturbedWords { .. })
    }

    /// Whether the life after this fault is crashed, too, as after a crash without a fault.
    pub(crate) fn may_be_followed(&self) -> bool {
        matches!(self, Injected::DisturbedWords { .. })
    }

    /// Puts the fault into the medium. A roll back undoes all of it but poison.
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

    /// Undoes what a roll back does not.
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
    /// Number, from 1, of the call for room that fails in the run of this seed.
    pub(crate) fn full_at(&self, seed: u64) -> Option<u64> {
        Some(seed.checked_rem(self.full)? + 1)
    }

    /// The same for lives after a crash of that run, which are short.
    pub(crate) fn full_at_again(&self, seed: u64) -> Option<u64> {
        let number = mix(seed) % self.full.clamp(1, CALLS_OF_A_LIFE);
        (self.full > 0).then_some(number + 1)
    }

    /// Images that these faults add to a crash point.
    pub(crate) fn images(&self) -> u64 {
        self.disturbed + self.poisoned + self.truncated + self.disturbed_words
    }

    /// The faults that a second crash meets as well: what the medium does at every crash.
    pub(crate) fn nested(&self) -> Faults {
        Faults { disturbed_words: self.disturbed_words, ..Faults::default() }
    }

    /// Chooses the fault of an additional image; `None` if there is nothing to damage.
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
        // Half of the truncations fall into what is in use, the others anywhere.
        let end = if rng.one_in(2) { used.clamp(1, pages.max(1)) } else { pages.max(1) };
        Some(Injected::Truncated { pages: rng.below(end) as u32 })
    }
}

/// Where faults can strike at one crash point.
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
    /// The places while `pending` is not durable.
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

/// Chooses at least one of the words that are being written, in one unit or in all.
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

/// Approximate number of calls for room in the life after a crash.
const CALLS_OF_A_LIFE: u64 = 3;
/// Words that a description names.
const SHOWN_MAX: usize = 8;

/// Garbage that often looks plausible: zero, a small number, or the present value with one bit
/// flipped.
fn plausible(rng: &mut Rng, found: u64) -> u64 {
    match rng.below(5) {
        0 => 0,
        1 | 2 => rng.below(48),
        3 => found ^ 1 << rng.below(64),
        _ => rng.next_u64(),
    }
}
