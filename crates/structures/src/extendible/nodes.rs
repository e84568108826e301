//! The directory in the pool: a binary tree of pointers, which leads from the header to the
//! segments.
//!
//! Each change of it is one word. Nodes are read where the volatile directory does not know a
//! segment yet, which happens once for each segment in an opening.

use remanent_pmem::Medium;
use remanent_pmem::heap::Block;

use super::Core;
use super::layout::{
    CLEARED, DEPTH_MAX, Hash, Kind, ROOT, Target, child_at, is_ready, node_hash, segment_hash,
};
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// A pointer on the way to a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer {
    /// Offset of the pointer.
    pub(super) at: u64,
    pub(super) target: Target,
    /// Bits of the hash that have led to it.
    pub(super) depth: u32,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    pub(super) fn root_at(&self) -> u64 {
        self.heap.header() + ROOT
    }

    pub(super) fn cleared_at(&self) -> u64 {
        self.heap.header() + CLEARED
    }

    /// The pointer at `at`.
    pub(super) fn pointer(&self, at: u64, depth: u32) -> Result<Pointer> {
        let target = Target::open(at, self.medium().load(at));
        let is_there = |target: &Target| match *target {
            Target::Node(node) => self.is_block(Kind::Node, node),
            Target::Segment(segment) => self.is_block(Kind::Segment, segment),
        };
        match target.filter(is_there) {
            Some(target) if depth <= DEPTH_MAX => Ok(Pointer { at, target, depth }),
            _ => Err(Error::corrupt(&self.heap, at, "a pointer of the directory leads nowhere")),
        }
    }

    fn is_block(&self, kind: Kind, offset: u64) -> bool {
        kind.is_at(self.medium(), offset, self.heap.member())
    }

    /// The pointers from the one at `at` to the segment of a hash, as far as `wanted` does not end
    /// the walk.
    pub(super) fn walk(
        &self,
        at: u64,
        hash: Hash,
        mut wanted: impl FnMut(Pointer) -> bool,
    ) -> Result<Pointer> {
        let mut pointer = self.pointer(at, 0)?;
        loop {
            match pointer.target {
                Target::Node(node) if !wanted(pointer) => {
                    let at = child_at(node, hash.bit(pointer.depth));
                    pointer = self.pointer(at, pointer.depth + 1)?;
                }
                _ => return Ok(pointer),
            }
        }
    }

    /// The pointer to the segment of a hash.
    pub(super) fn segment_pointer(&self, hash: Hash) -> Result<Pointer> {
        self.walk(self.root_at(), hash, |_| false)
    }

    /// Whether the pointer at `at` leads to the node or the segment in `block`, whose content may
    /// be garbage.
    pub(super) fn leads_to(&self, at: u64, block: Block, kind: Kind) -> Result<bool> {
        let medium = self.medium();
        let hash = match kind {
            Kind::Node => node_hash(medium, block.offset),
            _ => segment_hash(medium, block.offset),
        };
        let found = self.walk(at, hash, |pointer| pointer.target == Target::Node(block.offset))?;
        // Flush: a pointer that a killed process may have left in the caches alone; fenced by the
        // heap before it forgets that the block was suspect.
        // Redundant: unless a process was killed before and the power fails later.
        medium.flush(found.at, remanent_pmem::WORD_LEN);
        Ok(found.target.offset() == block.offset)
    }

    /// Finds the segment of a hash, makes it ready, and enters it in the volatile directory.
    #[cold]
    pub(super) fn touch(&self, hash: Hash) -> Result<()> {
        let _shape = self.shape.lock(self.medium());
        let pointer = self.segment_pointer(hash)?;
        let segment = pointer.target.offset();
        if !is_ready(self.medium(), segment, self.epoch) {
            self.make_ready(segment, hash, pointer.depth)?;
        }
        self.heap.verify()?;
        self.directory.grow_to(pointer.depth);
        self.directory.fill(self.directory.find(hash), hash, segment);
        Ok(())
    }
}
