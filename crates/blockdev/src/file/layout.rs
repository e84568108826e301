//! On-media layout of a file.
//!
//! Changing metadata lie in pairs of lines ([`Pair`](super::pair::Pair)), of which the newer line
//! counts. Content lies in extents.
//!
//! ```text
//! heap header, 2 KiB
//! byte 0       identity, a line that never changes: magic number | key of other lines' checksums
//!      64      state, a pair: bytes of the file | marks; bit 0: present
//!      192     14 pairs of 7 extents each
//!
//! extent, a word   pool offset (upper 48 bits) | chunks of 64 KiB (16 bits); 0: none yet
//! ```
//!
//! The extents follow one another in the file, in the order of their words.

use remanent_pmem::LINE_LEN;
use remanent_pmem::heap::layout::HEADER_LEN;
use remanent_pmem::pool::layout::{CHUNK_LEN, RUN_MAX};

use super::pair::PAIR_LEN;
use crate::line::WORDS;

/// Version of this layout.
pub(super) const LAYOUT: u64 = 2;
/// "RemaFile".
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"RemaFile");

pub(super) const IDENTITY: u64 = 0;
pub(super) const STATE: u64 = LINE_LEN;
const EXTENTS: u64 = STATE + PAIR_LEN;
/// Pairs for the extents.
pub(super) const GROUPS: usize = 14;
/// Maximal number of extents of a file.
pub(super) const EXTENT_COUNT: usize = GROUPS * WORDS;
const _: () = assert!((RUN_MAX as u64) < CHUNK_LEN);
const _: () = assert!(EXTENTS + GROUPS as u64 * PAIR_LEN <= HEADER_LEN);

/// Maximal number of bytes by which a file grows ahead of need: 256 MiB.
pub(super) const EXTENT_LEN_MAX: u64 = 256 << 20;

/// Offset, in the header, of the pair with an extent, and the extent's word in the pair.
pub(super) fn place(extent: usize) -> (u64, usize) {
    (EXTENTS + (extent / WORDS) as u64 * PAIR_LEN, extent % WORDS)
}

/// Metadata of a file that change, except for its extents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Bytes of the file.
    pub(super) len: u64,
    pub(super) is_present: bool,
}

impl State {
    pub(super) fn decode(words: &[u64; WORDS]) -> Self {
        State { len: words[0], is_present: words[1] & 1 == 1 }
    }

    pub(super) fn encode(self) -> [u64; WORDS] {
        [self.len, u64::from(self.is_present), 0, 0, 0, 0, 0]
    }
}

/// A run of chunks that holds a part of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Its first byte in the file.
    pub(super) start: u64,
    /// Pool offset.
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Extent {
    /// Decodes the extent that begins at byte `start` of the file.
    pub(super) fn decode(word: u64, start: u64) -> Self {
        let chunks = word % CHUNK_LEN;
        Extent { start, at: word - chunks, len: chunks * CHUNK_LEN }
    }

    pub(super) fn encode(self) -> u64 {
        self.at | (self.len / CHUNK_LEN)
    }

    pub(super) fn end(self) -> u64 {
        self.start + self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_and_states_are_read_as_they_were_written() {
        let extent = Extent { start: 7 << 16, at: 300 << 16, len: u64::from(RUN_MAX) * CHUNK_LEN };
        assert_eq!(Extent::decode(extent.encode(), extent.start), extent);
        let state = State { len: 12_345, is_present: true };
        assert_eq!(State::decode(&state.encode()), state);
    }
}
