//! Writing the next version of a path, from the leaf up to the highest node that changes.
//!
//! A change ends entries of a node and adds others. If the node has room, it changes in place: one
//! entry gets an end, another is written with a begin. If it has no room, or too few entries would
//! be left, its live entries are copied: to one new node, to two, or to one together with those of
//! a neighbour. The change of the node above then leads to the new nodes. So exactly one existing
//! node changes, the highest one. Those below it are replaced, and earlier versions still see them
//! unchanged.

use std::cmp::Ordering;

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Dirty, Fresh, Medium};

use super::Core;
use super::layout::{
    BEGIN, END, Entry, HEIGHT_MAX, KEY, KIND, LIVE, LOW, Layout, Place, Shape, WORDS_MAX,
};
use super::node::{Node, View};
use super::path::Path;
use super::version::{Record, Writer};
use crate::Result;
use crate::stored::{OrderedKey, Stored};

/// A change of a node's entries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edit {
    /// Offsets of the entries that end.
    ended: [Option<u64>; 2],
    /// The entries that begin, in the order of their places.
    added: [Option<Entry>; 2],
}

impl Edit {
    #[inline(always)]
    pub(super) fn put(replaced: Option<u64>, entry: &Entry) -> Self {
        Edit { ended: [replaced, None], added: [Some(*entry), None] }
    }

    #[inline(always)]
    pub(super) fn remove(slot: u64) -> Self {
        Edit { ended: [Some(slot), None], added: [None, None] }
    }

    #[inline(always)]
    fn ended_len(&self) -> usize {
        self.ended.iter().flatten().count()
    }

    #[inline(always)]
    fn added_len(&self) -> usize {
        self.added.iter().flatten().count()
    }

    /// Whether the node has fewer entries afterwards.
    #[inline(always)]
    fn is_shrinking(&self) -> bool {
        self.ended_len() > self.added_len()
    }
}

/// The source of an entry of a new node.
#[derive(Clone, Copy, Debug)]
enum Source<'e> {
    /// The entry of an old node, at this offset.
    Slot(u64),
    New(&'e Entry),
}

/// The nodes that a change makes, and those that it replaces, until it is committed or given up.
#[derive(Debug, Default)]
struct Replaced {
    blocks: Vec<Block>,
    /// Nodes that the next version does not lead to.
    left: Vec<u64>,
}

/// The node where copying ends.
enum Top {
    /// An existing node that changes in place, and the number of its used entries.
    Node(Node, usize),
    /// No existing node: all were replaced, and this is the new root.
    Root(u64),
}

impl<K, V, M, const MULTI: bool> Core<K, V, M, MULTI>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    M: Medium,
{
    /// Writes and commits the version in which `edit` changes the leaf where `place` belongs, and
    /// the tree has `len` entries. Two fences, besides those for entries that move.
    #[inline(never)]
    pub(super) fn apply(
        &self,
        writer: &mut Writer,
        place: &Place,
        edit: &Edit,
        len: u64,
    ) -> Result<()> {
        let view = self.view(writer);
        let path = &self.descend(view, writer.record.root, place)?;
        let lane = &mut self.heap.enter().prepare_to_write();
        let mut replaced = Replaced::default();
        let mut rest = *edit;
        let mut top = self.replace(lane, view, path, &mut rest, true, &mut replaced);
        if matches!(&top, Err(error) if error.is_full()) && edit.is_shrinking() {
            // Without joining nodes, a removal needs no space.
            give_back(lane, &mut replaced);
            rest = *edit;
            top = self.replace(lane, view, path, &mut rest, false, &mut replaced);
        }
        let top = match top {
            Ok(top) => top,
            Err(error) => {
                give_back(lane, &mut replaced);
                return Err(error);
            }
        };
        if !writer.is_changing {
            self.announce(writer);
        }
        let version = view.version + 1;
        let left: Vec<_> = replaced.left.iter().map(|&node| lane.suspect(node)).collect();
        let root = match top {
            Top::Root(root) => root,
            Top::Node(node, used) => {
                self.change(view, node, used, &rest);
                writer.record.root
            }
        };
        // Fence: everything that the version consists of, from the leaf up, and the suspects,
        // before the version.
        lane.fence();
        let record = Record { root, len, version, ..writer.record };
        let committed = self.commit(writer, record);
        for suspect in left {
            match committed {
                Ok(()) => lane.retire(suspect),
                Err(_) => lane.cancel(suspect),
            }
        }
        committed
    }

