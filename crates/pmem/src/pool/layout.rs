//! On-media layout of a pool file.
//!
//! A file is a sequence of chunks of 64 KiB, grouped in zones of 4 GiB. Each zone begins with its
//! own metadata, so a file grows without moving anything:
//!
//! ```text
//! chunk   0         1 … 8            9 … 264            265 … 65535
//!         header    state words      bitmaps            data
//!         (zone 0   8 B a chunk      256 B a chunk
//!          only)    512 KiB          16 MiB
//! ```
//!
//! The file is sparse: metadata of chunks that were never used take no space.
//!
//! Header chunk of zone 0:
//!
//! ```text
//! byte 0        4096          8192                                    65536
//!      superblock  superblock    root directory: 224 entries of 256 B
//!      copy A      copy B
//! ```
//!
//! Further roots are in *directory chunks* of 256 entries each. Each of the entries above has a
//! word that leads to one directory chunk, in order: the chunk's number in the lower half, a CRC32C
//! of that number and of the word's index in the upper half. A chunk is named there before its
//! state word says that it is taken. If the chunk is free, opening clears the word.

use crate::heap::layout::CLASS_COUNT;
use crate::medium::{LINE_LEN, WORD_LEN, crc32c};

/// Version of everything described here and in `heap/layout.rs`; new pools get it.
pub const FORMAT_VERSION: u32 = 3;
/// The version without directory chunks. Its pools are opened, and keep it.
pub const FORMAT_VERSION_ONE_DIRECTORY: u32 = 2;
/// The first version, which also has no seals. Its pools are opened, and keep it.
pub const FORMAT_VERSION_UNSEALED: u32 = 1;

/// Bytes of a chunk, the unit in which heaps take space and give it back.
pub const CHUNK_LEN: u64 = 64 << 10;
/// Chunks of a zone.
pub const ZONE_CHUNKS: u32 = 65_536;
/// Smallest block of a chunk; a bitmap has a bit for each.
pub const BLOCK_LEN_MIN: u64 = 32;
/// Bytes of a chunk's bitmap.
pub const BITMAP_LEN: u64 = CHUNK_LEN / BLOCK_LEN_MIN / 8;

const STATE_FIRST: u32 = 1;
const STATE_CHUNKS: u32 = (ZONE_CHUNKS as u64 * WORD_LEN / CHUNK_LEN) as u32;
const BITMAP_FIRST: u32 = STATE_FIRST + STATE_CHUNKS;
const BITMAP_CHUNKS: u32 = (ZONE_CHUNKS as u64 * BITMAP_LEN / CHUNK_LEN) as u32;
/// Index of a zone's first data chunk.
pub const DATA_FIRST: u32 = BITMAP_FIRST + BITMAP_CHUNKS;

/// Bytes of metadata at the beginning of each zone, 16.6 MiB: header, state words and bitmaps.
/// Nearly all of it is a hole of the file until the described chunks are used.
pub const METADATA_LEN: u64 = DATA_FIRST as u64 * CHUNK_LEN;
/// Bytes of the smallest pool: the metadata of its first zone, and chunks for the heap of one root
/// and its first values.
pub const SIZE_MIN: u64 = METADATA_LEN + 2 * CHUNK_LEN;

/// Bytes of the largest pool: chunks have numbers of 32 bits, so 256 TiB less a chunk.
pub const SIZE_LIMIT: u64 = u32::MAX as u64 * CHUNK_LEN;

/// Chunks of the longest run, which is one allocation.
pub const RUN_MAX: u32 = ZONE_CHUNKS - DATA_FIRST;

/// Offset of the second superblock copy; the first is at 0.
pub(crate) const SUPERBLOCK_B: u64 = 4096;
pub(crate) const ROOTS: u64 = 8192;
pub(crate) const ROOT_LEN: u64 = 256;
/// Roots with entries in the header chunk: all roots of a pool of format version 2 or 1.
pub const HEADER_ROOT_COUNT: u16 = ((CHUNK_LEN - ROOTS) / ROOT_LEN) as u16;
/// Offset, in an entry of the header chunk, of the word that leads to a directory chunk.
pub(crate) const DIRECTORY: u64 = 40;
/// Maximal number of directory chunks in a pool.
pub(crate) const DIRECTORY_COUNT: u16 = HEADER_ROOT_COUNT;
/// Roots with entries in one directory chunk.
pub(crate) const DIRECTORY_ROOT_COUNT: u16 = (CHUNK_LEN / ROOT_LEN) as u16;
/// Maximal number of roots in a pool.
pub const ROOT_COUNT: u16 = HEADER_ROOT_COUNT + DIRECTORY_COUNT * DIRECTORY_ROOT_COUNT;

/// Number of a chunk, counted over the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub u32);

impl ChunkId {
    /// The chunk that holds the byte at `offset`.
    ///
    /// Offsets beyond [`SIZE_LIMIT`] all give the number after the last.
    pub const fn containing(offset: u64) -> Self {
        let number = offset / CHUNK_LEN;
        ChunkId(if number < u32::MAX as u64 { number as u32 } else { u32::MAX })
    }

