//! Changing a node in its place: entries make room for one that comes.
//!
//! A node keeps its entries in the order of their keys, as the STX B+-tree and the CDDS B-tree do. So an entry that
//! comes moves those behind it one place to the right. That is done from the last on, and each is copied before its
//! own place is overwritten by its neighbour. The line that an entry was copied into is made durable before the line
//! that it was copied from changes: a flush and a fence for each line that the entries cross. Within a line the order
//! of the stores does (assumption 2 of `docs/model.md`). So at any time every entry is there, at its old place or its
//! new one, or at both, and a crash leaves nothing that has to be repaired before the tree can be read:
//!
//! - An entry that is there twice is the same entry: it bears the same versions.
//! - A place that was being overwritten has a `begin` that no version shows.
//! - The entry that came bears a version that was not committed.
//!
//! Who reads after a crash therefore looks at the entries of a node one by one, and the writer puts a node in order
//! before it changes it again. Where nothing crashed there is nothing of the kind.
//!
//! Readers of the same process must not see an entry on the move. There is one writer, so a word in memory that is
//! not persistent suffices: it says in which node entries move, and a reader of that node waits, or reads it once
//! more.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::{LINE_LEN, Medium};

use super::Core;
use super::layout::{BEGIN, END, Entry, KEY, LIVE, MOVING, Place};
use super::node::{Bound, Node, View};
use crate::stored::{OrderedKey, Stored};

/// Where entries move.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Beginnings and ends of moves: odd while entries move.
    count: AtomicU64,
    node: AtomicU64,
}

impl Moves {
    fn begin(&self, node: Node) {
        // Relaxed: the count that follows publishes it.
        self.node.store(node.at, Ordering::Relaxed);
        self.turn();
    }

    fn end(&self) {
        self.turn();
    }

    fn turn(&self) {
        // Relaxed: the one writer alone changes it.
        let count = self.count.load(Ordering::Relaxed);
        // Release: the node, or what was moved, before the count; pairs with the Acquire in `Core::read`. Stores to
        // the medium are Release, too: who sees one that follows finds the count changed.
        self.count.store(count + 1, Ordering::Release);
    }
}

