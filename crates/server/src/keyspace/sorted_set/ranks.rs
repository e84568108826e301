//! How many members of a set come before which: volatile, made when it is first asked for.
//!
//! The members in their order are divided into blocks of some hundreds. Of each block its first key and its count are
//! known, so a rank is the sum of the counts before a block, and what is counted inside of one.

use std::ops::{Bound, ControlFlow};

use remanent_structures::{OrderedMap, Result};

use super::layout::SetId;

/// Members of a block when it is made.
const BLOCK: u32 = 256;
/// Members at which a block is divided.
const BLOCK_MAX: u32 = 2 * BLOCK;

/// The counts of one set.
#[derive(Debug)]
pub(in crate::keyspace) struct Ranks {
    /// In order, and never none.
    blocks: Vec<Block>,
    len: u64,
    /// Whether there may be a block that is to be divided.
    is_long: bool,
}

#[derive(Debug)]
struct Block {
    /// The block's keys are not less than this, and less than the next block's.
    low: Vec<u8>,
    count: u32,
}

/// Where a rank is found.
pub(in crate::keyspace) struct Place {
    /// Keys from here to `end` make a block.
    pub(in crate::keyspace) start: Vec<u8>,
    pub(in crate::keyspace) end: Vec<u8>,
    /// So many of them come before the rank, and so many from it on.
    pub(in crate::keyspace) before: u64,
    pub(in crate::keyspace) from: u64,
}

/// A range of the tree's keys.
pub(in crate::keyspace) type Span<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The keys from `start` to `end`, which is not among them.
pub(in crate::keyspace) fn span<'a>(start: &'a [u8], end: &'a [u8]) -> Span<'a> {
    (Bound::Included(start), Bound::Excluded(end))
}

/// The keys from `start` on.
pub(in crate::keyspace) fn onward(start: &[u8]) -> Span<'_> {
    (Bound::Included(start), Bound::Unbounded)
}

impl Ranks {
    /// Counts the members of `set`.
    pub(in crate::keyspace) fn count(
        set: SetId,
        tree: &impl OrderedMap<[u8], [u8]>,
    ) -> Result<Self> {
        let mut ranks = Ranks { blocks: Vec::new(), len: 0, is_long: false };
        let (start, end) = (set.scores_start(), set.end());
        let mut count = 0;
        ranks.blocks.push(Block { low: start.clone(), count: 0 });
        tree.ascend(span(&start, &end), |key, _| {
            if count == BLOCK {
                ranks.blocks.push(Block { low: key.to_vec(), count: 0 });
                count = 0;
            }
            count += 1;
            ranks.len += 1;
            ranks.blocks.last_mut().expect("there is a block").count = count;
            ControlFlow::Continue(())
        })?;
        Ok(ranks)
    }

    /// Members of the set.
    pub(in crate::keyspace) fn len(&self) -> u64 {
        self.len
    }

    fn block_of(&self, key: &[u8]) -> usize {
        self.blocks.partition_point(|block| block.low.as_slice() <= key).saturating_sub(1)
    }

    fn end_of(&self, block: usize, set: SetId) -> Vec<u8> {
        self.blocks.get(block + 1).map_or_else(|| set.end(), |next| next.low.clone())
    }

    /// Takes note of a key that is in the tree and was not before.
    pub(in crate::keyspace) fn added(&mut self, key: &[u8]) {
        let index = self.block_of(key);
        self.blocks[index].count += 1;
        self.is_long |= self.blocks[index].count >= BLOCK_MAX;
        self.len += 1;
    }

    /// Divides blocks that have become long, when everything was noted that is in the tree.
    pub(in crate::keyspace) fn divide_long(
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

    /// Takes note of a key that was in the tree and is not any more.
    pub(in crate::keyspace) fn removed(&mut self, key: &[u8]) {
        let index = self.block_of(key);
        self.len -= 1;
        self.blocks[index].count -= 1;
        if self.blocks[index].count == 0 && self.blocks.len() > 1 {
            let Block { low, .. } = self.blocks.remove(index);
            if index == 0 {
                // The first block begins where the set does.
                self.blocks[0].low = low;
            }
        }
    }

    /// Divides a block in halves; whether it has two.
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
        self.blocks.insert(index + 1, Block { low, count });
        Ok(true)
    }

    /// How many keys come before `key`, which need not be there.
    pub(in crate::keyspace) fn position(
        &self,
        key: &[u8],
        tree: &impl OrderedMap<[u8], [u8]>,
    ) -> Result<u64> {
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

    /// Where the key is before which there are `rank` others; `None` when there are not so many.
    pub(in crate::keyspace) fn find(&self, rank: u64, set: SetId) -> Option<Place> {
        let mut before = rank;
        for (index, block) in self.blocks.iter().enumerate() {
            let count = u64::from(block.count);
            if before < count {
                return Some(Place {
                    start: block.low.clone(),
                    end: self.end_of(index, set),
                    before,
                    from: count - before,
                });
            }
            before -= count;
        }
        None
    }
}
