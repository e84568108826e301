//! On-media layout of a B+-tree.
//!
//! ```text
//! header (in the heap's 2 KiB)                 record (four, a line each)
//! byte   0  record 0 … record 3                byte  0  offset of the root
//!      256  1 while a change may be under way        8  entries
//!      512  lost versions: 128 words                16  root of the tree that is being dismantled
//!                                                   24  version
//!
//! node                                         entry
//! byte   0  level                              byte  0  begin: version that put it in
//!        8  low: the least key that belongs          8  end: version that took it out, or all ones
//!           here (and its number, in a              16  key, in words
//!           multi-map); zeros up to the                 leaf: value, in words
//!           entries, the first at a multiple            inner node: offset of the child
//!           of an entry's length, or of 64
//! ```
//!
//! The record with the highest version counts; its version is the tree's *current version*. A
//! record is stored to one line, in the order root, entries, dismantled root, version. So if the
//! version survives a crash, the rest of the record does (assumption 2 of `docs/model.md`).
//!
//! A key is stored in its ordered form. Each eight bytes are stored as a big-endian number, so that
//! keys compare as their words do. In a multi-map, the entries of one key are distinguished by
//! their *number*, which is the version that added them. A leaf has the number in `begin` already,
//! and an inner node has it in the child's `low`.
//!
//! A node is filled from the left, in key order. If the `begin` of an entry is 0, neither this
//! entry nor any behind it was ever used. To make room, entries are copied one place to the right,
//! the last one first; while an entry is being overwritten, its `begin` is all ones. An entry that
//! fits into one line does not cross lines. Its `begin` is stored last, so a crash leaves a
//! complete copy or none (assumption 2 again). `shift.rs` describes the rest.
//!
//! Nodes have as many entries as in the STX B+-tree: 256 bytes of keys with values or children, and
//! at least eight entries. The versions of the entries take further space.

use std::cmp::Ordering;
use std::marker::PhantomData;

use remanent_pmem::LINE_LEN;

use crate::stored::{OrderedKey, Stored};

pub(super) const RECORD_COUNT: u64 = 4;
pub(super) const RECORD_LEN: u64 = 64;
pub(super) const ROOT: u64 = 0;
pub(super) const LEN: u64 = 8;
pub(super) const DISMANTLED: u64 = 16;
pub(super) const VERSION: u64 = 24;

pub(super) const CHANGING: u64 = 256;
pub(super) const LOST: u64 = 512;
pub(super) const LOST_COUNT: u64 = 128;

pub(super) const KIND: u64 = 0;
pub(super) const LOW: u64 = 8;

pub(super) const BEGIN: u64 = 0;
pub(super) const END: u64 = 8;
pub(super) const KEY: u64 = 16;

/// The `end` of an entry that was not removed.
pub(super) const LIVE: u64 = u64::MAX;

/// Words of the longest key and of the longest value.
pub(super) const WORDS_MAX: usize = 8;
/// The `begin` of an entry that is being overwritten. No version shows the entry.
pub(super) const MOVING: u64 = u64::MAX;
/// A number of levels that no tree reaches: with three children a node, 2^38 entries.
pub(super) const HEIGHT_MAX: usize = 24;

/// Bytes of keys and payloads in a node, as in the STX B+-tree, if [`SLOTS_MIN`] entries fit.
const STX_NODE_LEN: usize = 256;
const SLOTS_MIN: usize = 8;

const fn words(len: Option<u32>) -> usize {
    match len {
        Some(len) => len.div_ceil(8) as usize,
        None => WORDS_MAX,
    }
}

/// The offsets and lengths of a leaf or of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Offset of the first entry.
    pub(super) entries: u64,
    pub(super) entry_len: u64,
    /// Entries of a node.
    pub(super) slots: usize,
    /// Offset of the value or child in an entry.
    pub(super) payload: u64,
    pub(super) payload_words: usize,
    pub(super) node_len: u64,
}