    /// Offset of the chunk's first byte.
    pub const fn offset(self) -> u64 {
        self.0 as u64 * CHUNK_LEN
    }

    const fn zone_offset(self) -> u64 {
        ChunkId(self.0 - self.0 % ZONE_CHUNKS).offset()
    }

    /// Whether the chunk can hold data; chunks of zone metadata cannot.
    pub const fn is_data(self) -> bool {
        self.0 % ZONE_CHUNKS >= DATA_FIRST
    }

    /// This chunk, or the first data chunk after it.
    pub const fn next_data(self) -> ChunkId {
        if self.is_data() { self } else { ChunkId(self.0 - self.0 % ZONE_CHUNKS + DATA_FIRST) }
    }

    /// Offset of the chunk's state word.
    pub const fn state(self) -> u64 {
        self.zone_offset()
            + STATE_FIRST as u64 * CHUNK_LEN
            + (self.0 % ZONE_CHUNKS) as u64 * WORD_LEN
    }

    /// Offset of the chunk's bitmap.
    pub const fn bitmap(self) -> u64 {
        self.zone_offset()
            + BITMAP_FIRST as u64 * CHUNK_LEN
            + (self.0 % ZONE_CHUNKS) as u64 * BITMAP_LEN
    }
}

/// Offset and length of the state words in a file of `size` bytes, zone by zone.
pub(crate) fn state_words(size: u64) -> impl Iterator<Item = (u64, u64)> {
    let zones = (size / CHUNK_LEN).div_ceil(u64::from(ZONE_CHUNKS));
    (0..zones).map(move |zone| {
        let first = ChunkId(zone as u32 * ZONE_CHUNKS);
        let chunks = (size / CHUNK_LEN - u64::from(first.0)).min(u64::from(ZONE_CHUNKS));
        (first.state(), chunks * WORD_LEN)
    })
}

/// Number of a root and of its heap: the index in the directory plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootId(pub u16);

/// Number of a directory chunk, in the order in which a pool takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryId(pub(crate) u16);

impl DirectoryId {
    /// Offset of the word that leads to the chunk.
    pub(crate) const fn link(self) -> u64 {
        ROOTS + self.0 as u64 * ROOT_LEN + DIRECTORY
    }

    /// Value of the owner field in the chunk's state word.
    pub(crate) const fn owner(self) -> RootId {
        RootId(self.0 + 1)
    }

    /// The word that leads to `chunk`.
    pub(crate) fn encode(self, chunk: ChunkId) -> u64 {
        let bytes = (u64::from(self.0) << 32 | u64::from(chunk.0)).to_le_bytes();
        u64::from(crc32c(&bytes)) << 32 | u64::from(chunk.0)
    }
}

impl RootId {
    /// The place of the entry: its directory chunk, or `None` for the header chunk; and its index
    /// there.
    pub(crate) const fn place(self) -> (Option<DirectoryId>, u64) {
        if self.0 <= HEADER_ROOT_COUNT {
            return (None, self.0 as u64 - 1);
        }
        let further = self.0 - HEADER_ROOT_COUNT - 1;
        let directory = DirectoryId(further / DIRECTORY_ROOT_COUNT);
        (Some(directory), (further % DIRECTORY_ROOT_COUNT) as u64)
    }
}

/// Maximal number of directory chunks in a pool of a format version.
pub(crate) const fn directory_count_max(version: u32) -> u16 {
    if version > FORMAT_VERSION_ONE_DIRECTORY { DIRECTORY_COUNT } else { 0 }
}

/// Maximal number of roots in a pool of a format version.
pub(crate) const fn root_count_max(version: u32) -> u16 {
    HEADER_ROOT_COUNT + directory_count_max(version) * DIRECTORY_ROOT_COUNT
}

/// Use of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkKind {
    /// Unused; its bytes read as zero, durably. It was never in use; or its storage was given back,
    /// in a pool that only has to survive the death of the process.
    Free = 0,
    /// Unused; its bytes may be anything, with or without storage.
    FreeDirty = 1,
    /// Blocks of one size class.
    Small = 2,
    /// First chunk of a run that is one allocation.
    LargeHead = 3,
    /// Another chunk of such a run.
    LargeBody = 4,
    /// Header and lanes of a heap.
    Heap = 5,
    /// Entries of roots; its owner is the number of the directory chunk, plus one.
    Directory = 6,
}

/// Bit in the `run` of a chunk with small blocks: the other bits are the seal of its bitmap.
const SEALED: u32 = 1 << 31;

/// A chunk's state word: kind (8 bits) | size class (8) | owner (16) | chunks in the run (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkState {
    /// Use of the chunk.
    pub kind: ChunkKind,
    /// Size class of its blocks, in a `Small` chunk.
    pub class: u8,
    /// Root of the owning heap; 0 when free.
    pub owner: u16,
    /// In the head of a run: chunks of the run. In a chunk with small blocks: 1, or the seal of its
    /// bitmap.
    pub run: u32,
}

impl ChunkState {
    /// An unused chunk of zeros: the word 0.
    pub const FREE: ChunkState = ChunkState { kind: ChunkKind::Free, class: 0, owner: 0, run: 0 };

