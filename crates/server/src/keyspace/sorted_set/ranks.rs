//! Ranks: how many members of a set come before one. Volatile, and counted when they are first
//! asked for.
//!
//! The members in the order of the set are divided into blocks of some hundreds. Of each block its
//! first key and its number of members are known. So a rank is the sum of the numbers of the blocks
//! before the member's, and the number of members before it in its own block, which are walked
//! through.

use std::collections::HashMap;
use std::ops::ControlFlow;

use remanent_structures::{OrderedMap, Result};

use super::super::layout::{CollectionId, PREFIX_LEN};
use super::super::tree::span;
use super::layout::SetId;

/// Sets whose counts a cache has at a time.
const CACHED_MAX: usize = 1024;
/// Members of a new block.
const BLOCK: u32 = 256;
/// Members with which a block is divided.
const BLOCK_MAX: u32 = 2 * BLOCK;

/// The counts of the sets of a shard for which ranks were asked.
#[derive(Debug, Default)]
pub(crate) struct RankCache(HashMap<CollectionId, Ranks>);

/// The counts of one set.
#[derive(Debug)]
pub(super) struct Ranks {
    /// In order. There is at least one.
    blocks: Vec<Block>,
    len: u64,
    /// Whether a block may have reached [`BLOCK_MAX`].
    is_long: bool,
}

#[derive(Debug)]
struct Block {
    /// The keys of the block are not below this one, and below that of the next block.
    low: Vec<u8>,
    /// The [`head`] of `low`, so that a search seldom has to fetch it.
    head: u64,
    count: u32,
}

impl Block {
    fn new(low: Vec<u8>, count: u32) -> Self {
        Block { head: head(&low), low, count }
    }
}

/// The bytes of a key behind the collection and the kind, as a number: of a longer key the first
/// eight, of a shorter one with zeros behind. Keys of one set have the order of their heads, if
/// these differ.
fn head(key: &[u8]) -> u64 {
    let rest = key.get(PREFIX_LEN..).unwrap_or_default();
    let mut bytes = [0; 8];
    let len = rest.len().min(bytes.len());
    bytes[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(bytes)
}

/// Where the member of a given rank is.
pub(super) struct Place<'r> {
    /// Start of its block.
    pub(super) start: &'r [u8],
    /// Start of the next block; `None` if its block is the last one.
    pub(super) next: Option<&'r [u8]>,
    /// Members of the block that come before it.
    pub(super) before: u64,
    /// Members of the block from it on.
    pub(super) from: u64,
}

impl RankCache {
    /// The counts of a set, if they are known.
    pub(super) fn get(&self, set: SetId) -> Option<&Ranks> {
        self.0.get(&set.0)
    }

    pub(super) fn get_mut(&mut self, id: CollectionId) -> Option<&mut Ranks> {
        self.0.get_mut(&id)
    }

    /// The counts of a set, which is counted if they are not known.
    pub(super) fn get_or_count(
        &mut self,
        set: SetId,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) -> Result<&Ranks> {
        if !self.0.contains_key(&set.0) {
            let ranks = Ranks::count(set, tree)?;
            if self.0.len() >= CACHED_MAX {
                self.0.clear();
            }
            self.0.insert(set.0, ranks);
        }
        Ok(&self.0[&set.0])
    }

    pub(in crate::keyspace) fn forget(&mut self, id: CollectionId) {
        self.0.remove(&id);
    }
}

impl Ranks {
    /// Counts the members of `set`.
    pub(super) fn count(set: SetId, tree: &impl OrderedMap<[u8], [u8]>) -> Result<Self> {
        let mut ranks = Ranks { blocks: Vec::new(), len: 0, is_long: false };
        let (start, end) = (set.scores_start(), set.scores_end());
        let mut count = 0;
        ranks.blocks.push(Block::new(start.clone(), 0));
        tree.ascend(span(&start, &end), |key, _| {
            if count == BLOCK {
                ranks.blocks.push(Block::new(key.to_vec(), 0));
                count = 0;
            }
            count += 1;
            ranks.len += 1;
            ranks.blocks.last_mut().expect("there is a block").count = count;
            ControlFlow::Continue(())
        })?;
        Ok(ranks)
    }

