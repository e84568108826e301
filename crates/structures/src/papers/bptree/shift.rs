//! Changing a node in place: entries move to make room for a new one.
//!
//! A node keeps its entries in key order, as the STX B+-tree and the CDDS B-tree do, so a new entry
//! moves those behind it one place to the right. The last entry is moved first, and each is copied
//! before its own place is overwritten by its neighbour. The line that an entry was copied to is
//! made durable before the line that it came from changes: a flush and a fence for each line that
//! entries cross. Within a line, the order of the stores suffices (assumption 2 of
//! `docs/model.md`). So at any time every entry exists, at its old place, its new place or both. A
//! crash leaves nothing that must be repaired before the tree can be read:
//!
//! - Both copies of an entry that is there twice are the same and have the same versions.
//! - A place that was being overwritten has a `begin` that no version shows.
//! - The new entry has a version that was not committed.
//!
//! After a crash, readers therefore look at the entries of a node one by one, and the writer puts a
//! node in order before it changes it again. Without a crash, nodes are always in order.
//!
//! Readers of the same process must not see an entry that is moving. There is only one writer, so a
//! volatile word suffices: it says in which node entries are moving. A reader of that node waits,
//! or reads the node again.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::{LINE_LEN, Medium};

use super::Core;
use super::layout::{BEGIN, END, Entry, KEY, LIVE, MOVING, Place};
use super::node::{Bound, Node, View};
use crate::stored::{OrderedKey, Stored};

/// The node in which entries are moving.
#[derive(Debug, Default)]
pub(super) struct Moves {
    /// Counts beginnings and ends of moves, so it is odd while entries move.
    count: AtomicU64,
    node: AtomicU64,
}

impl Moves {
    fn begin(&self, node: Node) {
        // Relaxed: the store of the count that follows publishes the node.
        self.node.store(node.at, Ordering::Relaxed);
        self.turn();
    }

    fn end(&self) {
        self.turn();
    }

    fn turn(&self) {
        // Relaxed: only the one writer changes it.
        let count = self.count.load(Ordering::Relaxed);
        // Release: after the store of the node, or after the moves. Partner of the Acquire in
        // `read`. Stores to the medium are Release, too, so a reader that sees a later one sees the
        // count changed.
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
    /// Returns what `look` finds in a node while no entry of it is moving. `look` must not follow
    /// the offsets that it finds.
    #[inline(always)]
    pub(super) fn read<R>(&self, node: Node, mut look: impl FnMut() -> R) -> R {
        loop {
            // Acquire: finished moves are visible. Partner of the Release in `Moves::turn`.
            let count = self.moves.count.load(Ordering::Acquire);
            // Relaxed: the node was stored before the count. If it is already the node of a later
            // move, the second load of the count differs.
            if count & 1 == 0 || self.moves.node.load(Ordering::Relaxed) != node.at {
                let found = look();
                // Relaxed: loads of the medium are Acquire, so this load comes after them.
                if self.moves.count.load(Ordering::Relaxed) == count {
                    return found;
                }
            }
            self.medium().pause();
        }
    }

    /// Puts entries, given in the order of their places, into a node that has `used` used entries
    /// and has room for them.
    ///
    /// The entries, and those that moved to make room, are flushed. The caller fences.
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

    /// As [`put_in`](Self::put_in), for one entry, whose index is known.
    #[inline(always)]
    pub(super) fn put_at(&self, node: Node, used: usize, index: usize, entry: &Entry) {
        let mut written = None;
        self.moves.begin(node);
        self.put_between(node, used, index..used, 1, entry, &mut written);
        self.moves.end();
        self.flush_written(written);
    }

    /// Moves the entries `moved` by `room` places, and puts a new one directly before them.
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

    /// The index for an entry with this place: behind the entries up to that place that the view
    /// shows.
    #[inline(always)]
    fn index_of(&self, view: View<'_>, node: Node, place: &Place) -> usize {
        if Self::tells_places(node) {
            return self.count_before(node, place, Bound::UpTo);
        }
        // Entries of one key need to be in order only among those that the same version shows.
        let shape = Self::shape(node);
        let index = |slot: u64| ((slot - node.at - shape.entries) / shape.entry_len) as usize;
        let last = self.last(view, node, place, Bound::UpTo).map_or(0, |slot| index(slot) + 1);
        last.max(self.count_before(node, place, Bound::Before))
    }

    /// A word of a new entry, except `BEGIN`.
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

    /// Writes an entry over another one that has a copy elsewhere, or to a place that was never
    /// used.
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
        // `begin` is voided first and stored last, so a partly written entry never counts.
        medium.store(slot + BEGIN, MOVING);
        if shape.spans_lines() && to < used {
            // Flush and fence: the entry is void before its other lines change.
            medium.persist(slot, LINE_LEN);
        }
        for word in (END..end).step_by(8) {
            medium.store(slot + word, words(word));
        }
        if shape.spans_lines() {
            // Flush and fence: the other words of the entry, before it becomes valid.
            medium.persist(slot, end);
        }
        medium.store(slot + BEGIN, begin);
    }

