//! Freeing what a structure has given up as a whole: blocks to which nothing leads any more, and
//! which tell by themselves that they are such.

use std::collections::{BTreeSet, HashSet};

use super::layout::LANE_COUNT;
use super::ops::bit_word;
use super::{Block, Heap};
use crate::Result;
use crate::medium::{Medium, WORD_LEN};
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind};

/// Chunks that are looked through at once, while operations wait.
const TOGETHER: usize = 64;
/// Large blocks that are freed with the same fences.
const LARGE_TOGETHER: usize = 64;

/// How far a sweep has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCursor(u32);

impl<M: Medium> Heap<M> {
    /// Frees those of some blocks that are `dead`: nothing leads to them, durably, and no thread
    /// can see them. Operations wait meanwhile, and the blocks of those before are written. Returns
    /// where to go on; `None` behind the last block. A crash leaves some of the blocks allocated,
    /// and another sweep finds them. Durable with the caller's next fence.
    ///
    /// Large blocks are freed as others are that an operation unlinks. Not to be called inside of a
    /// lane.
    ///
    /// # Errors
    ///
    /// When the medium met a fault: nothing was freed.
    pub fn sweep(
        &self,
        from: SweepCursor,
        mut is_dead: impl FnMut(Block) -> bool,
    ) -> Result<Option<SweepCursor>> {
        let (large, next) = self.sweep_small(from, &mut is_dead)?;
        for some in large.chunks(LARGE_TOGETHER) {
            let mut lane = self.enter().prepare_for(LARGE_TOGETHER);
            let suspects: Vec<_> = some.iter().map(|offset| lane.suspect(*offset)).collect();
            // Fence: the suspects, before the blocks are freed. A crash that comes between the
            // chunks of one finds the others by its suspect.
            // Redundant: but where the caller says that nothing is dead any more before the blocks
            // are free, which they are as soon as a lane is entered, or where one has several
            // chunks.
            lane.fence();
            suspects.into_iter().for_each(|suspect| lane.retire(suspect));
        }
        Ok(next)
    }

    /// Frees small blocks, and finds large ones.
    fn sweep_small(
        &self,
        from: SweepCursor,
        is_dead: &mut impl FnMut(Block) -> bool,
    ) -> Result<(Vec<u64>, Option<SweepCursor>)> {
        let thread = self.medium().thread();
        let lanes: Vec<_> = (0..LANE_COUNT).map(|index| self.wait_for(index, thread)).collect();
        // Their lanes free these.
        let retired: HashSet<u64> = lanes.iter().flat_map(super::Lane::retired).collect();
        let end = self.pool.chunk_end();
        let (mut at, mut small, mut large) = (ChunkId(from.0).next_data(), Vec::new(), Vec::new());
        for _ in 0..TOGETHER {
            if at >= end {
                break;
            }
            let state = self.pool.usable_state(at);
            let mut is_wanted = |block: Block| !retired.contains(&block.offset) && is_dead(block);
            if let Some(class) = self.class_of(at) {
                let len = class.block_len();
                for index in 0..class.block_count() {
                    let used = self.medium().load(bit_word(at, index)) >> (index % 64) & 1 != 0;
                    let offset = at.offset() + u64::from(index) * len;
                    if used && is_wanted(Block { offset, len }) {
                        small.push((offset, at, class, index));
                    }
                }
            } else if state.kind == ChunkKind::LargeHead && state.owner == self.owner.0 {
                let len = u64::from(state.run) * CHUNK_LEN;
                if is_wanted(Block { offset: at.offset(), len }) {
                    large.push(at.offset());
                }
            }
            at = ChunkId(at.0.saturating_add(state.span())).next_data();
        }
        // A faulty medium reads as zeros: what was looked at may be something else.
        self.verify()?;
        let chunks: BTreeSet<ChunkId> = small.iter().map(|(_, chunk, ..)| *chunk).collect();
        let whole: BTreeSet<ChunkId> =
            chunks.into_iter().filter(|chunk| self.break_seal(*chunk)).collect();
        // Fence: no seal is left, before the bits change: no lane names these chunks.
        // Redundant: but where a crash leaves a seal beside bits that have changed, which takes
        // more runs than a sample has.
        self.medium().fence();
        small.retain(|(_, chunk, ..)| whole.contains(chunk));
        let (mut emptied, mut words) = (Vec::with_capacity(small.len()), HashSet::new());
        for (offset, chunk, class, index) in small {
            if let Some(word) = self.free_small(offset, chunk, class, index) {
                words.insert(word);
                emptied.push((chunk, class));
            }
        }
        for word in words {
            // Flush: fenced by the caller, before what says that there are dead blocks is taken
            // away.
            self.medium().flush(word, WORD_LEN);
        }
        self.consider_all(emptied);
        Ok((large, (at < end).then_some(SweepCursor(at.0))))
    }
}
