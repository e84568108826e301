//! The simulated medium, the events that it records, and the schedule of its threads.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remanent_pmem::{Error, Fault, Frozen, LINE_LEN, Medium, PAGE_LEN, Result, WORD_LEN};
use zerocopy::FromZeros;

use crate::panics;
use trace::{Event, PAGE_WORDS, SiteKind, StoreKind};

mod file;
mod lab;
mod options;
pub(crate) mod schedule;
pub(crate) mod trace;

use file::Room;
pub use options::{Class, Counters, Granularity, SimOptions};

/// Simulated persistent memory: a [`Medium`] with [counters](Sim::counters), which the explorer can
/// crash.
///
/// All threads see one coherent memory. The explorer records a trace and computes from it what is
/// durable. Used on its own, a `Sim` is a plain medium that counts.
///
/// Access to a word that is not aligned to 8 bytes panics, since it is a bug of the structure. A
/// load beyond the end reads zero, and [`Medium::fault`] reports it, as on a mapped medium.
pub struct Sim {
    words: Box<[AtomicU64]>,
    /// By line: whether the explorer watches for reads of it, or it is poisoned.
    marks: Box<[AtomicU8]>,
    /// Whether any line has a mark.
    marked: AtomicBool,
    len: AtomicU64,
    /// No word from this one on was ever stored to.
    touched: AtomicU32,
    steps: AtomicU64,
    steps_max: AtomicU64,
    options: SimOptions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counters: Vec<Counters>,
    fault: Option<Fault>,
    grows: u64,
    room: Room,
    /// Pages released since the file was last synced.
    punched: BTreeSet<u32>,
    /// Changes of `punched`, to undo them: the page, and whether it was in the set before.
    punched_undo: Vec<(u32, bool)>,
    /// Words with their old values, while the explorer may undo changes.
    undo: Option<Vec<(u32, u64)>>,
    /// Events, while the explorer records.
    events: Option<Vec<Event>>,
    /// Every flush, fence and sync seen; one place may occur more than once.
    sites: Vec<(SiteKind, &'static Location<'static>)>,
    /// How often each event was reached that the subject counts.
    reached: BTreeMap<&'static str, u64>,
}

/// The clock always shows this time, so that a seed alone repeats a run.
const NOW_UNIX_S: u64 = 1_700_000_000;

const UNMARKED: u8 = 0;
const WATCHED: u8 = 1;
const SEEN: u8 = 2;
const POISONED: u8 = 4;

impl Sim {
    /// A medium of zeros.
    ///
    /// # Panics
    ///
    /// When the capacity is above 32 GiB, or cannot be reserved.
    pub fn new(options: SimOptions) -> Self {
        let capacity = options.capacity.max(options.len).next_multiple_of(PAGE_LEN);
        assert!(capacity <= WORD_LEN << 32, "a simulated medium holds at most 32 GiB");
        let words = <[AtomicU64]>::new_box_zeroed_with_elems((capacity / WORD_LEN) as usize);
        let marks = <[AtomicU8]>::new_box_zeroed_with_elems((capacity / LINE_LEN) as usize);
        Sim {
            words: words.expect("memory for the simulated medium"),
            marks: marks.expect("memory for the simulated medium"),
            marked: AtomicBool::new(false),
            len: AtomicU64::new(options.len.next_multiple_of(PAGE_LEN)),
            touched: AtomicU32::new(0),
            steps: AtomicU64::new(0),
            steps_max: AtomicU64::new(u64::MAX),
            options,
            state: Mutex::new(State::default()),
        }
    }

    /// The options that this medium was made with.
    pub fn options(&self) -> &SimOptions {
        &self.options
    }

    /// Counters of all threads together, since the start or the last [reset](Sim::reset_counters).
    pub fn counters(&self) -> Counters {
        let mut total = Counters::default();
        self.state().counters.iter().for_each(|counters| total.add(counters));
        total
    }

