//! The persistency model: which stores are certainly durable, and which are pending.
//!
//! The assumptions are those of the medium's documentation (docs/model.md):
//!
//! 1. An aligned word of 8 bytes is stored whole or not at all.
//! 2. Ordinary stores to one line become durable in program order: a crash leaves a *prefix* of
//!    them.
//! 3. Different lines are unordered, unless the first was flushed and fenced before the second was
//!    stored.
//! 4. Any line may become durable at any time, flushed or not.
//! 5. Only a fence orders streaming stores; until then each of their words survives by itself.
//! 6. A locked instruction does not make its own line durable.
//! 7. With [`Granularity::Page`] the flushed unit is the page and the atomic unit a sector of 512
//!    bytes.
//! 10. Growth and holes are durable after a sync of the file. A hole is also durable once a later
//!     store to its page is.
//!
//! [`Pending`] follows a trace. The words of the medium always hold what is durable *for certain*;
//! [`image`](super::image) enumerates what else a crash may leave.

use std::collections::BTreeMap;

use crate::rng::mix;
use crate::sim::trace::{Event, PAGE_WORDS, StoreKind};
use crate::sim::{Class, Granularity, Sim, SimOptions};

/// A store that may be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    pub(crate) word: u32,
    pub(crate) value: u64,
    pub(crate) kind: StoreKind,
    /// Whether a later store to the same word is already durable, so that this one no longer
    /// matters.
    pub(crate) is_past: bool,
    thread: u16,
}

/// A released page whose release may be lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Punched {
    pub(crate) seq: u64,
}

/// What the next fence of a thread waits for.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// Units, each with the sequence number of the last store that the flush covered.
    flushed: Vec<(u32, u64)>,
    streamed: Vec<u32>,
}

/// Everything that is not certainly durable at one moment of a trace.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    class: Class,
    granularity: Granularity,
    seq: u64,
    /// Ordinary stores by unit (line or sector), in coherence order.
    pub(crate) units: BTreeMap<u32, Vec<Stored>>,
    /// Streaming stores by word, in coherence order.
    pub(crate) streams: BTreeMap<u32, Vec<Stored>>,
    /// Released pages.
    pub(crate) punched: BTreeMap<u32, Punched>,
    /// Lengths in pages, ascending, that the file was given since it was last synced.
    pub(crate) lens: Vec<u32>,
    waiting: Vec<Waiting>,
    /// Hash of the durable words.
    pub(crate) hash: u64,
}

impl Pending {
    /// Nothing is pending; `hash` is the hash of the durable words.
    pub(crate) fn new(options: &SimOptions, hash: u64) -> Self {
        Pending {
            class: options.class,
            granularity: options.granularity,
            seq: 0,
            units: BTreeMap::new(),
            streams: BTreeMap::new(),
            punched: BTreeMap::new(),
            lens: Vec::new(),
            waiting: Vec::new(),
            hash,
        }
    }

    /// The unit of a word: its line or sector.
    pub(crate) fn unit_of(&self, word: u32) -> u32 {
        word / self.unit_words()
    }

    /// Words of a unit.
    pub(crate) fn unit_words(&self) -> u32 {
        match self.granularity {
            Granularity::Line => 8,
            Granularity::Page => 64,
        }
    }

