//! Nodes as seen by a version of the tree.

use std::cmp::Ordering;

use remanent_pmem::{Error as PoolError, LINE_LEN, Medium};

use super::Core;
use super::layout::{BEGIN, END, HEIGHT_MAX, KEY, KIND, LOW, Layout, Payload, Place, Shape};
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// Versions that crashes lost before they were committed. Begins and ends with these versions do
/// not count.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// In ascending order.
    pub(super) versions: Vec<u64>,
}

/// The tree at one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'t> {
    pub(super) version: u64,
    lost: &'t [u64],
    /// The first lost version, and the distance to the last. If no version is lost, a range that
    /// contains none.
    lost_first: u64,
    lost_span: u64,
}

impl<'t> View<'t> {
    #[inline(always)]
    pub(super) fn new(version: u64, lost: &'t Lost) -> Self {
        let (lost_first, lost_span) = match (lost.versions.first(), lost.versions.last()) {
            (Some(first), Some(last)) => (*first, last - first),
            _ => (u64::MAX, 0),
        };
        View { version, lost: &lost.versions, lost_first, lost_span }
    }

    /// Whether this opening followed a crash, so that nodes may be out of order: an entry that was
    /// being moved may be there twice, or may be half overwritten.
    #[inline(always)]
    pub(super) fn follows_crash(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether a crash lost this version.
    #[inline(always)]
    pub(super) fn is_lost(&self, version: u64) -> bool {
        version.wrapping_sub(self.lost_first) <= self.lost_span
            && self.lost.binary_search(&version).is_ok()
    }

    /// Whether a begin or an end with this version counts in the view.
    #[inline(always)]
    fn has(&self, version: u64) -> bool {
        version <= self.version && !self.is_lost(version)
    }

    /// Whether the view shows an entry with this begin and end.
    #[inline(always)]
    fn shows(&self, begin: u64, end: u64) -> bool {
        begin != 0 && self.has(begin) && !self.has(end)
    }
}

/// A node with a plausible header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) at: u64,
    /// 0 for a leaf.
    pub(super) level: u32,
}

/// The end of the range of entries that a search accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Entries at the place, and those before it.
    UpTo,
    /// Only entries before the place.
    Before,
}

impl Bound {
    #[inline(always)]
    fn admits(self, order: Ordering) -> bool {
        order == Ordering::Less || order == Ordering::Equal && self == Bound::UpTo
    }
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    pub(super) const KEY_WORDS: usize = Layout::<K, V, MULTI>::KEY_WORDS;

    /// The shape of nodes on the level of `node`.
    #[inline(always)]
    pub(super) fn shape(node: Node) -> Shape {
        Layout::<K, V, MULTI>::shape(node.level)
    }

    /// Offset of an entry.
    #[inline(always)]
    pub(super) fn slot(node: Node, index: usize) -> u64 {
        let shape = Self::shape(node);
        node.at + shape.entries + index as u64 * shape.entry_len
    }

    /// The node at `at`.
    #[inline(always)]
    pub(super) fn node(&self, at: u64) -> Result<Node> {
        self.read_node(at).ok_or_else(|| self.damaged(at, "no node of a B+-tree begins here"))
    }

    /// The node at `at`; `None` when there can be no node.
    #[inline(always)]
    pub(super) fn read_node(&self, at: u64) -> Option<Node> {
        if !at.is_multiple_of(32) || at >= self.medium().len() {
            return None;
        }
        let level = self.medium().load(at + KIND);
        (level < HEIGHT_MAX as u64).then_some(Node { at, level: level as u32 })
    }

    /// The node at `at`, to which an entry of `parent` leads.
    #[inline(always)]
    pub(super) fn child(&self, parent: Node, at: u64) -> Result<Node> {
        // A search looks at all lines of the node, so prefetch them at once.
        let len = Layout::<K, V, MULTI>::shape(parent.level.saturating_sub(1)).node_len;
        for line in 0..len.div_ceil(LINE_LEN) {
            self.medium().prefetch(at.wrapping_add(line * LINE_LEN));
        }
        match self.read_node(at) {
            Some(child) if child.level + 1 == parent.level => Ok(child),
            _ => Err(self.damaged(parent.at, "an entry does not lead to a node of the next level")),
        }
    }

    /// Offset of the node that the entry at `slot` of an inner node leads to.
    #[inline(always)]
    pub(super) fn child_at(&self, parent: Node, slot: u64) -> u64 {
        self.medium().load(slot + Self::shape(parent).payload)
    }

    /// The error for damage at `at`, unless the medium met a fault: then that error.
    #[cold]
    pub(super) fn damaged(&self, at: u64, what: &str) -> Error {
        match self.heap.verify() {
            Err(error) => error.into(),
            Ok(()) => PoolError::corrupt(at, what).into(),
        }
    }

    /// The error for a node whose entries are not in order, where following them would not end.
    #[cold]
    pub(super) fn unordered(&self, node: Node) -> Error {
        self.damaged(node.at, "the entries of a node are not in order")
    }

