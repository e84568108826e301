//! The check of a heap: allocated = reachable.

use std::collections::{HashMap, HashSet};

use super::Heap;
use super::layout::Class;
use crate::Result;
use crate::medium::{Medium, WORD_LEN};
use crate::pool::layout::{BITMAP_LEN, CHUNK_LEN, ChunkId, ChunkKind, ChunkState};
use crate::violation::Violation;

/// Maximal number of violations that are reported one by one; further ones are counted.
const TOLD_MAX: usize = 100;

type Bitmap = [u64; (BITMAP_LEN / WORD_LEN) as usize];

/// What a heap holds, and what its structure can reach.
#[derive(Debug, Default)]
struct Reachable {
    small: HashMap<ChunkId, Bitmap>,
    large: HashSet<ChunkId>,
    /// Chunks with a damaged state, whose content is unknown.
    damaged: HashSet<ChunkId>,
}

/// Violations; a bounded number is kept.
#[derive(Debug, Default)]
struct Findings {
    told: Vec<Violation>,
    untold: u64,
}

impl Findings {
    fn tell(&mut self, offset: u64, what: impl Into<String>) {
        if self.told.len() < TOLD_MAX {
            self.told.push(Violation::new(offset, what));
        } else {
            self.untold += 1;
        }
    }

    fn finish(mut self) -> Vec<Violation> {
        if self.untold > 0 {
            self.told.push(Violation::new(0, format!("and {} more", self.untold)));
        }
        self.told
    }
}

