//! How a B+-tree lies in its heap.
//!
//! ```text
//! header (in the heap's 2 KiB)                 record (four, a line each)
//! byte   0  record 0 … record 3                byte  0  offset of the root
//!      256  1 while a change may be under way        8  entries
//!      512  lost versions: 128 words                16  root of the tree that is being dismantled
//!                                                   24  version
//!
//! node                                         entry
//! byte   0  level | sorted entries << 32       byte  0  begin: version that put it in
//!        8  low: the least key that belongs          8  end: version that took it out, or all ones
//!           here (and its number, in a              16  key, in words
//!           multi-map); zeros up to the                 in an inner node of a multi-map: number
//!           entries, which begin at a                   leaf: value, in words
//!           multiple of 32                              inner node: offset of the child
//! ```
//!
//! The record with the highest version counts, and its version is the tree's *current version*. A record is written
//! in the order root, entries, dismantled root, version: one line, so a version that is found has its record before
//! it (assumption 2 of `docs/model.md`).
//!
//! A key is stored in its ordered form, each eight bytes as the number that they are when the first counts most: keys
//! compare as their words do. The entries of one key of a multi-map are told apart by their *number*, which is the
//! version that put them in; a leaf has it in `begin` already.
//!
//! A node is filled from the left. Its sorted entries are those that it was made with, in the order of their keys;
//! what was added since follows in the order in which it came. An entry whose `begin` is 0 was never used. Of an entry
//! only `end` changes once it is visible, and of a node nothing else ever does.

use std::cmp::Ordering;
use std::marker::PhantomData;

use remanent_pmem::Medium;
use remanent_pmem::heap::layout::CLASS_LEN;

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

/// The `end` of an entry that was not taken out.
pub(super) const LIVE: u64 = u64::MAX;

/// Longest key and longest value: eight words.
pub(super) const WORDS_MAX: usize = 8;
/// Nodes have no more entries, so that an index is a byte and an order of all of them fits on the stack.
pub(super) const SLOTS_MAX: usize = 64;
/// Levels that a tree cannot reach: with eight children a node, 2^60 entries.
pub(super) const HEIGHT_MAX: usize = 20;

/// Bytes of a node, if that is room for [`SLOTS_MIN`] entries.
const NODE_LEN: u64 = 1024;
const SLOTS_MIN: u64 = 16;

const fn words(len: Option<u32>) -> usize {
    match len {
        Some(len) => len.div_ceil(8) as usize,
        None => WORDS_MAX,
    }
}

/// Where the parts of a leaf, or of an inner node, lie.
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
    /// Whether an entry has its number after its key.
    pub(super) is_numbered: bool,
    pub(super) node_len: u64,
}

impl Shape {
    const fn new(
        key_words: usize,
        payload_words: usize,
        is_multi: bool,
        is_leaf: bool,
        slots_max: usize,
    ) -> Self {
        let is_numbered = is_multi && !is_leaf;
        let payload = KEY + 8 * key_words as u64 + 8 * is_numbered as u64;
        let entry_len = payload + 8 * payload_words as u64;
        // Entries that fill half lines, or whole ones, are not to lie across two.
        let alignment = if entry_len.is_multiple_of(64) { 64 } else { 32 };
        let entries =
            (LOW + 8 * key_words as u64 + 8 * is_multi as u64).next_multiple_of(alignment);
        let room = class_len(max(NODE_LEN, entries + SLOTS_MIN * entry_len));
        let mut slots = ((room - entries) / entry_len) as usize;
        if slots > SLOTS_MAX {
            slots = SLOTS_MAX;
        }
        if slots > slots_max {
            slots = slots_max;
        }
        let node_len = entries + slots as u64 * entry_len;
        Shape { entries, entry_len, slots, payload, payload_words, is_numbered, node_len }
    }
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// The length of the blocks in which `len` bytes lie.
const fn class_len(len: u64) -> u64 {
    let mut class = 0;
    while (CLASS_LEN[class] as u64) < len {
        class += 1;
    }
    CLASS_LEN[class] as u64
}

/// How trees of these types lie.
pub(super) struct Layout<K: ?Sized, V: ?Sized, const MULTI: bool>(PhantomData<fn(&K, &V)>);

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, const MULTI: bool> Layout<K, V, MULTI> {
    pub(super) const KEY_WORDS: usize = words(K::LEN);
    pub(super) const VALUE_WORDS: usize = words(V::LEN);

    pub(super) const LEAF: Shape =
        Shape::new(Self::KEY_WORDS, Self::VALUE_WORDS, MULTI, true, K::NODE_ENTRIES_MAX);
    pub(super) const INNER: Shape =
        Shape::new(Self::KEY_WORDS, 1, MULTI, false, K::NODE_ENTRIES_MAX);

    /// Refuses, when the program is compiled, types that do not lie in nodes.
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
    };

