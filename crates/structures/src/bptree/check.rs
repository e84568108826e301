//! Is the tree whole?

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::Core;
use super::layout::{BEGIN, END, LIVE, Place};
use super::node::{Node, View};
use super::ops::Record;
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// Violations that are collected before the walk gives up.
const COLLECTED_MAX: usize = 100;

/// What a walk through all nodes has found.
#[derive(Debug, Default)]
struct Found {
    nodes: Vec<u64>,
    entries: u64,
    violations: Vec<Violation>,
    /// Whether something was too damaged to follow, so that nodes may be missing.
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

    /// Checks the nodes at `at` and below, whose places are `low` and those behind it, before `high`.
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
        let slots = self.slots(view, node);
        let places: Vec<Place> = slots.iter().map(|&slot| self.place(node, slot)).collect();
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
            let child = self.medium().load(slot + Self::shape(node).payload);
            let high = places.get(index + 1).or(high);
            self.check_node(view, child, Some(node.level - 1), place, high, found);
        }
    }

    /// The sorted entries must be sorted, and no entry may bear a version that is yet to come.
    fn check_versions(&self, view: View<'_>, node: Node, found: &mut Found) {
        let medium = self.medium();
        let place_at = |index: usize| self.place(node, Self::slot(node, index));
        if !(0..node.sorted).map(place_at).is_sorted_by(|a, b| a < b) {
            found.add(node.at, "entries that count as sorted are not");
        }
        let slots = Self::shape(node).slots;
        let mut is_used = true;
        for slot in (0..slots).map(|index| Self::slot(node, index)) {
            let (begin, end) = (medium.load(slot + BEGIN), medium.load(slot + END));
            let is_lost = view.is_lost(begin);
            if begin > view.version && !is_lost {
                found.add(slot, format!("begins at version {begin}, which is yet to come"));
            }
            if begin != 0 && !is_lost && !is_used {
                found.add(slot, "an entry follows one that was never used");
            }
            is_used &= begin != 0 && !is_lost;
            if is_used && end != LIVE && end > view.version && !view.is_lost(end) {
                found.add(slot, format!("ends at version {end}, which is yet to come"));
            }
        }
    }

    /// Collects what is left of a tree that is dismantled.
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
        for slot in self.live(view, node) {
            match self.child(node, slot) {
                Ok(child) => self.check_dismantled(view, child.at, found),
                Err(_) => {
                    found.add(slot, "leads to no node of the next level");
                    found.is_broken = true;
                }
            }
        }
    }
}
