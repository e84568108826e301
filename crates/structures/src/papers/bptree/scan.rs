//! Visiting ranges of entries, all at one version.

use std::ops::{Bound as RangeBound, ControlFlow};

use remanent_pmem::Medium;

use super::Core;
use super::layout::{COPIES_LEN, KEY, Layout, Place, WORDS_MAX, with_key, with_value};
use super::node::{Bound, Node, View};
use crate::Result;
use crate::key_range::KeyRange;
use crate::stored::{OrderedKey, Stored};

/// The greatest of all places.
const LAST: Place = Place { key: [u64::MAX; WORDS_MAX], number: u64::MAX };

/// A range of places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The first place in the range.
    pub(super) first: Place,
    /// The first place behind the range. No entry has the number `u64::MAX`, so [`LAST`] excludes
    /// none.
    pub(super) after: Place,
}

impl Range {
    pub(super) const ALL: Range =
        Range { first: Place { key: [0; WORDS_MAX], number: 0 }, after: LAST };

    pub(super) fn of<K: OrderedKey + ?Sized>(range: &impl KeyRange<K>) -> Self {
        let first_of = |key: &K| Place::first_of(key);
        // No entry has this number, so the place lies between this key's entries and those of the
        // next key.
        let behind = |key: &K| Place::first_of(key).numbered(u64::MAX);
        let (start, end) = range.key_bounds();
        Range {
            first: match start {
                RangeBound::Included(key) => first_of(key),
                RangeBound::Excluded(key) => behind(key),
                RangeBound::Unbounded => Place::default(),
            },
            after: match end {
                RangeBound::Included(key) => behind(key),
                RangeBound::Excluded(key) => first_of(key),
                RangeBound::Unbounded => LAST,
            },
        }
    }

    /// The entries of one key.
    pub(super) fn of_key<K: OrderedKey + ?Sized>(key: &K) -> Self {
        let first = Place::first_of(key);
        Range { first, after: first.numbered(u64::MAX) }
    }
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// Passes the entries of a range to `visit`, in ascending order.
    #[inline]
    pub(super) fn ascend(
        &self,
        range: &Range,
        mut visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        let _pin = self.heap.pin();
        let (view, root) = self.start();
        let mut visit = |entry: Entry<'_>| entry.visit(&mut visit);
        let _ = self.ascend_node(view, self.node(root)?, range, &mut Copies::new(), &mut visit)?;
        Ok(self.heap.verify()?)
    }

    /// As [`ascend`](Self::ascend), in descending order.
    pub(super) fn descend_range(
        &self,
        range: &Range,
        mut visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        let _pin = self.heap.pin();
        let (view, root) = self.start();
        let mut visit = |entry: Entry<'_>| entry.visit(&mut visit);
        let _ = self.descend_node(view, self.node(root)?, range, &mut Copies::new(), &mut visit)?;
        Ok(self.heap.verify()?)
    }