    /// Changes a node in place: ends the entries that `edit` ends, and puts those that it adds into
    /// the node, which has room for them.
    #[inline(always)]
    fn change(&self, view: View<'_>, node: Node, used: usize, edit: &Edit) {
        for &slot in edit.ended.iter().flatten() {
            self.end(slot, view.version + 1);
        }
        if edit.added_len() > 0 {
            self.put_in(view, node, used, &edit.added);
        }
    }

    /// Ends the entry at `slot`.
    #[inline(always)]
    pub(super) fn end(&self, slot: u64, version: u64) {
        self.medium().store(slot + END, version);
        // Flush: fenced by the caller, before the version.
        self.medium().flush(slot + END, 8);
    }

    /// Copies nodes for `edit`, from the leaf of `path` upwards, until `edit` is a change that a
    /// node can make in place. Changes no existing node.
    #[inline]
    fn replace(
        &self,
        lane: &mut Lane<'_, M>,
        view: View<'_>,
        path: &Path,
        edit: &mut Edit,
        may_join: bool,
        replaced: &mut Replaced,
    ) -> Result<Top> {
        let mut depth = path.len - 1;
        loop {
            let node = path.node(depth);
            let added = edit.added_len();
            if edit.is_shrinking() {
                let count =
                    (self.live(view, node).count() + added).saturating_sub(edit.ended_len());
                if depth == 0 && node.level > 0 && count == 1 {
                    replaced.left.push(node.at);
                    return Ok(Top::Root(self.only_child(view, node, edit)));
                }
                let shrunk = if depth > 0 && count <= Self::shape(node).slots / 4 {
                    self.shrink(lane, view, path, depth, edit, count, may_join, replaced)?
                } else {
                    None
                };
                if let Some(above) = shrunk {
                    (*edit, depth) = (above, depth - 1);
                    continue;
                }
            }
            let used = self.used_len(node);
            if added == 0 || used + added <= Self::shape(node).slots {
                return Ok(Top::Node(node, used));
            }
            let above = self.copy(lane, view, path, depth, edit, replaced)?;
            if depth > 0 {
                (*edit, depth) = (above, depth - 1);
                continue;
            }
            return self.new_root(lane, node, &above, replaced).map(Top::Root);
        }
    }

    /// The only remaining child of a root.
    fn only_child(&self, view: View<'_>, root: Node, edit: &Edit) -> u64 {
        let kept = || self.live(view, root).find(|&slot| !edit.ended.contains(&Some(slot)));
        match edit.added[0] {
            Some(entry) => entry.payload[0],
            None => kept().map_or(0, |slot| self.child_at(root, slot)),
        }
    }

    /// The new root: the one node that replaced the old root, or a new node above the two.
    fn new_root(
        &self,
        lane: &mut Lane<'_, M>,
        old: Node,
        above: &Edit,
        replaced: &mut Replaced,
    ) -> Result<u64> {
        let children: Vec<Source<'_>> = above.added.iter().flatten().map(Source::New).collect();
        if let [Source::New(only)] = children[..] {
            return Ok(only.payload[0]);
        }
        if old.level as usize + 2 > HEIGHT_MAX {
            return Err(self.damaged(old.at, "the tree is higher than any can become"));
        }
        self.make(lane, old.level + 1, &Place::default(), &children, replaced)
    }

