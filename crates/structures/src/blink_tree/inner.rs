//! Inner nodes: the way from the root to a leaf.
//!
//! A linked inner node does not change, except that one of its children may be replaced by a newer
//! node of the same range. Every other change is made on a copy, by the holder of the shape's lock,
//! and takes effect by storing one word. So a thread that walks down needs no lock. At worst it
//! follows an older path, and has to go on to the right from that path's leaf.

use std::cmp::Ordering as Compared;

use remanent_pmem::heap::{Lane, Suspect};
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};

use super::Core;
use super::key::{Probe, common, compare_bound, head_word, with_separator};
use super::layout::{
    INNER_LEN, LEVEL_MAX, NODE_LOW, NodeHead, ROOT, child_at, head_at, head_words, home, inner_max,
    is_word, read_bounds, separator_at, write_bounds,
};
use super::leaf::{Leaf, LeafRange};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// The child that a search goes down to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal<'k> {
    /// Where the key belongs.
    At(Probe<'k>),
    /// Where the greatest key below it belongs.
    Before(Probe<'k>),
    /// The rightmost.
    Last,
}

/// A child of an inner node, and the lower bound of its range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// A key, or the offset of a separator.
    pub(super) low: u64,
    pub(super) child: u64,
}

/// An inner node on the path to a leaf, and the index of the child that the path goes to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) node: u64,
    pub(super) index: usize,
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// The head of the inner node at `node`; `None` when there is no inner node.
    #[inline(always)]
    pub(super) fn node_head(&self, node: u64) -> Option<NodeHead> {
        self.tags.node_head::<K>(self.medium().load(node))
    }

    /// Children of an inner node at the most.
    pub(super) fn inner_max() -> usize {
        inner_max::<K>().min(K::NODE_ENTRIES_MAX)
    }

    /// The leaf that the inner nodes lead to.
    #[inline(always)]
    pub(super) fn leaf_at(&self, goal: Goal<'_>) -> Result<Leaf> {
        Ok(self.range_at(goal)?.leaf)
    }

    /// As [`leaf_at`](Core::leaf_at), with the leaf's upper bound according to the node above.
    #[inline(always)]
    pub(super) fn range_at(&self, goal: Goal<'_>) -> Result<LeafRange> {
        let medium = self.medium();
        let mut node = medium.load(self.heap.header() + ROOT);
        let mut above = LEVEL_MAX + 1;
        loop {
            let Some(load) = medium.window(node, INNER_LEN) else {
                return Err(self.no_node(node));
            };
            let head = self.tags.node_head::<K>(load(0));
            let Some(head) = head.filter(|head| head.level < above) else {
                return Err(self.no_node(node));
            };
            let index = match goal {
                Goal::At(probe) if is_word::<K>() => {
                    search_words::<K>(&load, head.count, probe.word)
                }
                goal => self.search(node, head.count, goal),
            };
            let child = load(child_at::<K>(0, index));
            if head.level == 1 {
                medium.prefetch(child);
                medium.prefetch(child.wrapping_add(LINE_LEN));
                if let Goal::At(probe) = goal {
                    let home = child.wrapping_add(home(probe.fingerprint, Self::leaf_max()).line());
                    medium.prefetch(home);
                    medium.prefetch(home.wrapping_add(LINE_LEN));
                }
                let high = match is_word::<K>() {
                    true => 0,
                    false if index + 1 < head.count => self.low_at(node, index + 1),
                    false => read_bounds(medium, node).0.unwrap_or(0),
                };
                return Ok(LeafRange { leaf: Leaf::linked(child), high });
            }
            (node, above) = (child, head.level);
            self.prefetch_node(node);
        }
    }

    /// Prefetches a node's head and all of its keys at once, for keys that are words: a search
    /// needs most of these lines.
    #[inline(always)]
    fn prefetch_node(&self, node: u64) {
        if is_word::<K>() {
            for line in 0..child_at::<K>(0, 0) / LINE_LEN {
                self.medium().prefetch(node.wrapping_add(line * LINE_LEN));
            }
        }
    }

    /// The inner nodes on the path to that leaf, from the root on.
    pub(super) fn path(&self, goal: Goal<'_>) -> Result<Vec<Step>> {
        let medium = self.medium();
        let mut node = medium.load(self.heap.header() + ROOT);
        let mut steps: Vec<Step> = Vec::new();
        let mut above = LEVEL_MAX + 1;
        loop {
            let Some(head) = self.node_head(node).filter(|head| head.level < above) else {
                return Err(self.no_node(node));
            };
            let index = self.search(node, head.count, goal);
            steps.push(Step { node, index });
            if head.level == 1 {
                return Ok(steps);
            }
            (node, above) = (medium.load(child_at::<K>(node, index)), head.level);
        }
    }

    #[cold]
    fn no_node(&self, node: u64) -> crate::Error {
        match self.heap.verify() {
            Err(error) => error.into(),
            Ok(()) => PoolError::corrupt(node, "no inner node is where one was linked").into(),
        }
    }

    /// The index of the child that a search goes to: the last child whose least key does not exceed
    /// the goal.
    #[inline(always)]
    fn search(&self, node: u64, count: usize, goal: Goal<'_>) -> usize {
        let medium = self.medium();
        let (probe, is_before) = match goal {
            Goal::At(probe) => (probe, false),
            Goal::Before(probe) => (probe, true),
            Goal::Last => return count - 1,
        };
        if is_word::<K>() {
            // If no key can be before the goal, the first child takes it, as it takes a goal before
            // all keys.
            let wanted = probe.word.checked_sub(u64::from(is_before));
            let load = medium.window(node, INNER_LEN);
            return match (load, wanted) {
                (Some(load), Some(wanted)) => search_words::<K>(&load, count, wanted),
                _ => 0,
            };
        }
        let prefix = read_bounds(medium, node).1;
        let wanted = probe.head::<K>(prefix);
        // The first child takes every goal that leads to this node, so its own least key is not
        // compared.
        let (mut base, mut len) = (0, count);
        while len > 1 {
            let half = len / 2;
            let at = base + half;
            let found = medium.load(head_at::<K>(node, at, 0));
            let is_below = if found == wanted {
                self.is_behind(node, at, &probe, prefix, is_before)
            } else {
                found < wanted
            };
            base = if is_below { at } else { base };
            len -= half;
        }
        base
    }

    /// Whether a key belongs behind a separator whose first head word is the same. A key equal to
    /// the separator does, unless `is_before`.
    fn is_behind(
        &self,
        node: u64,
        at: usize,
        probe: &Probe<'_>,
        prefix: usize,
        is_before: bool,
    ) -> bool {
        let medium = self.medium();
        for word in 1..head_words::<K>() {
            let found = medium.load(head_at::<K>(node, at, word));
            match head_word(probe.bytes, prefix, word).cmp(&found) {
                Compared::Equal => {}
                compared => return compared.is_gt(),
            }
        }
        let separator = medium.load(separator_at::<K>(node, at));
        let compared = compare_bound::<K, M>(medium, probe, separator);
        compared.is_gt() || compared.is_eq() && !is_before
    }

    /// The children of a node.
    pub(super) fn entries(&self, node: u64) -> Vec<Entry> {
        let count = self.node_head(node).map_or(0, |head| head.count);
        (0..count).map(|index| self.entry(node, index)).collect()
    }

    fn entry(&self, node: u64, index: usize) -> Entry {
        let child = self.medium().load(child_at::<K>(node, index));
        Entry { low: self.low_at(node, index), child }
    }

    #[inline(always)]
    fn low_at(&self, node: u64, index: usize) -> u64 {
        let is_word = is_word::<K>();
        let at =
            if is_word { head_at::<K>(node, index, 0) } else { separator_at::<K>(node, index) };
        self.medium().load(at)
    }

    /// Writes and flushes a new node.
    pub(super) fn make_node(
        &self,
        lane: &mut Lane<'_, M>,
        level: u64,
        high: Option<u64>,
        entries: &[Entry],
    ) -> Result<u64> {
        let medium = self.medium();
        let block = lane.allocate(INNER_LEN)?;
        let node = block.offset;
        let low = entries.first().map_or(0, |first| first.low);
        let prefix = match high {
            Some(high) if !is_word::<K>() => with_separator(medium, low, |low| {
                with_separator(medium, high, |high| common(low, high))
            }),
            _ => 0,
        };
        medium.store(node, self.tags.node_word(NodeHead { level, count: entries.len() }));
        write_bounds(medium, node, low, high, prefix);
        for (index, entry) in entries.iter().enumerate() {
            if is_word::<K>() {
                medium.store(head_at::<K>(node, index, 0), entry.low);
            } else {
                with_separator(medium, entry.low, |low| {
                    for word in 0..head_words::<K>() {
                        let stored = head_word(low, prefix, word);
                        medium.store(head_at::<K>(node, index, word), stored);
                    }
                });
                medium.store(separator_at::<K>(node, index), entry.low);
            }
            medium.store(child_at::<K>(node, index), entry.child);
        }
        // Flush: the node; `reshape` fences before the node is linked.
        medium.flush(node, head_at::<K>(node, entries.len(), 0) - node);
        medium.flush(child_at::<K>(node, 0), entries.len() as u64 * WORD_LEN);
        if !is_word::<K>() {
            medium.flush(separator_at::<K>(node, 0), entries.len() as u64 * WORD_LEN);
        }
        Ok(node)
    }
}