    /// Counters of one thread, by its [number](Medium::thread).
    pub fn counters_of(&self, thread: u64) -> Counters {
        self.state().counters.get(thread as usize).copied().unwrap_or_default()
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&self) {
        self.state().counters.clear();
    }

    /// Accesses of any kind so far, in lines: the cost of an algorithm, whatever the machine is
    /// doing.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Makes every line that overlaps the range unreadable: loads answer zero, and
    /// [`Medium::fault`] reports the line.
    pub fn poison(&self, offset: u64, len: u64) {
        for line in lines(offset, len) {
            self.marks[line as usize].fetch_or(POISONED, Ordering::Relaxed);
            self.marked.store(true, Ordering::Relaxed);
        }
    }

    /// Counts an event by its name. A subject calls this when the structure reaches a case that the
    /// exploration must cover; [`Report::reached`](crate::Report::reached) has the counts.
    ///
    /// While it is recorded, the medium itself counts `growth`, `allocation`, `release`, `sync`,
    /// and `no room`. The last is a call that failed because of
    /// [`Faults::full`](crate::Faults::full).
    pub fn reach(&self, event: &'static str) {
        self.state().reach(event);
    }

    /// Whether a range holds only zeros. Does not count as a step.
    pub fn is_zero(&self, offset: u64, len: u64) -> bool {
        if len == 0 || !self.reaches(offset, len) {
            return true;
        }
        let end = u64::from(self.touched.load(Ordering::Relaxed)).min((offset + len) / WORD_LEN);
        (offset / WORD_LEN..end).all(|index| self.get(index as usize) == 0)
    }

    /// Runs `body` as if by another thread: only that thread's own fence makes its flushes durable.
    ///
    /// For tests of a few steps. [`Config::threads`](crate::Config::threads) runs real threads.
    pub fn as_thread<T>(&self, thread: u64, body: impl FnOnce(&Self) -> T) -> T {
        schedule::seated(thread, || body(self))
    }

    /// A panic while the lock was held has left nothing that the next run would see.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every call starts here: it counts as a step, and another thread may run.
    #[inline]
    fn step(&self) {
        self.count_step();
        schedule::step();
    }

    #[inline]
    fn count_step(&self) {
        // Relaxed and not a read-modify-write: under a schedule one thread runs at a time. Without
        // a schedule, a lost step only delays the end of an endless run.
        let steps = self.steps.load(Ordering::Relaxed) + 1;
        self.steps.store(steps, Ordering::Relaxed);
        if steps > self.steps_max.load(Ordering::Relaxed) && !std::thread::panicking() {
            panics::stop(format!("no end after {} steps: a cycle or livelock", steps - 1));
        }
    }

    /// Index of the word at `offset`. Beyond the end there is none, and a fault is noted.
    #[inline]
    fn index(&self, offset: u64) -> Option<usize> {
        assert!(offset.is_multiple_of(WORD_LEN), "word access at misaligned offset {offset:#x}");
        self.reaches(offset, WORD_LEN).then_some((offset / WORD_LEN) as usize)
    }

    #[inline]
    fn reaches(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        let reaches = end.is_some_and(|end| end <= self.len.load(Ordering::Relaxed));
        if !reaches {
            self.note(Fault::OutOfRange(offset));
        }
        reaches
    }

    #[cold]
    fn note(&self, fault: Fault) {
        self.state().fault.get_or_insert(fault);
    }

    /// Loads the word at an index for the structure under test.
    #[inline]
    fn get(&self, index: usize) -> u64 {
        // Acquire: pairs with the Release in `put`, should real threads share this medium.
        if self.is_poisoned(index) { 0 } else { self.words[index].load(Ordering::Acquire) }
    }

    /// Whether the word cannot be read. Notes a fault if so, and that a watched line was read.
    #[inline]
    fn is_poisoned(&self, index: usize) -> bool {
        self.marked.load(Ordering::Relaxed) && self.meets_poison(index)
    }