    /// The shape of nodes of `level`; leaves are on level 0.
    #[inline(always)]
    pub(super) const fn shape(level: u32) -> Shape {
        if level == 0 { Self::LEAF } else { Self::INNER }
    }
}

/// Where an entry belongs: its key, and in a multi-map its number.
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

    /// Passes the key to `use_key`.
    #[inline(always)]
    pub(super) fn with_key<K: OrderedKey + ?Sized, R>(&self, use_key: impl FnOnce(&K) -> R) -> R {
        let mut bytes = [0; 8 * WORDS_MAX];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.key).take(words(K::LEN)) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        K::from_ordered(&bytes[..K::LEN.map_or(0, |len| len as usize)], use_key)
    }

    /// Compares `words` words of key stored at `at` with those of this place.
    #[inline(always)]
    pub(super) fn compare_key<M: Medium>(&self, medium: &M, at: u64, words: usize) -> Ordering {
        for (index, word) in self.key.iter().enumerate().take(words) {
            let found = medium.load(at + 8 * index as u64);
            if found != *word {
                return found.cmp(word);
            }
        }
        Ordering::Equal
    }
}

/// A value as an entry holds it.
pub(super) type Payload = [u64; WORDS_MAX];

/// The words of a value.
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

/// Passes the value whose words lie at `at` to `use_value`.
#[inline(always)]
pub(super) fn with_value<V: Stored + ?Sized, M: Medium, R>(
    medium: &M,
    at: u64,
    use_value: impl FnOnce(&V) -> R,
) -> R {
    let mut bytes = [0; 8 * WORDS_MAX];
    for (index, bytes) in bytes.chunks_exact_mut(8).enumerate().take(words(V::LEN)) {
        bytes.copy_from_slice(&medium.load(at + 8 * index as u64).to_le_bytes());
    }
    V::with_stored(&bytes[..V::LEN.map_or(0, |len| len as usize)], use_value)
}

const _: () = assert!(RECORD_COUNT * RECORD_LEN <= CHANGING);
const _: () = assert!(LOST + 8 * LOST_COUNT <= remanent_pmem::heap::layout::HEADER_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_half_lines_and_lines_lie_in_one_line() {
        let words = Layout::<u64, u64, false>::LEAF;
        assert_eq!((words.entries, words.entry_len, words.slots), (32, 32, 31));
        assert_eq!(Layout::<u64, u64, false>::INNER, words);
        let strings = Layout::<[u8; 40], u64, false>::LEAF;
        assert_eq!((strings.entries, strings.entry_len, strings.slots), (64, 64, 19));
    }

    #[test]
    fn inner_nodes_of_a_multi_map_have_numbers() {
        let leaf = Layout::<u32, u64, true>::LEAF;
        assert_eq!((leaf.entry_len, leaf.payload), (32, 24));
        let inner = Layout::<u32, u64, true>::INNER;
        assert_eq!((inner.entry_len, inner.payload), (40, 32));
    }

    #[test]
    fn nodes_of_long_entries_are_wider() {
        let shape = Layout::<[u8; 64], [u8; 64], true>::LEAF;
        assert!(shape.slots >= 16 && shape.node_len > NODE_LEN, "{shape:?}");
    }

    #[test]
    fn places_have_the_order_of_keys_and_lead_back_to_them() {
        let keys: [[u8; 12]; 4] = [*b"aaaaaaaaaaaa", *b"aaaaaaaab   ", *b"b           ", [255; 12]];
        assert!(keys.map(|key| Place::first_of(&key)).is_sorted());
        for key in keys {
            assert_eq!(Place::first_of(&key).with_key(|found: &[u8; 12]| *found), key);
        }
        assert!(Place::first_of(&-1_i32) < Place::first_of(&0_i32));
        assert_eq!(Place::first_of(&-7_i32).with_key(|key: &i32| *key), -7);
    }
}
