//! On-media layout of a heap's chunk and its lanes; the size classes.
//!
//! ```text
//! heap chunk, 64 KiB
//! byte     0  header of the structure that owns the heap (2 KiB)
//!       2048  lane 0 … lane 30 (2 KiB each)
//!
//! lane
//! byte     0  active chunks: a word for each size class, two chunk numbers of 32 bits
//!        256  suspects: 224 words, offsets of blocks whose bit may be wrong after a crash; in the
//!             upper 16 bits the length of a run of chunks that was being allocated
//! ```

use crate::medium::WORD_LEN;
use crate::pool::layout::{BLOCK_LEN_MIN, CHUNK_LEN, ChunkId, RUN_MAX, SIZE_LIMIT};

/// Bytes of the structure's own header.
pub const HEADER_LEN: u64 = 2048;
pub(crate) const LANE_LEN: u64 = 2048;
/// Lanes of a heap: threads that can be inside it at the same time. Further ones wait.
pub const LANE_COUNT: usize = ((CHUNK_LEN - HEADER_LEN) / LANE_LEN) as usize;

pub(crate) const SUSPECTS: u64 = 256;
pub(crate) const RUN_SHIFT: u32 = 48;
/// Maximal number of suspects in a lane.
pub const SUSPECT_COUNT: u16 = ((LANE_LEN - SUSPECTS) / WORD_LEN) as u16;

/// Bytes of the blocks of each size class.
///
/// Steps of 32 bytes up to 256, so that the first 32 bytes of a block lie in one line. Then steps
/// of at most a quarter, in whole lines. Above 8 KiB, lengths that divide a chunk well.
pub const CLASS_LEN: [u32; 32] = [
    32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792,
    2048, 2560, 3072, 3584, 4096, 5440, 6528, 8192, 9344, 10_880, 13_056, 16_384, 21_824,
];

/// Bytes of the longest block that shares a chunk with others. Longer allocations are runs of
/// chunks.
pub const SMALL_LEN_MAX: u64 = CLASS_LEN[CLASS_COUNT - 1] as u64;
pub(crate) const CLASS_COUNT: usize = CLASS_LEN.len();

const STEP: u64 = 32;
const TABLE_LEN: usize = (SMALL_LEN_MAX / STEP) as usize + 1;

/// Smallest class for each number of 32-byte steps.
static CLASS_OF: [u8; TABLE_LEN] = {
    let mut table = [0; TABLE_LEN];
    let mut steps = 0;
    let mut class = 0;
    while steps < TABLE_LEN {
        while (CLASS_LEN[class] as u64) < steps as u64 * STEP {
            class += 1;
        }
        table[steps] = class as u8;
        steps += 1;
    }
    table
};

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Class(pub(crate) u8);

impl Class {
    /// The class of blocks that hold `len` bytes; `None` if no class is large enough.
    #[inline(always)]
    pub(crate) fn for_len(len: u64) -> Option<Class> {
        CLASS_OF.get(len.div_ceil(STEP) as usize).map(|&class| Class(class))
    }

    /// The class with this number; `None` if there is none.
    pub(crate) fn from_number(number: u8) -> Option<Class> {
        ((number as usize) < CLASS_COUNT).then_some(Class(number))
    }

    #[inline(always)]
    pub(crate) fn block_len(self) -> u64 {
        u64::from(CLASS_LEN[self.0 as usize])
    }

    pub(crate) fn block_count(self) -> u32 {
        (CHUNK_LEN / self.block_len()) as u32
    }

    pub(crate) fn bitmap_words(self) -> u32 {
        self.block_count().div_ceil(64)
    }

    /// Number of free blocks that make a used chunk worth taking again: an eighth.
    ///
    /// With fewer, a fence would serve too few allocations. The price: up to an eighth of a class's
    /// space may lie idle.
    pub(crate) fn worthwhile(self) -> u32 {
        (self.block_count() / 8).max(1)
    }

    /// Bits of bitmap word `word` that stand for blocks.
    pub(crate) fn valid_bits(self, word: u32) -> u64 {
        let left = self.block_count() - word * 64;
        if left >= 64 { u64::MAX } else { (1 << left) - 1 }
    }
}

/// Offset of a lane of the heap in `chunk`.
pub(crate) fn lane(chunk: ChunkId, index: usize) -> u64 {
    chunk.offset() + HEADER_LEN + index as u64 * LANE_LEN
}

/// Offset of the word with the active chunks of `class`.
pub(crate) fn active(lane: u64, class: Class) -> u64 {
    lane + u64::from(class.0) * WORD_LEN
}

/// The suspect word of a run of chunks that is being allocated: its offset, and its length in the
/// upper 16 bits. Until the head of the run is durable, nothing else has the length. A run of one
/// chunk that has small blocks says that all of them are suspect.
pub(crate) fn suspected_run(first: ChunkId, run: u32) -> u64 {
    first.offset() | u64::from(run) << RUN_SHIFT
}

/// Decodes a suspect word: its offset, and the length if it is a run.
pub(crate) fn read_suspect(word: u64) -> (u64, u32) {
    (word & ((1 << RUN_SHIFT) - 1), (word >> RUN_SHIFT) as u32)
}

/// Offset of suspect `slot`. Neighbouring slots lie in different lines, because flushing the most
/// recently flushed line is the slowest flush.
pub(crate) fn suspect(lane: u64, slot: u16) -> u64 {
    const LINES: u16 = SUSPECT_COUNT / 8;
    let (line, word) = (slot % LINES, slot / LINES);
    lane + SUSPECTS + u64::from(line) * 64 + u64::from(word) * WORD_LEN
}

const _: () = assert!(CLASS_COUNT as u64 * WORD_LEN <= SUSPECTS);
const _: () = assert!(SUSPECT_COUNT == 224 && LANE_COUNT == 31);
const _: () = assert!(CLASS_LEN[0] as u64 == BLOCK_LEN_MIN);
const _: () = assert!(RUN_MAX < 1 << 16 && SIZE_LIMIT <= 1 << RUN_SHIFT);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_fit_and_waste_little() {
        for len in 1..=SMALL_LEN_MAX {
            let class = Class::for_len(len).unwrap();
            assert!(class.block_len() >= len, "{len}");
            if let Some(smaller) = class.0.checked_sub(1) {
                assert!(Class(smaller).block_len() < len, "{len}");
            }
            let waste = class.block_len() - len;
            assert!(waste < 32 || waste * 100 <= class.block_len() * 34, "{len} wastes {waste}");
        }
        assert_eq!(Class::for_len(SMALL_LEN_MAX + 1), None);
    }

    #[test]
    fn suspects_are_distinct_and_inside_the_lane() {
        let mut offsets: Vec<u64> = (0..SUSPECT_COUNT).map(|slot| suspect(0, slot)).collect();
        assert!(offsets.windows(2).all(|pair| pair[0] / 64 != pair[1] / 64));
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), SUSPECT_COUNT as usize);
        assert!(offsets.iter().all(|&at| (SUSPECTS..LANE_LEN).contains(&at)));
    }
}
