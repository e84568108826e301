//! Checking a tree.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::Core;
use super::inner::Goal;
use super::key::{Probe, common, head_word, with_separator, word_bytes};
use super::layout::{
    HIGH, LEAF_LOW, NEXT, ROOT, Slot, head_at, head_words, is_word, read_bounds, slots_of,
    valid_slots,
};
use super::leaf::Leaf;
use super::ops::Payload;
use crate::shared::Inspection;
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// The walk gives up after this many violations.
const COLLECTED_MAX: usize = 100;

/// The findings of a walk over the tree.
#[derive(Default)]
struct Walk {
    blocks: Vec<u64>,
    violations: Vec<Violation>,
    /// Leaves that inner nodes lead to, from left to right.
    posted: Vec<u64>,
}

impl Walk {
    fn wrong(&mut self, offset: u64, what: impl Into<String>) {
        self.violations.push(Violation::new(offset, what.into()));
    }

    fn is_hopeless(&self) -> bool {
        self.violations.len() >= COLLECTED_MAX
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let Inspection { mut violations, blocks } = self.inspect()?;
        if let Some(blocks) = blocks {
            violations.extend(self.heap.check(blocks.into_iter())?);
        }
        self.heap.verify()?;
        Ok(violations)
    }

    pub(super) fn inspect(&self) -> Result<Inspection> {
        self.heap.quiesce()?;
        let mut walk = Walk::default();
        let entries = self.walk_all(&mut walk)?;
        if let Some(entries) = entries {
            let len = self.len()?;
            if len != entries {
                let what = format!("the tree counts {len} entries, but has {entries}");
                walk.wrong(self.heap.header(), what);
            }
        }
        self.heap.verify()?;
        Ok(Inspection { violations: walk.violations, blocks: entries.map(|_| walk.blocks) })
    }

    /// Offsets of all blocks that the tree reaches, but its header; `None` when damage hides some.
    /// Nobody may change the tree meanwhile.
    pub(super) fn reached(&self) -> Result<Option<Vec<u64>>> {
        let mut walk = Walk::default();
        let entries = self.walk_all(&mut walk)?;
        self.heap.verify()?;
        Ok(entries.map(|_| walk.blocks))
    }

    /// Walks over nodes and leaves. Returns the number of entries, if it reached the last leaf.
    fn walk_all(&self, walk: &mut Walk) -> Result<Option<u64>> {
        let root = self.medium().load(self.heap.header() + ROOT);
        self.check_node(root, None, 0, None, walk);
        self.check_leaves(walk)
    }

    /// The number of levels, including that of the leaves, and the number of leaves. Nobody may
    /// change the tree meanwhile.
    pub(super) fn levels_and_leaves(&self) -> Result<(u64, u64)> {
        let root = self.medium().load(self.heap.header() + ROOT);
        let inner = self.node_head(root).map_or(0, |head| head.level);
        let mut leaves = 0;
        self.for_each_leaf(|_| leaves += 1)?;
        Ok((inner + 1, leaves))
    }

    fn check_node(
        &self,
        node: u64,
        level: Option<u64>,
        low: u64,
        high: Option<u64>,
        walk: &mut Walk,
    ) {
        let medium = self.medium();
        let Some(head) = self.node_head(node) else {
            return walk.wrong(node, "no inner node is where one was linked");
        };
        if level.is_some_and(|level| level != head.level) || walk.is_hopeless() {
            return walk.wrong(node, format!("a node of level {} in the wrong place", head.level));
        }
        walk.blocks.push(node);
        if (self.low_of(node), read_bounds(medium, node).0) != (low, high) {
            walk.wrong(node, "the node's range is not the one it was linked for");
        }
        self.check_heads(node, walk);
        let entries = self.entries(node);
        for (index, entry) in entries.iter().enumerate() {
            let next = entries.get(index + 1).map(|next| next.low).or(high);
            if let Some(next) = next.filter(|&next| !self.is_ascending(entry.low, next)) {
                walk.wrong(node, format!("separator {index} is not below {next:#x}"));
            }
            if head.level == 1 {
                walk.posted.push(entry.child);
                let low_at = Leaf::linked(entry.child).0 + LEAF_LOW;
                if index > 0 && !self.is_same_bound(entry.low, medium.load(low_at)) {
                    walk.wrong(node, format!("separator {index} is not where its leaf begins"));
                }
            } else {
                self.check_node(entry.child, Some(head.level - 1), entry.low, next, walk);
            }
        }
    }

    /// Checks that the heads in a node, which lead searches, are those of its separators.
    fn check_heads(&self, node: u64, walk: &mut Walk) {
        if is_word::<K>() {
            return;
        }
        let medium = self.medium();
        let (high, prefix) = read_bounds(medium, node);
        let low = self.low_of(node);
        let is_common = match high {
            None => prefix == 0,
            Some(high) => with_separator(medium, low, |low| {
                with_separator(medium, high, |high| prefix <= common(low, high))
            }),
        };
        if !is_common {
            walk.wrong(node, format!("not all keys below have {prefix} bytes in common"));
        }
        for (index, entry) in self.entries(node).iter().enumerate() {
            let is_computed = with_separator(medium, entry.low, |low| {
                (0..head_words::<K>()).all(|word| {
                    medium.load(head_at::<K>(node, index, word)) == head_word(low, prefix, word)
                })
            });
            if !is_computed {
                walk.wrong(node, format!("the head of separator {index} is not computed from it"));
            }
        }
    }

