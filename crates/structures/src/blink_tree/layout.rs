//! On-media layout of the header, the nodes, the leaves and the records.
//!
//! ```text
//! header   0  root: the topmost inner node              8  entries, or unknown
//!         16  whether records have checksums
//!
//! inner    0  tag, level, number of children         64  heads of the separators: a word each,
//! node     8  low: least key of the node                 or three for long keys
//!         16  high: least key behind it               …  children, a word each
//!         24  whether there is a high; prefix         …  separators, for long keys; a word each
//!
//! leaf     0  next: the leaf to the right, or 0      24 *lock       64 *fingerprints: a byte each
//!          8  low: least key that belongs here       32 *high      128 *order: slots by their keys
//!         16  tag                                    40 *used      192  21 lines of three slots
//!                                                    48 *prefix
//!                                                    56 *slots in order, or 0
//!
//! line     0  three keys     24  three values or records     48  which slots are valid
//!
//! record   0  tag, check and length of the key       16  key in its ordered form, padded to words
//!          8  checksum, length of the value           …  value
//!
//! sepa-    0  tag, length
//! rator    8  key, or as much of it as tells two leaves apart
//! ```
//!
//! Fields marked `*` are volatile: nothing flushes them, and the first thread that touches a leaf
//! after opening the pool rebuilds them. A key of at most eight bytes lies in its slot, and beside
//! it a value of at most eight bytes. Longer ones lie in a record. The slot's key is then a *head*:
//! the eight bytes of the key behind the prefix that all keys of the leaf share. Heads in leaves
//! are volatile, too. Heads in inner nodes have 24 bytes, so that a search seldom has to fetch a
//! separator to compare two keys.
//!
//! The fields of a slot are stored in the order key, value, valid bit. By assumption 2, a crash
//! then leaves either a complete valid slot or none, for one flush and one fence.

use remanent_pmem::heap::layout::HEADER_LEN;
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64;

use crate::shared::MemberId;
use crate::stored::{OrderedKey, Stored};

/// Version of the layout, part of the root's type.
pub(super) const LAYOUT: u64 = 3;

/// Header: offset of the root node.
pub(super) const ROOT: u64 = 0;
/// Header: number of entries, or [`COUNT_UNKNOWN`].
pub(super) const COUNT: u64 = 8;
/// The count in the header while the tree is open, and after a crash.
pub(super) const COUNT_UNKNOWN: u64 = u64::MAX;
/// Header: [`SUMMED`] or [`UNSUMMED`].
pub(super) const OPTIONS: u64 = 16;
/// Records have checksums.
pub(super) const SUMMED: u64 = 0x7375_6d6d_6564;
/// Records have no checksums.
pub(super) const UNSUMMED: u64 = 0x756e_7375_6d6d_6564;
const _: () = assert!(OPTIONS < HEADER_LEN);

/// The kinds of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Inner,
    Leaf,
    Record,
    Separator,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Inner, Kind::Leaf, Kind::Record, Kind::Separator];

    /// The tag in a heap that belongs to one tree alone: four letters.
    const fn letters(self) -> u32 {
        match self {
            Kind::Inner => 0x49_4e_4e_52,
            Kind::Leaf => 0x4c_45_41_46,
            Kind::Record => 0x52_45_43_44,
            Kind::Separator => 0x53_45_50_52,
        }
    }

    fn with_tag(tag: u64) -> Option<(Kind, MemberId)> {
        let tag = tag as u32;
        let kind = Kind::ALL.into_iter().find(|kind| (kind.letters() ^ tag) >> 24 == 0)?;
        Some((kind, MemberId::from_block(kind.letters() ^ tag)?))
    }

    /// The kind of the block at `offset`, and the tree that it belongs to, by its tag. The block's
    /// content may be garbage.
    pub(super) fn read<M: Medium>(medium: &M, offset: u64) -> Option<(Kind, MemberId)> {
        // The first word is tested first. Other kinds may have any key where a leaf has its tag.
        // But a leaf begins with an offset, which is below the tags of other kinds.
        match Kind::with_tag(medium.load(offset) >> 32) {
            None | Some((Kind::Leaf, _)) => {
                let word = medium.load(offset + LEAF_KIND);
                let found = Kind::with_tag(word >> 32);
                found.filter(|&(kind, _)| kind == Kind::Leaf && word << 32 == 0)
            }
            found => found,
        }
    }
}