    /// Makes the last written line durable, before another line is written.
    #[inline(always)]
    fn persist_written(&self, written: Written) {
        if let Some(line) = written {
            // Flush and fence: the copies in this line, before their originals are overwritten.
            self.medium().persist(line * LINE_LEN, LINE_LEN);
        }
    }

    #[inline(always)]
    fn flush_written(&self, written: Written) {
        if let Some(line) = written {
            // Flush: the last written line; fenced by the caller, before the version.
            self.medium().flush(line * LINE_LEN, LINE_LEN);
        }
    }

    /// Puts a node in order that a crash may have left out of order, as if the lost versions had
    /// never begun.
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
            // Flush: the restored end; fenced below.
            medium.flush(slot + END, 8);
            is_changed = true;
        }
        // If entries were to move by two places, the last one may lie behind a place that was never
        // used.
        let used = self.used(node).count();
        for slot in (used..slots).map(|index| Self::slot(node, index)) {
            if self.is_used(slot) {
                medium.store(slot + BEGIN, 0);
                // Flush: the entry that is no longer used; fenced below.
                // Redundant: unless an entry is put before this one in another line, and the copied
                // entry ends, which short runs do not bring about.
                medium.flush(slot, 8);
                is_changed = true;
            }
        }
        while let Some(index) = self.last_void(view, node) {
            self.close_gap(node, index);
            is_changed = true;
        }
        if is_changed {
            // Fence: these changes, before the lost versions are forgotten.
            // Redundant: unless another thread forgets them, whose fences do not cover these
            // flushes, which short runs do not bring about.
            medium.fence();
        }
    }

    /// The last used place without an entry of its own: it was being overwritten, has the copy of
    /// an entry before it, or was filled by a lost version.
    fn last_void(&self, view: View<'_>, node: Node) -> Option<usize> {
        let begin = |index: usize| self.medium().load(Self::slot(node, index) + BEGIN);
        let used = self.used(node).count();
        (0..used).rev().find(|&index| {
            begin(index) == MOVING
                || view.is_lost(begin(index))
                || (0..index).any(|earlier| self.is_same(node, earlier, index))
        })
    }

    /// Whether two places of a node have the same entry. No version adds two entries with the same
    /// key and number, except in inner nodes, where children differ.
    fn is_same(&self, node: Node, one: usize, other: usize) -> bool {
        let (one, other) = (Self::slot(node, one), Self::slot(node, other));
        let payload = Self::shape(node).payload;
        let len = if node.level == 0 { payload } else { payload + 8 };
        let word = |slot: u64, word: u64| self.medium().load(slot + word);
        let words = [BEGIN].into_iter().chain((KEY..len).step_by(8));
        words.into_iter().all(|at| word(one, at) == word(other, at))
    }

    /// Moves the entries behind a void one to the left, the first one first.
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
