//! Numbered images that a crash may leave.
//!
//! Pending stores form components that survive independently of each other: a line (or sector) with
//! its ordinary stores, a word that was streamed, a released page, the length of the file. Each
//! component has a few outcomes, and an image chooses one of each. Its number identifies the image,
//! so that a report can ask for it again.

use std::collections::BTreeMap;
use std::ops::Range;

use remanent_pmem::PAGE_LEN;

use super::pending::{Pending, Stored, word_hash};
use crate::rng::{Rng, mix};
use crate::sim::Sim;
use crate::sim::trace::{PAGE_WORDS, StoreKind};

/// A word that an image changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Write {
    word: u32,
    value: u64,
    seq: u64,
}

/// One outcome of a component: the words that change, and how they change the hash of the medium.
#[derive(Clone, Debug)]
struct Outcome {
    writes: Range<usize>,
    hash: u64,
}

/// Stores that survive or not, independently of all others.
#[derive(Clone, Debug)]
struct Component {
    /// All outcomes but the one where nothing survives, in the order of events.
    outcomes: Range<usize>,
    /// Number of the outcome where everything survives; 0 if that equals the one where nothing
    /// does.
    full: u32,
}

impl Component {
    /// Number of outcomes, with the one where nothing survives.
    fn count(&self) -> u64 {
        self.outcomes.len() as u64 + 1
    }
}

/// All images of a crash at one point.
#[derive(Debug, Default)]
pub(crate) struct Images {
    components: Vec<Component>,
    outcomes: Vec<Outcome>,
    writes: Vec<Write>,
    /// Whether a word occurs in two components. The later store must then win.
    overlap: bool,
    /// Lengths in pages that the file may have, the durable one first. If there are several, they
    /// are the outcomes of the first component.
    lens: Vec<u32>,
    seed: u64,
    total: u64,
    sampled: bool,
}

/// The outcome of each component in one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    outcomes: Vec<u32>,
}

impl Choice {
    /// The outcome of a component; 0 if nothing of it survives.
    pub(crate) fn outcome(&self, component: usize) -> u32 {
        self.outcomes[component]
    }
}

impl Images {
    /// The images at a moment. `sim` holds the durable words.
    ///
    /// Up to `full_max` images, all are numbered. Otherwise `samples` of them are: none of the
    /// pending stores, all of them, each component alone, all but one, and random ones drawn from
    /// `seed`.
    pub(crate) fn new(
        pending: &Pending,
        sim: &Sim,
        full_max: u64,
        samples: u64,
        seed: u64,
    ) -> Self {
        let mut images =
            Images { seed, lens: vec![sim.words_len() / PAGE_WORDS], ..Images::default() };
        images.add_lens(&pending.lens);
        for (page, punched) in &pending.punched {
            images.add_page(pending, sim, *page, punched.seq);
        }
        let in_page = |word: u32| pending.punched.contains_key(&(word / PAGE_WORDS));
        for stores in pending.units.values().filter(|stores| !in_page(stores[0].word)) {
            let overlap = stores.iter().any(|stored| pending.streams.contains_key(&stored.word));
            images.overlap |= overlap;
            images.add_unit(sim, stores, overlap);
        }
        for streamed in pending.streams.values().filter(|streamed| !in_page(streamed[0].word)) {
            let overlap = images.overlap;
            images.add_stream(sim, streamed, overlap);
        }
        let product = images.components.iter().try_fold(1, |product: u64, component| {
            product.checked_mul(component.count()).filter(|&product| product <= full_max.max(1))
        });
        images.sampled = product.is_none();
        images.total = product.unwrap_or(samples.max(2));
        images
    }

    /// How many images are numbered, from 0.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether only some of the possible images are numbered.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Chooses the outcomes of the image with this number.
    pub(crate) fn choice(&self, number: u64, choice: &mut Choice) {
        let outcomes = &mut choice.outcomes;
        outcomes.clear();
        if self.sampled {
            self.sample(number, outcomes);
            return;
        }
        let mut rest = number;
        for component in &self.components {
            outcomes.push((rest % component.count()) as u32);
            rest /= component.count();
        }
    }