/// The tags of a tree's blocks. The first of the four letters tells the kind. The tree's number in
/// its heap is combined with the other three.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tags {
    inner: u64,
    leaf: u64,
    record: u64,
    separator: u64,
}

impl Tags {
    /// The tags of the tree `member`.
    pub(super) fn of(member: MemberId) -> Self {
        let tag = |kind: Kind| u64::from(kind.letters() ^ member.get());
        Tags {
            inner: tag(Kind::Inner),
            leaf: tag(Kind::Leaf),
            record: tag(Kind::Record),
            separator: tag(Kind::Separator),
        }
    }
}

// Leaves.

/// Slots of a leaf.
pub(super) const SLOT_COUNT: usize = 63;
const SLOTS_A_LINE: usize = 3;
const LINE_COUNT: u64 = (SLOT_COUNT / SLOTS_A_LINE) as u64;
/// Bytes of a leaf.
pub(super) const LEAF_LEN: u64 = SLOTS + LINE_COUNT * LINE_LEN;

pub(super) const NEXT: u64 = 0;
pub(super) const LEAF_LOW: u64 = 8;
/// An offset beyond the end of every pool; adding a leaf's length to it does not overflow. Greater
/// offsets are reduced to it.
pub(super) const FAR: u64 = 1 << 56;
const LEAF_KIND: u64 = 16;
pub(super) const LOCK: u64 = 24;
pub(super) const HIGH: u64 = 32;
pub(super) const USED: u64 = 40;
pub(super) const PREFIX: u64 = 48;
/// Flag in the word at [`PREFIX`]: the key of some record has changed, so a key that is not found
/// may have been there.
pub(super) const DOUBTFUL: u64 = 1 << 63;
pub(super) const ORDERED: u64 = 56;
pub(super) const FINGERPRINTS: u64 = 64;
pub(super) const ORDER: u64 = 128;
pub(super) const SLOTS: u64 = 192;
const VALUES: u64 = 24;
const VALID: u64 = 48;
/// All slots, as bits.
pub(super) const ALL_SLOTS: u64 = (1 << SLOT_COUNT) - 1;

const _: () = assert!(LEAF_LEN == 1536);

/// A slot of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    /// Offset of the slot's line in the leaf.
    #[inline(always)]
    pub(super) fn line(self) -> u64 {
        SLOTS + u64::from(self.0) / SLOTS_A_LINE as u64 * LINE_LEN
    }

    /// Offset of the slot's key in the leaf.
    #[inline(always)]
    pub(super) fn key(self) -> u64 {
        // As `line`, but the remainder of the division is not needed.
        const OTHERS: u64 = LINE_LEN - SLOTS_A_LINE as u64 * WORD_LEN;
        let slot = u64::from(self.0);
        SLOTS + slot * WORD_LEN + slot / SLOTS_A_LINE as u64 * OTHERS
    }

    /// Offset in the leaf of the slot's value, or of the word that leads to its record.
    #[inline(always)]
    pub(super) fn value(self) -> u64 {
        self.key() + VALUES
    }

    /// Offset of the word that says which slots of its line are valid.
    #[inline(always)]
    pub(super) fn valid(self) -> u64 {
        self.line() + VALID
    }

    /// The slot's bit in that word.
    #[inline(always)]
    pub(super) fn valid_bit(self) -> u64 {
        1 << (u64::from(self.0) % SLOTS_A_LINE as u64)
    }
}

