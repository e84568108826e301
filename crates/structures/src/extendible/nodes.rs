//! The directory in the pool: a binary tree of pointers, which leads from the header to the
//! segments.
//!
//! Each change of it is one word. Nodes are read where the volatile directory does not know a
//! segment yet, which happens once for each segment in an opening.

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Medium, WORD_LEN};

use super::Core;
use super::layout::{
    CLEARED, DEPTH_MAX, Hash, Kind, NODE_LEN, ROOT, Target, child_at, is_ready, node_hash,
    segment_hash, write_node,
};
use crate::shared::Site;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// A pointer on the way to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// Offset of the pointer.
    pub(super) at: u64,
    pub(super) target: Target,
    /// Bits of the hash that have led to it.
    pub(super) depth: u32,
}

/// What a segment is split into.
pub(super) struct Halves {
    node: Block,
    /// The segment for hashes with a 1 at the depth, to be written. The others keep theirs.
    pub(super) right: Block,
    pub(super) left_hash: Hash,
    pub(super) right_hash: Hash,
}

impl Halves {
    /// Space for splitting the segment of `hash`.
    pub(super) fn allocate<M: Medium>(
        lane: &mut Lane<'_, M>,
        pointer: Pointer,
        hash: Hash,
        segment_len: u64,
    ) -> Result<Self> {
        let right = lane.allocate(segment_len)?;
        let node = match lane.allocate(NODE_LEN) {
            Ok(node) => node,
            Err(error) => {
                lane.give_back(right);
                return Err(error.into());
            }
        };
        let left_hash = hash.first(pointer.depth);
        let right_hash = Hash(left_hash.0 | 1 << (63 - pointer.depth));
        Ok(Halves { node, right, left_hash, right_hash })
    }
}

/// The directory of a map.
pub(super) struct Nodes<'h, M: Medium> {
    pub(super) heap: &'h Site<M>,
}

impl<M: Medium> Nodes<'_, M> {
    pub(super) fn root_at(&self) -> u64 {
        self.heap.header() + ROOT
    }

    /// The pointer at `at`.
    pub(super) fn pointer(&self, at: u64, depth: u32) -> Result<Pointer> {
        let target = Target::open(at, self.heap.medium().load(at));
        let is_there = |target: &Target| match *target {
            Target::Node(node) => self.is_block(Kind::Node, node),
            Target::Segment(segment) => self.is_block(Kind::Segment, segment),
        };
        match target.filter(is_there) {
            Some(target) if depth <= DEPTH_MAX => Ok(Pointer { at, target, depth }),
            _ => Err(Error::corrupt(self.heap, at, "a pointer of the directory leads nowhere")),
        }
    }

    fn is_block(&self, kind: Kind, offset: u64) -> bool {
        kind.is_at(self.heap.medium(), offset, self.heap.member())
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

    /// The pointer to the segment of a hash, to which the directory in memory leads, too.
    pub(super) fn pointer_to(&self, segment: u64, hash: Hash) -> Result<Pointer> {
        let pointer = self.segment_pointer(hash)?;
        match pointer.target == Target::Segment(segment) {
            true => Ok(pointer),
            false => {
                let what = "the directory in memory leads elsewhere than the pool's";
                Err(Error::corrupt(self.heap, pointer.at, what))
            }
        }
    }

    /// Whether the pointer at `at` leads to the node or the segment in `block`, whose content may
    /// be garbage.
    pub(super) fn leads_to(&self, at: u64, block: Block, kind: Kind) -> Result<bool> {
        let medium = self.heap.medium();
        let hash = match kind {
            Kind::Node => node_hash(medium, block.offset),
            _ => segment_hash(medium, block.offset),
        };
        let found = self.walk(at, hash, |pointer| pointer.target == Target::Node(block.offset))?;
        // Flush: a pointer that a killed process may have left in the caches alone; fenced by the
        // heap before it forgets that the block was suspect.
        // Redundant: unless a process was killed before and the power fails later.
        medium.flush(found.at, WORD_LEN);
        Ok(found.target.offset() == block.offset)
    }

    /// Has a node in place of a segment, which leads to both halves. The right one is written and
    /// flushed. Two fences.
    pub(super) fn divide(&self, lane: &mut Lane<'_, M>, pointer: Pointer, halves: &Halves) {
        let (medium, node) = (self.heap.medium(), halves.node.offset);
        write_node(medium, node, self.heap.member(), halves.left_hash, pointer.depth);
        for (bit, segment) in [(0, pointer.target.offset()), (1, halves.right.offset)] {
            let at = child_at(node, bit);
            medium.store(at, Target::Segment(segment).seal(at));
        }
        // Flush: fenced below.
        medium.flush(node, NODE_LEN);
        // Fence: the new segment and the node, before a pointer leads to them.
        lane.fence();
        medium.store(pointer.at, Target::Node(node).seal(pointer.at));
        // Flush and fence: before anybody changes an entry in its new place.
        medium.persist(pointer.at, WORD_LEN);
    }

    /// Passes the pointer to each segment below the pointer at `root`, with the least hash of it.
    pub(super) fn for_each_segment(
        &self,
        root: u64,
        visit: &mut impl FnMut(Pointer, Hash) -> Result<()>,
    ) -> Result<()> {
        let mut hash = Hash(0);
        loop {
            let pointer = self.walk(root, hash, |_| false)?;
            visit(pointer, hash.first(pointer.depth))?;
            match hash.first_behind(pointer.depth) {
                Some(next) => hash = next,
                None => return Ok(()),
            }
        }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    pub(super) fn nodes(&self) -> Nodes<'_, M> {
        Nodes { heap: &self.heap }
    }

    pub(super) fn root_at(&self) -> u64 {
        self.nodes().root_at()
    }

    pub(super) fn cleared_at(&self) -> u64 {
        self.heap.header() + CLEARED
    }

    /// Finds the segment of a hash, makes it ready, and enters it in the volatile directory.
    #[cold]
    pub(super) fn touch(&self, hash: Hash) -> Result<()> {
        let _shape = self.shape.lock(self.medium());
        let pointer = self.nodes().segment_pointer(hash)?;
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
