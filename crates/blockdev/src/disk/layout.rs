//! On-media layout of a disk.
//!
//! Everything is a [`Line`](crate::line::Line) of metadata or a block of data, except for the
//! journal's records.
//!
//! ```text
//! heap header, 2 KiB
//! line 0   identity, which never changes: bytes of a block, blocks of a slab, lanes, offset of the
//!          meta extent, most lines of a slot, most spares of a lane, the disk's key (`seal.rs`)
//!      1   state: bytes of the disk, top of the map, its height, generation, end of the blocks to
//!          be discarded
//!      2 … 7   offsets of the extents of the slab directory
//!
//! meta extent, whole chunks
//! byte 0       snapshots: 64 lines
//!      4096    journal: two slots of 2 KiB for each of 32 lanes
//!
//! directory extent, one chunk of 64 KiB: 1,024 lines of 7 offsets of slabs
//!
//! slab, 64 KiB to 64 MiB; consecutive slabs may be one run of the pool
//! block 0      used-block bitmap, 448 bits a line: 1 = used
//!       1 …    data, or a node of the map
//!
//! node of the map, one block: 64 lines of 7 entries
//! entry of a leaf       block number (32 bits) | CRC32C of its data, combined with the mask of the
//!                       block (32 bits); 0: reads as zeros
//! entry of another node block number of a node (32 bits) | generation it was made in (32 bits)
//! ```

use remanent_pmem::{LINE_LEN, PAGE_LEN};

use crate::line::WORDS;

/// Bytes of a block, the unit that is written atomically.
pub const BLOCK_LEN: u64 = 4096;

/// Version of this layout and that of `record.rs`.
pub(crate) const LAYOUT: u64 = 2;

/// Lanes of a disk: operations that change it at the same time. Further ones wait.
pub(crate) const LANE_COUNT: usize = 32;
/// Bytes of a slot of the journal.
pub(crate) const SLOT_LEN: u64 = 2048;
/// Lines that fit any slot. Taking a slab must not need more, because the blocks for a longer
/// record would come from a slab.
const LINES_MIN: u64 = 2;
/// Upper limit of the spare blocks of a lane, for any disk.
pub(crate) const SPARES_MAX: usize = 64;
/// Slots of a lane. A new record never overwrites the last one.
pub(crate) const SLOTS: u64 = 2;
/// Maximal number of snapshots of a disk.
pub const SNAPSHOT_COUNT: usize = (PAGE_LEN / LINE_LEN) as usize;

pub(crate) const IDENTITY: u64 = 0;
pub(crate) const STATE: u64 = LINE_LEN;
pub(crate) const DIRECTORY: u64 = 2 * LINE_LEN;
pub(crate) const DIRECTORY_LINES: u64 = 6;

/// Maximal number of extents of the slab directory.
pub(crate) const DIRECTORY_EXTENTS: usize = DIRECTORY_LINES as usize * WORDS;
/// Bytes of an extent of the slab directory.
pub(crate) const DIRECTORY_EXTENT_LEN: u64 = 64 << 10;
/// Slabs for which an extent of the directory has room.
pub(crate) const DIRECTORY_SLABS: usize = (DIRECTORY_EXTENT_LEN / LINE_LEN) as usize * WORDS;
/// Maximal number of slabs of a disk.
pub(crate) const SLAB_COUNT_MAX: usize = DIRECTORY_EXTENTS * DIRECTORY_SLABS;

pub(crate) const SNAPSHOTS: u64 = 0;
const JOURNAL: u64 = PAGE_LEN;
/// Bytes of the meta extent.
pub(crate) const META_LEN: u64 = JOURNAL + LANE_COUNT as u64 * SLOTS * SLOT_LEN;

/// Blocks of the smallest and of the largest slab. The bits of the largest fill one block.
pub(crate) const SLAB_BLOCKS_MIN: u64 = 16;
pub(crate) const SLAB_BLOCKS_MAX: u64 = 16_384;

/// Slabs that a new disk takes at most when it becomes full.
const SLABS_FULL: u64 = 64;
/// Size by which the slabs of a disk of 0 bytes are computed: they have 1 MiB.
const SIZE_TO_COME: u64 = 64 << 20;