impl Shape {
    const fn new(key_words: usize, payload_words: usize, is_multi: bool, slots_max: usize) -> Self {
        let payload = KEY + 8 * key_words as u64;
        let entry_len = match payload + 8 * payload_words as u64 {
            ..=32 => 32,
            len => len.next_multiple_of(LINE_LEN),
        };
        let header_len = LOW + 8 * key_words as u64 + 8 * is_multi as u64;
        // Aligns entries of half a line to half lines, and longer ones to lines.
        let alignment = if entry_len < LINE_LEN { entry_len } else { LINE_LEN };
        let entries = header_len.next_multiple_of(alignment);
        let slots = min(slots_of(key_words + payload_words), slots_max);
        let node_len = entries + slots as u64 * entry_len;
        Shape { entries, entry_len, slots, payload, payload_words, node_len }
    }

    /// Whether an entry lies in more than one line.
    pub(super) const fn spans_lines(&self) -> bool {
        self.entry_len > LINE_LEN
    }
}

/// Entries of a node, when each has `words` words of key and payload.
const fn slots_of(words: usize) -> usize {
    match STX_NODE_LEN / (8 * words) {
        ..SLOTS_MIN => SLOTS_MIN,
        slots => slots,
    }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// The layout of trees of these types.
pub(super) struct Layout<K: ?Sized, V: ?Sized, const MULTI: bool>(PhantomData<fn(&K, &V)>);

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, const MULTI: bool> Layout<K, V, MULTI> {
    pub(super) const KEY_WORDS: usize = words(K::LEN);
    pub(super) const VALUE_WORDS: usize = words(V::LEN);

    pub(super) const LEAF: Shape =
        Shape::new(Self::KEY_WORDS, Self::VALUE_WORDS, MULTI, K::NODE_ENTRIES_MAX);
    pub(super) const INNER: Shape = Shape::new(Self::KEY_WORDS, 1, MULTI, K::NODE_ENTRIES_MAX);

    /// Words of an entry that readers copy: key, number and value.
    pub(super) const COPY_WORDS: usize = Self::KEY_WORDS + MULTI as usize + Self::VALUE_WORDS;

    /// Rejects, at compile time, types that cannot be stored in nodes.
    pub(super) const FITS: () = {
        assert!(
            matches!(K::LEN, Some(1..=64)),
            "a B+-tree keeps keys in its nodes: they need one length, of 1 to 64 bytes, such as u64 or [u8; 40]"
        );
        assert!(
            matches!(V::LEN, Some(0..=64)),
            "a B+-tree keeps values in its nodes: they need one length, of at most 64 bytes, such as u64"
        );
        assert!(K::NODE_ENTRIES_MAX >= 4, "a node is to have room for four entries at least");
        assert!(
            Self::LEAF.slots * Self::COPY_WORDS <= COPIES_LEN,
            "copies of a leaf's entries have room"
        );
    };

    /// The shape of nodes of `level`; leaves are on level 0.
    #[inline(always)]
    pub(super) const fn shape(level: u32) -> Shape {
        if level == 0 { Self::LEAF } else { Self::INNER }
    }
}

/// The place of an entry in the order: its key, and in a multi-map its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) key: [u64; WORDS_MAX],
    pub(super) number: u64,
}

impl Place {
    /// The first place of `key`.
    #[inline(always)]
    pub(super) fn first_of<K: OrderedKey + ?Sized>(key: &K) -> Self {
        key.with_ordered(|bytes| {
            let mut place = Place::default();
            for (word, bytes) in place.key.iter_mut().zip(bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_be_bytes(whole);
            }
            place
        })
    }

    /// The same key with another number.
    #[inline(always)]
    pub(super) fn numbered(self, number: u64) -> Self {
        Place { number, ..self }
    }

    /// Whether a key is less than the key of this place, or equal to it if `is_tie_before`. The key
    /// has `words` words; `load` returns the word at an offset in bytes.
    #[inline(always)]
    pub(super) fn is_behind(
        &self,
        load: impl Fn(u64) -> u64,
        words: usize,
        is_tie_before: bool,
    ) -> bool {
        let last = words - 1;
        for (index, word) in self.key.iter().enumerate().take(last) {
            let found = load(8 * index as u64);
            if found != *word {
                return found < *word;
            }
        }
        let found = load(8 * last as u64);
        (found < self.key[last]) | ((found == self.key[last]) & is_tie_before)
    }