    fn sample(&self, number: u64, outcomes: &mut Vec<u32>) {
        let count = self.components.len() as u64;
        let mut rng = Rng::from_parts(&[self.seed, number]);
        let (alone, target) = match number {
            0 => (true, count),
            1 => (false, count),
            // Each component alone and all but one, as long as they fit into half of the samples.
            _ if (number - 2) / 2 < count && 4 * count <= self.total => {
                (number.is_multiple_of(2), (number - 2) / 2)
            }
            _ if rng.one_in(4) => (rng.one_in(2), rng.below(count)),
            _ => {
                let none_in = 1 + rng.below(8);
                for component in &self.components {
                    let drawn = rng.below(component.count()) as u32;
                    outcomes.push(match rng.below(8) {
                        fate if fate < none_in => 0,
                        _ if rng.one_in(2) => component.full,
                        _ => drawn,
                    });
                }
                return;
            }
        };
        outcomes.extend(
            (0..).zip(&self.components).map(|(index, component)| {
                if (index == target) == alone { component.full } else { 0 }
            }),
        );
    }

    /// Hash of the medium with this image; `hash` is that of the durable words.
    pub(crate) fn hash(&self, choice: &Choice, hash: u64, sim: &Sim) -> u64 {
        let pages = self.len(choice);
        let hash = hash ^ len_hash(pages, sim);
        if !self.is_simple() {
            let words = self.cut_off(pages, sim).chain(self.final_words(choice, pages));
            return words.fold(hash, |hash, (word, value)| {
                hash ^ word_hash(word, sim.peek(word)) ^ word_hash(word, value)
            });
        }
        self.chosen(choice).fold(hash, |hash, outcome| hash ^ outcome.hash)
    }

    /// Whether the image is just the words of the chosen outcomes.
    fn is_simple(&self) -> bool {
        !self.overlap && self.lens.len() == 1
    }

    /// Pages of the file in this image.
    fn len(&self, choice: &Choice) -> u32 {
        match self.lens[..] {
            [durable] => durable,
            _ => self.lens[choice.outcome(0) as usize],
        }
    }

    /// Words behind a length in pages, as zeros: what is read there after the file grows again.
    fn cut_off(&self, pages: u32, sim: &Sim) -> impl Iterator<Item = (u32, u64)> {
        let from = if self.lens.len() == 1 { u32::MAX } else { pages * PAGE_WORDS };
        sim.used_words(from).map(|word| (word, 0))
    }

    /// Writes the image into the medium.
    pub(crate) fn materialise(&self, choice: &Choice, sim: &Sim) {
        if !self.is_simple() {
            let pages = self.len(choice);
            sim.poke_all(self.cut_off(pages, sim).collect::<Vec<_>>());
            sim.poke_all(self.final_words(choice, pages));
            sim.set_len(pages);
            return;
        }
        for outcome in self.chosen(choice) {
            let writes = &self.writes[outcome.writes.clone()];
            sim.poke_all(writes.iter().map(|write| (write.word, write.value)));
        }
    }

