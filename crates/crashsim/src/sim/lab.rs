//! What the explorer does to a medium behind the back of the structure: undo, recording, direct
//! access to words, marks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use remanent_pmem::{PAGE_LEN, WORD_LEN};

use super::file::Room;
use super::trace::{Event, Site};
use super::{SEEN, Sim, State, UNMARKED, WATCHED};

/// A moment to return to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    undo: usize,
    punched_undo: usize,
    len: u64,
}

impl Sim {
    /// Makes every change from now on undoable.
    pub(crate) fn keep_undo(&self) {
        self.state().undo.get_or_insert_default();
    }

    /// The present moment, for [`roll_back`](Sim::roll_back).
    pub(crate) fn mark(&self) -> Mark {
        let state = self.state();
        let undo = state.undo.as_ref().map_or(0, Vec::len);
        let punched_undo = state.punched_undo.len();
        Mark { undo, punched_undo, len: self.len.load(Ordering::Relaxed) }
    }

    /// Undoes every change since `mark`, at a cost that only depends on their number.
    pub(crate) fn roll_back(&self, mark: Mark) {
        let mut state = self.state();
        if let Some(undo) = &mut state.undo {
            for (word, old) in undo.drain(mark.undo..).rev() {
                self.words[word as usize].store(old, Ordering::Relaxed);
            }
        }
        while state.punched_undo.len() > mark.punched_undo {
            match state.punched_undo.pop() {
                Some((page, true)) => state.punched.insert(page),
                Some((page, false)) => state.punched.remove(&page),
                None => break,
            };
        }
        self.len.store(mark.len, Ordering::Relaxed);
    }

    /// Sets whether a page was released since the file was last synced. Every store to such a page
    /// is recorded, even of the present value, since a crash may leave another value.
    pub(crate) fn set_punched(&self, page: u32, is_punched: bool) {
        self.state().set_punched(page, is_punched);
    }

    /// Starts a run of a structure without faults. It ends with a panic after `steps_max` steps.
    pub(crate) fn begin_run(&self, steps_max: u64) {
        let mut state = self.state();
        state.fault = None;
        state.grows = 0;
        state.room = Room::default();
        self.steps.store(0, Ordering::Relaxed);
        self.steps_max.store(steps_max, Ordering::Relaxed);
    }

    /// Lets a call for room fail: the call with this number, from 1, among those that need room or
    /// give it back from now on.
    pub(crate) fn fail_call(&self, number: u64) {
        self.state().room = Room { calls: 0, fails_at: Some(number) };
    }

    /// Starts to record events.
    pub(crate) fn record(&self) {
        self.state().events = Some(Vec::new());
    }

    /// Number of events recorded so far; 0 when not recording.
    pub(crate) fn recorded(&self) -> usize {
        self.state().events.as_ref().map_or(0, Vec::len)
    }

    /// Ends the recording and returns the events.
    pub(crate) fn take_events(&self) -> Vec<Event> {
        self.state().events.take().unwrap_or_default()
    }

    /// Every flush, fence and sync site that was called so far.
    pub(crate) fn sites(&self) -> BTreeSet<Site> {
        self.state().sites.iter().map(|&(kind, at)| Site::new(kind, at)).collect()
    }

    /// Counts of the events that the subject reached so far.
    pub(crate) fn take_reached(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut self.state().reached)
    }

    /// Reads a word unnoticed by the structure.
    pub(crate) fn peek(&self, word: u32) -> u64 {
        self.words[word as usize].load(Ordering::Relaxed)
    }

    /// Changes words without recording events. The changes can be undone.
    pub(crate) fn poke_all(&self, words: impl IntoIterator<Item = (u32, u64)>) {
        let mut state = self.state();
        for (word, value) in words {
            self.poke(&mut state, word, value);
        }
    }

    pub(super) fn poke(&self, state: &mut State, word: u32, value: u64) {
        let old = self.words[word as usize].load(Ordering::Relaxed);
        if old != value {
            if let Some(undo) = &mut state.undo {
                undo.push((word, old));
            }
            self.touch(word);
            self.words[word as usize].store(value, Ordering::Relaxed);
        }
    }

    /// Sets the accessible length; it may become shorter.
    pub(crate) fn set_len(&self, pages: u32) {
        self.len.store(u64::from(pages) * PAGE_LEN, Ordering::Relaxed);
    }

    /// Words from this one on that are not zero, also behind the accessible length.
    pub(crate) fn used_words(&self, from: u32) -> impl Iterator<Item = u32> {
        let end = self.touched.load(Ordering::Relaxed);
        (from..end).filter(|&word| self.peek(word) != 0)
    }

    /// Number of words up to the accessible length.
    pub(crate) fn words_len(&self) -> u32 {
        (self.len.load(Ordering::Relaxed) / WORD_LEN) as u32
    }

    /// Watches these lines for reads.
    pub(crate) fn watch(&self, lines: impl IntoIterator<Item = u32>) {
        for line in lines {
            self.marks[line as usize].store(WATCHED, Ordering::Relaxed);
            self.marked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a line was read since it is watched.
    pub(crate) fn was_read(&self, line: u32) -> bool {
        self.marks[line as usize].load(Ordering::Relaxed) & SEEN != 0
    }

    /// Removes the marks of these lines. No other line may have a mark.
    pub(crate) fn unmark(&self, lines: impl IntoIterator<Item = u32>) {
        for line in lines {
            self.marks[line as usize].store(UNMARKED, Ordering::Relaxed);
        }
        self.marked.store(false, Ordering::Relaxed);
    }
}
