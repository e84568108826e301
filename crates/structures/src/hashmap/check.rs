//! Is the map whole?

use remanent_pmem::heap::Violation;
use remanent_pmem::{Link, Medium, Word};

use super::Core;
use super::layout::{DUMMY, Order, READY, TAG, dummy_of, has_key, tag_generation, tag_order};
use crate::Result;
use crate::stored::{Key, Stored};
use std::sync::atomic::Ordering;

/// Violations of the list that are collected before the walk gives up.
const COLLECTED_MAX: usize = 100;

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let mut violations = Vec::new();
        let mut nodes = Vec::new();
        self.heap.settle()?;
        let walked = self.check_list(&mut nodes, &mut violations);
        self.check_slots(&mut violations);
        if walked {
            // Relaxed: no operation is in progress.
            let segments = self.segments.iter().map(|s| s.load(Ordering::Relaxed));
            let blocks = segments.filter(|&segment| segment != 0).chain(nodes.iter().copied());
            violations.extend(self.heap.check(blocks)?);
            self.check_count(nodes.len() as u64, &mut violations)?;
        }
        self.heap.verify()?;
        Ok(violations)
    }

    /// Walks the list and collects its nodes. False when it is too damaged to go on.
    fn check_list(&self, nodes: &mut Vec<u64>, violations: &mut Vec<Violation>) -> bool {
        let medium = self.medium();
        let mut at = self.slot(0);
        let mut link = Link::at(medium, at).load();
        let mut last = Order(0);
        // The bucket that `at` is the slot of, if it is one.
        let mut slot = Some(0);
        // Unmarked nodes of the present order, to find keys that are there twice.
        let mut same_order: Vec<u64> = Vec::new();
        loop {
            if violations.len() >= COLLECTED_MAX {
                return false;
            }
            if medium.fault().is_some() {
                violations.push(Violation::new(at, "the list leads out of the pool from here"));
                return false;
            }
            if link.has(DUMMY) {
                let bucket = dummy_of(link);
                let order = Order::of_bucket(bucket);
                if bucket >> self.bits() != 0 {
                    violations.push(Violation::new(at, format!("bucket {bucket} does not exist")));
                    return false;
                }
                if order <= last && bucket != 0 {
                    violations.push(Violation::new(at, format!("bucket {bucket} is out of order")));
                    return false;
                }
                last = order;
                slot = Some(bucket);
                at = self.slot(bucket);
                link = Link::at(medium, at).load();
                continue;
            }
            if link.is_null() {
                return true;
            }
            let node = link.offset();
            let tag = medium.load(node + TAG);
            let own = Link::at(medium, node).load();
            if tag_order(tag) < last {
                violations.push(Violation::new(node, "entry is out of order"));
                return false;
            }
            if slot.is_some_and(|bucket| Self::is_behind(bucket, link, tag_order(tag))) {
                violations.push(Violation::new(at, "slot's hint is beyond the entry it leads to"));
            }
            if tag_order(tag) > last {
                same_order.clear();
            }
            last = tag_order(tag);
            if !own.is_marked() {
                self.check_entry(node, tag, &same_order, violations);
                same_order.push(node);
            }
            nodes.push(node);
            (slot, at, link) = (None, node, own);
        }
    }

    fn check_entry(
        &self,
        node: u64,
        tag: u64,
        same_order: &[u64],
        violations: &mut Vec<Violation>,
    ) {
        let generation = self.generation();
        self.with_key(node, |key| {
            if Order::of_hash(self.hash(key)) != tag_order(tag) {
                violations.push(Violation::new(node, "entry is not where its key's hash belongs"));
            }
            if MULTI || !Self::is_alive(tag_generation(tag), generation) {
                return;
            }
            for &other in same_order {
                let other_tag = self.medium().load(other + TAG);
                if Self::is_alive(tag_generation(other_tag), generation)
                    && has_key::<K, V, M>(self.medium(), other, key)
                {
                    let what = format!("key is also in the entry at {other:#x}");
                    violations.push(Violation::new(node, what));
                }
            }
        });
    }

    /// Every slot that operations may begin at must be in the list.
    fn check_slots(&self, violations: &mut Vec<Violation>) {
        let medium = self.medium();
        let ready = |bucket: u64| Link::at(medium, self.slot(bucket)).load().has(READY);
        let mut linked = 1_u64;
        let mut link: Word = Link::at(medium, self.slot(0)).load();
        while !link.is_null() || link.has(DUMMY) {
            if medium.fault().is_some() {
                return;
            }
            link = if link.has(DUMMY) {
                linked += u64::from(ready(dummy_of(link)));
                Link::at(medium, self.slot(dummy_of(link))).load()
            } else {
                Link::at(medium, link.offset()).load()
            };
        }
        let marked_ready = (0..1_u64 << self.bits()).filter(|&bucket| ready(bucket)).count() as u64;
        if linked != marked_ready {
            let what = format!("{marked_ready} buckets are ready, but {linked} of them are linked");
            violations.push(Violation::new(self.slot(0), what));
        }
    }

    fn check_count(&self, nodes: u64, violations: &mut Vec<Violation>) -> Result<()> {
        let len = self.len()?;
        let mut unmarked = 0;
        self.walk_from(0, usize::MAX, |_| unmarked += 1);
        if len != unmarked {
            let what = format!("the map counts {len} entries, but has {unmarked} of {nodes} nodes");
            violations.push(Violation::new(self.heap.header(), what));
        }
        Ok(())
    }
}
