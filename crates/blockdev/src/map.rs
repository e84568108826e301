//! From a logical block to where its data lie: a tree of nodes of 448 entries.
//!
//! A snapshot is the tree as it was: from then on nodes that it has are copied before they change. Where the leaves of
//! the disk's own tree lie is kept in memory, so that reading follows one entry and not the whole path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;

use crate::journal::{Change, Changes};
use crate::layout::{
    BLOCK_LEN, Block, Child, HEIGHT_MAX, NODE_ENTRIES, STATE, entry_in_node, place_in_node,
};
use crate::line::{Line, WORDS};
use crate::space::Space;
use crate::{Error, Result};

/// Lines of a node.
const NODE_LINES: usize = 64;
/// Leaves of a segment of [`Leaves`].
const SEGMENT_LEAVES: u64 = 4096;
/// Leaves of the largest disk.
const LEAVES_MAX: u64 = (1 << 32) / NODE_ENTRIES + 1;
/// Set in what is known of a leaf.
const KNOWN: u64 = 1 << 63;

/// A tree of nodes: the disk's own, or a snapshot's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    pub(crate) top: Child,
    /// Levels of nodes above the leaves.
    pub(crate) height: u32,
}

/// Leaves that a tree of this height has room for.
pub(crate) fn leaves(height: u32) -> u64 {
    NODE_ENTRIES.saturating_pow(height)
}

/// Place, in a node `level` levels above the leaves, of the child that leads to a leaf.
fn place_of(leaf: u64, level: u32) -> u64 {
    leaf / leaves(level - 1) % NODE_ENTRIES
}

impl Tree {
    /// The leaf with this number; none where nothing was ever written. Nobody changes the tree's nodes meanwhile.
    pub(crate) fn leaf<M: Medium>(self, medium: &M, space: &Space, leaf: u64) -> Result<Child> {
        if leaf >= leaves(self.height) {
            return Ok(Child::default());
        }
        self.node(medium, space, leaf, 0)
    }

    /// The node `level` levels above the leaves on the way to a leaf that the tree has room for.
    pub(crate) fn node<M: Medium>(
        self,
        medium: &M,
        space: &Space,
        leaf: u64,
        level: u32,
    ) -> Result<Child> {
        let mut child = self.top;
        for above in (level + 1..=self.height).rev() {
            if child.block.is_none() {
                break;
            }
            child = read_child(medium, space, child, place_of(leaf, above))?;
        }
        Ok(child)
    }
}

/// The child of a node at `place`.
pub(crate) fn read_child<M: Medium>(
    medium: &M,
    space: &Space,
    node: Child,
    place: u64,
) -> Result<Child> {
    Ok(Child::decode(place_word(medium, space, node, place)?))
}

/// The entry of a node at `place`, as it is stored.
pub(crate) fn place_word<M: Medium>(
    medium: &M,
    space: &Space,
    node: Child,
    place: u64,
) -> Result<u64> {
    let (line, word) = place_in_node(place);
    Ok(load_line(medium, space.locate(node.block, 0)? + line)?.words[word])
}

/// The line at `at`, which nobody stores to meanwhile.
pub(crate) fn load_line<M: Medium>(medium: &M, at: u64) -> Result<Line> {
    Line::load(medium, at)
        .ok_or_else(|| Error::damaged(at, "a line of metadata fails its checksum"))
}