    /// The lines of each component, ascending.
    pub(crate) fn lines(&self) -> Vec<Vec<u32>> {
        let lines_of = |component: &Component| {
            let outcomes = &self.outcomes[component.outcomes.clone()];
            let writes = outcomes.iter().flat_map(|outcome| &self.writes[outcome.writes.clone()]);
            let mut lines: Vec<u32> = writes.map(|write| write.word / 8).collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        self.components.iter().map(lines_of).collect()
    }

    /// Describes what survives of each component.
    pub(crate) fn describe(&self, choice: &Choice) -> String {
        let mut survivors: Vec<String> = Vec::new();
        let skipped = usize::from(self.lens.len() > 1);
        if skipped > 0 {
            survivors.push(format!("a length of {} bytes", u64::from(self.len(choice)) * PAGE_LEN));
        }
        let chosen = self.components.iter().zip(&choice.outcomes).skip(skipped);
        for (component, &outcome) in chosen {
            let last = &self.outcomes[component.outcomes.end - 1];
            let place = self.writes.get(last.writes.start).map_or(0, |write| write.word);
            let of = component.count() - 1;
            survivors.push(format!("{outcome} of {of} at {:#x}", u64::from(place) * 8));
        }
        let shown = survivors.len().min(DESCRIBED_MAX);
        let more = survivors.len() - shown;
        let mut text = survivors[..shown].join(", ");
        if more > 0 {
            text += &format!(", and {more} more components");
        }
        if text.is_empty() { "nothing was pending".to_owned() } else { text }
    }

    fn chosen<'a>(&'a self, choice: &'a Choice) -> impl Iterator<Item = &'a Outcome> {
        self.components.iter().zip(&choice.outcomes).filter(|(_, outcome)| **outcome > 0).map(
            |(component, &outcome)| &self.outcomes[component.outcomes.start + outcome as usize - 1],
        )
    }

    /// Words that the image changes in a file of this many pages.
    fn final_words(&self, choice: &Choice, pages: u32) -> Vec<(u32, u64)> {
        let mut last: BTreeMap<u32, Write> = BTreeMap::new();
        for write in self.chosen(choice).flat_map(|outcome| &self.writes[outcome.writes.clone()]) {
            let entry = last.entry(write.word).or_insert(*write);
            if write.seq > entry.seq {
                *entry = *write;
            }
        }
        let is_inside = |write: &Write| write.word / PAGE_WORDS < pages;
        last.into_values().filter(is_inside).map(|write| (write.word, write.value)).collect()
    }

    /// Adds the length of the file: the durable one, or any that was set since.
    fn add_lens(&mut self, lens: &[u32]) {
        if lens.is_empty() {
            return;
        }
        self.lens.extend(lens);
        self.outcomes.extend(lens.iter().map(|_| Outcome { writes: 0..0, hash: 0 }));
        self.components.push(Component { outcomes: 0..lens.len(), full: lens.len() as u32 });
    }

    fn add_unit(&mut self, sim: &Sim, stores: &[Stored], overlap: bool) {
        let mut builder = Builder::new(self, sim, overlap);
        let mut stores = stores.iter().filter(|stored| !stored.is_past).peekable();
        while let Some(stored) = stores.next() {
            let second = stores.next_if(|next| {
                stored.kind == StoreKind::PairFirst && next.kind == StoreKind::PairSecond
            });
            if let Some(second) = second {
                // The other order: the second word alone.
                let before = builder.content.clone();
                builder.store(second);
                builder.add_outcome();
                builder.content = before;
            }
            builder.store(stored);
            builder.add_outcome();
            if let Some(second) = second {
                builder.store(second);
                builder.add_outcome();
            }
        }
        builder.finish();
    }

    fn add_stream(&mut self, sim: &Sim, streamed: &[Stored], overlap: bool) {
        let mut builder = Builder::new(self, sim, overlap);
        for stored in streamed {
            builder.store(stored);
            builder.add_outcome();
        }
        builder.finish();
    }

    /// Adds a released page: its old content, or zeros. Either comes with all or none of the stores
    /// before or after the release, respectively.
    fn add_page(&mut self, pending: &Pending, sim: &Sim, page: u32, seq: u64) {
        let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
        let units = pending.unit_of(words.start)..pending.unit_of(words.end);
        let units = pending.units.range(units).flat_map(|(_, stores)| stores);
        let streams = pending.streams.range(words.clone()).flat_map(|(_, streamed)| streamed);
        let mut stores: Vec<&Stored> =
            units.chain(streams).filter(|stored| !stored.is_past).collect();
        stores.sort_by_key(|stored| stored.seq);
        let after = stores.partition_point(|stored| stored.seq < seq);
        let mut builder = Builder::new(self, sim, false);
        stores[..after].iter().for_each(|stored| builder.store(stored));
        builder.add_outcome();
        builder.content.clear();
        let kept = words.filter(|&word| sim.peek(word) != 0);
        builder.content.extend(kept.map(|word| Write { word, value: 0, seq }));
        builder.add_outcome();
        stores[after..].iter().for_each(|stored| builder.store(stored));
        builder.add_outcome();
        builder.finish();
    }
}

/// Collects the distinct outcomes of one component.
struct Builder<'a> {
    images: &'a mut Images,
    sim: &'a Sim,
    /// Words that differ from the durable ones; with `overlap`, all words that were stored.
    content: Vec<Write>,
    /// Whether another component may write the same words.
    overlap: bool,
    first: usize,
    full: u32,
}

impl<'a> Builder<'a> {
    fn new(images: &'a mut Images, sim: &'a Sim, overlap: bool) -> Self {
        let first = images.outcomes.len();
        Builder { images, sim, content: Vec::new(), overlap, first, full: 0 }
    }

    fn store(&mut self, stored: &Stored) {
        let Stored { word, value, seq, .. } = *stored;
        self.content.retain(|write| write.word != word);
        if self.overlap || self.sim.peek(word) != value {
            self.content.push(Write { word, value, seq });
        }
    }