/// Number of slots in the home of a fingerprint.
pub(super) const HOME_SLOTS: usize = 2 * SLOTS_A_LINE;

/// The first slot of the *home* of a fingerprint, in a leaf of `leaf_max` slots. The home is two
/// neighbouring lines. An entry lies there unless all of these slots were taken.
#[inline(always)]
pub(super) fn home(fingerprint: u8, leaf_max: usize) -> Slot {
    let lines = leaf_max.div_ceil(SLOTS_A_LINE) as u64;
    let line = ((u64::from(fingerprint) * lines) >> 8) & !1;
    Slot((line.min(LINE_COUNT - 2) * SLOTS_A_LINE as u64) as u32)
}

/// The slot for a new entry, in a leaf where the slots `used` are taken: in its home if that has
/// room, else the first free one.
#[inline(always)]
pub(super) fn free_slot(used: u64, fingerprint: u8, leaf_max: usize) -> Option<Slot> {
    let free = !used & (ALL_SLOTS >> (SLOT_COUNT - leaf_max));
    let at_home = free & (((1 << HOME_SLOTS) - 1) << home(fingerprint, leaf_max).0);
    let free = if at_home != 0 { at_home } else { free };
    (free != 0).then_some(Slot(free.trailing_zeros()))
}

/// The slots that are set in `bits`, in their order.
pub(super) fn slots_of(mut bits: u64) -> impl Iterator<Item = Slot> {
    std::iter::from_fn(move || {
        let slot = (bits != 0).then_some(Slot(bits.trailing_zeros()))?;
        bits &= bits - 1;
        Some(slot)
    })
}

/// The lines of a leaf that have slots in `bits`: each line's number, and the bits of those slots
/// in the line's word.
pub(super) fn lines_of(bits: u64) -> impl Iterator<Item = (u64, u64)> {
    let line_bits =
        move |line: u64| (bits >> (line * SLOTS_A_LINE as u64)) & ((1 << SLOTS_A_LINE) - 1);
    (0..LINE_COUNT).map(move |line| (line, line_bits(line))).filter(|&(_, bits)| bits != 0)
}

/// Offset in the leaf of the word that says which slots of a line are valid.
pub(super) fn valid_at(line: u64) -> u64 {
    SLOTS + line * LINE_LEN + VALID
}

/// The slots of the leaf at `leaf` that its lines say are valid, as bits.
pub(super) fn valid_slots<M: Medium>(medium: &M, leaf: u64) -> u64 {
    (0..LINE_COUNT).fold(0, |slots, line| {
        let valid = medium.load(leaf + valid_at(line)) & ((1 << SLOTS_A_LINE) - 1);
        slots | valid << (line * SLOTS_A_LINE as u64)
    })
}

impl Tags {
    /// Stores the durable part of a leaf's head, with no slot valid.
    pub(super) fn write_leaf_head<M: Medium>(self, medium: &M, leaf: u64, low: u64, next: u64) {
        medium.store(leaf + NEXT, next);
        medium.store(leaf + LEAF_LOW, low);
        medium.store(leaf + LEAF_KIND, self.leaf << 32);
        for line in 0..LINE_COUNT {
            medium.store(leaf + valid_at(line), 0);
        }
    }

    /// Whether there is a leaf at `offset`.
    pub(super) fn is_leaf<M: Medium>(self, medium: &M, offset: u64) -> bool {
        medium.load(offset + LEAF_KIND) == self.leaf << 32
    }
}

// Inner nodes.

/// Levels of a tree at the most: far more than any pool needs.
pub(super) const LEVEL_MAX: u64 = 24;
pub(super) const NODE_LOW: u64 = 8;
pub(super) const NODE_HIGH: u64 = 16;
const NODE_BOUNDS: u64 = 24;
const HEADS: u64 = 64;
const HAS_HIGH: u64 = 1 << 32;
/// Bytes of an inner node.
pub(super) const INNER_LEN: u64 = 2048;