    /// Decodes a state word.
    ///
    /// # Errors
    ///
    /// The number of the unknown kind.
    pub fn decode(word: u64) -> Result<Self, u8> {
        let kind = match word as u8 {
            0 => ChunkKind::Free,
            1 => ChunkKind::FreeDirty,
            2 => ChunkKind::Small,
            3 => ChunkKind::LargeHead,
            4 => ChunkKind::LargeBody,
            5 => ChunkKind::Heap,
            6 => ChunkKind::Directory,
            unknown => return Err(unknown),
        };
        Ok(ChunkState {
            kind,
            class: (word >> 8) as u8,
            owner: (word >> 16) as u16,
            run: (word >> 32) as u32,
        })
    }

    /// The word for this state.
    pub const fn encode(self) -> u64 {
        self.kind as u64
            | (self.class as u64) << 8
            | (self.owner as u64) << 16
            | (self.run as u64) << 32
    }

    /// The state of this chunk when sealed: with a checksum of its number, class and owner, and of
    /// its bitmap.
    pub(crate) fn sealed(self, chunk: ChunkId, bitmap: &[u8; BITMAP_LEN as usize]) -> ChunkState {
        let mut bytes = [0; BITMAP_LEN as usize + 8];
        bytes[..4].copy_from_slice(&chunk.0.to_le_bytes());
        bytes[4] = self.class;
        bytes[6..8].copy_from_slice(&self.owner.to_le_bytes());
        bytes[8..].copy_from_slice(bitmap);
        ChunkState { run: crc32c(&bytes) | SEALED, ..self }
    }

    /// The state of this chunk without a seal; its bitmap may then change.
    pub(crate) fn unsealed(self) -> ChunkState {
        ChunkState { run: 1, ..self }
    }

    /// Whether this is a chunk of small blocks whose bitmap must match its seal.
    pub(crate) fn is_sealed(self) -> bool {
        self.kind == ChunkKind::Small && self.run & SEALED != 0
    }

    /// Describes a contradiction to the format, if there is one, in the state of a chunk with
    /// `run_max` chunks left in its zone, itself included.
    pub(crate) fn misfit(self, run_max: u32, version: u32) -> Option<String> {
        let ChunkState { kind, class, owner, run } = self;
        let is_small = kind == ChunkKind::Small;
        let runs = match kind {
            ChunkKind::Free | ChunkKind::FreeDirty | ChunkKind::LargeBody => 0..=0,
            ChunkKind::Small if self.is_sealed() && version > FORMAT_VERSION_UNSEALED => run..=run,
            ChunkKind::Small | ChunkKind::Heap | ChunkKind::Directory => 1..=1,
            ChunkKind::LargeHead => 1..=run_max,
        };
        let owners = match kind {
            ChunkKind::Free | ChunkKind::FreeDirty => 0..=0,
            ChunkKind::Directory => 1..=directory_count_max(version),
            _ => 1..=root_count_max(version),
        };
        if !runs.contains(&run) {
            return Some(format!("a run of {run} chunks, of {} to {}", runs.start(), runs.end()));
        }
        if class as usize >= if is_small { CLASS_COUNT } else { 1 } {
            return Some(format!("size class {class}"));
        }
        (!owners.contains(&owner)).then(|| format!("owner {owner}"))
    }

    /// Number of chunks up to the next independent one: the run of a head, else 1.
    pub const fn span(self) -> u32 {
        match self.kind {
            ChunkKind::LargeHead => self.run,
            _ => 1,
        }
    }

    /// State of a chunk with a damaged state word: nobody may use it.
    pub(crate) const SET_ASIDE: ChunkState =
        ChunkState { kind: ChunkKind::LargeBody, class: 0, owner: 0, run: 0 };

    /// Whether the chunk may be allocated.
    pub fn is_free(self) -> bool {
        matches!(self.kind, ChunkKind::Free | ChunkKind::FreeDirty)
    }
}

const _: () = assert!(LINE_LEN.is_multiple_of(WORD_LEN) && CHUNK_LEN.is_multiple_of(LINE_LEN));
const _: () = assert!(DATA_FIRST == 265 && HEADER_ROOT_COUNT == 224 && ROOT_COUNT == 57_568);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_neighbouring_zones_does_not_overlap() {
        for zone in [0, 1, 7] {
            let first = ChunkId(zone * ZONE_CHUNKS);
            let last = ChunkId(first.0 + ZONE_CHUNKS - 1);
            assert_eq!(first.state(), first.offset() + CHUNK_LEN);
            assert_eq!(last.state() + WORD_LEN, first.bitmap());
            assert_eq!(last.bitmap() + BITMAP_LEN, ChunkId(first.0 + DATA_FIRST).offset());
        }
    }

    #[test]
    fn state_words_survive_encoding() {
        let state = ChunkState { kind: ChunkKind::LargeHead, class: 7, owner: 224, run: RUN_MAX };
        assert_eq!(ChunkState::decode(state.encode()), Ok(state));
        assert_eq!(ChunkState::decode(0), Ok(ChunkState::FREE));
        assert_eq!(ChunkState::decode(9), Err(9));
    }
}