    fn meets_poison(&self, index: usize) -> bool {
        let mark = &self.marks[index / 8];
        match mark.load(Ordering::Relaxed) {
            UNMARKED => false,
            found if found & POISONED != 0 => {
                self.note(Fault::Poisoned(index as u64 / 8 * LINE_LEN));
                true
            }
            found => {
                mark.store(found | SEEN, Ordering::Relaxed);
                false
            }
        }
    }

    fn put(&self, state: &mut State, index: usize, value: u64, kind: StoreKind) {
        let old = self.words[index].load(Ordering::Relaxed);
        let thread = schedule::seat() as u16;
        state.counters_mut(thread).stores += 1;
        if let Some(undo) = &mut state.undo
            && old != value
        {
            undo.push((index as u32, old));
        }
        let is_punched = state.punched.contains(&(index as u32 / PAGE_WORDS));
        if let Some(events) = &mut state.events
            // An ordinary store of the present value changes no prefix, unless a crash may leave
            // another value.
            && (old != value || kind != StoreKind::Ordinary || is_punched)
        {
            events.push(Event::Store { word: index as u32, thread, kind, value });
        }
        self.touch(index as u32);
        // Release: pairs with the Acquire in `get`.
        self.words[index].store(value, Ordering::Release);
    }

    #[inline]
    fn touch(&self, word: u32) {
        // Relaxed and not a read-modify-write: under a schedule one thread runs at a time.
        if word >= self.touched.load(Ordering::Relaxed) {
            self.touched.store(word + 1, Ordering::Relaxed);
        }
    }

    /// Replaces a word in one step if `update` returns a new one. Returns the old word.
    fn replace(&self, offset: u64, update: impl FnOnce(u64) -> Option<u64>) -> u64 {
        self.step();
        let Some(index) = self.index(offset) else { return 0 };
        if self.is_poisoned(index) {
            return 0;
        }
        let mut state = self.state();
        self.order(&mut state);
        let before = self.words[index].load(Ordering::Acquire);
        if let Some(after) = update(before) {
            self.put(&mut state, index, after, StoreKind::Ordinary);
        }
        before
    }

    /// Records that a locked instruction ran, whether or not it stored.
    fn order(&self, state: &mut State) {
        if self.options.rmw_orders_flushes
            && let Some(events) = &mut state.events
        {
            events.push(Event::Order { thread: schedule::seat() as u16 });
        }
    }

    fn write_kind(&self, offset: u64, len: u64, kind: StoreKind, byte: impl Fn(u64) -> u8) {
        if len == 0 || !self.reaches(offset, len) {
            return;
        }
        for line in lines(offset, len) {
            self.step();
            let start = offset.max(line * LINE_LEN);
            let end = (offset + len).min((line + 1) * LINE_LEN);
            let mut state = self.state();
            for word in start / WORD_LEN..end.div_ceil(WORD_LEN) {
                let mut bytes = self.words[word as usize].load(Ordering::Relaxed).to_le_bytes();
                for (at, slot) in (word * WORD_LEN..).zip(&mut bytes) {
                    if (start..end).contains(&at) {
                        *slot = byte(at - offset);
                    }
                }
                self.put(&mut state, word as usize, u64::from_le_bytes(bytes), kind);
            }
        }
    }

    /// Whether mutation leaves out this site. Notes that the site exists.
    fn is_left_out(
        &self,
        state: &mut State,
        kind: SiteKind,
        at: &'static Location<'static>,
    ) -> bool {
        // Compares addresses, since this runs at every flush; `sites` compares contents.
        if !state.sites.iter().any(|&(known, seen)| known == kind && std::ptr::eq(seen, at)) {
            state.sites.push((kind, at));
        }
        self.options.mutant.is_some_and(|mutant| mutant.is(kind, at))
    }
}

impl State {
    fn reach(&mut self, event: &'static str) {
        *self.reached.entry(event).or_default() += 1;
    }