/// The first word of an inner node, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHead {
    pub(super) level: u64,
    pub(super) count: usize,
}

impl Tags {
    /// The head of the inner node whose first word is `word`; `None` when no inner node begins with
    /// that word.
    #[inline(always)]
    pub(super) fn node_head<K: OrderedKey + ?Sized>(self, word: u64) -> Option<NodeHead> {
        let (level, count) = (word >> 16 & 0xffff, (word & 0xffff) as usize);
        let is_node = word >> 32 == self.inner
            && (1..=LEVEL_MAX).contains(&level)
            && (1..=inner_max::<K>()).contains(&count);
        is_node.then_some(NodeHead { level, count })
    }

    /// The first word of an inner node with this head.
    pub(super) fn node_word(self, head: NodeHead) -> u64 {
        self.inner << 32 | head.level << 16 | head.count as u64
    }
}

/// Words of a separator's head in an inner node.
pub(super) const fn head_words<K: OrderedKey + ?Sized>() -> usize {
    if is_word::<K>() { 1 } else { 3 }
}

/// Children of an inner node at the most, as the layout allows.
pub(super) const fn inner_max<K: OrderedKey + ?Sized>() -> usize {
    let others = if is_word::<K>() { 1 } else { 2 };
    ((INNER_LEN - HEADS) / WORD_LEN) as usize / (head_words::<K>() + others)
}

/// Offset of the word `word` of the head of a node's `index`th separator.
#[inline(always)]
pub(super) fn head_at<K: OrderedKey + ?Sized>(node: u64, index: usize, word: usize) -> u64 {
    node + HEADS + (index * head_words::<K>() + word) as u64 * WORD_LEN
}

/// Offset of a node's `index`th child.
#[inline(always)]
pub(super) fn child_at<K: OrderedKey + ?Sized>(node: u64, index: usize) -> u64 {
    head_at::<K>(node, inner_max::<K>(), 0) + index as u64 * WORD_LEN
}

/// Offset of the word that leads to a node's `index`th separator; for long keys.
#[inline(always)]
pub(super) fn separator_at<K: OrderedKey + ?Sized>(node: u64, index: usize) -> u64 {
    child_at::<K>(node, inner_max::<K>() + index)
}

/// The upper bound of a node, if it has one, and the number of bytes that all of its keys share.
#[inline(always)]
pub(super) fn read_bounds<M: Medium>(medium: &M, node: u64) -> (Option<u64>, usize) {
    let bounds = medium.load(node + NODE_BOUNDS);
    let high = (bounds & HAS_HIGH != 0).then(|| medium.load(node + NODE_HIGH));
    (high, (bounds & 0xffff_ffff) as usize)
}

pub(super) fn write_bounds<M: Medium>(
    medium: &M,
    node: u64,
    low: u64,
    high: Option<u64>,
    prefix: usize,
) {
    medium.store(node + NODE_LOW, low);
    medium.store(node + NODE_HIGH, high.unwrap_or(0));
    medium.store(node + NODE_BOUNDS, prefix as u64 | if high.is_some() { HAS_HIGH } else { 0 });
}

// Records and separators.

pub(super) const RECORD_KEY: u64 = 16;
const VALUE_LEN: u64 = 8;
const SEPARATOR_KEY: u64 = 8;
/// Longest key.
pub(super) const KEY_LEN_MAX: u64 = u16::MAX as u64;
/// Longest value.
pub(super) const VALUE_LEN_MAX: u64 = u32::MAX as u64;

/// Offset, lengths and checksums of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) key_len: u64,
    pub(super) value_len: u64,
    /// Half a word of the key's hash.
    pub(super) key_check: u16,
    /// Checksum of a value of more than one word, and of the record's description of its key.
    pub(super) sum: u32,
    /// Tag of the tree that the record belongs to.
    pub(super) tag: u64,
}

