//! On-media layout of a batch map.
//!
//! ```text
//! header (in the heap's 2 KiB)            segment, of the map's length or that of one long record
//! byte   0  seed of the keys' hashes      byte   0  sequence: its place in the log's order;
//!        8  incarnation: how often the              or the mark of an empty segment
//!           map was opened                       8  1 if the records of earlier segments are void
//!       16  bytes of a segment                  16  sequence below which segments are safe
//!       24  the incarnation that was            24  how far it is known to be safe itself
//!           closed properly last                32  checksum of bytes 0 to 24, and of its offset
//!       32  checksum of seed and length         64  the records, then the end mark
//!       64  directory of segments
//!
//! record, a multiple of 8 bytes
//! byte   0  kind (4 bits), length of the key (28 bits), length of the value (32 bits)
//!        8  hash of the key
//!       16  checksum of all of this, of its offset, and of its segment's sequence
//!       24  key, then value, each at a whole word
//! ```
//!
//! The log consists of the records in the order of their segments' sequences. A checksum is seeded
//! with the sequence and with the map's seed. No other use of this memory had the same sequence, no
//! other map had the same seed, and clients do not know it. So data behind the log's end is never
//! taken for a record.

use remanent_pmem::WORD_LEN;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::segments::Slot;

pub(super) const SEED: u64 = 0;
pub(super) const INCARNATION: u64 = 8;
pub(super) const SEGMENT_LEN: u64 = 16;
pub(super) const CLOSED: u64 = 24;
pub(super) const HEADER_SUM: u64 = 32;
pub(super) const DIRECTORY: u64 = 64;

pub(super) const SEQUENCE: u64 = 0;
pub(super) const CLEARS: u64 = 8;
pub(super) const TRUSTED_BEFORE: u64 = 16;
pub(super) const SAFE: u64 = 24;
pub(super) const SUM: u64 = 32;
/// Offset of the first record in a segment, behind the header's line.
pub(super) const RECORDS: u64 = 64;
/// Bytes of the end mark. A segment always has room for it.
pub(super) const END_LEN: u64 = WORD_LEN;

pub(super) const HASH: u64 = 8;
pub(super) const CHECKSUM: u64 = 16;
/// Offset of the key in a record.
pub(super) const KEY: u64 = 24;

/// Length of the longest ordinary segment: a [`Place`] has no bits for more.
pub(super) const SEGMENT_LEN_MAX: u64 = 1 << 20;
/// Longest key in bytes.
pub(super) const KEY_LEN_MAX: u64 = (1 << 28) - 1;
/// Longest value in bytes.
pub(super) const VALUE_LEN_MAX: u64 = u32::MAX as u64;

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Kind {
    /// The key has this value.
    Value = 1,
    /// The key was removed.
    Tombstone = 2,
}

/// The first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) key_len: u64,
    pub(super) value_len: u64,
}

impl Head {
    pub(super) fn word(self) -> u64 {
        self.kind as u64 | self.key_len << 4 | self.value_len << 32
    }

    /// Decodes the first word of a record; `None` when it cannot be one.
    #[inline]
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let kind = match word & 0xf {
            1 => Kind::Value,
            2 => Kind::Tombstone,
            _ => return None,
        };
        Some(Head { kind, key_len: word >> 4 & KEY_LEN_MAX, value_len: word >> 32 })
    }

    /// Offset of the value in the record.
    #[inline]
    pub(super) fn value(self) -> u64 {
        KEY + self.key_len.next_multiple_of(WORD_LEN)
    }

    /// Length of the record in bytes.
    #[inline]
    pub(super) fn record_len(self) -> u64 {
        self.value() + self.value_len.next_multiple_of(WORD_LEN)
    }
}

/// The checksum of a record at offset `at` in the segment with this sequence.
#[inline]
pub(super) fn checksum(
    sequence: u64,
    at: u64,
    head: Head,
    hash: u64,
    key: &[u8],
    value: &[u8],
) -> u64 {
    let seed = mark(sequence, at) ^ head.word() ^ hash.rotate_left(32);
    xxh3_64_with_seed(value, xxh3_64_with_seed(key, seed))
}

/// The end mark at offset `at` in the segment with this sequence. No record's first word ends in
/// these four bits.
#[inline]
pub(super) fn end_mark(sequence: u64, at: u64) -> u64 {
    mark(sequence, at) | 0xf
}