    /// Compares a key of `words` words with the key of this place. `load` returns the word at an
    /// offset in bytes.
    #[inline(always)]
    pub(super) fn compare_words(&self, load: impl Fn(u64) -> u64, words: usize) -> Ordering {
        for (index, word) in self.key.iter().enumerate().take(words) {
            let found = load(8 * index as u64);
            if found != *word {
                return found.cmp(word);
            }
        }
        Ordering::Equal
    }
}

/// A value as an entry stores it.
pub(super) type Payload = [u64; WORDS_MAX];

/// An entry that is to be added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) begin: u64,
    pub(super) payload: Payload,
}

/// The words that an entry stores for a value.
#[inline(always)]
pub(super) fn payload_of<V: Stored + ?Sized>(value: &V) -> Payload {
    value.with_bytes(|bytes| {
        let mut payload = [0; WORDS_MAX];
        for (word, bytes) in payload.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        payload
    })
}

/// Passes the value that these words store to `use_value`.
#[inline(always)]
pub(super) fn with_value<V: Stored + ?Sized, R>(
    payload: &[u64],
    use_value: impl FnOnce(&V) -> R,
) -> R {
    let mut bytes = [0; 8 * WORDS_MAX];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(payload).take(words(V::LEN)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    V::with_stored(&bytes[..V::LEN.map_or(0, |len| len as usize)], use_value)
}

/// Passes the key that these words store to `use_key`.
#[inline(always)]
pub(super) fn with_key<K: OrderedKey + ?Sized, R>(key: &[u64], use_key: impl FnOnce(&K) -> R) -> R {
    let mut bytes = [0; 8 * WORDS_MAX];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(key).take(words(K::LEN)) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    K::from_ordered(&bytes[..K::LEN.map_or(0, |len| len as usize)], use_key)
}

/// Words of keys, numbers and values in a leaf at the most.
pub(super) const COPIES_LEN: usize = SLOTS_MIN * (2 * WORDS_MAX + 1);

const _: () = assert!(RECORD_COUNT * RECORD_LEN <= CHANGING);
const _: () = assert!(LOST + 8 * LOST_COUNT <= remanent_pmem::heap::layout::HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_lies_across_lines_that_fits_into_one() {
        let words = Layout::<u64, u64, false>::LEAF;
        assert_eq!((words.entries, words.entry_len, words.slots), (32, 32, 16));
        assert_eq!(Layout::<u64, u64, false>::INNER, words);
        let set = Layout::<u64, [u8; 0], false>::LEAF;
        assert_eq!((set.entry_len, set.slots), (32, 32));
        let strings = Layout::<[u8; 40], u64, true>::LEAF;
        assert_eq!((strings.entries, strings.entry_len, strings.slots), (64, 64, 8));
        assert!(!strings.spans_lines());
        let longest = Layout::<[u8; 64], [u8; 64], true>::LEAF;
        assert_eq!((longest.entries, longest.entry_len, longest.slots), (128, 192, 8));
        assert!(longest.spans_lines());
    }

    #[test]
    fn places_have_the_order_of_keys_and_lead_back_to_them() {
        let keys: [[u8; 12]; 4] = [*b"aaaaaaaaaaaa", *b"aaaaaaaab   ", *b"b           ", [255; 12]];
        assert!(keys.map(|key| Place::first_of(&key)).is_sorted());
        for key in keys {
            assert_eq!(with_key(&Place::first_of(&key).key, |found: &[u8; 12]| *found), key);
        }
        assert!(Place::first_of(&-1_i32) < Place::first_of(&0_i32));
        assert_eq!(with_key(&Place::first_of(&-7_i32).key, |key: &i32| *key), -7);
    }
}