    fn is_same_bound(&self, one: u64, other: u64) -> bool {
        one == other || !self.is_ascending(one, other) && !self.is_ascending(other, one)
    }

    /// Walks along the leaves. Returns the number of entries, if the walk reached the last leaf.
    fn check_leaves(&self, walk: &mut Walk) -> Result<Option<u64>> {
        let medium = self.medium();
        let mut entries = 0;
        let mut posted = std::mem::take(&mut walk.posted).into_iter().peekable();
        let mut leaf = self.with_bound(0, |probe| self.leaf_at(Goal::At(*probe)))?;
        loop {
            if walk.is_hopeless() || medium.fault().is_some() {
                return Ok(None);
            }
            let Some(used) = self.stable(leaf, || self.used(leaf))? else {
                walk.wrong(leaf.0, "the leaf is dead, but linked");
                return Ok(None);
            };
            walk.blocks.push(leaf.0);
            posted.next_if_eq(&leaf.0);
            entries += u64::from(used.count_ones());
            self.check_leaf(leaf, used, walk);
            let next = Leaf::linked(medium.load(leaf.0 + NEXT));
            if next.0 == 0 {
                break;
            }
            let low = medium.load(next.0 + LEAF_LOW);
            if !self.is_ascending(medium.load(leaf.0 + LEAF_LOW), low) {
                walk.wrong(next.0, "the leaf is not to the right of its left neighbour");
                return Ok(None);
            }
            if medium.load(leaf.0 + HIGH) != low {
                walk.wrong(leaf.0, "the leaf does not know where the next one begins");
            }
            if !is_word::<K>() {
                walk.blocks.push(low);
            }
            leaf = next;
        }
        if let Some(stray) = posted.next() {
            walk.wrong(stray, "a node leads to this leaf, but its left neighbour does not");
        }
        Ok(Some(entries))
    }

    fn check_leaf(&self, leaf: Leaf, used: u64, walk: &mut Walk) {
        let medium = self.medium();
        if used != valid_slots(medium, leaf.0) {
            walk.wrong(leaf.0, "other slots are used than are valid");
        }
        let mut slots: Vec<Slot> = slots_of(used).collect();
        slots.sort_unstable_by(|one, other| self.compare_slots(leaf, *one, *other));
        for pair in slots.windows(2) {
            if !self.with_slot(leaf, pair[1], |key| self.compare_slot(leaf, pair[0], key).is_lt()) {
                walk.wrong(leaf.0 + pair[1].key(), "a key is there twice");
            }
        }
        for slot in slots_of(used) {
            if Self::has_records() {
                let payload = self.payload(leaf, slot);
                walk.blocks.push(payload.word);
                self.check_record(medium.load(leaf.0 + slot.key()), payload, walk);
            }
            self.with_slot(leaf, slot, |key| {
                if self.find_slot(leaf, key) != Some(slot) {
                    walk.wrong(leaf.0 + slot.key(), "a search does not find this entry");
                }
                let low = medium.load(leaf.0 + LEAF_LOW);
                let is_below = self.with_bound(low, |low| key.bytes < low.bytes);
                if is_below || self.right_of(leaf, key).is_some() {
                    walk.wrong(leaf.0 + slot.key(), "the entry belongs to another leaf");
                }
            });
        }
    }

    /// Checks that a record is the one that was written. For a key that is a word, checks the
    /// record of its slot.
    fn check_record(&self, word: u64, payload: Payload, walk: &mut Walk) {
        let read = self
            .with_key(word, payload, |_| ())
            .and_then(|()| self.with_value(payload, |_| ()))
            .and_then(|()| {
                let is_same = !is_word::<K>()
                    || self.with_record_key(payload.word, |key| {
                        word_bytes::<K, bool>(word, |of_slot| of_slot == key)
                    });
                let what = "the key of an entry is not that of its record";
                if is_same { Ok(()) } else { Err(Error::corrupt(&self.heap, payload.word, what)) }
            });
        if let Err(error) = read {
            walk.wrong(payload.word, error.to_string());
        }
    }

    /// Passes the key of a slot to `use_probe`.
    fn with_slot<R>(&self, leaf: Leaf, slot: Slot, use_probe: impl FnOnce(&Probe<'_>) -> R) -> R {
        let medium = self.medium();
        if is_word::<K>() {
            return self.with_bound(medium.load(leaf.0 + slot.key()), use_probe);
        }
        self.with_record_key(medium.load(leaf.0 + slot.value()), |key| {
            use_probe(&Probe::new::<K>(key))
        })
    }
}
