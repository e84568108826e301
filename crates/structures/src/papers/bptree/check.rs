//! Checking a tree.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::Core;
use super::layout::{BEGIN, END, KEY, LIVE, MOVING, Place};
use super::node::{Node, View};
use super::version::Record;
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// The walk gives up after this many violations.
const COLLECTED_MAX: usize = 100;

/// The findings of a walk through all nodes.
#[derive(Debug, Default)]
struct Found {
    nodes: Vec<u64>,
    entries: u64,
    violations: Vec<Violation>,
    /// Whether damage kept the walk from following an entry, so that `nodes` may be incomplete.
    is_broken: bool,
}

impl Found {
    fn add(&mut self, at: u64, what: impl Into<String>) {
        self.violations.push(Violation::new(at, what));
    }
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let Record { root, len, dismantled, version } = self.writer.lock(self.medium()).record;
        let view = View::new(version, &self.lost);
        let mut found = Found::default();
        self.check_node(view, root, None, &Place::default(), None, &mut found);
        if found.entries != len && !found.is_broken {
            let what = format!("the tree counts {len} entries, but has {}", found.entries);
            found.add(self.heap.header(), what);
        }
        if dismantled != 0 {
            self.check_dismantled(view, dismantled, &mut found);
        }
        if !found.is_broken {
            found.violations.extend(self.heap.check(found.nodes.into_iter())?);
        }
        self.heap.verify()?;
        Ok(found.violations)
    }

    /// The number of levels, including that of the leaves, and the number of leaves.
    pub(super) fn levels_and_leaves(&self) -> Result<(u64, u64)> {
        let Record { root, version, .. } = self.writer.lock(self.medium()).record;
        let view = View::new(version, &self.lost);
        let mut nodes = vec![self.node(root)?];
        let levels = u64::from(nodes[0].level) + 1;
        for _ in 1..levels {
            let mut below = Vec::new();
            for node in nodes {
                for slot in self.live(view, node) {
                    below.push(self.child(node, self.child_at(node, slot))?);
                }
            }
            nodes = below;
        }
        Ok((levels, nodes.len() as u64))
    }

    /// Checks the node at `at` and those below it. Their entries have places from `low` on and
    /// before `high`.
    fn check_node(
        &self,
        view: View<'_>,
        at: u64,
        level: Option<u32>,
        low: &Place,
        high: Option<&Place>,
        found: &mut Found,
    ) {
        let node = self.read_node(at).filter(|node| level.is_none_or(|level| level == node.level));
        let Some(node) = node.filter(|_| at != 0 && self.medium().fault().is_none()) else {
            found.add(at, "no node of the level that is expected here");
            found.is_broken = true;
            return;
        };
        if found.violations.len() >= COLLECTED_MAX {
            found.is_broken = true;
            return;
        }
        found.nodes.push(at);
        if self.low(at) != *low {
            found.add(at, "the node's least place is not that of the entry which leads here");
        }
        self.check_versions(view, node, found);
        let (slots, places) = self.live_places(view, node);
        if !places.is_sorted_by(|a, b| a < b) {
            found.add(at, "an entry is there twice");
        }
        let is_in = |place: &Place| low <= place && high.is_none_or(|high| place < high);
        if !places.iter().all(is_in) {
            found.add(at, "an entry does not belong into this node");
        }
        if node.level == 0 {
            found.entries += slots.len() as u64;
            return;
        }
        if places.first() != Some(low) {
            found.add(at, "no entry leads to the least place of this node");
        }
        for (index, (&slot, place)) in slots.iter().zip(&places).enumerate() {
            let child = self.child_at(node, slot);
            let high = places.get(index + 1).or(high);
            self.check_node(view, child, Some(node.level - 1), place, high, found);
        }
    }

    /// The entries that the view shows, and their places. An entry that a crash left twice is
    /// returned once.
    fn live_places(&self, view: View<'_>, node: Node) -> (Vec<u64>, Vec<Place>) {
        let mut places: Vec<Place> = Vec::new();
        let is_next = |slot: &u64| {
            let place = self.place(node, *slot);
            if view.follows_crash() && places.last().is_some_and(|last| place <= *last) {
                return false;
            }
            places.push(place);
            true
        };
        (self.live(view, node).filter(is_next).collect(), places)
    }

    /// Checks that the keys are in order, and that no entry has a version greater than the current
    /// one.
    fn check_versions(&self, view: View<'_>, node: Node, found: &mut Found) {
        let medium = self.medium();
        let is_in_order = |slots: &[u64]| {
            let word = |slot: u64, index: usize| medium.load(slot + KEY + 8 * index as u64);
            let key = |slot: u64| (0..Self::KEY_WORDS).map(move |index| word(slot, index));
            key(slots[0]).le(key(slots[1]))
        };
        let used: Vec<u64> = self.used(node).collect();
        if !view.follows_crash() && !used.windows(2).all(is_in_order) {
            found.add(node.at, "the entries are not in the order of their keys");
        }
        let slots = (0..Self::shape(node).slots).map(|index| Self::slot(node, index));
        let is_stray = |slot: &u64| self.is_used(*slot) && !view.follows_crash();
        for slot in slots.skip(used.len()).filter(is_stray) {
            found.add(slot, "an entry follows one that was never used");
        }
        for slot in used {
            let (begin, end) = (medium.load(slot + BEGIN), medium.load(slot + END));
            let is_void = view.is_lost(begin) || view.follows_crash() && begin == MOVING;
            if begin > view.version && !is_void {
                found.add(slot, format!("begins at version {begin}, which is yet to come"));
            }
            if !is_void && end != LIVE && end > view.version && !view.is_lost(end) {
                found.add(slot, format!("ends at version {end}, which is yet to come"));
            }
        }
    }

    /// Collects the remaining nodes of a tree that is being dismantled.
    fn check_dismantled(&self, view: View<'_>, at: u64, found: &mut Found) {
        let Some(node) = self.read_node(at).filter(|_| self.medium().fault().is_none()) else {
            found.add(at, "no node of the tree that is dismantled begins here");
            found.is_broken = true;
            return;
        };
        found.nodes.push(at);
        if node.level == 0 {
            return;
        }
        let mut children: Vec<u64> =
            self.live(view, node).map(|slot| self.child_at(node, slot)).collect();
        // A crash may have left an entry twice.
        children.sort_unstable();
        children.dedup();
        for child in children {
            match self.child(node, child) {
                Ok(child) => self.check_dismantled(view, child.at, found),
                Err(_) => {
                    found.add(node.at, "an entry leads to no node of the next level");
                    found.is_broken = true;
                }
            }
        }
    }
}
