//! Trees of nodes of 448 entries: the path from a logical block to its leaf, for the disk and for
//! each snapshot.
//!
//! A snapshot shares the nodes of the disk's tree. From then on these nodes are copied before they
//! change.

use std::collections::{HashMap, hash_map};

use remanent_pmem::Medium;

use super::layout::{BLOCK_LEN, Block, Child, NODE_ENTRIES, STATE, Tree, leaves, place_in_node};
use super::record::{Change, Changes};
use super::space::Space;
use crate::Result;
use crate::line::{Line, Seal, WORDS};
use crate::seal::Owner;

/// Lines of a node.
const NODE_LINES: usize = 64;

/// A node of a tree: the word that leads to it, and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) child: Child,
    /// Levels above the leaves.
    pub(crate) level: u32,
    /// The number of one leaf below it.
    pub(crate) leaf: u64,
}

impl Node {
    pub(crate) fn owner(self) -> Owner {
        Owner::node(self.child, self.level, self.leaf)
    }
}

/// Place of the child on the way to a leaf, in a node `level` levels above the leaves.
fn place_of(leaf: u64, level: u32) -> u64 {
    leaf / leaves(level - 1) % NODE_ENTRIES
}

/// The leaf of a tree with this number; none if nothing was ever written there. Nobody changes the
/// tree's nodes meanwhile.
pub(crate) fn find_leaf<M: Medium>(
    medium: &M,
    space: &Space,
    tree: Tree,
    leaf: u64,
) -> Result<Child> {
    if leaf >= leaves(tree.height) {
        return Ok(Child::default());
    }
    find_node(medium, space, tree, leaf, 0)
}

/// The node `level` levels above the leaves on the way to a leaf that the tree has room for.
fn find_node<M: Medium>(
    medium: &M,
    space: &Space,
    tree: Tree,
    leaf: u64,
    level: u32,
) -> Result<Child> {
    let mut child = tree.top;
    for above in (level + 1..=tree.height).rev() {
        if child.block.is_none() {
            break;
        }
        let node = Node { child, level: above, leaf };
        child = read_child(medium, space, node, place_of(leaf, above))?;
    }
    Ok(child)
}

/// The node of a tree at the position of a node of another tree: so many levels above the leaves,
/// with this first leaf.
pub(crate) fn node_at<M: Medium>(
    medium: &M,
    space: &Space,
    tree: Tree,
    leaf: u64,
    level: u32,
) -> Result<Child> {
    if tree.height < level || leaf >= leaves(tree.height) {
        return Ok(Child::default());
    }
    find_node(medium, space, tree, leaf, level)
}

/// The child at `place` of a node.
fn read_child<M: Medium>(medium: &M, space: &Space, node: Node, place: u64) -> Result<Child> {
    Ok(Child::decode(place_word(medium, space, node, place)?))
}

/// The stored word of the entry at `place` of a node.
pub(crate) fn place_word<M: Medium>(
    medium: &M,
    space: &Space,
    node: Node,
    place: u64,
) -> Result<u64> {
    let (line, word) = place_in_node(place);
    let at = space.locate(node.child.block, 0)? + line;
    Ok(space.key().load_line(medium, at, node.owner())?.words[word])
}

/// Words of a node, line by line.
type NodeWords = [[u64; WORDS]; NODE_LINES];

/// A node that is being made.
#[derive(Debug)]
struct NewNode {
    block: Block,
    at: u64,
    seal: Seal,
    words: Box<NodeWords>,
}

impl NewNode {
    fn child(&self, place: u64) -> Child {
        let (line, word) = place_in_node(place);
        Child::decode(self.words[(line / 64) as usize][word])
    }

    fn set_child(&mut self, place: u64, child: Child) {
        let (line, word) = place_in_node(place);
        self.words[(line / 64) as usize][word] = child.encode();
    }

    /// Writes the node; durable with the next fence.
    fn write<M: Medium>(&self, medium: &M) {
        let mut bytes = [0; BLOCK_LEN as usize];
        let images = bytes.as_chunks_mut::<64>().0.iter_mut();
        for ((image, &words), line) in images.zip(self.words.iter()).zip(0..) {
            let encoded = Line::first(words).encode(self.at + line * 64, self.seal);
            let places = image.as_chunks_mut::<8>().0.iter_mut();
            places.zip(encoded).for_each(|(place, word)| *place = word.to_le_bytes());
        }
        medium.write_streaming(self.at, &bytes);
    }
}

/// The words of a node; those of an empty node if there is none.
fn read_node<M: Medium>(medium: &M, space: &Space, node: Node) -> Result<Box<NodeWords>> {
    let mut words = Box::new([[0; WORDS]; NODE_LINES]);
    if !node.child.block.is_none() {
        let from = space.locate(node.child.block, STATE)?;
        for (words, line) in words.iter_mut().zip(0..) {
            *words = space.key().load_line(medium, from + line * 64, node.owner())?.words;
        }
    }
    Ok(words)
}