/// Entries of a node.
pub(crate) const NODE_ENTRIES: u64 = BLOCK_LEN / LINE_LEN * WORDS as u64;
/// Maximal number of levels above the leaves: enough for [`SIZE_MAX`].
pub(crate) const HEIGHT_MAX: u32 = 3;
/// Bytes of the largest disk: 16 TiB. Blocks have numbers of 32 bits.
pub const SIZE_MAX: u64 = BLOCK_LEN << 32;
const _: () = assert!(NODE_ENTRIES.pow(HEIGHT_MAX + 1) * BLOCK_LEN >= SIZE_MAX);

/// Metadata of a disk that change, except for the map, in one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Bytes of the disk.
    pub(crate) size: u64,
    pub(crate) tree: Tree,
    /// Generation of the nodes that are made now: one more than that of the newest snapshot that
    /// ever was.
    pub(crate) generation: u32,
    /// End of the blocks behind the end of the disk that may still be mapped, because the disk was
    /// made smaller.
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

/// Limits of a disk, which are fixed when it is created: see
/// [`Disk::create_with`](crate::Disk::create_with).
///
/// [`Shape::of`] has the right limits for a size. Smaller limits are for tests: they make a disk
/// slower, and make it free blocks, hand them from lane to lane, and write records into blocks of
/// their own after a few operations already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of a slab, in which the disk takes space from its pool: a power of two, 16 to 16,384.
    pub slab_blocks: u64,
    /// Maximal number of metadata lines in a slot's record, at least 2. A record of more lines
    /// takes blocks of its own. A record of more than twice as many data blocks takes a second
    /// fence. A slot has room for some 20 lines, whatever this says.
    pub lines_max: u64,
    /// Free blocks that each of the 32 lanes keeps for its next write, at most 64. Further replaced
    /// blocks are free for all lanes at once.
    pub spares_max: u64,
}

impl Shape {
    /// Limits for a disk of `size` bytes: slabs of a 64th of it, within bounds; as many lines in a
    /// record as a slot has room for; 64 spares.
    pub fn of(size: u64) -> Self {
        let size = if size == 0 { SIZE_TO_COME } else { size };
        let blocks = (size / BLOCK_LEN / SLABS_FULL).next_power_of_two();
        let slab_blocks = blocks.clamp(SLAB_BLOCKS_MIN, SLAB_BLOCKS_MAX);
        Shape { slab_blocks, lines_max: SLOT_LEN / LINE_LEN, spares_max: SPARES_MAX as u64 }
    }

    /// Says which limit is impossible, and which values are possible.
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

/// Number of a block on the medium, in a disk's slabs. Block 0 of a slab holds its bits, so 0 means
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Block(pub(crate) u32);

impl Block {
    pub(crate) const NONE: Block = Block(0);

    pub(crate) fn is_none(self) -> bool {
        self == Block::NONE
    }
}

/// Logical block number, as users of the disk count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lba(pub(crate) u64);

impl Lba {
    pub(crate) fn containing(offset: u64) -> Self {
        Lba(offset / BLOCK_LEN)
    }

    /// Number of the map's leaf with the entry, counted from the left.
    pub(crate) fn leaf(self) -> u64 {
        self.0 / NODE_ENTRIES
    }

    /// Place of the entry in that leaf.
    pub(crate) fn place(self) -> u64 {
        self.0 % NODE_ENTRIES
    }

    pub(crate) fn offset(self) -> u64 {
        self.0 * BLOCK_LEN
    }
}

/// An entry of a leaf: the place of a block's data, and their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) block: Block,
    /// CRC-32C, combined with the block's [mask](crate::seal::Key::mask). It detects any three
    /// flipped bits of a block, and data of any other block.
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

/// An entry of a node above the leaves. The state has one for the top node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) block: Block,
    /// Generation of the disk in which the node was made. A snapshot of that generation or of a
    /// later one shares the node.
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

/// Maximal number of leaves of a tree of this height.
pub(crate) fn leaves(height: u32) -> u64 {
    NODE_ENTRIES.saturating_pow(height)
}

/// Offset of the line with the entry at `place` in its node, and the entry's word in that line.
pub(crate) fn place_in_node(place: u64) -> (u64, usize) {
    (place / WORDS as u64 * LINE_LEN, (place % WORDS as u64) as usize)
}

/// Place of the entry that is `word` of the line at offset `line` in its node.
pub(crate) fn entry_of_line(line: u64, word: usize) -> u64 {
    line / LINE_LEN * WORDS as u64 + word as u64
}

/// Offset of a journal slot in the meta extent.
pub(crate) fn slot(lane: usize, sequence: u64) -> u64 {
    JOURNAL + (lane as u64 * SLOTS + sequence % SLOTS) * SLOT_LEN
}