/// The word in place of the sequence in an empty segment at this offset. It is not zero, because
/// damage may produce zeros.
pub(super) fn void_mark(salt: u64, offset: u64) -> u64 {
    mark(salt, offset) | 1 << 63
}

/// The word that says how far the segment with this sequence is safe: up to `at`.
pub(super) fn safe_mark(sequence: u64, at: u64) -> u64 {
    (at / WORD_LEN) | (mark(sequence, at) & !SAFE_AT)
}

/// How far the segment with this sequence is safe according to `word`; `None` when the word is not
/// valid.
pub(super) fn safe_to(word: u64, sequence: u64) -> Option<u64> {
    let at = (word & SAFE_AT) * WORD_LEN;
    (safe_mark(sequence, at) == word).then_some(at)
}

/// The bits of that word that hold the offset, counted in words.
const SAFE_AT: u64 = u32::MAX as u64;

/// The checksum of the unchanging part of a segment's header.
pub(super) fn segment_sum(salt: u64, offset: u64, words: [u64; 3]) -> u64 {
    xxh3_64_with_seed(&bytes_of(words), mark(salt, offset))
}

/// The checksum of the unchanging part of the map's header.
pub(super) fn header_sum(seed: u64, segment_len: u64) -> u64 {
    xxh3_64_with_seed(&bytes_of([segment_len]), seed)
}

fn bytes_of<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Well-mixed bits, distinct for each offset and each sequence.
#[inline]
fn mark(sequence: u64, at: u64) -> u64 {
    let mixed = (sequence ^ at.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The place of a record: its segment's slot, and the index of its first word in the segment.
///
/// Every record begins within the first MiB of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

const WORD_BITS: u32 = 17;
/// Slots that fit into the bits of a place.
pub(super) const SLOTS_MAX: u32 = 1 << (PLACE_BITS - WORD_BITS);
/// Bits of a place.
pub(super) const PLACE_BITS: u32 = 41;

impl Place {
    #[inline]
    pub(super) fn new(slot: Slot, at: u64) -> Self {
        debug_assert!(
            at / WORD_LEN < 1 << WORD_BITS && u64::from(slot.0) < 1 << (PLACE_BITS - WORD_BITS)
        );
        Place((u64::from(slot.0) << WORD_BITS) | (at / WORD_LEN))
    }

    #[inline]
    pub(super) fn from_raw(raw: u64) -> Self {
        Place(raw)
    }

    #[inline]
    pub(super) fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn slot(self) -> Slot {
        Slot((self.0 >> WORD_BITS) as u32)
    }

    /// Offset in the segment.
    #[inline]
    pub(super) fn at(self) -> u64 {
        (self.0 & ((1 << WORD_BITS) - 1)) * WORD_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_places_come_back() {
        let head = Head { kind: Kind::Tombstone, key_len: KEY_LEN_MAX, value_len: VALUE_LEN_MAX };
        assert_eq!(Head::from_word(head.word()), Some(head));
        assert_eq!(Head::from_word(0), None);
        let short = Head { kind: Kind::Value, key_len: 3, value_len: 9 };
        assert_eq!((short.value(), short.record_len()), (32, 48));
        let place = Place::new(Slot(77), SEGMENT_LEN_MAX - WORD_LEN);
        assert_eq!((place.slot(), place.at()), (Slot(77), SEGMENT_LEN_MAX - WORD_LEN));
    }

    #[test]
    fn a_checksum_is_that_of_one_place_and_one_use() {
        let head = Head { kind: Kind::Value, key_len: 1, value_len: 1 };
        let sum = |sequence, at| checksum(sequence, at, head, 5, b"k", b"v");
        assert_ne!(sum(1, 64), sum(2, 64));
        assert_ne!(sum(1, 64), sum(1, 72));
        assert_ne!(sum(1, 64), checksum(1, 64, head, 5, b"k", b"w"));
        assert_eq!(Head::from_word(end_mark(1, 64)), None);
        assert_eq!(safe_to(safe_mark(7, 72), 7), Some(72));
        assert_eq!(safe_to(safe_mark(7, 72), 8), None);
        assert_eq!(safe_to(0, 7), None);
        assert_ne!(void_mark(1, 1 << 20), void_mark(1, 2 << 20));
    }
}
