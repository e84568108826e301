//! Allocated = reachable, proved.

use std::collections::HashMap;

use super::Heap;
use super::layout::Class;
use crate::Result;
use crate::medium::{Medium, WORD_LEN};
use crate::pool::layout::{BITMAP_LEN, CHUNK_LEN, ChunkId, ChunkKind};

/// Something that contradicts the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Pool offset where it was seen.
    pub offset: u64,
    /// What was found, and what was expected.
    pub what: String,
}

impl Violation {
    /// A contradiction seen at `offset`.
    pub fn new(offset: u64, what: impl Into<String>) -> Self {
        Violation { offset, what: what.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "offset {:#x}: {}", self.offset, self.what)
    }
}

/// Violations that are told one by one; more are counted.
const TOLD_MAX: usize = 100;

type Bitmap = [u64; (BITMAP_LEN / WORD_LEN) as usize];

/// What a heap holds, against what its structure can reach.
#[derive(Debug)]
struct Reachable {
    small: HashMap<ChunkId, Bitmap>,
    large: HashMap<ChunkId, u32>,
}

impl<M: Medium> Heap<M> {
    /// Compares what is allocated with the blocks that the structure can reach.
    ///
    /// Every block is named by the offset at which it begins. Frees what is retired first, so no
    /// operation may be in progress. Takes memory for a bitmap of the reachable chunks: 256 bytes each.
    ///
    /// # Errors
    ///
    /// When a state word is damaged.
    pub fn check(&self, blocks: impl Iterator<Item = u64>) -> Result<Vec<Violation>> {
        self.settle()?;
        let mut violations = Vec::new();
        let reachable = self.collect_reachable(blocks, &mut violations)?;
        self.compare(reachable, &mut violations)?;
        let untold = violations.len().saturating_sub(TOLD_MAX);
        if untold > 0 {
            violations.truncate(TOLD_MAX);
            violations.push(Violation::new(0, format!("and {untold} more")));
        }
        Ok(violations)
    }

    fn collect_reachable(
        &self,
        blocks: impl Iterator<Item = u64>,
        violations: &mut Vec<Violation>,
    ) -> Result<Reachable> {
        let mut reachable = Reachable { small: HashMap::new(), large: HashMap::new() };
        let end = self.pool.chunk_end();
        for offset in blocks {
            let chunk = ChunkId::containing(offset);
            if !chunk.is_data() || chunk >= end {
                violations.push(Violation::new(offset, "a reachable block lies outside the data"));
                continue;
            }
            if let Some((chunk, class, index)) = self.locate(offset) {
                let begins = chunk.offset() + u64::from(index) * class.block_len();
                if begins != offset || index >= class.block_count() {
                    let what =
                        format!("reachable, but no block of {} B begins here", class.block_len());
                    violations.push(Violation::new(offset, what));
                    continue;
                }
                let bits = reachable.small.entry(chunk).or_insert([0; _]);
                let (word, bit) = (index as usize / 64, 1 << (index % 64));
                if bits[word] & bit != 0 {
                    violations.push(Violation::new(offset, "block is reachable twice"));
                }
                bits[word] |= bit;
                continue;
            }
            let state = self.pool.chunk_state(chunk)?;
            let owned = state.kind == ChunkKind::LargeHead && state.owner == self.owner.0;
            if !owned || offset != chunk.offset() {
                let what = format!(
                    "reachable, but chunk {} is {:?} of root {}",
                    chunk.0, state.kind, state.owner
                );
                violations.push(Violation::new(offset, what));
            } else if reachable.large.insert(chunk, state.run).is_some() {
                violations.push(Violation::new(offset, "large block is reachable twice"));
            }
        }
        Ok(reachable)
    }

    fn compare(&self, mut reachable: Reachable, violations: &mut Vec<Violation>) -> Result<()> {
        let end = self.pool.chunk_end();
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.pool.chunk_state(at)?;
            let run = state.span();
            if state.owner == self.owner.0 && !state.is_free() {
                match (state.kind, Class::from_number(state.class)) {
                    (ChunkKind::Small, Some(class)) => {
                        let bits = reachable.small.remove(&at).unwrap_or([0; _]);
                        self.compare_chunk(at, class, &bits, violations);
                    }
                    (ChunkKind::Small, None) => violations
                        .push(Violation::new(at.state(), format!("size class {}", state.class))),
                    (ChunkKind::LargeHead, _) if reachable.large.remove(&at).is_none() => {
                        let what = format!("{run} chunks are allocated but not reachable");
                        violations.push(Violation::new(at.offset(), what));
                    }
                    (ChunkKind::LargeBody, _) => violations
                        .push(Violation::new(at.state(), "a large chunk's body has no head")),
                    _ => {}
                }
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        Ok(())
    }

    fn compare_chunk(
        &self,
        chunk: ChunkId,
        class: Class,
        reachable: &Bitmap,
        violations: &mut Vec<Violation>,
    ) {
        for word in 0..class.bitmap_words() {
            let at = chunk.bitmap() + u64::from(word) * WORD_LEN;
            let allocated = self.medium().load(at) & class.valid_bits(word);
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
                violations.push(Violation::new(offset, what));
            }
        }
    }

    /// Blocks that are allocated at present, large ones counted once; those that are unlinked but not
    /// yet free are among them. Looks at 256 bytes a chunk.
    ///
    /// # Errors
    ///
    /// When a state word is damaged.
    pub fn count_blocks(&self) -> Result<u64> {
        let end = self.pool.chunk_end();
        let mut count = 0;
        let mut at = ChunkId(0).next_data();
        while at < end {
            let state = self.pool.chunk_state(at)?;
            let run = state.span();
            if let Some(class) = self.class_of(at)? {
                count += u64::from(class.block_count() - self.free_count(at, class));
            } else if state.kind == ChunkKind::LargeHead && state.owner == self.owner.0 {
                count += 1;
            }
            at = ChunkId(at.0.saturating_add(run)).next_data();
        }
        Ok(count)
    }

    /// Space of this heap in bytes: of whole chunks, and of the blocks allocated in them.
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
                usage.block_bytes += match self.class_of(at)? {
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

/// Space that a heap takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the chunks it owns.
    pub chunk_bytes: u64,
    /// Bytes of the blocks allocated in them. The difference is free space and fragmentation.
    pub block_bytes: u64,
}