    /// How many members the set has.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn block_of(&self, key: &[u8]) -> usize {
        let head = head(key);
        let begins = |block: &Block| (block.head, block.low.as_slice()) <= (head, key);
        self.blocks.partition_point(begins).saturating_sub(1)
    }

    fn end_of(&self, block: usize, set: SetId) -> Vec<u8> {
        self.blocks.get(block + 1).map_or_else(|| set.scores_end(), |next| next.low.clone())
    }

    /// Counts an entry by score that was added to the tree.
    pub(super) fn added(&mut self, key: &[u8]) {
        let index = self.block_of(key);
        self.blocks[index].count += 1;
        self.is_long |= self.blocks[index].count >= BLOCK_MAX;
        self.len += 1;
    }

    /// Divides long blocks. The counts must be in step with the tree.
    pub(super) fn divide_long(
        &mut self,
        set: SetId,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) -> Result<()> {
        if !std::mem::take(&mut self.is_long) {
            return Ok(());
        }
        let mut index = 0;
        while index < self.blocks.len() {
            if self.blocks[index].count < BLOCK_MAX || !self.divide(index, set, tree)? {
                index += 1;
            }
        }
        Ok(())
    }

    /// Ceases to count an entry by score that was removed from the tree.
    pub(super) fn removed(&mut self, key: &[u8]) {
        let index = self.block_of(key);
        self.len -= 1;
        self.blocks[index].count -= 1;
        if self.blocks[index].count == 0 && self.blocks.len() > 1 {
            let Block { low, head, .. } = self.blocks.remove(index);
            if index == 0 {
                // The first block begins where the entries by score do.
                (self.blocks[0].low, self.blocks[0].head) = (low, head);
            }
        }
    }

    /// Divides a block in halves; false when the tree has too few of its members.
    fn divide(
        &mut self,
        index: usize,
        set: SetId,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) -> Result<bool> {
        let half = self.blocks[index].count / 2;
        let end = self.end_of(index, set);
        let (mut passed, mut low) = (0, None);
        tree.ascend(span(&self.blocks[index].low, &end), |key, _| {
            if passed == half {
                low = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            passed += 1;
            ControlFlow::Continue(())
        })?;
        let Some(low) = low else { return Ok(false) };
        let count = self.blocks[index].count - half;
        self.blocks[index].count = half;
        self.blocks.insert(index + 1, Block::new(low, count));
        Ok(true)
    }

    /// How many members come before `key`, which need not be in the tree.
    pub(super) fn position(&self, key: &[u8], tree: &impl OrderedMap<[u8], [u8]>) -> Result<u64> {
        let index = self.block_of(key);
        let mut position = self.blocks[..index].iter().map(|block| u64::from(block.count)).sum();
        let low = self.blocks[index].low.as_slice();
        if low < key {
            tree.ascend(span(low, key), |_, _| {
                position += 1;
                ControlFlow::Continue(())
            })?;
        }
        Ok(position)
    }

    /// The place of the member with that rank; `None` when the set has no more than `rank` members.
    pub(super) fn find(&self, rank: u64) -> Option<Place<'_>> {
        let mut before = rank;
        for (index, block) in self.blocks.iter().enumerate() {
            let count = u64::from(block.count);
            if before < count {
                return Some(Place {
                    start: &block.low,
                    next: self.blocks.get(index + 1).map(|next| next.low.as_slice()),
                    before,
                    from: count - before,
                });
            }
            before -= count;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_set_have_the_order_of_their_heads() {
        let key = |rest: &[u8]| [&[7; PREFIX_LEN], rest].concat();
        let rests: [&[u8]; 8] = [
            b"",
            b"\0",
            b"\0\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0a",
            b"\0\0\0\0\0\0\0\x01",
            b"a",
            b"aaaaaaaaa",
            b"b",
        ];
        let keys = rests.map(key);
        for pair in keys.windows(2) {
            assert!((head(&pair[0]), &pair[0]) < (head(&pair[1]), &pair[1]));
        }
    }
}
