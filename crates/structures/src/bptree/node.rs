//! Nodes as a version of the tree sees them.

use std::cmp::Ordering;

use remanent_pmem::{Error as PoolError, Medium};

use super::Core;
use super::layout::{
    BEGIN, END, HEIGHT_MAX, KEY, KIND, LIVE, LOW, Layout, Place, SLOTS_MAX, Shape,
};
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// Versions that crashes have taken away before they were committed: what bears them has not happened.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Ascending.
    pub(super) versions: Vec<u64>,
}

/// The tree at one version.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'t> {
    pub(super) version: u64,
    pub(super) lost: &'t [u64],
    /// The first lost version, and how far the last is from it: an empty range that no version lies in when none is.
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

    /// Whether a crash took away what bears this version.
    #[inline(always)]
    pub(super) fn is_lost(&self, version: u64) -> bool {
        version.wrapping_sub(self.lost_first) <= self.lost_span
            && self.lost.binary_search(&version).is_ok()
    }

    /// Whether what bears this version is part of the view.
    #[inline(always)]
    pub(super) fn has(&self, version: u64) -> bool {
        version <= self.version && !self.is_lost(version)
    }

    /// Whether an entry of these versions is there.
    #[inline(always)]
    pub(super) fn shows(&self, begin: u64, end: u64) -> bool {
        begin != 0 && self.has(begin) && !self.has(end)
    }
}

/// A node whose header makes sense.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) at: u64,
    /// 0 for a leaf.
    pub(super) level: u32,
    /// Entries in the order of their keys; the others follow.
    pub(super) sorted: usize,
}

/// Entries of a node that a view shows, in the order of their keys.
pub(super) struct Sorted {
    indexes: [u8; SLOTS_MAX],
    len: usize,
}

impl Sorted {
    /// The indexes of the entries.
    pub(super) fn indexes(self) -> impl DoubleEndedIterator<Item = usize> {
        self.indexes.into_iter().take(self.len).map(usize::from)
    }
}