    /// Copies the live entries of a node, as changed by `edit`, to a new node, or to two when there
    /// are many. Returns the change of the node above.
    #[inline(never)]
    fn copy(
        &self,
        lane: &mut Lane<'_, M>,
        view: View<'_>,
        path: &Path,
        depth: usize,
        edit: &Edit,
        replaced: &mut Replaced,
    ) -> Result<Edit> {
        let node = path.node(depth);
        let mut sources = Vec::with_capacity(Self::shape(node).slots + 2);
        self.collect(view, node, edit, &mut sources);
        let low = self.low(node.at);
        let begin = view.version + 1;
        replaced.left.push(node.at);
        let ended = [(depth > 0).then(|| path.slot_of(depth)), None];
        let lead_to = |place: Place, node: u64| {
            let mut payload = [0; WORDS_MAX];
            payload[0] = node;
            Some(Entry { place, begin, payload })
        };
        if sources.len() <= Self::shape(node).slots * 3 / 4 {
            let only = self.make(lane, node.level, &low, &sources, replaced)?;
            return Ok(Edit { ended, added: [lead_to(low, only), None] });
        }
        let (left, right) = sources.split_at(sources.len() / 2);
        let middle = self.place_of(node, right[0]);
        let left = self.make(lane, node.level, &low, left, replaced)?;
        let right = self.make(lane, node.level, &middle, right, replaced)?;
        Ok(Edit { ended, added: [lead_to(low, left), lead_to(middle, right)] })
    }

    /// Copies the few remaining entries of a node together with those of a neighbour, or drops the
    /// node when none remains. Returns the change of the node above, or `None` when the node should
    /// stay as it is.
    #[allow(clippy::too_many_arguments, reason = "they are the state of the loop that calls it")]
    #[inline(never)]
    fn shrink(
        &self,
        lane: &mut Lane<'_, M>,
        view: View<'_>,
        path: &Path,
        depth: usize,
        edit: &Edit,
        count: usize,
        may_join: bool,
        replaced: &mut Replaced,
    ) -> Result<Option<Edit>> {
        let (node, parent, slot) = (path.node(depth), path.node(depth - 1), path.slot_of(depth));
        let siblings = self.slots(view, parent);
        let Some(own) = siblings.iter().position(|&sibling| sibling == slot) else {
            return Ok(None);
        };
        if count == 0 && self.is_right_of_any(view, path, depth) {
            // The neighbour on the left takes over the places of this node.
            replaced.left.push(node.at);
            return Ok(Some(Edit { ended: [Some(slot), None], added: [None, None] }));
        }
        let neighbours = [own.checked_sub(1), Some(own + 1)];
        for &other_slot in neighbours.iter().flatten().filter_map(|&index| siblings.get(index)) {
            let other = self.child(parent, self.child_at(parent, other_slot))?;
            self.clean(view, other);
            let is_left = self.compare(parent, other_slot, &self.place(parent, slot)).is_lt();
            // The joined node should have free room. An empty node is joined in any case.
            let is_room = self.live(view, other).count() + count <= Self::shape(node).slots / 2;
            if !may_join || !is_room && count > 0 {
                continue;
            }
            let mut sources = Vec::with_capacity(Self::shape(node).slots);
            let none = Edit::default();
            let low = if is_left {
                self.collect(view, other, &none, &mut sources);
                self.collect(view, node, edit, &mut sources);
                self.low(other.at)
            } else {
                self.collect(view, node, edit, &mut sources);
                self.collect(view, other, &none, &mut sources);
                self.low(node.at)
            };
            let joined = self.make(lane, node.level, &low, &sources, replaced)?;
            replaced.left.extend([node.at, other.at]);
            let mut payload = [0; WORDS_MAX];
            payload[0] = joined;
            let entry = Entry { place: low, begin: view.version + 1, payload };
            return Ok(Some(Edit {
                ended: [Some(slot), Some(other_slot)],
                added: [Some(entry), None],
            }));
        }
        Ok(None)
    }

    /// Whether the node at `depth` has a left neighbour under its parent. If it is an only child,
    /// whether its parent has one, and so on upwards.
    fn is_right_of_any(&self, view: View<'_>, path: &Path, depth: usize) -> bool {
        for depth in (1..=depth).rev() {
            let siblings = self.slots(view, path.node(depth - 1));
            if siblings.first() != Some(&path.slot_of(depth)) {
                return true;
            }
            if siblings.len() > 1 {
                return false;
            }
        }
        false
    }

