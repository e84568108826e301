//! Consistency check of a hash map.

use remanent_pmem::heap::Violation;
use remanent_pmem::{Link, Medium};

use super::Core;
use super::damage::Damage;
use super::entry::Found;
use super::layout::{
    COUNT, DUMMY, GENERATION, OPTIONS, Order, READY, SEED, SEGMENTS, SWEPT, TAG, in_place,
    tag_generation, tag_order,
};
use super::seal::{is_link, open_word};
use super::walk::Progress;
use crate::Result;
use crate::shared::{Inspection, Member};
use crate::stored::{Key, Stored};
use std::sync::atomic::Ordering;

/// The most violations of the list that are collected before the walk gives up.
const COLLECTED_MAX: usize = 100;

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let Inspection { mut violations, blocks } = self.inspect()?;
        if let Some(blocks) = blocks {
            violations.extend(self.heap.check(blocks.into_iter())?);
        }
        self.heap.verify()?;
        Ok(violations)
    }

    pub(super) fn inspect(&self) -> Result<Inspection> {
        let mut violations = Vec::new();
        let mut blocks = Vec::new();
        self.heap.quiesce()?;
        self.check_header(&mut violations);
        let linked = self.check_list(&mut blocks, &mut violations);
        self.heap.verify()?;
        let is_whole = match linked {
            Ok(Some(linked)) => {
                self.check_slots(linked, &mut violations);
                // Counting sweeps out dead entries, but their blocks were just collected: count
                // only if there are none.
                if self.is_swept() {
                    self.check_count(blocks.len() as u64, &mut violations)?;
                }
                true
            }
            Ok(None) => false,
            // The rest of the list is not known.
            Err(damage) => {
                violations.push(violation(damage));
                false
            }
        };
        blocks.extend(self.fixed_blocks());
        Ok(Inspection { violations, blocks: is_whole.then_some(blocks) })
    }

    /// Whether the header is still what was read when the map was opened.
    fn check_header(&self, violations: &mut Vec<Violation>) {
        let (medium, header) = (self.medium(), self.heap.header());
        if medium.load(header + SEED) != self.seed {
            violations.push(Violation::new(header + SEED, "the seed has changed"));
        }
        let segments = self.segments.iter().enumerate().filter_map(|(index, segment)| {
            // Relaxed: no operation is in progress.
            (segment.load(Ordering::Relaxed) != 0).then_some(SEGMENTS + index as u64 * 8)
        });
        for field in [GENERATION, SWEPT, COUNT, OPTIONS].into_iter().chain(segments) {
            if open_word(field, medium.load(header + field)).is_none() {
                let what = format!("byte {field} of the header does not fit its check");
                violations.push(Violation::new(header + field, what));
            }
        }
    }

    /// Walks the list and collects its nodes. Returns how many of its buckets are ready, or `None`
    /// when the list is too damaged to go on.
    fn check_list(
        &self,
        nodes: &mut Vec<u64>,
        violations: &mut Vec<Violation>,
    ) -> Result<Option<u64>, Damage> {
        let (medium, bits) = (self.medium(), self.bits());
        let mut progress = Progress::from_bucket::<K>(0, bits);
        let (mut at, mut link) = self.enter_slot(0, |link| link.load())?;
        // The bucket that `at` is the slot of, if it is one.
        let mut slot = Some(0);
        let mut linked = u64::from(link.has(READY));
        let mut last = Order(0);
        // Unmarked nodes of the current order, to find keys that occur twice.
        let mut same_order: Vec<u64> = Vec::new();
        loop {
            if violations.len() >= COLLECTED_MAX {
                return Ok(None);
            }
            if link.has(DUMMY) {
                let bucket = self.step_to_dummy(&mut progress, at, link)?;
                (at, link) = self.enter_slot(bucket, |link| link.load())?;
                linked += u64::from(link.has(READY));
                slot = Some(bucket);
                continue;
            }
            if link.is_null() {
                self.step_to_end(&progress, at)?;
                return Ok(Some(linked));
            }
            let (node, tag) = self.step_to_node(&mut progress, at, link)?;
            let own = Link::at(medium, node).load();
            if slot.is_some_and(|bucket| Self::is_behind(bucket, link, tag_order(tag))) {
                violations.push(Violation::new(at, "slot's hint is beyond the entry it leads to"));
            }
            if tag_order(tag) > last {
                same_order.clear();
            }
            last = tag_order(tag);
            if !self.is_gone(node, own)? {
                // Only the entry is damaged: the list goes on.
                let checked = self.check_entry(Found { node, link: own }, &same_order, violations);
                violations.extend(checked.err().map(violation));
                same_order.push(node);
            }
            nodes.push(node);
            (slot, at, link) = (None, node, own);
        }
    }

    fn check_entry(
        &self,
        found: Found,
        same_order: &[u64],
        violations: &mut Vec<Violation>,
    ) -> Result<(), Damage> {
        let (node, generation) = (found.node, self.generation());
        let tag = self.medium().load(node + TAG);
        if !in_place::<V>() {
            self.value(found)?;
        }
        self.with_key(node, tag, |key| {
            if MULTI || !Self::is_alive(tag_generation(tag), generation) {
                return Ok(());
            }
            for &other in same_order {
                let other_tag = self.medium().load(other + TAG);
                if Self::is_alive(tag_generation(other_tag), generation)
                    && self.entry_of(other, other_tag, key)?.is_some()
                {
                    let what = format!("key is also in the entry at {other:#x}");
                    violations.push(Violation::new(node, what));
                }
            }
            Ok(())
        })?
    }

    /// Checks that every slot at which operations may begin is in the list, which has `linked` of
    /// them.
    fn check_slots(&self, linked: u64, violations: &mut Vec<Violation>) {
        let mut ready = 0;
        for at in (0..1_u64 << self.bits()).map(|bucket| self.slot(bucket)) {
            let link = Link::at(self.medium(), at).load();
            if !link.has(READY) {
                continue;
            }
            ready += 1;
            if !is_link(at, link) && violations.len() < COLLECTED_MAX {
                violations.push(Violation::new(at, "a bucket's slot does not fit its check"));
            }
        }
        if linked != ready {
            let what = format!("{ready} buckets are ready, but {linked} of them are linked");
            violations.push(Violation::new(self.slot(0), what));
        }
    }

    fn check_count(&self, nodes: u64, violations: &mut Vec<Violation>) -> Result<()> {
        let len = self.len()?;
        let mut unmarked = 0;
        let walked = self.walk_from(0, usize::MAX, |_| {
            unmarked += 1;
            Ok(())
        });
        self.told(walked)?;
        if len != unmarked {
            let what = format!("the map counts {len} entries, but has {unmarked} of {nodes} nodes");
            violations.push(Violation::new(self.heap.header(), what));
        }
        Ok(())
    }
}

/// The violation that reports damage.
fn violation(damage: Damage) -> Violation {
    match damage {
        Damage::Word { at, what } => Violation::new(at, what),
        Damage::Sum { node, stored, computed } => {
            let what = format!(
                "the entry has changed since it was written: its checksum is {stored:#010x}, its \
                 bytes give {computed:#010x}"
            );
            Violation::new(node, what)
        }
    }
}