    /// The least place that belongs to the node at `at`.
    pub(super) fn low(&self, at: u64) -> Place {
        self.load_key(at + LOW).numbered(self.low_number(at))
    }

    #[inline(always)]
    fn low_number(&self, at: u64) -> u64 {
        if MULTI { self.medium().load(at + LOW + 8 * Self::KEY_WORDS as u64) } else { 0 }
    }

    #[inline(always)]
    fn load_key(&self, at: u64) -> Place {
        let mut place = Place::default();
        for (index, word) in place.key.iter_mut().enumerate().take(Self::KEY_WORDS) {
            *word = self.medium().load(at + 8 * index as u64);
        }
        place
    }

    /// The number of the entry at `slot`; 0 except in multi-maps. In an inner node, the view must
    /// show the entry, or its child may have been freed.
    #[inline(always)]
    pub(super) fn number(&self, node: Node, slot: u64) -> u64 {
        match (MULTI, node.level) {
            (false, _) => 0,
            (true, 0) => self.medium().load(slot + BEGIN),
            (true, _) => self.low_number(self.child_at(node, slot)),
        }
    }

    /// The place of an entry that the view shows.
    #[inline(always)]
    pub(super) fn place(&self, node: Node, slot: u64) -> Place {
        self.load_key(slot + KEY).numbered(self.number(node, slot))
    }

    /// Compares an entry that the view shows with a place.
    #[inline(always)]
    pub(super) fn compare(&self, node: Node, slot: u64, place: &Place) -> Ordering {
        self.compare_key(slot, place).then_with(|| self.number(node, slot).cmp(&place.number))
    }

    #[inline(always)]
    fn compare_key(&self, slot: u64, place: &Place) -> Ordering {
        place.compare_words(|word| self.medium().load(slot + KEY + word), Self::KEY_WORDS)
    }

    /// The value of the entry at `slot` of a leaf.
    #[inline(always)]
    pub(super) fn payload(&self, leaf: Node, slot: u64) -> Payload {
        let shape = Self::shape(leaf);
        let mut payload = Payload::default();
        for (index, word) in payload.iter_mut().enumerate().take(shape.payload_words) {
            *word = self.medium().load(slot + shape.payload + 8 * index as u64);
        }
        payload
    }

    /// Whether the view shows the entry at `slot`.
    #[inline(always)]
    pub(super) fn is_live(&self, view: View<'_>, slot: u64) -> bool {
        let medium = self.medium();
        view.shows(medium.load(slot + BEGIN), medium.load(slot + END))
    }

    #[inline(always)]
    pub(super) fn is_used(&self, slot: u64) -> bool {
        self.medium().load(slot + BEGIN) != 0
    }

    /// Whether a node alone tells the places of its entries. An inner node of a multi-map has only
    /// the keys: the number of an entry is in its child, which may be read only if the view shows
    /// the entry.
    #[inline(always)]
    pub(super) fn tells_places(node: Node) -> bool {
        !MULTI || node.level == 0
    }

    /// The number of used entries for which `is_before` holds, which are the first ones.
    /// `is_before` gets their offsets in the node.
    ///
    /// Three entries divide the node into quarters, then all entries of one quarter are compared.
    /// So only one step depends on an earlier result. Mispredicted branches, or the chain of loads
    /// in a binary search, would cost more.
    #[inline(always)]
    fn count_while(node: Node, is_before: impl Fn(u64) -> bool) -> usize {
        let shape = Self::shape(node);
        let quarter = shape.slots.div_ceil(4);
        let count = |index: usize| usize::from(is_before(index as u64 * shape.entry_len));
        let first =
            quarter * (count(quarter - 1) + count(2 * quarter - 1) + count(3 * quarter - 1));
        first + (0..quarter).map(|index| count(first + index)).sum::<usize>()
    }

    /// The number of used entries before `place`, or up to it. If the node alone does not tell
    /// places, only keys are compared.
    #[inline(always)]
    pub(super) fn count_before(&self, node: Node, place: &Place, bound: Bound) -> usize {
        let Some(load) = self.window(node) else { return 0 };
        let numbers_from = place.number.saturating_add(u64::from(bound == Bound::UpTo));
        let has_numbers = MULTI && node.level == 0;
        let are_ties_before =
            if Self::tells_places(node) { numbers_from > 0 } else { bound == Bound::UpTo };
        Self::count_while(node, |at| {
            let begin = load(at + BEGIN);
            let is_tie_before = if has_numbers { begin < numbers_from } else { are_ties_before };
            (begin != 0)
                & place.is_behind(|word| load(at + KEY + word), Self::KEY_WORDS, is_tie_before)
        })
    }

    /// The number of used entries.
    #[inline(always)]
    pub(super) fn used_len(&self, node: Node) -> usize {
        let Some(load) = self.window(node) else { return 0 };
        Self::count_while(node, |at| load(at + BEGIN) != 0)
    }

    /// A function that loads words of a node's entries.
    #[inline(always)]
    fn window(&self, node: Node) -> Option<impl Fn(u64) -> u64> {
        let shape = Self::shape(node);
        self.medium().window(node.at + shape.entries, shape.slots as u64 * shape.entry_len)
    }

