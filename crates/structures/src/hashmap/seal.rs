//! Checks in words, which tell whether a word is what was written.
//!
//! A few bits of a word are computed from the others and from the word's place. They detect every
//! change of a single bit. Of all other changes, such as zeros, garbage, or a word of another
//! place, they miss one in 256, or one in 65,536 in the header.
//!
//! In a heap that several maps share, the check of an entry's tag also identifies the map, by the
//! lowest byte of its number.

use remanent_pmem::Word;

use super::layout::READY;
use crate::shared::MemberId;

/// Odd, and such that the top byte of its product with any single bit is neither 0 nor 255. So the
/// top byte of a product changes with every single bit of the factor.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// So that a tag of zeros does not fit its check.
const TAG_ZERO: u8 = 0xa5;
const LINK_ZERO: u8 = 0x5a;
const WORD_ZERO: u16 = 0x35ca;

/// The check of a node's tag: its lowest eight bits.
const TAG_CHECK: u64 = 0xff;
/// The check of a link. It lies in the link's tag, below the hint of a slot or the version of an
/// entry.
const LINK_CHECK: u64 = 0xff << Word::TAG_SHIFT;
/// Bits of a link that change without a new check. They include the second mark of an entry, but
/// not the first.
const LINK_OWN: u64 = Word::DIRTY | READY;

/// The tag of the node at `node` of the map `member`, with its check.
#[inline(always)]
pub(super) fn seal_tag(member: MemberId, node: u64, tag: u64) -> u64 {
    tag & !TAG_CHECK | u64::from(tag_check(node, tag) ^ member.low_byte())
}

#[inline(always)]
fn tag_check(node: u64, tag: u64) -> u8 {
    top_byte((tag & !TAG_CHECK) ^ node << 16) ^ TAG_ZERO
}

/// Whether the tag of the node at `node` is one of the map `member`.
#[inline(always)]
pub(super) fn is_tag(member: MemberId, node: u64, tag: u64) -> bool {
    tag_member(node, tag) == member.low_byte()
}

/// The lowest byte of the number of the map that a tag belongs to, if it is the tag of the node at
/// `node`.
#[inline(always)]
pub(super) fn tag_member(node: u64, tag: u64) -> u8 {
    tag_check(node, tag) ^ tag as u8
}

/// The link at `at`, of a slot or of a node, with its check.
#[inline(always)]
pub(super) fn seal_link(at: u64, word: Word) -> Word {
    let check = u64::from(link_check(at, word)) << Word::TAG_SHIFT;
    Word::from_raw(word.raw() & !LINK_CHECK | check)
}

#[inline(always)]
fn link_check(at: u64, word: Word) -> u8 {
    top_byte((word.raw() & !(LINK_CHECK | LINK_OWN)) ^ at << 3) ^ LINK_ZERO
}

/// Whether the word at `at` is a link.
#[inline(always)]
pub(super) fn is_link(at: u64, word: Word) -> bool {
    link_check(at, word) == word.tag() as u8
}

/// The header's word at `field` for a number below 2^48.
pub(super) fn seal_word(field: u64, number: u64) -> u64 {
    let check = ((number ^ field << 48).wrapping_mul(FACTOR) >> 48) as u16 ^ WORD_ZERO;
    number & (u64::MAX >> 16) | u64::from(check) << 48
}

/// The number in the header's word at `field`; `None` when it is not what was written.
pub(super) fn open_word(field: u64, word: u64) -> Option<u64> {
    let number = word & (u64::MAX >> 16);
    (seal_word(field, number) == word).then_some(number)
}

/// The checksum of a value and its key. The tag of the entry stands for the key, because it has the
/// key's hash.
///
/// The checksum of 8 to 16 bytes takes one multiplication. A core overlaps independent lookups only
/// while the work of each is this short.
#[inline(always)]
pub(super) fn entry_sum(tag: u64, value: &[u8]) -> u32 {
    let sum = match short_words(value) {
        Some((first, last)) => {
            let product = u128::from(first ^ tag) * u128::from(last ^ !FACTOR);
            (product ^ product >> 64) as u64 ^ value.len() as u64
        }
        None => xxhash_rust::xxh3::xxh3_64(value) ^ tag,
    };
    (sum.wrapping_mul(FACTOR) >> 32) as u32
}

/// The first and the last eight bytes of a value of 8 to 16 bytes.
#[inline(always)]
fn short_words(value: &[u8]) -> Option<(u64, u64)> {
    let first = value.first_chunk()?;
    let last = value.last_chunk()?;
    (value.len() <= 16).then(|| (u64::from_le_bytes(*first), u64::from_le_bytes(*last)))
}

#[inline(always)]
fn top_byte(word: u64) -> u8 {
    (word.wrapping_mul(FACTOR) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [u64; 5] = [0, 1 << 20, 0x1234_5678_9abc_def0, u64::MAX, 0x8000_0000_0001_0000];

    #[test]
    fn every_single_bit_of_a_tag_counts() {
        const MEMBER: MemberId = MemberId::new(0x1_2367).unwrap();
        for word in WORDS {
            let tag = seal_tag(MEMBER, 0x4_0020, word);
            assert!(is_tag(MEMBER, 0x4_0020, tag));
            assert_eq!(tag_member(0x4_0020, tag), 0x67);
            for bit in 0..64 {
                assert!(!is_tag(MEMBER, 0x4_0020, tag ^ 1 << bit), "bit {bit} of {tag:#x}");
            }
        }
        let elsewhere =
            (1..1_000).filter(|place| is_tag(MEMBER, place * 32, seal_tag(MEMBER, 0, 7 << 16)));
        assert!(elsewhere.count() < 20);
    }

    #[test]
    fn every_single_bit_of_a_link_counts_but_those_that_are_set_alone() {
        for word in WORDS {
            let slot = seal_link(0x1_0008, Word::from_raw(word));
            assert!(is_link(0x1_0008, slot));
            for bit in (0..64).map(|bit| 1 << bit) {
                let is_own = bit & LINK_OWN != 0;
                let changed = Word::from_raw(slot.raw() ^ bit);
                assert_eq!(is_link(0x1_0008, changed), is_own, "bit {bit:#x} of {slot:?}");
            }
        }
        assert!(!is_link(0x1_0008, Word::NULL));
    }

    #[test]
    fn every_single_bit_of_a_word_in_the_header_counts() {
        for number in [0, 1, 77, 1 << 47, u64::MAX >> 16] {
            let word = seal_word(8, number);
            assert_eq!(open_word(8, word), Some(number));
            assert_eq!(open_word(16, word), None);
            for bit in 0..64 {
                assert_eq!(open_word(8, word ^ 1 << bit), None, "bit {bit} of {word:#x}");
            }
        }
        assert_eq!(open_word(8, 0), None);
    }

    #[test]
    fn a_checksum_is_of_key_and_value() {
        let sum = entry_sum(5 << 16, b"value");
        assert_ne!(sum, entry_sum(6 << 16, b"value"));
        assert_ne!(sum, entry_sum(5 << 16, b"valuf"));
    }

    #[test]
    fn every_single_bit_of_a_value_counts_however_long_it_is() {
        for len in (1..40).chain([100, 241]) {
            let mut value = vec![0x5a; len];
            let sum = entry_sum(7 << 16, &value);
            assert_ne!(sum, entry_sum(7 << 16, &value[1..]), "{len} bytes");
            for bit in 0..len * 8 {
                value[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(sum, entry_sum(7 << 16, &value), "bit {bit} of {len} bytes");
                value[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