/// Changes that make leaves the disk's own: new or copied nodes, and the words that lead to them.
/// Nothing is written while they are collected.
#[derive(Debug)]
pub(crate) struct Paths {
    nodes: Vec<NewNode>,
    /// Index of each new node in `nodes`, by its block.
    index: HashMap<Block, usize>,
    /// Generation of new nodes, and the generation up to which nodes are shared with a snapshot.
    generations: (u32, u32),
    /// The tree after the changes; its top may be another node.
    pub(crate) tree: Tree,
    /// Changes of nodes that stay in place.
    pub(crate) changes: Changes,
    /// Index of each change in `changes`, by its line.
    lines: HashMap<u64, usize>,
    /// The leaves, by their numbers.
    pub(crate) leaves: Vec<(u64, Child)>,
}

/// The place of the word that leads to a node.
#[derive(Clone, Copy, Debug)]
enum Above {
    Tree,
    Node(Node, u64),
}

impl Paths {
    /// No changes yet. Nodes of generation `shared_until` and earlier are shared with a snapshot;
    /// new nodes get `generation`.
    pub(crate) fn new(tree: Tree, generation: u32, shared_until: u32) -> Self {
        Paths {
            nodes: Vec::new(),
            index: HashMap::new(),
            generations: (generation, shared_until),
            tree,
            changes: Changes::new(),
            lines: HashMap::new(),
            leaves: Vec::new(),
        }
    }

    /// Adds the changes that make a leaf changeable in place. New nodes get blocks of `supply`.
    pub(crate) fn add<M: Medium>(
        &mut self,
        medium: &M,
        space: &Space,
        leaf: u64,
        mut supply: impl FnMut() -> Result<Block>,
    ) -> Result<()> {
        while leaves(self.tree.height) <= leaf {
            let below = self.tree.top;
            self.tree.height += 1;
            if !below.block.is_none() {
                let none = Node { child: Child::default(), level: self.tree.height, leaf: 0 };
                let top = self.make(medium, space, none, &mut supply)?;
                self.tree.top = top.child;
                self.set_child(medium, space, Above::Node(top, 0), below)?;
            }
        }
        let (mut child, mut above) = (self.tree.top, Above::Tree);
        for level in (0..=self.tree.height).rev() {
            let mut node = Node { child, level, leaf };
            if !self.is_own(child) {
                node = self.make(medium, space, node, &mut supply)?;
                self.set_child(medium, space, above, node.child)?;
            }
            child = node.child;
            if level > 0 {
                let place = place_of(leaf, level);
                above = Above::Node(node, place);
                child = self.child(medium, space, node, place)?;
            }
        }
        self.leaves.push((leaf, child));
        Ok(())
    }

    fn is_own(&self, node: Child) -> bool {
        self.index.contains_key(&node.block)
            || !node.block.is_none() && node.generation > self.generations.1
    }

    /// Adds a new node in its place, empty or a copy of `of`.
    fn make<M: Medium>(
        &mut self,
        medium: &M,
        space: &Space,
        of: Node,
        supply: impl FnOnce() -> Result<Block>,
    ) -> Result<Node> {
        // Before a block is taken: if the node cannot be read, nobody would give the block back.
        let words = read_node(medium, space, of)?;
        let block = supply()?;
        self.index.insert(block, self.nodes.len());
        let made = Node { child: Child { block, generation: self.generations.0 }, ..of };
        let (at, seal) = (space.locate(block, STATE)?, space.key().of(made.owner()));
        self.nodes.push(NewNode { block, at, seal, words });
        Ok(made)
    }

    /// The child of a node after the changes.
    fn child<M: Medium>(&self, medium: &M, space: &Space, node: Node, place: u64) -> Result<Child> {
        if let Some(&made) = self.index.get(&node.child.block) {
            return Ok(self.nodes[made].child(place));
        }
        let (line, word) = place_in_node(place);
        let at = space.locate(node.child.block, STATE)? + line;
        match self.lines.get(&at) {
            Some(&known) => Ok(Child::decode(self.changes[known].line.words[word])),
            None => read_child(medium, space, node, place),
        }
    }

    fn set_child<M: Medium>(
        &mut self,
        medium: &M,
        space: &Space,
        above: Above,
        child: Child,
    ) -> Result<()> {
        let Above::Node(node, place) = above else {
            self.tree.top = child;
            return Ok(());
        };
        if let Some(&made) = self.index.get(&node.child.block) {
            self.nodes[made].set_child(place, child);
            return Ok(());
        }
        let (line, word) = place_in_node(place);
        let at = space.locate(node.child.block, STATE)? + line;
        let known = match self.lines.entry(at) {
            hash_map::Entry::Occupied(known) => *known.get(),
            hash_map::Entry::Vacant(unknown) => {
                let owner = node.owner();
                let line = space.key().load_line(medium, at, owner)?;
                let version = line.version.wrapping_add(1);
                self.changes.push(Change::of_node(at, owner, Line { version, ..line }));
                *unknown.insert(self.changes.len() - 1)
            }
        };
        self.changes[known].line.words[word] = child.encode();
        Ok(())
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