    /// Offsets of the live entries of a node, in the order of their places.
    fn slots(&self, view: View<'_>, node: Node) -> Vec<u64> {
        self.live(view, node).collect()
    }

    /// Adds the live entries of a node to `sources`, as changed by `edit`, in the order of their
    /// places.
    fn collect<'e>(
        &self,
        view: View<'_>,
        node: Node,
        edit: &'e Edit,
        sources: &mut Vec<Source<'e>>,
    ) {
        let mut added = edit.added.iter().flatten().peekable();
        for slot in self.live(view, node).filter(|&slot| !edit.ended.contains(&Some(slot))) {
            while let Some(entry) =
                added.next_if(|entry| self.compare(node, slot, &entry.place) == Ordering::Greater)
            {
                sources.push(Source::New(entry));
            }
            sources.push(Source::Slot(slot));
        }
        sources.extend(added.map(Source::New));
    }

    fn place_of(&self, node: Node, source: Source<'_>) -> Place {
        match source {
            Source::Slot(slot) => self.place(node, slot),
            Source::New(entry) => entry.place,
        }
    }

    /// Makes and flushes a node with these entries, in this order.
    fn make(
        &self,
        lane: &mut Lane<'_, M>,
        level: u32,
        low: &Place,
        sources: &[Source<'_>],
        replaced: &mut Replaced,
    ) -> Result<u64> {
        let shape = Layout::<K, V, MULTI>::shape(level);
        let block = lane.allocate(shape.node_len)?;
        replaced.blocks.push(block);
        let Block { offset, len } = block;
        // SAFETY: the block was just allocated. Nothing leads to it, and only this thread knows it.
        let mut node = unsafe { Fresh::<u64, Dirty, M>::from_raw(self.medium(), offset, len) };
        node.write_word(KIND, u64::from(level));
        let numbered = usize::from(MULTI);
        let low =
            low.key.iter().take(Self::KEY_WORDS).chain([&low.number].into_iter().take(numbered));
        for (index, &word) in low.enumerate() {
            node.write_word(LOW + 8 * index as u64, word);
        }
        for index in 0..shape.slots {
            let at = shape.entries + index as u64 * shape.entry_len;
            match sources.get(index) {
                Some(Source::Slot(slot)) => {
                    node.write_word(at + BEGIN, self.medium().load(slot + BEGIN));
                    node.write_word(at + END, LIVE);
                    for word in (KEY..shape.entry_len).step_by(8) {
                        node.write_word(at + word, self.medium().load(slot + word));
                    }
                }
                Some(Source::New(entry)) => {
                    write_entry(&mut node, at, entry, Self::KEY_WORDS, &shape)
                }
                None => node.write_word(at + BEGIN, 0),
            }
        }
        // Flush: the node; fenced by the caller of `make`, before the version that leads here.
        Ok(node.flush().into_raw())
    }

    /// Makes and flushes a node without entries.
    pub(super) fn make_empty(&self, lane: &mut Lane<'_, M>) -> Result<u64> {
        self.make(lane, 0, &Place::default(), &[], &mut Replaced::default())
    }
}

fn write_entry<M: Medium>(
    node: &mut Fresh<'_, u64, Dirty, M>,
    at: u64,
    entry: &Entry,
    key_words: usize,
    shape: &Shape,
) {
    node.write_word(at + BEGIN, entry.begin);
    node.write_word(at + END, LIVE);
    for (index, &word) in entry.place.key.iter().enumerate().take(key_words) {
        node.write_word(at + KEY + 8 * index as u64, word);
    }
    for (index, &word) in entry.payload.iter().enumerate().take(shape.payload_words) {
        node.write_word(at + shape.payload + 8 * index as u64, word);
    }
}

/// Gives back the blocks of a change that is given up.
fn give_back<M: Medium>(lane: &mut Lane<'_, M>, replaced: &mut Replaced) {
    replaced.left.clear();
    for block in replaced.blocks.drain(..) {
        lane.give_back(block);
    }
}