/// The line that was written last, if any.
type Written = Option<u64>;

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// What `look` finds in a node in which no entry is on the move. It must follow nothing that it finds.
    #[inline(always)]
    pub(super) fn read<R>(&self, node: Node, mut look: impl FnMut() -> R) -> R {
        loop {
            // Acquire: pairs with the Release in `Moves`: what was moved is there.
            let count = self.moves.count.load(Ordering::Acquire);
            // Relaxed: it came before the count, and if it is a later one, the count has changed, too.
            if count & 1 == 0 || self.moves.node.load(Ordering::Relaxed) != node.at {
                let found = look();
                // Relaxed: loads of the medium are Acquire, so this one comes after them.
                if self.moves.count.load(Ordering::Relaxed) == count {
                    return found;
                }
            }
            self.medium().pause();
        }
    }

    /// Puts entries, given in the order of their places, where they belong in a node, of which so many are used and
    /// that has room for them.
    ///
    /// They and what moved for their sake are flushed; the fence is the caller's.
    pub(super) fn put_in(
        &self,
        view: View<'_>,
        node: Node,
        used: usize,
        entries: &[Option<Entry>; 2],
    ) {
        let indexes = [0, 1].map(|turn| {
            entries[turn].as_ref().map_or(0, |entry| self.index_of(view, node, &entry.place))
        });
        let mut last = used;
        let mut room = entries.iter().flatten().count();
        let mut written = None;
        self.moves.begin(node);
        for (entry, index) in entries.iter().zip(indexes).rev() {
            let Some(entry) = entry else { continue };
            self.put_between(node, used, index..last, room, entry, &mut written);
            (last, room) = (index, room - 1);
        }
        self.moves.end();
        self.flush_written(written);
    }

    /// As [`put_in`](Self::put_in), for one entry, of which the place is known.
    #[inline(always)]
    pub(super) fn put_at(&self, node: Node, used: usize, index: usize, entry: &Entry) {
        let mut written = None;
        self.moves.begin(node);
        self.put_between(node, used, index..used, 1, entry, &mut written);
        self.moves.end();
        self.flush_written(written);
    }

    /// Moves these entries so many places on, and puts another before them.
    #[inline(always)]
    fn put_between(
        &self,
        node: Node,
        used: usize,
        moved: Range<usize>,
        room: usize,
        entry: &Entry,
        written: &mut Written,
    ) {
        let index = moved.start + room - 1;
        for from in moved.rev() {
            self.move_entry(node, from, from + room, used, written);
        }
        let words = |word| self.new_word(node, entry, word);
        self.overwrite(node, index, used, entry.begin, words, written);
    }

    /// Where an entry of this place belongs: behind those that the view shows up to there.
    #[inline(always)]
    fn index_of(&self, view: View<'_>, node: Node, place: &Place) -> usize {
        if Self::tells_places(node) {
            return self.count_before(node, place, Bound::UpTo);
        }
        // Among those of one key it is the order of those which any version shows together that matters.
        let shape = Self::shape(node);
        let index = |slot: u64| ((slot - node.at - shape.entries) / shape.entry_len) as usize;
        let last = self.last(view, node, place, Bound::UpTo).map_or(0, |slot| index(slot) + 1);
        last.max(self.count_before(node, place, Bound::Before))
    }

    /// A word of an entry that is to be; the one at `BEGIN` apart.
    #[inline(always)]
    fn new_word(&self, node: Node, entry: &Entry, word: u64) -> u64 {
        let payload = Self::shape(node).payload;
        match word {
            END => LIVE,
            _ if word < payload => entry.place.key[((word - KEY) / 8) as usize],
            _ => entry.payload[((word - payload) / 8) as usize],
        }
    }

    #[inline(always)]
    fn move_entry(&self, node: Node, from: usize, to: usize, used: usize, written: &mut Written) {
        let from = Self::slot(node, from);
        let begin = self.medium().load(from + BEGIN);
        self.overwrite(node, to, used, begin, |word| self.medium().load(from + word), written);
    }

    /// Writes an entry. Of what was there a copy lies elsewhere.
    #[inline(always)]
    fn overwrite(
        &self,
        node: Node,
        to: usize,
        used: usize,
        begin: u64,
        words: impl Fn(u64) -> u64,
        written: &mut Written,
    ) {
        let medium = self.medium();
        let shape = Self::shape(node);
        let slot = Self::slot(node, to);
        let end = shape.payload + 8 * shape.payload_words as u64;
        let line = slot / LINE_LEN;
        if *written != Some(line) {
            self.persist_written(*written);
            *written = Some(line);
        }
        // First, and `begin` last: what lies between is never taken for an entry.
        medium.store(slot + BEGIN, MOVING);
        if shape.spans_lines() && to < used {
            // Flush and fence: the entry is void, before its other lines change.
            medium.persist(slot, LINE_LEN);
        }
        for word in (END..end).step_by(8) {
            medium.store(slot + word, words(word));
        }
        if shape.spans_lines() {
            // Flush and fence: all of the entry, before it is valid.
            medium.persist(slot, end);
        }
        medium.store(slot + BEGIN, begin);
    }

    /// Makes the line durable that was written last, before another is.
    #[inline(always)]
    fn persist_written(&self, written: Written) {
        if let Some(line) = written {
            // Flush and fence: what was copied here, before what it was copied from is overwritten.
            self.medium().persist(line * LINE_LEN, LINE_LEN);
        }
    }

    #[inline(always)]
    fn flush_written(&self, written: Written) {
        if let Some(line) = written {
            // Flush: fenced by the caller, before the version.
            self.medium().flush(line * LINE_LEN, LINE_LEN);
        }
    }

    /// Puts a node in order that a crash may have left out of order: as if the lost versions had never been begun.
    #[inline(always)]
    pub(super) fn clean(&self, view: View<'_>, node: Node) {
        if view.follows_crash() {
            self.clean_after_crash(view, node);
        }
    }

    #[cold]
    #[inline(never)]
    fn clean_after_crash(&self, view: View<'_>, node: Node) {
        let medium = self.medium();
        let slots = Self::shape(node).slots;
        let mut is_changed = false;
        for slot in self.used(node).filter(|slot| view.is_lost(medium.load(slot + END))) {
            medium.store(slot + END, LIVE);
            // Flush: fenced below.
            medium.flush(slot + END, 8);
            is_changed = true;
        }
        // Of entries that were to move two places on, the last may have come behind one that was never used.
        let used = self.used(node).count();
        for slot in (used..slots).map(|index| Self::slot(node, index)) {
            if self.is_used(slot) {
                medium.store(slot + BEGIN, 0);
                // Flush: fenced below.
                // Redundant: but when an entry is put before this one in another line, and the copied entry ends, which
                // short runs do not bring about.
                medium.flush(slot, 8);
                is_changed = true;
            }
        }
        while let Some(index) = self.last_void(view, node) {
            self.close_gap(node, index);
            is_changed = true;
        }
        if is_changed {
            // Fence: before the lost versions are forgotten.
            // Redundant: but when another thread forgets them, whose fences are not this one's, which short runs do
            // not bring about.
            medium.fence();
        }
    }

    /// The last of the used entries that is none: one that was being overwritten, that is there already, or that a
    /// lost version put in.
    fn last_void(&self, view: View<'_>, node: Node) -> Option<usize> {
        let begin = |index: usize| self.medium().load(Self::slot(node, index) + BEGIN);
        let used = self.used(node).count();
        (0..used).rev().find(|&index| {
            begin(index) == MOVING
                || view.is_lost(begin(index))
                || (0..index).any(|earlier| self.is_same(node, earlier, index))
        })
    }

    /// Whether two places of a node have the same entry. No version puts in two of one key, but for children.
    fn is_same(&self, node: Node, one: usize, other: usize) -> bool {
        let (one, other) = (Self::slot(node, one), Self::slot(node, other));
        let payload = Self::shape(node).payload;
        let len = if node.level == 0 { payload } else { payload + 8 };
        let word = |slot: u64, word: u64| self.medium().load(slot + word);
        let words = [BEGIN].into_iter().chain((KEY..len).step_by(8));
        words.into_iter().all(|at| word(one, at) == word(other, at))
    }

    /// Moves the entries behind a void one to the left, the first of them first.
    fn close_gap(&self, node: Node, void: usize) {
        let used = self.used(node).count();
        let mut written = None;
        self.moves.begin(node);
        for index in void + 1..used {
            self.move_entry(node, index, index - 1, used, &mut written);
        }
        let last = Self::slot(node, used - 1) + BEGIN;
        if written != Some(last / LINE_LEN) {
            self.persist_written(written);
        }
        self.medium().store(last, 0);
        self.moves.end();
        self.flush_written(Some(last / LINE_LEN));
    }
}
