//! On-media layout of an nvramdisk.
//!
//! ```text
//! heap header, 2 KiB
//! line 0    identity: bytes of the disk, shadow blocks, lanes, offset of the meta extent; never
//!           changes
//!      1 …  offsets of the segments
//!
//! meta extent, whole chunks
//! byte 0    journal: a record for each of 32 lanes: three lines, one for each of the fields VPN,
//!           L1, L2
//!   8192    mapping table: a word for each logical block, the number of the block that holds it;
//!           0: reads as zeros
//!
//! segment: up to 1 GiB of blocks, the first of which has number 1
//! ```

use remanent_pmem::{LINE_LEN, WORD_LEN};

use crate::disk::layout::{BLOCK_LEN, Block, Lba};

/// Version of this layout.
pub(crate) const LAYOUT: u64 = 1;

/// Lanes: writes at the same time. Further ones wait.
pub(crate) const LANE_COUNT: usize = 32;
/// Blocks beyond the logical blocks of the disk: one for each write that may be under way.
pub(crate) const SHADOW_COUNT: u64 = LANE_COUNT as u64;

/// Offsets in the heap's header.
pub(crate) const IDENTITY: u64 = 0;
pub(crate) const SEGMENTS: u64 = LINE_LEN;
/// Maximal number of segments in the header.
pub(crate) const SEGMENT_COUNT_MAX: u64 = (2048 - SEGMENTS) / WORD_LEN;
/// Blocks of each segment but the last.
pub(crate) const SEGMENT_BLOCKS: u64 = 1 << 18;

/// Bytes of a record: each field has a line of its own, so that flushing one disturbs no other.
const RECORD_LEN: u64 = 3 * LINE_LEN;
pub(crate) const JOURNAL_LEN: u64 = LANE_COUNT as u64 * RECORD_LEN;
const MAP: u64 = 8192;
const _: () = assert!(JOURNAL_LEN <= MAP);

/// Logical blocks of the largest disk.
pub(crate) const LBAS_MAX: u64 = SEGMENT_COUNT_MAX * SEGMENT_BLOCKS - SHADOW_COUNT;

/// Value of L1 or L2 that names no logical block.
pub(crate) const NULL: u64 = 0;

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// The shadow block, which the paper calls a virtual page.
    Vpn,
    /// The logical block.
    L1,
    /// The logical block again.
    L2,
}

/// Places of everything, fixed when the disk is created.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Places {
    /// Offset of the meta extent.
    pub(crate) meta: u64,
    /// Logical blocks.
    pub(crate) lbas: u64,
    pub(crate) segments: Vec<u64>,
}

#[doc(hidden)]
impl Places {
    /// Offsets of a lane's VPN, L1 and L2.
    pub fn record(&self, lane: usize) -> [u64; 3] {
        [Field::Vpn, Field::L1, Field::L2].map(|field| self.field(lane, field))
    }

    /// Offset of a logical block's entry of the map.
    pub fn entry(&self, lba: u64) -> u64 {
        self.meta + MAP + lba * WORD_LEN
    }

    /// Offset of the block of this number; `None` if there is none.
    pub fn block(&self, vpn: u64) -> Option<u64> {
        let index = vpn.checked_sub(1).filter(|_| vpn <= self.block_count())?;
        let segment = self.segments.get((index / SEGMENT_BLOCKS) as usize)?;
        Some(segment + index % SEGMENT_BLOCKS * BLOCK_LEN)
    }

    /// Value of L1 and L2 for a logical block: never [`NULL`].
    pub fn word(lba: u64) -> u64 {
        lba + 1
    }
}

impl Places {
    pub(crate) fn field(&self, lane: usize, field: Field) -> u64 {
        self.meta + lane as u64 * RECORD_LEN + field as u64 * LINE_LEN
    }

    /// Blocks of the disk, including shadow blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.lbas + SHADOW_COUNT
    }

    /// The logical block that L1 or L2 names; `None` if it names none.
    pub(crate) fn lba(&self, word: u64) -> Option<Lba> {
        word.checked_sub(1).filter(|lba| *lba < self.lbas).map(Lba)
    }

    /// The block that a word of the map or VPN names; `None` if there is no such block.
    pub(crate) fn vpn(&self, word: u64) -> Option<Block> {
        (1..=self.block_count()).contains(&word).then_some(Block(word as u32))
    }

    /// Bytes of the meta extent.
    pub(crate) fn meta_len(lbas: u64) -> u64 {
        MAP + lbas * WORD_LEN
    }

    /// Blocks of each segment.
    pub(crate) fn segment_blocks(lbas: u64) -> impl Iterator<Item = u64> {
        let count = lbas + SHADOW_COUNT;
        let firsts = (0..count).step_by(SEGMENT_BLOCKS as usize);
        firsts.map(move |first| (count - first).min(SEGMENT_BLOCKS))
    }
}