    fn counters_mut(&mut self, thread: u16) -> &mut Counters {
        let thread = usize::from(thread);
        if thread >= self.counters.len() {
            self.counters.resize(thread + 1, Counters::default());
        }
        &mut self.counters[thread]
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.len.load(Ordering::Relaxed);
        f.debug_struct("Sim").field("len", &len).field("options", &self.options).finish()
    }
}

/// Lines that overlap a range.
fn lines(offset: u64, len: u64) -> Range<u64> {
    let end = if len == 0 { offset } else { offset + len };
    offset / LINE_LEN..end.div_ceil(LINE_LEN).max(offset / LINE_LEN)
}

impl Medium for Sim {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn needs_flush(&self) -> bool {
        self.options.class == Class::Power
    }

    #[inline]
    fn load(&self, offset: u64) -> u64 {
        self.step();
        self.index(offset).map_or(0, |index| self.get(index))
    }

    fn store(&self, offset: u64, value: u64) {
        self.step();
        if let Some(index) = self.index(offset) {
            self.put(&mut self.state(), index, value, StoreKind::Ordinary);
        }
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> Result<u64, u64> {
        let found = self.replace(offset, |word| (word == current).then_some(new));
        if found == current { Ok(found) } else { Err(found) }
    }

    fn compare_exchange_pair(
        &self,
        offset: u64,
        current: [u64; 2],
        new: [u64; 2],
    ) -> Result<[u64; 2], [u64; 2]> {
        assert!(
            offset.is_multiple_of(2 * WORD_LEN),
            "pair access at misaligned offset {offset:#x}"
        );
        self.step();
        if !self.reaches(offset, 2 * WORD_LEN) {
            return Err([0; 2]);
        }
        let index = (offset / WORD_LEN) as usize;
        if self.is_poisoned(index) {
            return Err([0; 2]);
        }
        let mut state = self.state();
        self.order(&mut state);
        let found = [index, index + 1].map(|index| self.words[index].load(Ordering::Acquire));
        if found != current {
            return Err(found);
        }
        self.put(&mut state, index, new[0], StoreKind::PairFirst);
        self.put(&mut state, index + 1, new[1], StoreKind::PairSecond);
        Ok(found)
    }

    fn fetch_update(&self, offset: u64, update: impl Fn(u64) -> u64) -> u64 {
        self.replace(offset, |word| Some(update(word)))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        let len = bytes.len() as u64;
        if len == 0 || !self.reaches(offset, len) {
            bytes.fill(0);
            return;
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            if at == offset || at.is_multiple_of(LINE_LEN) {
                self.step();
            }
            let word = self.get((at / WORD_LEN) as usize).to_le_bytes();
            let skip = (at % WORD_LEN) as usize;
            let count = rest.len().min(word.len() - skip);
            let (head, tail) = rest.split_at_mut(count);
            head.copy_from_slice(&word[skip..skip + count]);
            rest = tail;
            at += count as u64;
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        self.write_kind(offset, len, StoreKind::Ordinary, |at| bytes[at as usize]);
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        let len = bytes.len() as u64;
        if self.options.granularity == Granularity::Line {
            self.write_kind(offset, len, StoreKind::Streaming, |at| bytes[at as usize]);
            return;
        }
        // The page cache knows no streaming: this is an ordinary write, and msync is to write its
        // pages.
        self.write(offset, bytes);
        self.record_flush(offset, len, None);
    }

    fn write_zeros(&self, offset: u64, len: u64) {
        self.write_kind(offset, len, StoreKind::Ordinary, |_| 0);
    }

    fn view(&self, range: Frozen) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; range.len() as usize];
        self.read(range.offset(), &mut bytes);
        Cow::Owned(bytes)
    }

    #[track_caller]
    fn flush(&self, offset: u64, len: u64) {
        let at = Location::caller();
        self.step();
        let mut state = self.state();
        if self.is_left_out(&mut state, SiteKind::Flush, at) {
            return;
        }
        let counters = state.counters_mut(schedule::seat() as u16);
        counters.flushes += 1;
        counters.flushed_lines += lines(offset, len).count() as u64;
        drop(state);
        self.record_flush(offset, len, Some(at));
    }

