//! Keys as the tree compares them.

use std::cmp::Ordering as Compared;

use remanent_pmem::{Frozen, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64;

use super::Core;
use super::layout::{Record, is_word, separator_key};
use crate::stored::{OrderedKey, Stored};

/// A key to search for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe<'k> {
    /// The key's ordered form.
    pub(super) bytes: &'k [u8],
    /// The ordered form as a number, for keys that are words.
    pub(super) word: u64,
    pub(super) fingerprint: u8,
    /// The check of the key, as a record stores it.
    pub(super) check: u16,
}

impl<'k> Probe<'k> {
    #[inline(always)]
    pub(super) fn new<K: OrderedKey + ?Sized>(bytes: &'k [u8]) -> Self {
        if is_word::<K>() {
            let word = head(bytes, 0);
            return Probe { bytes, word, fingerprint: fingerprint_of_word(word), check: 0 };
        }
        let hash = xxh3_64(bytes);
        Probe { bytes, word: 0, fingerprint: fingerprint_of(hash), check: check_of(hash) }
    }

    /// The number by which a batch closes the key to other writers.
    pub(super) fn gate_key<K: OrderedKey + ?Sized>(&self) -> u64 {
        if is_word::<K>() { self.word } else { xxh3_64(self.bytes) }
    }

    /// The key's head in a node whose keys share `prefix` bytes.
    #[inline(always)]
    pub(super) fn head<K: OrderedKey + ?Sized>(&self, prefix: usize) -> u64 {
        if is_word::<K>() { self.word } else { head(self.bytes, prefix) }
    }
}

/// One byte of the key's hash, by which slots are told apart.
#[inline(always)]
pub(super) fn fingerprint_of_word(word: u64) -> u8 {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

#[inline(always)]
pub(super) fn fingerprint_of_bytes(bytes: &[u8]) -> u8 {
    fingerprint_of(xxh3_64(bytes))
}

#[inline(always)]
fn fingerprint_of(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// The check of a key, as a record stores it.
#[inline(always)]
pub(super) fn check_of_bytes(bytes: &[u8]) -> u16 {
    check_of(xxh3_64(bytes))
}

/// Bits of the hash that the fingerprint does not use.
#[inline(always)]
fn check_of(hash: u64) -> u16 {
    (hash >> 32) as u16
}

/// The eight bytes behind a prefix, as a number of the same order. Missing bytes count as zeros.
#[inline(always)]
pub(super) fn head(bytes: &[u8], prefix: usize) -> u64 {
    let rest = bytes.get(prefix..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        }
    }
}

/// One word of a head that has several.
#[inline(always)]
pub(super) fn head_word(bytes: &[u8], prefix: usize, word: usize) -> u64 {
    head(bytes, prefix + word * size_of::<u64>())
}

/// Passes the ordered form of a key that is a word.
#[inline(always)]
pub(super) fn word_bytes<K: OrderedKey + ?Sized, R>(
    word: u64,
    use_bytes: impl FnOnce(&[u8]) -> R,
) -> R {
    let bytes = word.to_be_bytes();
    let len = K::LEN.map_or(WORD_LEN as usize, |len| len as usize).min(bytes.len());
    use_bytes(&bytes[..len])
}

/// The number of leading bytes that two keys share.
pub(super) fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// The shortest key that is greater than `left` and at most `right`. `right` is greater than
/// `left`.
pub(super) fn shortest_between<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..(common(left, right) + 1).min(right.len())]
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M> {
    /// The record at `offset`; `None` when there is no record.
    #[inline(always)]
    pub(super) fn record_at(&self, offset: u64) -> Option<Record> {
        self.tags.record(self.medium(), offset)
    }

    /// Passes the key of a record to `use_key`.
    #[inline(always)]
    pub(super) fn with_record_key<R>(&self, record: u64, use_key: impl FnOnce(&[u8]) -> R) -> R {
        match self.record_at(record) {
            Some(record) => with_bytes(self.medium(), record.key_at(), record.key_len, use_key),
            // Damage: the code that reads the record itself reports it.
            None => use_key(&[]),
        }
    }
}

/// Passes the key of a separator to `use_key`; without a separator, the least of all keys.
#[inline(always)]
pub(super) fn with_separator<M: Medium, R>(
    medium: &M,
    separator: u64,
    use_key: impl FnOnce(&[u8]) -> R,
) -> R {
    if separator == 0 {
        return use_key(&[]);
    }
    let (at, len) = separator_key(medium, separator);
    with_bytes(medium, at, len, use_key)
}

/// Passes bytes to `use_bytes` that do not change while the caller is inside the heap. A damaged
/// length is cut to the end of the pool.
#[inline(always)]
pub(super) fn with_bytes<M: Medium, R>(
    medium: &M,
    at: u64,
    len: u64,
    use_bytes: impl FnOnce(&[u8]) -> R,
) -> R {
    let len = if at.checked_add(len).is_some_and(|end| end <= medium.len()) { len } else { 0 };
    // SAFETY: keys and values of records, and separators, are written before they are linked and do
    // not change after. (Values of one word do, but those are loaded as words.) They are not freed
    // while the caller is inside the heap.
    let range = unsafe { Frozen::new(at, len) };
    use_bytes(&medium.view(range))
}

/// Compares a key with a bound: a word, or the key of a separator.
#[inline(always)]
pub(super) fn compare_bound<K: OrderedKey + ?Sized, M: Medium>(
    medium: &M,
    probe: &Probe<'_>,
    bound: u64,
) -> Compared {
    if is_word::<K>() {
        probe.word.cmp(&bound)
    } else {
        with_separator(medium, bound, |key| probe.bytes.cmp(key))
    }
}