    /// Offsets of the used entries.
    #[inline(always)]
    pub(super) fn used(&self, node: Node) -> impl Iterator<Item = u64> + '_ {
        (0..Self::shape(node).slots)
            .map(move |index| Self::slot(node, index))
            .take_while(|&slot| self.is_used(slot))
    }

    /// The entry with exactly this place in a leaf, if the view shows it.
    #[inline(always)]
    pub(super) fn find(&self, view: View<'_>, leaf: Node, place: &Place) -> Option<u64> {
        if view.follows_crash() {
            return self.find_after_crash(view, leaf, *place);
        }
        self.find_among(view, leaf, place, self.count_before(leaf, place, Bound::UpTo))
    }

    #[cold]
    #[inline(never)]
    fn find_after_crash(&self, view: View<'_>, leaf: Node, place: Place) -> Option<u64> {
        let is_it = |slot: u64| self.compare(leaf, slot, &place) == Ordering::Equal;
        self.used(leaf).find(|&slot| self.is_live(view, slot) && is_it(slot))
    }

    /// As [`find`](Self::find), in a leaf that is in order and has `count` entries up to the place.
    #[inline(always)]
    pub(super) fn find_among(
        &self,
        view: View<'_>,
        leaf: Node,
        place: &Place,
        count: usize,
    ) -> Option<u64> {
        // Of several entries of one key, the youngest is the most likely to be shown, and it is the
        // last.
        let is_it = |slot: u64| self.compare(leaf, slot, place) == Ordering::Equal;
        let slots = (0..count).rev().map(|index| Self::slot(leaf, index));
        slots.take_while(|&slot| is_it(slot)).find(|&slot| self.is_live(view, slot))
    }

    /// The last entry before `place`, or up to it, that the view shows.
    #[inline(always)]
    pub(super) fn last(
        &self,
        view: View<'_>,
        node: Node,
        place: &Place,
        bound: Bound,
    ) -> Option<u64> {
        if view.follows_crash() {
            return self.last_after_crash(view, node, *place, bound);
        }
        if Self::tells_places(node) {
            let count = self.count_before(node, place, bound);
            return self.last_of(node, count, |slot| self.is_live(view, slot));
        }
        if place.number == u64::MAX {
            // No entry of the key has a greater number.
            let count = self.count_before(node, place, Bound::UpTo);
            return self.last_of(node, count, |slot| self.is_live(view, slot));
        }
        // Hardly any number is 0, so entries of lesser keys are tried first, without loading
        // numbers from children.
        if place.number == 0 {
            let count = self.count_before(node, place, Bound::Before);
            let found = self.last_of(node, count, |slot| self.is_live(view, slot));
            if found.is_some() {
                return found;
            }
        }
        self.last_of(node, self.count_before(node, place, Bound::UpTo), |slot| {
            self.is_live(view, slot) && bound.admits(self.compare(node, slot, place))
        })
    }

    #[cold]
    #[inline(never)]
    fn last_after_crash(
        &self,
        view: View<'_>,
        node: Node,
        place: Place,
        bound: Bound,
    ) -> Option<u64> {
        let is_it =
            |slot: u64| self.is_live(view, slot) && bound.admits(self.compare(node, slot, &place));
        // Both copies of an entry that is there twice are the same. No lesser entry lies behind the
        // second copy.
        self.used(node).filter(|&slot| is_it(slot)).last()
    }

    /// The last of the first `count` entries that `accept` accepts.
    #[inline(always)]
    fn last_of(&self, node: Node, count: usize, accept: impl Fn(u64) -> bool) -> Option<u64> {
        let mut index = count;
        while index > 0 {
            index -= 1;
            let slot = Self::slot(node, index);
            if accept(slot) {
                return Some(slot);
            }
        }
        None
    }

    /// The first entry behind `place` that the view shows.
    #[inline(always)]
    pub(super) fn first_behind(&self, view: View<'_>, node: Node, place: &Place) -> Option<u64> {
        let is_it = |slot: u64| {
            self.is_live(view, slot) && self.compare(node, slot, place) == Ordering::Greater
        };
        if view.follows_crash() {
            return self.used(node).find(|&slot| is_it(slot));
        }
        let is_exact = Self::tells_places(node);
        let count =
            self.count_before(node, place, if is_exact { Bound::UpTo } else { Bound::Before });
        (count..Self::shape(node).slots)
            .map(|index| Self::slot(node, index))
            .find(|&slot| if is_exact { self.is_live(view, slot) } else { is_it(slot) })
    }

    /// The entries that the view shows, in the order of their places.
    ///
    /// The node must be clean. Otherwise an entry that a crash left twice is returned twice.
    #[inline(always)]
    pub(super) fn live<'t>(&'t self, view: View<'t>, node: Node) -> impl Iterator<Item = u64> + 't {
        self.used(node).filter(move |&slot| self.is_live(view, slot))
    }
}