    /// Adds the present content as an outcome, unless it is known.
    fn add_outcome(&mut self) {
        let hash = self.content.iter().fold(0, |hash, write| {
            let durable = word_hash(write.word, self.sim.peek(write.word));
            hash ^ durable ^ word_hash(write.word, write.value)
        });
        if self.content.is_empty() {
            self.full = 0;
            return;
        }
        let mut known = self.images.outcomes[self.first..].iter();
        self.full = match known.position(|outcome| outcome.hash == hash && !self.overlap) {
            Some(known) => known as u32 + 1,
            None => {
                let start = self.images.writes.len();
                self.images.writes.extend(&self.content);
                let writes = start..self.images.writes.len();
                self.images.outcomes.push(Outcome { writes, hash });
                (self.images.outcomes.len() - self.first) as u32
            }
        };
    }

    fn finish(self) {
        let outcomes = self.first..self.images.outcomes.len();
        if !outcomes.is_empty() {
            self.images.components.push(Component { outcomes, full: self.full });
        }
    }
}

/// Hash of a length in pages, to be combined with that of the words: 0 for the initial length.
fn len_hash(pages: u32, sim: &Sim) -> u64 {
    let first = sim.options().len.div_ceil(PAGE_LEN);
    if u64::from(pages) == first { 0 } else { mix(u64::from(pages) << 32) }
}

/// Components that a description names.
const DESCRIBED_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimOptions;
    use crate::sim::trace::Event;

    /// The images after ordinary stores of 1, 2, 3 … to these words.
    fn images(words: &[u32], full_max: u64, samples: u64) -> (Sim, Pending, Images) {
        let sim = Sim::new(SimOptions::default());
        sim.keep_undo();
        let mut pending = Pending::new(sim.options(), 0);
        for (&word, value) in words.iter().zip(1..) {
            let kind = StoreKind::Ordinary;
            pending.advance(&Event::Store { word, thread: 0, kind, value }, &sim);
        }
        let images = Images::new(&pending, &sim, full_max, samples, 7);
        (sim, pending, images)
    }

    fn words_of(images: &Images, number: u64, sim: &Sim, words: &[u32]) -> Vec<u64> {
        let mut choice = Choice::default();
        images.choice(number, &mut choice);
        let before = sim.mark();
        images.materialise(&choice, sim);
        let left = words.iter().map(|&word| sim.peek(word)).collect();
        sim.roll_back(before);
        left
    }

    #[test]
    fn images_are_the_product_of_prefixes() {
        for (words, count) in [
            (&[0, 1, 2][..], 4),
            (&[0, 8, 16], 8),
            (&[0, 1, 8, 9, 10], 12),
            (&[0, 0, 0], 4),
            (&[], 1),
        ] {
            let (_, _, images) = images(words, 100, 0);
            assert_eq!((images.total(), images.is_sampled()), (count, false), "{words:?}");
        }
    }

    #[test]
    fn the_hash_of_an_image_is_that_of_its_words() {
        let words = [0, 1, 8, 8, 16];
        let (sim, pending, images) = images(&words, 100, 0);
        let mut choice = Choice::default();
        for number in 0..images.total() {
            images.choice(number, &mut choice);
            let hash = images.hash(&choice, pending.hash, &sim);
            let left = words_of(&images, number, &sim, &[0, 1, 8, 16]);
            let expected = [0, 1, 8, 16]
                .iter()
                .zip(left)
                .fold(0, |hash, (&word, value)| hash ^ word_hash(word, value));
            assert_eq!(hash, expected, "image {number}");
        }
    }

    #[test]
    fn samples_begin_with_none_all_each_alone_and_all_but_one() {
        let words: Vec<u32> = (0..20).map(|line| line * 8).collect();
        let (sim, _, images) = images(&words, 1000, 100);
        assert_eq!((images.total(), images.is_sampled()), (100, true));
        let survivors = |number| {
            let left = words_of(&images, number, &sim, &words);
            left.iter().filter(|&&word| word != 0).count()
        };
        assert_eq!((survivors(0), survivors(1)), (0, 20));
        assert!((0..20).all(|line| survivors(2 + 2 * line) == 1));
        assert!((0..20).all(|line| survivors(3 + 2 * line) == 19));
        let random: Vec<_> = (42..100).map(survivors).collect();
        assert!((2..18).any(|count| random.contains(&count)), "{random:?}");
        assert_eq!(words_of(&images, 77, &sim, &words), words_of(&images, 77, &sim, &words));
    }
}
