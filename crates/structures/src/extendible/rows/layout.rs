//! On-media layout of the header, the segments, and the chains of an index. The directory's nodes
//! are those of the map.
//!
//! ```text
//! header    0  root of the directory: a pointer     24  2^n buckets are a segment: n
//!          16  seed of the hash                     40  seed, inverted
//!
//! segment      256 buckets of 8 words, each in a line of its own
//!
//! word      27 bits of the hash, and number of a row + 1 (36 bits); or, if the top bit is set,
//!           the same bits of the hash, and offset of a chain's first block in units of 32 bytes
//!
//! block     0  tag, number of words                 16  pointer to the next block, or 0
//!           8  hash of the rows                     24  number: greater than the next block's
//!         *32  where room was found last            40  words of rows, or 0
//! ```
//!
//! Words 2 and 3 of bucket 0 have the segment's tag, and a hash that leads to the segment, as in a
//! map, and word 0 is always 0. A word that is 0 is free. The word marked `*` is volatile, and may
//! have any value.
//!
//! Each change is one word, so that there is nothing to rebuild after a crash, and nothing to be
//! kept in order: a word is there or not, and its row tells what it is worth. What a split has
//! moved to the new segment is set to 0 without a flush. If a crash brings it back, its hash tells
//! that it is of no use, and whoever needs the room removes it again.
//!
//! The bits of the hash are its highest, by which segments are found and split. The lowest number
//! the two buckets where a word may be, and need not be stored: a split moves a word to the place
//! that it had.

use remanent_pmem::{LINE_LEN, WORD_LEN};

use super::super::layout::Hash;
use super::RowId;

/// Version of the layout, part of the root's type.
pub(super) const LAYOUT: u64 = 1;

/// Bytes of the header.
pub(super) const HEADER_LEN: u64 = LINE_LEN;

/// Buckets of the segments of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    bits: u32,
}

impl Buckets {
    const BITS_MAX: u32 = 8;
    /// The two buckets of a hash lie in one page of 4 KiB: one entry of the TLB leads to both.
    const NEAR_BITS: u32 = 6;
    /// What an index has, unless a test asks for segments that are split sooner.
    pub(super) const MOST: Buckets = Buckets { bits: Self::BITS_MAX };

    /// 2^`bits` buckets a segment.
    pub(super) fn new(bits: u64) -> Option<Self> {
        let bits = u32::try_from(bits).ok()?;
        (1..=Self::BITS_MAX).contains(&bits).then_some(Buckets { bits })
    }

    pub(super) fn bits(self) -> u64 {
        u64::from(self.bits)
    }

    /// Bytes of a segment.
    pub(super) fn segment_len(self) -> u64 {
        BUCKET_LEN << self.bits
    }

    /// All buckets of a segment.
    pub(super) fn of(self, segment: u64) -> impl Iterator<Item = Bucket> {
        (0..1 << self.bits).map(move |index| Bucket::new(segment, index))
    }

    /// The two buckets for a hash.
    #[inline(always)]
    pub(super) fn pair(self, segment: u64, hash: Hash) -> Pair {
        let home = hash.home(self.bits);
        let other = home ^ hash.step(self.bits.min(Self::NEAR_BITS));
        Pair { home: Bucket::new(segment, home), other: Bucket::new(segment, other) }
    }
}

const BUCKET_LEN: u64 = LINE_LEN;
/// Slots of a bucket.
pub(super) const SLOT_COUNT: usize = (BUCKET_LEN / WORD_LEN) as usize;
/// Slots of the first bucket that have the segment's head, and the one where nodes and blocks have
/// their tag: a word there might look like one.
const HEAD_SLOTS: u32 = 0b1101;
/// Slots that are used in a word's home before its other bucket is considered.
pub(super) const HOME_FIRST: u32 = 5;
/// Words of one hash in its buckets, from which on there is a chain for more.
pub(super) const CHAINED_FROM: usize = 4;

/// A bucket, by its pool offset, and its number in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) offset: u64,
    pub(super) index: u64,
}

impl Bucket {
    #[inline(always)]
    pub(super) fn new(segment: u64, index: u64) -> Self {
        Bucket { offset: segment + index * BUCKET_LEN, index }
    }

    pub(super) fn segment(self) -> u64 {
        self.offset - self.index * BUCKET_LEN
    }

    /// Slots that words may have, as bits.
    #[inline(always)]
    pub(super) fn slots(self) -> u32 {
        if self.index == 0 { 0xff & !HEAD_SLOTS } else { 0xff }
    }

    #[inline(always)]
    pub(super) fn slot_at(self, slot: u32) -> u64 {
        self.offset + u64::from(slot) * WORD_LEN
    }
}