/// Which entries a search is content with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// Those at the place and before it.
    UpTo,
    /// Those before it.
    Before,
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    const KEY_WORDS: usize = Layout::<K, V, MULTI>::KEY_WORDS;

    /// How nodes of the level of `node` lie.
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

    /// The node at `at`, if that could be one.
    #[inline(always)]
    pub(super) fn read_node(&self, at: u64) -> Option<Node> {
        if !at.is_multiple_of(32) {
            return None;
        }
        let word = self.medium().load(at + KIND);
        let node = Node { at, level: word as u32, sorted: (word >> 32) as usize };
        let is_sound = (node.level as usize) < HEIGHT_MAX && node.sorted <= Self::shape(node).slots;
        is_sound.then_some(node)
    }

    /// The node that the entry at `slot` of an inner node leads to.
    #[inline(always)]
    pub(super) fn child(&self, node: Node, slot: u64) -> Result<Node> {
        let at = self.medium().load(slot + Self::shape(node).payload);
        // Searches hop about in a node: all of its lines had better come at once.
        let len = Layout::<K, V, MULTI>::shape(node.level.saturating_sub(1)).node_len;
        (at..at.saturating_add(len)).step_by(64).for_each(|line| self.medium().prefetch(line));
        match self.read_node(at) {
            Some(child) if child.level + 1 == node.level => Ok(child),
            _ => Err(self.damaged(slot, "an entry does not lead to a node of the next level")),
        }
    }

    /// What to say of damage; memory that cannot be read comes first.
    #[cold]
    pub(super) fn damaged(&self, at: u64, what: &str) -> Error {
        match self.heap.verify() {
            Err(error) => error.into(),
            Ok(()) => PoolError::corrupt(at, what).into(),
        }
    }

    /// The least place that belongs into the node at `at`.
    pub(super) fn low(&self, at: u64) -> Place {
        let mut place = self.load_key(at + LOW);
        if MULTI {
            place.number = self.medium().load(at + LOW + 8 * Self::KEY_WORDS as u64);
        }
        place
    }

    #[inline(always)]
    fn load_key(&self, at: u64) -> Place {
        let mut place = Place::default();
        for (index, word) in place.key.iter_mut().enumerate().take(Self::KEY_WORDS) {
            *word = self.medium().load(at + 8 * index as u64);
        }
        place
    }

    /// The number of the entry at `slot`, 0 outside of multi-maps.
    #[inline(always)]
    fn number(&self, node: Node, slot: u64) -> u64 {
        match (MULTI, Self::shape(node).is_numbered) {
            (false, _) => 0,
            (true, false) => self.medium().load(slot + BEGIN),
            (true, true) => self.medium().load(slot + KEY + 8 * Self::KEY_WORDS as u64),
        }
    }

    /// The place of the entry at `slot`.
    #[inline(always)]
    pub(super) fn place(&self, node: Node, slot: u64) -> Place {
        self.load_key(slot + KEY).numbered(self.number(node, slot))
    }

    /// Compares the entry at `slot` with a place.
    #[inline(always)]
    pub(super) fn compare(&self, node: Node, slot: u64, place: &Place) -> Ordering {
        place
            .compare_key(self.medium(), slot + KEY, Self::KEY_WORDS)
            .then_with(|| self.number(node, slot).cmp(&place.number))
    }

    /// Whether the view shows the entry at `slot`.
    #[inline(always)]
    pub(super) fn is_live(&self, view: View<'_>, slot: u64) -> bool {
        let medium = self.medium();
        view.shows(medium.load(slot + BEGIN), medium.load(slot + END))
    }

    /// Offsets of the entries that were added since the node was made, and that the view may show.
    #[inline(always)]
    fn added(&self, node: Node) -> impl Iterator<Item = u64> + '_ {
        (node.sorted..Self::shape(node).slots)
            .map(move |index| Self::slot(node, index))
            // What follows an entry that was never used has not happened.
            .take_while(|&slot| self.medium().load(slot + BEGIN) != 0)
    }

    /// Sorted entries that lie before `place`, or up to it.
    #[inline(always)]
    fn count_before(&self, node: Node, place: &Place, bound: Bound) -> usize {
        let (mut first, mut after) = (0, node.sorted);
        while first < after {
            let middle = (first + after) / 2;
            let order = self.compare(node, Self::slot(node, middle), place);
            if order == Ordering::Less || order == Ordering::Equal && bound == Bound::UpTo {
                first = middle + 1;
            } else {
                after = middle;
            }
        }
        first
    }

    /// The entry of exactly this place, if the view shows it.
    #[inline(always)]
    pub(super) fn find(&self, view: View<'_>, node: Node, place: &Place) -> Option<u64> {
        // What was added is younger than what is sorted, and the youngest is the most likely to be there.
        let added = self.added(node).filter(|&slot| {
            self.compare(node, slot, place) == Ordering::Equal && self.is_live(view, slot)
        });
        if let Some(slot) = added.last() {
            return Some(slot);
        }
        let index = self.count_before(node, place, Bound::Before);
        let slot = Self::slot(node, index);
        let is_it = index < node.sorted
            && self.compare(node, slot, place) == Ordering::Equal
            && self.is_live(view, slot);
        is_it.then_some(slot)
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
        let count = self.count_before(node, place, bound);
        let sorted =
            (0..count).rev().map(|i| Self::slot(node, i)).find(|&slot| self.is_live(view, slot));
        let mut best = sorted;
        for slot in self.added(node) {
            let order = self.compare(node, slot, place);
            let is_before =
                order == Ordering::Less || order == Ordering::Equal && bound == Bound::UpTo;
            if is_before
                && self.is_live(view, slot)
                && best.is_none_or(|best| {
                    self.compare(node, slot, &self.place(node, best)) == Ordering::Greater
                })
            {
                best = Some(slot);
            }
        }
        best
    }

    /// The first entry behind `place` that the view shows.
    pub(super) fn first_behind(&self, view: View<'_>, node: Node, place: &Place) -> Option<u64> {
        let count = self.count_before(node, place, Bound::UpTo);
        let sorted = (count..node.sorted)
            .map(|index| Self::slot(node, index))
            .find(|&slot| self.is_live(view, slot));
        let mut best = sorted;
        for slot in self.added(node) {
            if self.compare(node, slot, place) == Ordering::Greater
                && self.is_live(view, slot)
                && best.is_none_or(|best| {
                    self.compare(node, slot, &self.place(node, best)) == Ordering::Less
                })
            {
                best = Some(slot);
            }
        }
        best
    }

    /// The entries that the view shows and `accept` takes, in the order of their keys.
    pub(super) fn sorted(
        &self,
        view: View<'_>,
        node: Node,
        accept: impl Fn(u64) -> bool,
    ) -> Sorted {
        let mut sorted = Sorted { indexes: [0; SLOTS_MAX], len: 0 };
        let is_accepted = |slot: u64| self.is_live(view, slot) && accept(slot);
        for index in (0..node.sorted).filter(|&index| is_accepted(Self::slot(node, index))) {
            sorted.indexes[sorted.len] = index as u8;
            sorted.len += 1;
        }
        for (index, slot) in self.added(node).enumerate() {
            if !is_accepted(slot) {
                continue;
            }
            let place = self.place(node, slot);
            let mut to = sorted.len;
            while to > 0 {
                let before = sorted.indexes[to - 1];
                let before_slot = Self::slot(node, usize::from(before));
                if self.compare(node, before_slot, &place) != Ordering::Greater {
                    break;
                }
                sorted.indexes[to] = before;
                to -= 1;
            }
            sorted.indexes[to] = (node.sorted + index) as u8;
            sorted.len += 1;
        }
        sorted
    }

    /// Entries that the view shows.
    pub(super) fn count(&self, view: View<'_>, node: Node) -> usize {
        self.live(view, node).count()
    }

    /// The entries that the view shows, in no particular order.
    pub(super) fn live<'t>(&'t self, view: View<'t>, node: Node) -> impl Iterator<Item = u64> + 't {
        (0..node.sorted)
            .map(move |index| Self::slot(node, index))
            .chain(self.added(node))
            .filter(move |&slot| self.is_live(view, slot))
    }

    /// Entries that may be added yet: the first of them, and how many there are. One that a crash left behind is
    /// as good as one that was never used.
    pub(super) fn free(&self, view: View<'_>, node: Node) -> (usize, usize) {
        let slots = Self::shape(node).slots;
        let is_used = |index: &usize| {
            let begin = self.medium().load(Self::slot(node, *index) + BEGIN);
            begin != 0 && !view.is_lost(begin)
        };
        let first = (node.sorted..slots).find(|index| !is_used(index)).unwrap_or(slots);
        (first, slots - first)
    }

    /// Makes entries that lost versions have touched as if they had not. Returns whether there were any.
    pub(super) fn clean(&self, view: View<'_>, node: Node) -> bool {
        let medium = self.medium();
        let shape = Self::shape(node);
        let mut any = false;
        // Behind an entry that was never used may follow one that was lost, when their lines came apart.
        for slot in (0..shape.slots).map(|index| Self::slot(node, index)) {
            for (at, clean) in [(slot + BEGIN, 0), (slot + END, LIVE)] {
                if view.is_lost(medium.load(at)) {
                    medium.store(at, clean);
                    // Flush: fenced by the caller, before the version is forgotten.
                    medium.flush(at, 8);
                    any = true;
                }
            }
        }
        any
    }
}