    #[track_caller]
    fn fence(&self) {
        let at = Location::caller();
        self.step();
        let thread = schedule::seat() as u16;
        let mut state = self.state();
        if self.is_left_out(&mut state, SiteKind::Fence, at) {
            return;
        }
        state.counters_mut(thread).fences += 1;
        if let Some(events) = &mut state.events {
            events.push(Event::Fence { thread, at });
        }
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.step();
        let size = self.len();
        if len <= size {
            return Ok(());
        }
        let mut state = self.state();
        state.grows += 1;
        let size_max = self.words.len() as u64 * WORD_LEN;
        let fails = state.lacks_room() || self.options.grow_fails_at == Some(state.grows);
        if len > size_max || fails {
            return Err(Error::Full { needed: len - size, size, size_max });
        }
        let pages = len.div_ceil(PAGE_LEN);
        self.len.store(pages * PAGE_LEN, Ordering::Relaxed);
        state.record_file("growth", Event::Grow { pages: pages as u32 });
        Ok(())
    }

    /// Changes nothing visible: the room that a crash leaves is not limited here.
    fn commit(&self, offset: u64, len: u64) -> Result<()> {
        self.count_step();
        if len == 0 || !self.reaches(offset, len) {
            return Ok(());
        }
        let mut state = self.state();
        if state.lacks_room() {
            return Err(Error::Full { needed: len, size: self.len(), size_max: self.len() });
        }
        let (first, end) = (offset / PAGE_LEN, (offset + len).div_ceil(PAGE_LEN));
        let pages = (end - first) as u32;
        state.record_file("allocation", Event::Commit { page: first as u32, pages });
        Ok(())
    }

    #[track_caller]
    fn sync_file(&self) -> Result<()> {
        let at = Location::caller();
        self.step();
        let thread = schedule::seat() as u16;
        let mut state = self.state();
        if self.is_left_out(&mut state, SiteKind::Sync, at) {
            return Ok(());
        }
        state.counters_mut(thread).syncs += 1;
        let pages: Vec<u32> = state.punched.iter().copied().collect();
        pages.into_iter().for_each(|page| state.set_punched(page, false));
        state.record_file("sync", Event::Sync { thread, at });
        Ok(())
    }

    /// Refuses ranges that are not whole pages.
    fn release(&self, offset: u64, len: u64) -> bool {
        self.step();
        let whole = offset.is_multiple_of(PAGE_LEN) && len.is_multiple_of(PAGE_LEN);
        if !self.options.releases || !whole || !self.reaches(offset, len) {
            return false;
        }
        let thread = schedule::seat() as u16;
        let (page, pages) = ((offset / PAGE_LEN) as u32, (len / PAGE_LEN) as u32);
        let mut state = self.state();
        if state.lacks_room() {
            return false;
        }
        state.record_file("release", Event::Release { page, pages, thread });
        (page..page + pages).for_each(|page| state.set_punched(page, true));
        for index in offset / WORD_LEN..(offset + len) / WORD_LEN {
            self.poke(&mut state, index as u32, 0);
        }
        true
    }

    fn pause(&self) {
        self.count_step();
        schedule::pause();
    }

    /// Number among the simulated threads, from 1; 0 without a schedule.
    fn thread(&self) -> u64 {
        schedule::seat()
    }

    fn unix_s(&self) -> u64 {
        NOW_UNIX_S
    }

    fn fault(&self) -> Option<Fault> {
        self.state().fault
    }
}

impl Sim {
    fn record_flush(&self, offset: u64, len: u64, at: Option<&'static Location<'static>>) {
        let range = lines(offset, len);
        if let Some(events) = &mut self.state().events
            && !range.is_empty()
        {
            let (line, lines) = (range.start as u32, (range.end - range.start) as u32);
            events.push(Event::Flush { line, lines, thread: schedule::seat() as u16, at });
        }
    }
}
