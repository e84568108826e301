//! Visiting ranges of entries, at one version from the first to the last.

use std::ops::{Bound as RangeBound, ControlFlow, RangeBounds};

use remanent_pmem::Medium;

use super::Core;
use super::layout::{Place, WORDS_MAX};
use super::node::{Bound, Node, View};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// The last place of all.
const LAST: Place = Place { key: [u64::MAX; WORDS_MAX], number: u64::MAX };

/// A range of places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The first place in it.
    pub(super) first: Place,
    /// The first place behind it; no entry has the number that the last place has.
    pub(super) after: Place,
}

impl Range {
    pub(super) const ALL: Range =
        Range { first: Place { key: [0; WORDS_MAX], number: 0 }, after: LAST };

    pub(super) fn of<K: OrderedKey + ?Sized>(range: &impl RangeBounds<K>) -> Self {
        let first_of = |key: &K| Place::first_of(key);
        // No entry has this number, so it lies between the key's entries and those of the next.
        let behind = |key: &K| Place::first_of(key).numbered(u64::MAX);
        Range {
            first: match range.start_bound() {
                RangeBound::Included(key) => first_of(key),
                RangeBound::Excluded(key) => behind(key),
                RangeBound::Unbounded => Place::default(),
            },
            after: match range.end_bound() {
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
    pub(super) fn ascend(
        &self,
        range: &Range,
        mut visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        let _pin = self.heap.pin();
        let (view, root) = self.start();
        let root = self.node(root)?;
        let _ = self.ascend_node(view, root, range, &mut |leaf, slot| {
            self.visit_entry(leaf, slot, &mut visit)
        })?;
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
        let root = self.node(root)?;
        let _ = self.descend_node(view, root, range, &mut |leaf, slot| {
            self.visit_entry(leaf, slot, &mut visit)
        })?;
        Ok(self.heap.verify()?)
    }

    #[inline(always)]
    fn visit_entry<R>(&self, leaf: Node, slot: u64, visit: impl FnOnce(&K, &V) -> R) -> R {
        self.place(leaf, slot)
            .with_key(|key| self.with_value_at(leaf, slot, |value| visit(key, value)))
    }

    /// Passes the entries of a range below `node` to `visit`, with their leaf.
    pub(super) fn ascend_node(
        &self,
        view: View<'_>,
        node: Node,
        range: &Range,
        visit: &mut impl FnMut(Node, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if node.level == 0 {
            for slot in self.in_range(view, node, range) {
                if visit(node, slot).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        let first = self.last(view, node, &range.first, Bound::UpTo);
        let mut next = first.or_else(|| self.first_behind(view, node, &range.first));
        while let Some(slot) = next {
            if self.ascend_node(view, self.child(node, slot)?, range, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let behind = self.first_behind(view, node, &self.place(node, slot));
            next = behind.filter(|&slot| self.compare(node, slot, &range.after).is_lt());
        }
        Ok(ControlFlow::Continue(()))
    }

    fn descend_node(
        &self,
        view: View<'_>,
        node: Node,
        range: &Range,
        visit: &mut impl FnMut(Node, u64) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        if node.level == 0 {
            for slot in self.in_range(view, node, range).rev() {
                if visit(node, slot).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        let mut next = self.last(view, node, &range.after, Bound::Before);
        while let Some(slot) = next {
            if self.descend_node(view, self.child(node, slot)?, range, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let place = self.place(node, slot);
            if place <= range.first {
                break;
            }
            next = self.last(view, node, &place, Bound::Before);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Offsets of a leaf's entries in a range, in ascending order.
    #[inline(always)]
    fn in_range(
        &self,
        view: View<'_>,
        leaf: Node,
        range: &Range,
    ) -> impl DoubleEndedIterator<Item = u64> + use<K, V, M, MULTI> {
        let is_in_range = |slot: u64| {
            self.compare(leaf, slot, &range.first).is_ge()
                && self.compare(leaf, slot, &range.after).is_lt()
        };
        let sorted = self.sorted(view, leaf, is_in_range);
        sorted.indexes().map(move |index| Self::slot(leaf, index))
    }
}