/// The two buckets where a word may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) home: Bucket,
    pub(super) other: Bucket,
}

impl Pair {
    #[inline(always)]
    pub(super) fn buckets(self) -> [Bucket; 2] {
        [self.home, self.other]
    }
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Row(RowId),
    /// Offset of a chain's first block.
    Chain(u64),
}

impl Word {
    const ROW_BITS: u32 = 36;
    const ROW: u64 = (1 << Self::ROW_BITS) - 1;
    pub(super) const HASH_BITS: u32 = 27;
    const HASH: u64 = ((1 << Self::HASH_BITS) - 1) << Self::ROW_BITS;
    const CHAIN: u64 = 1 << 63;
    /// Blocks lie at multiples of this.
    const UNIT: u64 = 32;
    /// Bytes of a pool in which chains may lie.
    pub(super) const REACH: u64 = (Self::ROW + 1) * Self::UNIT;
    /// A free slot.
    pub(super) const NONE: Word = Word(0);

    /// The word of a row.
    #[inline(always)]
    pub(super) fn of_row(hash: Hash, row: RowId) -> Self {
        Word(Self::hash_bits(hash) | (row.get() + 1))
    }

    /// The word that leads to a chain; `None` when the pool is too large for that.
    pub(super) fn of_chain(hash: Hash, offset: u64) -> Option<Self> {
        let unit = offset / Self::UNIT;
        (unit <= Self::ROW && offset.is_multiple_of(Self::UNIT))
            .then(|| Word(Self::CHAIN | Self::hash_bits(hash) | unit))
    }

    #[inline(always)]
    fn hash_bits(hash: Hash) -> u64 {
        hash.0 >> 1 & Self::HASH
    }

    /// Whether it has the bits of this hash. A free slot may have, too.
    #[inline(always)]
    pub(super) fn is_of(self, hash: Hash) -> bool {
        (self.0 & Self::HASH) == Self::hash_bits(hash)
    }

    /// Which of these words are in use and fit, as bits.
    #[inline(always)]
    pub(super) fn which(words: &[Word; SLOT_COUNT], fits: impl Fn(Word) -> bool) -> u32 {
        // Without branches: what they would depend on is random.
        let bit = |word: Word| u32::from(fits(word) & (word != Word::NONE));
        words.iter().rev().fold(0, |found, word| found << 1 | bit(*word))
    }

    /// Whether its hash begins with the same `depth` bits.
    #[inline(always)]
    pub(super) fn is_below(self, hash: Hash, depth: u32) -> bool {
        self.hash().prefix(depth) == hash.prefix(depth)
    }

    /// The bits that it has of a hash; the others are 0.
    pub(super) fn hash(self) -> Hash {
        Hash((self.0 & Self::HASH) << 1)
    }

    /// What it says; `None` of a free slot.
    #[inline(always)]
    pub(super) fn entry(self) -> Option<Entry> {
        let value = self.0 & Self::ROW;
        match self.0 & Self::CHAIN {
            0 => Some(Entry::Row(RowId(value.checked_sub(1)?))),
            _ => Some(Entry::Chain(value * Self::UNIT)),
        }
    }
}

// Blocks of chains.

pub(super) const BLOCK_HASH: u64 = 8;
pub(super) const BLOCK_NEXT: u64 = 16;
pub(super) const BLOCK_NUMBER: u64 = 24;
pub(super) const BLOCK_HINT: u64 = 32;
pub(super) const BLOCK_WORDS: u64 = 40;
/// Bytes of a chain's first block. Each further one has twice as many, up to the maximum.
pub(super) const BLOCK_LEN_MIN: u64 = 128;
pub(super) const BLOCK_LEN_MAX: u64 = 4096;

/// Words of a block of this many bytes.
pub(super) const fn capacity(len: u64) -> u64 {
    (len - BLOCK_WORDS) / WORD_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_hash_and_row_apart() {
        for hash in [Hash(0), Hash(u64::MAX), Hash(0x0123_4567_89ab_cdef)] {
            for row in [0, 1, 0x1_2345_6789, RowId::MAX.get()].map(RowId) {
                let word = Word::of_row(hash, row);
                assert_eq!(word.entry(), Some(Entry::Row(row)));
                assert!(word.is_of(hash) && !word.is_of(Hash(hash.0 ^ 1 << 63)));
                assert!((0..=27).all(|depth| word.is_below(hash, depth)));
            }
            let chain = Word::of_chain(hash, 0x1_0040).unwrap();
            assert_eq!(chain.entry(), Some(Entry::Chain(0x1_0040)));
            assert!(chain.is_of(hash));
            assert_eq!(Word::of_chain(hash, Word::REACH), None);
        }
        assert_eq!(Word::NONE.entry(), None);
    }
}
