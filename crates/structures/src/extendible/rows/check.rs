//! Checking an index.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::super::check::{Walk, check_alone};
use super::super::layout::{Hash, Target, child_at, each_slot, node_hash, segment_hash};
use super::Core;
use super::layout::{Bucket, Word};
use crate::shared::Inspection;
use crate::{Error, Result};

impl<M: Medium> Core<M> {
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        check_alone(&self.heap, self.inspect()?)
    }

    pub(super) fn inspect(&self) -> Result<Inspection> {
        self.heap.quiesce()?;
        self.walk()
    }

    /// The same, while no other thread has the index.
    pub(super) fn walk(&self) -> Result<Inspection> {
        let mut walk = Walk::default();
        self.check_pointer(self.nodes().root_at(), 0, Hash(0), &mut walk)?;
        self.heap.verify()?;
        Ok(walk.found())
    }

    fn check_pointer(&self, at: u64, depth: u32, hash: Hash, walk: &mut Walk) -> Result<()> {
        let pointer = match self.nodes().pointer(at, depth) {
            Ok(pointer) => pointer,
            Err(error) => return walk.torn(error),
        };
        walk.blocks.push(pointer.target.offset());
        match pointer.target {
            Target::Segment(segment) => self.check_segment(segment, depth, hash, walk),
            Target::Node(node) => {
                if node_hash(self.medium(), node).prefix(depth) != hash.prefix(depth) {
                    walk.wrong(node, "a node has the hash of another place in the directory");
                }
                for bit in 0..2 {
                    let hash = Hash(hash.0 | bit << (63 - depth));
                    self.check_pointer(child_at(node, bit), depth + 1, hash, walk)?;
                }
                Ok(())
            }
        }
    }

    fn check_segment(&self, segment: u64, depth: u32, hash: Hash, walk: &mut Walk) -> Result<()> {
        if segment_hash(self.medium(), segment).prefix(depth) != hash.prefix(depth) {
            walk.wrong(segment, "a segment has the hash of another place in the directory");
        }
        for bucket in self.buckets.of(segment) {
            for slot in each_slot(bucket.slots()) {
                let word = self.word(bucket, slot);
                // What a split has moved elsewhere is of no use here.
                if word != Word::NONE && word.is_below(hash, depth) {
                    self.check_chain(bucket, word, walk)?;
                }
            }
        }
        Ok(())
    }

    fn check_chain(&self, bucket: Bucket, word: Word, walk: &mut Walk) -> Result<()> {
        match self.check_blocks(bucket, word, walk) {
            Err(error) => walk.torn(error),
            Ok(()) => Ok(()),
        }
    }

    fn check_blocks(&self, bucket: Bucket, word: Word, walk: &mut Walk) -> Result<()> {
        let mut next = self.first_block(word)?;
        while let Some(block) = next {
            walk.blocks.push(block.offset);
            if !self.buckets.pair(bucket.segment(), block.hash).buckets().contains(&bucket) {
                walk.wrong(block.offset, "a block has the hash of another bucket than leads to it");
            }
            for at in block.words() {
                if let Err(Error::Corrupt { offset, what, .. }) = self.row_at(block, at) {
                    walk.wrong(offset, what);
                }
            }
            next = self.next_block(block)?;
        }
        Ok(())
    }
}
