//! Where things lie in a disk's heap.
//!
//! Everything is a [`Line`](crate::line::Line) of metadata or a block of data, but for the journal's records.
//!
//! ```text
//! heap header, 2 KiB
//! line 0   identity: bytes of a block, blocks of a slab, lanes, offset of the meta extent, lines of a slot at most,
//!          spares of a lane at most, the disk's key (see `seal.rs`); it never changes
//!      1   state: bytes of the disk, top of the map, its height, generation, end of what is to be discarded
//!      2 … 7   offsets of the extents of the slab directory
//!
//! meta extent, whole chunks
//! byte 0       snapshots: 64 lines
//!      4096    journal: two slots of 2 KiB for each of 32 lanes
//!
//! directory extent, one chunk of 64 KiB: 1,024 lines of 7 offsets of slabs
//!
//! slab, 64 KiB to 64 MiB; several that follow each other may be one run of the pool
//! block 0      one bit a block, 448 a line: whether it is in use
//!       1 …    data, or a node of the map
//!
//! node of the map, one block: 64 lines of 7 entries
//! entry of a leaf       block number (32 bits) | CRC32C of its data, combined with the mask of the block (32 bits);
//!                       0: reads as zeros
//! entry of another node block number of a node (32 bits) | generation it was made in (32 bits)
//! ```

use remanent_pmem::{LINE_LEN, PAGE_LEN};

use crate::line::WORDS;

/// Bytes of a block, the unit that is written as a whole.
pub const BLOCK_LEN: u64 = 4096;

/// Changes when anything described here or in `record.rs` does.
pub(crate) const LAYOUT: u64 = 2;

/// Lanes of a disk: operations that change it at the same time; more wait.
pub(crate) const LANE_COUNT: usize = 32;
/// Bytes of a record of the journal that needs no other blocks.
pub(crate) const SLOT_LEN: u64 = 2048;
/// Lines that a slot has room for at least: to take a slab, from which others would get their blocks, has to do without.
const LINES_MIN: u64 = 2;
/// Spare blocks that a lane of any disk keeps, at most.
pub(crate) const SPARES_MAX: usize = 64;
/// Slots of a lane: the record that is being written never overwrites the last one.
pub(crate) const SLOTS: u64 = 2;
/// Snapshots that a disk can have.
pub const SNAPSHOT_COUNT: usize = (PAGE_LEN / LINE_LEN) as usize;

pub(crate) const IDENTITY: u64 = 0;
pub(crate) const STATE: u64 = LINE_LEN;
pub(crate) const DIRECTORY: u64 = 2 * LINE_LEN;
pub(crate) const DIRECTORY_LINES: u64 = 6;

/// Extents of the slab directory, at most.
pub(crate) const DIRECTORY_EXTENTS: usize = DIRECTORY_LINES as usize * WORDS;
/// Bytes of one.
pub(crate) const DIRECTORY_EXTENT_LEN: u64 = 64 << 10;
/// Slabs that an extent of the directory has room for.
pub(crate) const DIRECTORY_SLABS: usize = (DIRECTORY_EXTENT_LEN / LINE_LEN) as usize * WORDS;
/// Slabs of a disk, at most.
pub(crate) const SLAB_COUNT_MAX: usize = DIRECTORY_EXTENTS * DIRECTORY_SLABS;

pub(crate) const SNAPSHOTS: u64 = 0;
const JOURNAL: u64 = PAGE_LEN;
/// Bytes of the meta extent.
pub(crate) const META_LEN: u64 = JOURNAL + LANE_COUNT as u64 * SLOTS * SLOT_LEN;

/// Blocks of the smallest slab, and of the largest: its bits fill one block.
pub(crate) const SLAB_BLOCKS_MIN: u64 = 16;
pub(crate) const SLAB_BLOCKS_MAX: u64 = 16_384;

/// Slabs that a new disk has at most when it is full.
const SLABS_FULL: u64 = 64;
/// Bytes that a disk's slabs are for which has none yet: they are of 1 MiB.
const SIZE_TO_COME: u64 = 64 << 20;

/// Entries of a node.
pub(crate) const NODE_ENTRIES: u64 = BLOCK_LEN / LINE_LEN * WORDS as u64;
/// Levels of nodes above the leaves, at most: enough for [`SIZE_MAX`].
pub(crate) const HEIGHT_MAX: u32 = 3;
/// Bytes of the largest disk: 16 TiB. Blocks have numbers of 32 bits.
pub const SIZE_MAX: u64 = BLOCK_LEN << 32;
const _: () = assert!(NODE_ENTRIES.pow(HEIGHT_MAX + 1) * BLOCK_LEN >= SIZE_MAX);

/// What changes of a disk beside its blocks, in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Bytes of the disk.
    pub(crate) size: u64,
    pub(crate) tree: Tree,
    /// That of the nodes that are made now: one more than that of the newest snapshot that ever was.
    pub(crate) generation: u32,
    /// Blocks from the end of the disk up to this one may still be mapped: it was made smaller.
    pub(crate) discard_end: u64,
}