    /// Units that are being written back: flushed by a thread that has not fenced yet.
    pub(crate) fn in_flight(&self) -> Vec<u32> {
        let mut units: Vec<u32> = self
            .waiting
            .iter()
            .flat_map(|waiting| {
                let streamed = waiting.streamed.iter().map(|&word| self.unit_of(word));
                waiting.flushed.iter().map(|&(unit, _)| unit).chain(streamed)
            })
            .collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Words that are being written back: stored, then flushed by a thread that has not fenced yet.
    pub(crate) fn words_in_flight(&self) -> Vec<u32> {
        let mut words = Vec::new();
        for waiting in &self.waiting {
            words.extend(&waiting.streamed);
            for (unit, seq) in &waiting.flushed {
                let stores = self.units.get(unit).into_iter().flatten();
                let covered = stores.filter(|stored| stored.seq <= *seq && !stored.is_past);
                words.extend(covered.map(|stored| stored.word));
            }
        }
        words.sort_unstable();
        words.dedup();
        words
    }

    /// Processes the next event of the trace. Writes to `sim` what the event makes durable.
    pub(crate) fn advance(&mut self, event: &Event, sim: &Sim) {
        self.seq += 1;
        match *event {
            Event::Grow { pages } if self.class == Class::Process => sim.set_len(pages),
            Event::Grow { pages } => self.lens.push(pages),
            // A crash leaves room allocated, and room is not limited here.
            Event::Commit { .. } => {}
            Event::Sync { .. } => self.sync(sim),
            Event::Store { word, value, .. } if self.class == Class::Process => {
                self.make_word_durable(sim, word, value);
            }
            Event::Store { word, thread, kind, value } => {
                let seq = self.seq;
                let stored = Stored { seq, word, value, kind, is_past: false, thread };
                if kind == StoreKind::Streaming {
                    self.streams.entry(word).or_default().push(stored);
                    self.waiting_mut(thread).streamed.push(word);
                } else {
                    self.units.entry(self.unit_of(word)).or_default().push(stored);
                }
            }
            Event::Flush { line, lines, thread, .. } => self.flush(line, lines, thread),
            Event::Fence { thread, .. } | Event::Order { thread } => self.fence(thread, sim),
            Event::Release { page, pages, .. } => {
                for page in page..page + pages {
                    self.punch(page, sim);
                }
            }
        }
    }

    /// The process was killed: no thread will fence for its flushes any more. Streamed stores are
    /// durable, since the CPU's buffers drain when the thread ends (assumption 5).
    pub(crate) fn outlive_process(&mut self, sim: &Sim) {
        self.waiting.clear();
        for word in self.streams.keys().copied().collect::<Vec<_>>() {
            let last = self.streams.get(&word).and_then(|streamed| streamed.last()).copied();
            if let Some(last) = last {
                self.make_hole_before_durable(&last, sim);
            }
            if let Some(streamed) = self.streams.get(&word) {
                self.make_stream_durable_up_to(word, streamed.len() - 1, sim);
            }
        }
    }

    /// Writes everything pending into `sim`: this is what the next process finds.
    pub(crate) fn show_all(&self, sim: &Sim) {
        if let Some(&pages) = self.lens.last() {
            sim.set_len(pages);
        }
        let stores = self.units.values().chain(self.streams.values()).flatten();
        let stores = stores.filter(|stored| !stored.is_past);
        let mut writes: Vec<(u64, u32, u64)> =
            stores.map(|stored| (stored.seq, stored.word, stored.value)).collect();
        for (&page, punched) in &self.punched {
            let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
            writes.extend(words.map(|word| (punched.seq, word, 0)));
        }
        writes.sort_unstable();
        sim.poke_all(writes.into_iter().map(|(_, word, value)| (word, value)));
    }

    /// A page was released.
    fn punch(&mut self, page: u32, sim: &Sim) {
        let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
        let units = self.unit_of(words.start)..self.unit_of(words.end);
        let is_blank = !self.punched.contains_key(&page)
            && self.units.range(units).next().is_none()
            && self.streams.range(words.clone()).next().is_none()
            && words.clone().all(|word| sim.peek(word) == 0);
        // Certain zeros stay zeros, with and without the hole.
        if is_blank {
            return;
        }
        self.punched.insert(page, Punched { seq: self.seq });
        if self.class == Class::Process {
            self.make_hole_durable(page, sim);
        } else {
            sim.set_punched(page, true);
        }
    }

    /// The file was synced: its length and its holes are durable.
    fn sync(&mut self, sim: &Sim) {
        if let Some(&pages) = self.lens.last() {
            sim.set_len(pages);
        }
        self.lens.clear();
        for page in self.punched.keys().copied().collect::<Vec<_>>() {
            self.make_hole_durable(page, sim);
        }
    }

    fn flush(&mut self, line: u32, lines: u32, thread: u16) {
        let (first, end) = match self.granularity {
            Granularity::Line => (line, line + lines),
            // Whole pages: 64 lines or 8 sectors each.
            Granularity::Page => (line / 64 * 8, (line + lines).div_ceil(64) * 8),
        };
        let seq = self.seq;
        let units: Vec<_> = self.units.range(first..end).map(|(&unit, _)| (unit, seq)).collect();
        self.waiting_mut(thread).flushed.extend(units);
    }

    fn fence(&mut self, thread: u16, sim: &Sim) {
        let waiting = std::mem::take(self.waiting_mut(thread));
        for (unit, seq) in waiting.flushed {
            self.make_unit_durable(unit, seq, sim);
        }
        for word in waiting.streamed {
            self.make_stream_durable(word, thread, sim);
        }
    }

    /// Makes the stores to a unit up to `seq` durable.
    fn make_unit_durable(&mut self, unit: u32, seq: u64, sim: &Sim) {
        let Some(stores) = self.units.get_mut(&unit) else { return };
        let count = stores.partition_point(|stored| stored.seq <= seq);
        let durable: Vec<Stored> = stores.drain(..count).collect();
        if stores.is_empty() {
            self.units.remove(&unit);
        }
        for stored in durable {
            self.make_hole_before_durable(&stored, sim);
            if stored.is_past {
                continue;
            }
            self.make_word_durable(sim, stored.word, stored.value);
            if let Some(streamed) = self.streams.get_mut(&stored.word) {
                streamed.retain(|other| other.seq > stored.seq);
                if streamed.is_empty() {
                    self.streams.remove(&stored.word);
                }
            }
        }
    }

    /// Makes the hole durable that this store came after: a store to a released page implies its
    /// release.
    fn make_hole_before_durable(&mut self, stored: &Stored, sim: &Sim) {
        let page = stored.word / PAGE_WORDS;
        if self.punched.get(&page).is_some_and(|punched| punched.seq < stored.seq) {
            self.make_hole_durable(page, sim);
        }
    }

    /// Makes the streaming stores of `thread` to a word durable, and those before them.
    fn make_stream_durable(&mut self, word: u32, thread: u16, sim: &Sim) {
        let mut streamed = self.streams.get(&word).into_iter().flatten().rev();
        if let Some(&last) = streamed.find(|stored| stored.thread == thread) {
            self.make_hole_before_durable(&last, sim);
        }
        let Some(streamed) = self.streams.get_mut(&word) else { return };
        let Some(last) = streamed.iter().rposition(|stored| stored.thread == thread) else {
            return;
        };
        self.make_stream_durable_up_to(word, last, sim);
    }

    /// Makes the streaming stores to a word durable, up to and including the one at index `last`.
    fn make_stream_durable_up_to(&mut self, word: u32, last: usize, sim: &Sim) {
        let Some(streamed) = self.streams.get_mut(&word) else { return };
        let Stored { seq, value, .. } = streamed[last];
        streamed.drain(..=last);
        if streamed.is_empty() {
            self.streams.remove(&word);
        }
        self.make_word_durable(sim, word, value);
        let unit = self.unit_of(word);
        for stored in self.units.get_mut(&unit).into_iter().flatten() {
            stored.is_past |= stored.word == word && stored.seq < seq;
        }
    }

    /// Makes the release of a page durable.
    fn make_hole_durable(&mut self, page: u32, sim: &Sim) {
        let Some(Punched { seq }) = self.punched.remove(&page) else { return };
        sim.set_punched(page, false);
        let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
        for word in words.clone() {
            self.make_word_durable(sim, word, 0);
        }
        let units = self.unit_of(words.start)..self.unit_of(words.end);
        for stores in self.units.range_mut(units).map(|(_, stores)| stores) {
            stores.retain(|stored| stored.seq > seq);
        }
        for streamed in self.streams.range_mut(words).map(|(_, streamed)| streamed) {
            streamed.retain(|stored| stored.seq > seq);
        }
        self.units.retain(|_, stores| !stores.is_empty());
        self.streams.retain(|_, streamed| !streamed.is_empty());
    }

    fn make_word_durable(&mut self, sim: &Sim, word: u32, value: u64) {
        let old = sim.peek(word);
        if old != value {
            self.hash ^= word_hash(word, old) ^ word_hash(word, value);
            sim.poke_all([(word, value)]);
        }
    }

    fn waiting_mut(&mut self, thread: u16) -> &mut Waiting {
        let thread = usize::from(thread);
        if thread >= self.waiting.len() {
            self.waiting.resize_with(thread + 1, Waiting::default);
        }
        &mut self.waiting[thread]
    }
}

/// Hash of a word, to be combined with others; 0 for a word of zero.
pub(crate) fn word_hash(word: u32, value: u64) -> u64 {
    if value == 0 { 0 } else { mix(mix(u64::from(word)) ^ value) }
}
