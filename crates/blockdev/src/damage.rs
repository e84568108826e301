//! Support for tests that damage a disk on purpose: the places of its lines, and matching checksums
//! for them.

use std::collections::BTreeMap;

use remanent_pmem::{Medium, WORD_LEN};

use crate::Result;
use crate::disk::base::Base;
use crate::disk::layout::{
    BLOCK_LEN, Child, Entry, Lba, NODE_ENTRIES, STATE, Tree, leaves, place_in_node,
};
use crate::disk::tree::{Node, place_word};
use crate::line::Line;
use crate::seal::{Key, Owner};

/// The lines of a disk or a file, and the key of their checksums.
#[derive(Clone, Debug)]
pub struct Lines {
    key: Key,
    header: u64,
    /// Owner of the lines of each node, by its offset.
    nodes: BTreeMap<u64, Owner>,
    entries: Vec<MapEntry>,
}

/// An entry of the map that leads to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapEntry {
    /// First byte of the block on the disk.
    pub offset: u64,
    /// Pool offset of the entry.
    pub at: u64,
    /// Pool offset of the block.
    pub block: u64,
}

impl Lines {
    /// The lines of a structure without a map.
    pub(crate) fn of_file(key: Key, header: u64) -> Self {
        Lines { key, header, nodes: BTreeMap::new(), entries: Vec::new() }
    }

    /// Gives the line at `at` a matching checksum, whatever it holds.
    pub fn seal<M: Medium>(&self, medium: &M, at: u64) {
        let words = std::array::from_fn(|word| medium.load(at + word as u64 * 8));
        let owner = self.nodes.get(&(at - at % BLOCK_LEN)).copied().unwrap_or(Owner::NONE);
        let key = if at == self.header { Key::UNKNOWN } else { self.key };
        let image = Line::first(words).encode(at, key.of(owner));
        Line::store_encoded(medium, at, &image);
    }

    /// Pool offset of the header.
    pub fn header(&self) -> u64 {
        self.header
    }

    /// Pool offset of the state's line.
    pub fn state(&self) -> u64 {
        self.header + STATE
    }

    /// Pool offsets of the nodes of the map, including those of snapshots. Each node is a block of
    /// 64 lines.
    pub fn nodes(&self) -> impl Iterator<Item = u64> {
        self.nodes.keys().copied()
    }

    /// Entries of all leaves, including those of snapshots.
    pub fn entries(&self) -> &[MapEntry] {
        &self.entries
    }

    /// Places of everything that some trees of a disk lead to.
    pub(crate) fn of_trees<M: Medium>(
        base: &Base<M>,
        trees: impl Iterator<Item = Tree>,
    ) -> Result<Self> {
        let mut lines = Lines::of_file(base.key, base.heap.header());
        for tree in trees {
            lines.collect(base, Node { child: tree.top, level: tree.height, leaf: 0 })?;
        }
        Ok(lines)
    }

    fn collect<M: Medium>(&mut self, base: &Base<M>, node: Node) -> Result<()> {
        if node.child.block.is_none() {
            return Ok(());
        }
        let at = base.locate(node.child.block)?;
        if self.nodes.insert(at, node.owner()).is_some() {
            return Ok(());
        }
        for place in 0..NODE_ENTRIES {
            let word = place_word(base.medium(), &base.space, node, place)?;
            match node.level.checked_sub(1) {
                Some(level) => {
                    let leaf = node.leaf + place * leaves(level);
                    self.collect(base, Node { child: Child::decode(word), level, leaf })?;
                }
                None if word != 0 => {
                    let block = Entry::decode(word).block;
                    let block = base.space.locate(block, at)?;
                    let offset = Lba(node.leaf * NODE_ENTRIES + place).offset();
                    let (line, word) = place_in_node(place);
                    let at = at + line + word as u64 * WORD_LEN;
                    self.entries.push(MapEntry { offset, at, block });
                }
                None => {}
            }
        }
        Ok(())
    }
}