impl State {
    pub(crate) fn decode(words: &[u64; WORDS]) -> Self {
        let [size, top, counts, discard_end, ..] = *words;
        let tree = Tree { top: Child::decode(top), height: counts as u32 };
        State { size, tree, generation: (counts >> 32) as u32, discard_end }
    }

    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let counts = u64::from(self.generation) << 32 | u64::from(self.tree.height);
        [self.size, self.tree.top.encode(), counts, self.discard_end, 0, 0, 0]
    }
}

/// Limits that a disk is made with and keeps: see [`Disk::create_with`](crate::Disk::create_with).
///
/// [`Shape::of`] has what is right for a disk of some size. Smaller limits make a disk slower, and have it free blocks, hand them
/// from one lane to another, and write records into blocks of their own after a few operations already: for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of a slab, by which the disk takes space from its pool: a power of two, 16 to 16,384.
    pub slab_blocks: u64,
    /// Lines of metadata in a record of the journal at most, 2 at least. A record of more lines takes blocks of its own, and
    /// one of more than twice as many data blocks takes a second fence. No slot has room for more than some 20, whatever this
    /// says.
    pub lines_max: u64,
    /// Free blocks that each of the 32 lanes keeps for its next write, 64 at most. What a lane replaces beyond that is free for
    /// all lanes at once.
    pub spares_max: u64,
}

impl Shape {
    /// Slabs of a 64th of the disk, within limits, as many lines in a record as its slot has room for, and 64 spares.
    pub fn of(size: u64) -> Self {
        let size = if size == 0 { SIZE_TO_COME } else { size };
        let blocks = (size / BLOCK_LEN / SLABS_FULL).next_power_of_two();
        let slab_blocks = blocks.clamp(SLAB_BLOCKS_MIN, SLAB_BLOCKS_MAX);
        Shape { slab_blocks, lines_max: SLOT_LEN / LINE_LEN, spares_max: SPARES_MAX as u64 }
    }

    /// Which of the limits a disk cannot have, and what it may be.
    pub(crate) fn check(self) -> Result<(), String> {
        let is_slab = self.slab_blocks.is_power_of_two()
            && (SLAB_BLOCKS_MIN..=SLAB_BLOCKS_MAX).contains(&self.slab_blocks);
        if !is_slab {
            Err(format!("a slab has {SLAB_BLOCKS_MIN} to {SLAB_BLOCKS_MAX} blocks, a power of two"))
        } else if self.lines_max < LINES_MIN {
            Err(format!("a record has room for {LINES_MIN} lines at least"))
        } else if self.spares_max > SPARES_MAX as u64 {
            Err(format!("a lane keeps {SPARES_MAX} spares at most"))
        } else {
            Ok(())
        }
    }
}

/// Number of a block on the medium, in a disk's slabs. Block 0 of a slab has its bits, so 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block(pub(crate) u32);

impl Block {
    pub(crate) const NONE: Block = Block(0);

    pub(crate) fn is_none(self) -> bool {
        self == Block::NONE
    }
}

/// Number of a block as the disk's users count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lba(pub(crate) u64);

impl Lba {
    pub(crate) fn containing(offset: u64) -> Self {
        Lba(offset / BLOCK_LEN)
    }

    /// The leaf of the map that has its entry, counted from the left.
    pub(crate) fn leaf(self) -> u64 {
        self.0 / NODE_ENTRIES
    }

    /// Place of its entry in that leaf.
    pub(crate) fn place(self) -> u64 {
        self.0 % NODE_ENTRIES
    }

    pub(crate) fn offset(self) -> u64 {
        self.0 * BLOCK_LEN
    }
}

/// An entry of a leaf: where a block's data lie, and their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) block: Block,
    /// CRC-32C, combined with the block's [mask](crate::seal::Key::mask): it detects any three flipped bits of a block, and
    /// data of any other block.
    pub(crate) checksum: u32,
}

impl Entry {
    pub(crate) fn decode(word: u64) -> Self {
        Entry { block: Block(word as u32), checksum: (word >> 32) as u32 }
    }

    pub(crate) fn encode(self) -> u64 {
        u64::from(self.checksum) << 32 | u64::from(self.block.0)
    }
}

/// An entry of a node above the leaves, and what the state says of the top one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) block: Block,
    /// Generation of the disk in which the node was made. A snapshot of that generation, or of a later one, has it too.
    pub(crate) generation: u32,
}

impl Child {
    pub(crate) fn decode(word: u64) -> Self {
        Child { block: Block(word as u32), generation: (word >> 32) as u32 }
    }

    pub(crate) fn encode(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.block.0)
    }
}

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

/// Offset, in a node, of the line with the entry at `place`, and the entry's word in that line.
pub(crate) fn place_in_node(place: u64) -> (u64, usize) {
    (place / WORDS as u64 * LINE_LEN, (place % WORDS as u64) as usize)
}

/// Place, in a node, of the entry that is a word of the line at this offset in the node.
pub(crate) fn entry_of_line(line: u64, word: usize) -> u64 {
    line / LINE_LEN * WORDS as u64 + word as u64
}

/// Offset of a journal slot in the meta extent.
pub(crate) fn slot(lane: usize, sequence: u64) -> u64 {
    JOURNAL + (lane as u64 * SLOTS + sequence % SLOTS) * SLOT_LEN
}