impl<M: Medium> Heap<M> {
    /// Compares the allocated blocks with the blocks that the structure can reach.
    ///
    /// `blocks` yields the offset at which each block begins. The check frees retired blocks first,
    /// so no operation may be in progress. It takes memory for a bitmap of each reachable chunk:
    /// 256 bytes.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn check(&self, blocks: impl Iterator<Item = u64>) -> Result<Vec<Violation>> {
        self.quiesce()?;
        let mut findings = Findings::default();
        let reachable = self.collect_reachable(blocks, &mut findings);
        self.compare(reachable, &mut findings);
        self.verify()?;
        Ok(findings.finish())
    }

    fn collect_reachable(
        &self,
        blocks: impl Iterator<Item = u64>,
        findings: &mut Findings,
    ) -> Reachable {
        let mut reachable = Reachable::default();
        let end = self.pool.chunk_end();
        for offset in blocks {
            let chunk = ChunkId::containing(offset);
            if !chunk.is_data() || chunk >= end {
                findings.tell(offset, "a reachable block lies outside the data");
                continue;
            }
            let state = match self.pool.chunk_state(chunk) {
                Ok(state) => state,
                Err(error) => {
                    if reachable.damaged.insert(chunk) {
                        findings.tell(chunk.state(), format!("blocks are reachable here: {error}"));
                    }
                    continue;
                }
            };
            let is_ours = state.owner == self.owner.0;
            match (state.kind, Class::from_number(state.class)) {
                (ChunkKind::Small, Some(class)) if is_ours => {
                    reach_small(&mut reachable, chunk, class, offset, findings);
                }
                (ChunkKind::LargeHead, _) if is_ours && offset == chunk.offset() => {
                    if !reachable.large.insert(chunk) {
                        findings.tell(offset, "large block is reachable twice");
                    }
                }
                (kind, _) => {
                    let what = format!(
                        "reachable, but chunk {} is {kind:?} of root {}",
                        chunk.0, state.owner
                    );
                    findings.tell(offset, what);
                }
            }
        }
        reachable
    }

    /// The pool's own check reports damaged state words.
    fn compare(&self, mut reachable: Reachable, findings: &mut Findings) {
        let end = self.pool.chunk_end();
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.pool.chunk_state(at).unwrap_or(ChunkState::SET_ASIDE);
            let run = state.span();
            if state.owner == self.owner.0 && !state.is_free() {
                match (state.kind, Class::from_number(state.class)) {
                    (ChunkKind::Small, Some(class)) => {
                        let bits = reachable.small.remove(&at).unwrap_or([0; _]);
                        self.compare_chunk(at, class, &bits, findings);
                    }
                    (ChunkKind::LargeHead, _) if !reachable.large.remove(&at) => {
                        let what = format!("{run} chunks are allocated but not reachable");
                        findings.tell(at.offset(), what);
                    }
                    _ => {}
                }
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
    }

    fn compare_chunk(
        &self,
        chunk: ChunkId,
        class: Class,
        reachable: &Bitmap,
        findings: &mut Findings,
    ) {
        for word in 0..class.bitmap_words() {
            let at = chunk.bitmap() + u64::from(word) * WORD_LEN;
            let stored = self.medium().load(at);
            let allocated = stored & class.valid_bits(word);
            if stored != allocated {
                findings.tell(at, "a bit is set that stands for no block");
            }
            let mut wrong = allocated ^ reachable[word as usize];
            while wrong != 0 {
                let bit = wrong.trailing_zeros();
                wrong &= wrong - 1;
                let offset = chunk.offset() + u64::from(word * 64 + bit) * class.block_len();
                let what = if allocated >> bit & 1 == 1 {
                    "block is allocated but not reachable: leaked"
                } else {
                    "block is reachable but not allocated: it could be given out again"
                };
                findings.tell(offset, what);
            }
        }
    }

    /// Number of allocated blocks; a large one counts once. Blocks that are unlinked and not yet
    /// free are included. Reads 256 bytes for each chunk.
    ///
    /// # Errors
    ///
    /// When a state word is damaged: the number of blocks in its chunk is then unknown.
    pub fn count_blocks(&self) -> Result<u64> {
        let end = self.pool.chunk_end();
        let mut count = 0;
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.pool.chunk_state(at)?;
            let run = state.span();
            if let Some(class) = self.class_of(at) {
                count += u64::from(class.block_count() - self.free_count(at, class));
            } else if state.kind == ChunkKind::LargeHead && state.owner == self.owner.0 {
                count += 1;
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        Ok(count)
    }

    /// Space of this heap in bytes: of its chunks, and of the blocks allocated in them.
    ///
    /// # Errors
    ///
    /// When a state word is damaged.
    pub fn usage(&self) -> Result<Usage> {
        let end = self.pool.chunk_end();
        let mut usage = Usage::default();
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.pool.chunk_state(at)?;
            let run = state.span();
            if state.owner == self.owner.0 && !state.is_free() {
                usage.chunk_bytes += u64::from(run) * CHUNK_LEN;
                usage.block_bytes += match self.class_of(at) {
                    Some(class) => {
                        let used = class.block_count() - self.free_count(at, class);
                        u64::from(used) * class.block_len()
                    }
                    None => u64::from(run) * CHUNK_LEN,
                };
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        Ok(usage)
    }
}

fn reach_small(
    reachable: &mut Reachable,
    chunk: ChunkId,
    class: Class,
    offset: u64,
    findings: &mut Findings,
) {
    let within = offset - chunk.offset();
    let index = (within / class.block_len()) as u32;
    if !within.is_multiple_of(class.block_len()) || index >= class.block_count() {
        let len = class.block_len();
        findings.tell(offset, format!("reachable, but no block of {len} B begins here"));
        return;
    }
    let bits = reachable.small.entry(chunk).or_insert([0; _]);
    let (word, bit) = (index as usize / 64, 1 << (index % 64));
    if bits[word] & bit != 0 {
        findings.tell(offset, "block is reachable twice");
    }
    bits[word] |= bit;
}

/// Space of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the chunks that it owns.
    pub chunk_bytes: u64,
    /// Bytes of the blocks allocated in them. The difference is free space and fragmentation.
    pub block_bytes: u64,
}