/// Where the leaves of the disk's tree lie, as far as it is known; volatile.
#[derive(Debug)]
pub(crate) struct Leaves {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Leaves {
    pub(crate) fn new() -> Self {
        let count = LEAVES_MAX.div_ceil(SEGMENT_LEAVES);
        Leaves { segments: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The leaf, or none; `None` when it is not known.
    #[inline]
    pub(crate) fn get(&self, leaf: u64) -> Option<Child> {
        let segment = self.segments.get((leaf / SEGMENT_LEAVES) as usize)?.get()?;
        // Acquire: with `set`, so that the leaf's content is seen.
        let word = segment[(leaf % SEGMENT_LEAVES) as usize].load(Ordering::Acquire);
        (word & KNOWN != 0).then(|| Child::decode(word & !KNOWN))
    }

    pub(crate) fn set(&self, leaf: u64, child: Child) {
        let Some(segment) = self.segments.get((leaf / SEGMENT_LEAVES) as usize) else { return };
        let segment =
            segment.get_or_init(|| (0..SEGMENT_LEAVES).map(|_| AtomicU64::new(0)).collect());
        // Release: with `get`.
        segment[(leaf % SEGMENT_LEAVES) as usize].store(child.encode() | KNOWN, Ordering::Release);
    }
}

/// A node that is being made.
#[derive(Debug)]
struct NewNode {
    block: Block,
    at: u64,
    words: Box<[[u64; WORDS]; NODE_LINES]>,
}

impl NewNode {
    /// An empty one, or a copy of `of`.
    fn make<M: Medium>(medium: &M, space: &Space, of: Child, block: Block) -> Result<Self> {
        let mut words = Box::new([[0; WORDS]; NODE_LINES]);
        if !of.block.is_none() {
            let from = space.locate(of.block, STATE)?;
            for (words, line) in words.iter_mut().zip(0..) {
                *words = load_line(medium, from + line * 64)?.words;
            }
        }
        Ok(NewNode { block, at: space.locate(block, STATE)?, words })
    }

    fn child(&self, place: u64) -> Child {
        let (line, word) = place_in_node(place);
        Child::decode(self.words[(line / 64) as usize][word])
    }

    fn set_child(&mut self, place: u64, child: Child) {
        let (line, word) = place_in_node(place);
        self.words[(line / 64) as usize][word] = child.encode();
    }

    /// Writes it; durable with the next fence.
    fn write<M: Medium>(&self, medium: &M) {
        let mut bytes = [0; BLOCK_LEN as usize];
        let images = bytes.as_chunks_mut::<64>().0.iter_mut();
        for ((image, &words), line) in images.zip(self.words.iter()).zip(0..) {
            let encoded = Line::first(words).encode(self.at + line * 64);
            let places = image.as_chunks_mut::<8>().0.iter_mut();
            places.zip(encoded).for_each(|(place, word)| *place = word.to_le_bytes());
        }
        medium.write_streaming(self.at, &bytes);
    }
}

/// What makes a leaf the disk's own: nodes that were made or copied, and what leads to them.
#[derive(Debug)]
pub(crate) struct Path {
    nodes: Vec<NewNode>,
    /// The tree, with another top perhaps.
    pub(crate) tree: Tree,
    /// The change of a node that stays where it is.
    pub(crate) changes: Changes,
    pub(crate) leaf: Child,
}

impl Path {
    /// Nodes that one path may need.
    pub(crate) const NODES_MAX: usize = 2 * HEIGHT_MAX as usize + 1;

    /// Works out what has to be done so that `leaf` can be changed in place: nodes of generation `shared_until` and before
    /// are a snapshot's too. New ones get `blocks`, and `generation`. Nothing is written.
    pub(crate) fn to<M: Medium>(
        medium: &M,
        space: &Space,
        tree: Tree,
        leaf: u64,
        (generation, shared_until): (u32, u32),
        mut blocks: impl Iterator<Item = Block>,
    ) -> Result<Self> {
        let mut path = Path { nodes: Vec::new(), tree, changes: Changes::new(), leaf: tree.top };
        let mut new_node = |path: &mut Path, of| {
            let block = blocks.next().expect("blocks for the longest path");
            path.nodes.push(NewNode::make(medium, space, of, block)?);
            Ok::<_, Error>(Child { block, generation })
        };
        while leaves(path.tree.height) <= leaf {
            let below = path.tree.top;
            path.tree.height += 1;
            if !below.block.is_none() {
                path.tree.top = new_node(&mut path, Child::default())?;
                path.nodes.last_mut().expect("just made").set_child(0, below);
            }
        }
        // The node above, if it stays where it is, and the place in it.
        let mut above: Option<(Child, u64)> = None;
        let mut child = path.tree.top;
        for level in (0..=path.tree.height).rev() {
            let is_new = path.nodes.iter().any(|node| node.block == child.block);
            let is_own = is_new || !child.block.is_none() && child.generation > shared_until;
            if !is_own {
                child = new_node(&mut path, child)?;
                match above {
                    None if level == path.tree.height => path.tree.top = child,
                    None => {
                        let count = path.nodes.len();
                        let place = place_of(leaf, level + 1);
                        path.nodes[count - 2].set_child(place, child);
                    }
                    Some((node, place)) => {
                        path.changes.push(change_child(medium, space, node, place, child)?);
                    }
                }
            }
            path.leaf = child;
            if level > 0 {
                let place = place_of(leaf, level);
                let made = path.nodes.iter().find(|node| node.block == child.block);
                above = made.is_none().then_some((child, place));
                child = match made {
                    Some(node) => node.child(place),
                    None => read_child(medium, space, child, place)?,
                };
            }
        }
        Ok(path)
    }

    /// Writes the new nodes; durable with the next fence.
    pub(crate) fn write<M: Medium>(&self, medium: &M) {
        self.nodes.iter().for_each(|node| node.write(medium));
    }

    /// Blocks of the new nodes.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        self.nodes.iter().map(|node| node.block).collect()
    }
}

fn change_child<M: Medium>(
    medium: &M,
    space: &Space,
    node: Child,
    place: u64,
    child: Child,
) -> Result<Change> {
    let (line, word) = place_in_node(place);
    let at = space.locate(node.block, STATE)? + line;
    let mut line = load_line(medium, at)?;
    line.words[word] = child.encode();
    line.version = line.version.wrapping_add(1);
    Ok(Change::new(at, line))
}

/// Pool offset of a leaf's entry.
#[inline]
pub(crate) fn entry_at(leaf: u64, place: u64) -> u64 {
    leaf + entry_in_node(place)
}