/// The index of the last child of a node whose least key is at most `wanted`, or 0. For keys that
/// are words. `load` loads the node's words.
///
/// Compares the first key of every line, and then the keys of one line. A binary search would wait
/// for one line after the other. These loads do not wait for each other, and no branch depends on
/// them.
#[inline(always)]
fn search_words<K: OrderedKey + ?Sized>(
    load: &impl Fn(u64) -> u64,
    count: usize,
    wanted: u64,
) -> usize {
    const GROUP: usize = (LINE_LEN / WORD_LEN) as usize;
    let is_greater = |index: usize| u32::from(load(head_at::<K>(0, index, 0)) > wanted);
    // Words behind the last key are garbage. The keys before are sorted, so only the least index
    // counts whose key is greater.
    let mut greater_groups = !0;
    for group in (1..inner_max::<K>().div_ceil(GROUP)).rev() {
        greater_groups = greater_groups << 1 | is_greater(group * GROUP);
    }
    let first = (greater_groups.trailing_zeros() as usize).min((count - 1) / GROUP) * GROUP;
    let mut greater = !0u32;
    for index in (1..GROUP).rev() {
        greater = greater << 1 | is_greater(first + index);
    }
    (first + greater.trailing_zeros() as usize).min(count - 1)
}

/// Nodes that were made for a change of the tree's shape, and nodes that it replaces.
pub(super) struct Reshaping {
    made: Vec<u64>,
    replaced: Vec<(u64, Suspect)>,
}