    /// Passes the entries of a range below `node` to `visit`. Breaks when `visit` did, or when no
    /// entry of the range can follow.
    pub(super) fn ascend_node(
        &self,
        view: View<'_>,
        node: Node,
        range: &Range,
        copies: &mut Copies,
        visit: &mut impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if node.level == 0 {
            let is_last = self.read(node, || self.copy_range(view, node, range, copies));
            let done = Self::copied(copies).try_for_each(visit);
            return Ok(if is_last { ControlFlow::Break(()) } else { done });
        }
        let branch = |slot: u64| (self.place(node, slot), self.child_at(node, slot));
        let mut next = self.read(node, || {
            let first = self.last(view, node, &range.first, Bound::UpTo);
            first.or_else(|| self.first_behind(view, node, &range.first)).map(branch)
        });
        while let Some((place, at)) = next.filter(|(place, _)| *place < range.after) {
            if self.ascend_node(view, self.child(node, at)?, range, copies, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            next = self.read(node, || self.first_behind(view, node, &place).map(branch));
            // In a damaged node, the walk could go in a circle.
            if next.is_some_and(|(behind, _)| behind <= place) {
                return Err(self.unordered(node));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn descend_node(
        &self,
        view: View<'_>,
        node: Node,
        range: &Range,
        copies: &mut Copies,
        visit: &mut impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if node.level == 0 {
            self.read(node, || self.copy_range(view, node, range, copies));
            return Ok(Self::copied(copies).rev().try_for_each(visit));
        }
        let mut before = range.after;
        while let Some((place, at)) = self.read(node, || {
            let slot = self.last(view, node, &before, Bound::Before)?;
            Some((self.place(node, slot), self.child_at(node, slot)))
        }) {
            if place >= before {
                return Err(self.unordered(node));
            }
            if self.descend_node(view, self.child(node, at)?, range, copies, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            if place <= range.first {
                break;
            }
            before = place;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Copies a leaf's entries in a range. Returns whether the leaf has entries behind the range,
    /// so that no later leaf has any in it.
    #[inline(always)]
    fn copy_range(&self, view: View<'_>, leaf: Node, range: &Range, copies: &mut Copies) -> bool {
        copies.len = 0;
        let mut last: Option<u64> = None;
        let follows_crash = view.follows_crash();
        let first = match follows_crash {
            true => 0,
            false => self.count_before(leaf, &range.first, Bound::Before),
        };
        let slots = (first..Self::shape(leaf).slots).map(|index| Self::slot(leaf, index));
        for slot in slots.take_while(|&slot| self.is_used(slot)) {
            if !self.is_live(view, slot) {
                continue;
            }
            if self.compare(leaf, slot, &range.after).is_ge() {
                return true;
            }
            if follows_crash {
                // An entry that a crash left twice is copied once.
                let is_again = last
                    .is_some_and(|last| self.compare(leaf, slot, &self.place(leaf, last)).is_le());
                if is_again || self.compare(leaf, slot, &range.first).is_lt() {
                    continue;
                }
                last = Some(slot);
            }
            self.copy_entry(leaf, slot, copies);
        }
        false
    }

    #[inline(always)]
    fn copy_entry(&self, leaf: Node, slot: u64, copies: &mut Copies) {
        let load = |at: u64| self.medium().load(at);
        let words = |at: u64, len: usize| (0..len as u64).map(move |index| load(at + 8 * index));
        let shape = Self::shape(leaf);
        let key = words(slot + KEY, Self::KEY_WORDS);
        let number = (0..usize::from(MULTI)).map(|_| self.number(leaf, slot));
        let value = words(slot + shape.payload, shape.payload_words);
        let room = &mut copies.words[copies.len..];
        for (to, word) in room.iter_mut().zip(key.chain(number).chain(value)) {
            *to = word;
        }
        copies.len += Layout::<K, V, MULTI>::COPY_WORDS;
    }

    /// The entries that were copied.
    #[inline(always)]
    fn copied(copies: &Copies) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        copies.words[..copies.len].chunks_exact(Layout::<K, V, MULTI>::COPY_WORDS).map(|words| {
            let (key, rest) = words.split_at(Self::KEY_WORDS);
            let (number, value) = rest.split_at(usize::from(MULTI));
            Entry { key, number: number.first().copied().unwrap_or(0), value }
        })
    }
}

/// Copies of a leaf's entries. Readers visit the copies, since the originals may move meanwhile.
pub(super) struct Copies {
    /// Key, number and value of each entry.
    words: [u64; COPIES_LEN],
    len: usize,
}

impl Copies {
    pub(super) fn new() -> Self {
        Copies { words: [0; COPIES_LEN], len: 0 }
    }
}

/// A copy of an entry.
pub(super) struct Entry<'c> {
    key: &'c [u64],
    pub(super) number: u64,
    pub(super) value: &'c [u64],
}

impl Entry<'_> {
    #[inline(always)]
    fn visit<K: OrderedKey + ?Sized, V: Stored + ?Sized>(
        &self,
        visit: impl FnOnce(&K, &V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        with_key(self.key, |key| with_value(self.value, |value| visit(key, value)))
    }
}