impl Tags {
    /// A record of this tree that has no checksum and no block yet.
    pub(super) fn new_record(self, key_len: u64, value_len: u64, key_check: u16) -> Record {
        Record { offset: 0, key_len, value_len, key_check, sum: 0, tag: self.record }
    }

    /// The record at `offset`; `None` when there is none.
    #[inline(always)]
    pub(super) fn record<M: Medium>(self, medium: &M, offset: u64) -> Option<Record> {
        let is_inside = offset.is_multiple_of(WORD_LEN)
            && offset.checked_add(RECORD_KEY).is_some_and(|end| end <= medium.len());
        if !is_inside {
            return None;
        }
        let (of_key, of_value) = (medium.load(offset), medium.load(offset + VALUE_LEN));
        (of_key >> 32 == self.record).then_some(Record {
            offset,
            key_len: of_key & KEY_LEN_MAX,
            value_len: of_value & VALUE_LEN_MAX,
            key_check: (of_key >> 16) as u16,
            sum: (of_value >> 32) as u32,
            tag: self.record,
        })
    }
}

impl Record {
    /// Prefetches a record's first two lines, where most records have their whole key.
    pub(super) fn prefetch<M: Medium>(medium: &M, offset: u64) {
        medium.prefetch(offset);
        medium.prefetch(offset.wrapping_add(LINE_LEN));
    }

    #[inline(always)]
    pub(super) fn key_at(self) -> u64 {
        self.offset + RECORD_KEY
    }

    #[inline(always)]
    pub(super) fn value_at(self) -> u64 {
        self.key_at() + self.key_len.next_multiple_of(WORD_LEN)
    }

    #[inline(always)]
    pub(super) fn len(self) -> u64 {
        self.value_at() - self.offset + self.value_len
    }

    pub(super) fn write_head<M: Medium>(self, medium: &M) {
        medium.store(self.offset, self.of_key());
        medium.store(self.offset + VALUE_LEN, u64::from(self.sum) << 32 | self.value_len);
    }

    fn of_key(self) -> u64 {
        self.tag << 32 | u64::from(self.key_check) << 16 | self.key_len
    }

    /// The checksum of a record with this value: over the value, and over the record's description
    /// of its key.
    #[inline(always)]
    pub(super) fn sum_with(self, value: &[u8]) -> u32 {
        ((xxh3_64(value) ^ self.of_key()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
    }
}

/// Offset and length of a separator's key.
#[inline(always)]
pub(super) fn separator_key<M: Medium>(medium: &M, separator: u64) -> (u64, u64) {
    (separator.min(FAR) + SEPARATOR_KEY, medium.load(separator) & 0xffff_ffff)
}

/// Length of a separator whose key has `key_len` bytes.
pub(super) fn separator_len(key_len: usize) -> u64 {
    SEPARATOR_KEY + key_len as u64
}

impl Tags {
    pub(super) fn write_separator<M: Medium>(self, medium: &M, separator: u64, key: &[u8]) {
        medium.store(separator, self.separator << 32 | key.len() as u64);
        medium.write(separator + SEPARATOR_KEY, key);
    }
}

/// Whether keys are words, which lie in slots.
#[inline(always)]
pub(super) const fn is_word<K: OrderedKey + ?Sized>() -> bool {
    matches!(K::LEN, Some(len) if len as u64 <= WORD_LEN)
}

/// Whether values are words: they lie in slots if the keys do, else in records.
#[inline(always)]
pub(super) const fn is_word_value<V: Stored + ?Sized>() -> bool {
    matches!(V::LEN, Some(len) if len as u64 <= WORD_LEN)
}

/// Whether entries lie in slots completely, without records.
#[inline(always)]
pub(super) const fn is_inline<K: OrderedKey + ?Sized, V: Stored + ?Sized>() -> bool {
    is_word::<K>() && is_word_value::<V>()
}
