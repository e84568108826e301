//! On-media layout of a log.
//!
//! ```text
//! header, 800 bytes; at its begin in a heap of the log's own
//! byte    0  state: a pair of lines (`pair.rs`); words of a record:
//!              0  all is durable up to this position; recovery searches for the end from there
//!              1  term: how often the log was opened
//!              2  position of the first record that is not truncated
//!       128  directory of the segments (`segments.rs`), of 1 MiB each
//!
//! record, at a multiple of 8 bytes; may begin in one segment and end in another
//! byte    0  length of the content (32 bits) | term (31 bits) | MORE (1 bit)
//!         8  checksum of the word before, the position and the content
//!        16  content, padded with zeros to 8 bytes
//!         +  bytes of the whole record, for reading backwards
//! ```
//!
//! MORE means that the next record belongs to the same step.
//!
//! A position counts the bytes of all records before it, including truncated ones. Segment n has
//! the positions from n MiB on, and lies in slot n of the directory.

use remanent_pmem::WORD_LEN;

use crate::pair::PAIR_LEN;
use crate::segments::{DIRECTORY_LEN, SEGMENT_LEN, Slot};

pub(super) const STATE: u64 = 0;
pub(super) const DIRECTORY: u64 = STATE + PAIR_LEN;
/// Bytes of a header.
pub(crate) const HEADER_LEN: u64 = DIRECTORY + DIRECTORY_LEN;
const _: () = assert!(HEADER_LEN <= 2048, "the header has 2 KiB");

/// Words of the state's record.
pub(super) const DURABLE: usize = 0;
pub(super) const TERM: usize = 1;
pub(super) const FIRST: usize = 2;

pub(super) const SUM: u64 = WORD_LEN;
pub(super) const CONTENT: u64 = 2 * WORD_LEN;
/// Longest content.
pub(super) const CONTENT_MAX: u64 = u32::MAX as u64;
/// The last term that a record has room for.
pub(super) const TERM_MAX: u64 = (1 << 31) - 1;

const TERM_SHIFT: u32 = 32;
const MORE: u64 = 1 << 63;

/// The first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of the content.
    pub(super) len: u64,
    pub(super) term: u64,
    /// Whether the next record belongs to the same step.
    pub(super) more: bool,
}

impl Head {
    pub(super) fn to_word(self) -> u64 {
        self.len | self.term << TERM_SHIFT | if self.more { MORE } else { 0 }
    }

    pub(super) fn from_word(word: u64) -> Self {
        let term = word >> TERM_SHIFT & TERM_MAX;
        Head { len: word & CONTENT_MAX, term, more: word & MORE != 0 }
    }

    /// Bytes of the whole record.
    pub(super) fn record_len(self) -> u64 {
        record_len(self.len)
    }
}

/// Bytes of a record with `len` bytes of content.
pub(super) fn record_len(len: u64) -> u64 {
    CONTENT + len.next_multiple_of(WORD_LEN) + WORD_LEN
}

/// The slot of a position's segment.
pub(super) fn slot(position: u64) -> Slot {
    Slot((position / SEGMENT_LEN).min(u32::MAX.into()) as u32)
}

/// Bytes from a position to the end of its segment.
pub(super) fn left(position: u64) -> u64 {
    SEGMENT_LEN - position % SEGMENT_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_survive_their_words() {
        for head in [
            Head { len: 0, term: 0, more: false },
            Head { len: CONTENT_MAX, term: TERM_MAX, more: true },
            Head { len: 7, term: 1, more: false },
        ] {
            assert_eq!(Head::from_word(head.to_word()), head);
        }
    }

    #[test]
    fn records_are_whole_words() {
        assert_eq!([0, 1, 8, 9].map(record_len), [24, 32, 32, 40]);
    }
}