impl Reshaping {
    pub(super) fn new() -> Self {
        Reshaping { made: Vec::new(), replaced: Vec::new() }
    }

    fn replaces<M: Medium>(&mut self, lane: &mut Lane<'_, M>, node: u64) {
        self.replaced.push((node, lane.suspect(node)));
    }

    /// Undoes the preparation of a change that failed.
    fn give_up<M: Medium>(self, lane: &mut Lane<'_, M>) {
        for (_, suspect) in self.replaced {
            lane.cancel(suspect);
        }
        for offset in self.made {
            lane.give_back(remanent_pmem::heap::Block { offset, len: INNER_LEN });
        }
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// Replaces the children `removed` of the last node of `path` by `entries`, and changes the
    /// nodes above accordingly, in one atomic step. The caller holds the shape's lock.
    pub(super) fn reshape(
        &self,
        lane: &mut Lane<'_, M>,
        path: &[Step],
        removed: std::ops::Range<usize>,
        entries: Vec<Entry>,
    ) -> Result<()> {
        let mut reshaping = Reshaping::new();
        match self.prepare(lane, &mut reshaping, path, removed, entries) {
            Ok((at, node)) => {
                // Fence: the new nodes and the suspects, before the link that leads to the new
                // nodes, and no longer to the replaced ones.
                // Redundant flush: it flushes only the suspects. They matter only where a replaced
                // node lies in a chunk that nobody allocates from, and short runs make fewer nodes
                // than a chunk has room for.
                lane.fence();
                // Release: the new nodes are complete before they are linked. Partner of the loads
                // in `range_at` and `path`.
                self.medium().store(at, node);
                // Flush and fence: before another thread builds on the new node, or frees a block
                // that only the old one leads to.
                self.medium().persist(at, WORD_LEN);
                for (_, suspect) in reshaping.replaced {
                    lane.retire(suspect);
                }
                Ok(())
            }
            Err(error) => {
                reshaping.give_up(lane);
                Err(error)
            }
        }
    }

    /// Makes all new nodes, from below upwards. Returns the offset of the word to change, and the
    /// node that it has to lead to.
    fn prepare(
        &self,
        lane: &mut Lane<'_, M>,
        reshaping: &mut Reshaping,
        path: &[Step],
        mut removed: std::ops::Range<usize>,
        mut entries: Vec<Entry>,
    ) -> Result<(u64, u64)> {
        let medium = self.medium();
        for (depth, step) in path.iter().enumerate().rev() {
            let level = (path.len() - depth) as u64;
            let mut all = self.entries(step.node);
            all.splice(removed.clone(), entries);
            let (high, _) = read_bounds(medium, step.node);
            reshaping.replaces(lane, step.node);
            let above = depth.checked_sub(1).map(|depth| path[depth]);
            let Some(above) = above else {
                let root = self.make_root(lane, reshaping, level, high, all)?;
                return Ok((self.heap.header() + ROOT, root));
            };
            removed = above.index..above.index + 1;
            if all.len() <= Self::inner_max()
                && let Some(merged) =
                    self.merge_with_sibling(lane, reshaping, above, level, high, &all)?
            {
                (removed, entries) = merged;
                continue;
            }
            entries = self.make_nodes(lane, reshaping, level, high, &all)?;
            if entries.len() == 1 {
                return Ok((child_at::<K>(above.node, above.index), entries[0].child));
            }
        }
        unreachable!("the root's turn ends it")
    }

    /// Makes one node of these entries, or two.
    fn make_nodes(
        &self,
        lane: &mut Lane<'_, M>,
        reshaping: &mut Reshaping,
        level: u64,
        high: Option<u64>,
        entries: &[Entry],
    ) -> Result<Vec<Entry>> {
        let (left, right) = if entries.len() <= Self::inner_max() {
            (entries, &[][..])
        } else {
            // Keys that come in ascending order never go to the left node again, so it stays mostly
            // full.
            let is_last = high.is_none();
            entries.split_at(if is_last { entries.len() * 7 / 8 } else { entries.len() / 2 })
        };
        let mut made = Vec::new();
        for (entries, high) in
            [(left, right.first().map(|first| first.low).or(high)), (right, high)]
        {
            if let Some(first) = entries.first() {
                let child = self.make_node(lane, level, high, entries)?;
                reshaping.made.push(child);
                made.push(Entry { low: first.low, child });
            }
        }
        Ok(made)
    }

    /// Makes a root for these entries, of as many levels as they need.
    fn make_root(
        &self,
        lane: &mut Lane<'_, M>,
        reshaping: &mut Reshaping,
        mut level: u64,
        high: Option<u64>,
        mut entries: Vec<Entry>,
    ) -> Result<u64> {
        if level > 1 && entries.len() == 1 {
            // The only node left on the level below becomes the root.
            return Ok(entries[0].child);
        }
        loop {
            entries = self.make_nodes(lane, reshaping, level, high, &entries)?;
            if entries.len() == 1 {
                return Ok(entries[0].child);
            }
            level += 1;
        }
    }

    /// Puts these few entries into one node with those of a sibling, when both fit. Returns the
    /// range that this replaces in the node above, and the replacement.
    #[allow(
        clippy::type_complexity,
        reason = "a range and its replacement, as `splice` takes them"
    )]
    fn merge_with_sibling(
        &self,
        lane: &mut Lane<'_, M>,
        reshaping: &mut Reshaping,
        above: Step,
        level: u64,
        high: Option<u64>,
        entries: &[Entry],
    ) -> Result<Option<(std::ops::Range<usize>, Vec<Entry>)>> {
        if entries.len() > Self::inner_max() / 4 {
            return Ok(None);
        }
        let siblings = self.entries(above.node);
        let (left, right) = match above.index {
            0 => (0, 1),
            index => (index - 1, index),
        };
        let Some(other) = siblings.get(if left == above.index { right } else { left }) else {
            return Ok(None);
        };
        let others = self.entries(other.child);
        if entries.len() + others.len() > Self::inner_max() * 3 / 4 {
            return Ok(None);
        }
        let (all, high) = if left == above.index {
            ([entries, &others].concat(), read_bounds(self.medium(), other.child).0)
        } else {
            ([&others, entries].concat(), high)
        };
        reshaping.replaces(lane, other.child);
        let child = self.make_node(lane, level, high, &all)?;
        reshaping.made.push(child);
        Ok(Some((left..right + 1, vec![Entry { low: all[0].low, child }])))
    }

    /// The least key of an inner node.
    pub(super) fn low_of(&self, node: u64) -> u64 {
        self.medium().load(node + NODE_LOW)
    }
}
