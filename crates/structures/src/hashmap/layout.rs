//! On-media layout of a hash map.
//!
//! ```text
//! header (in the heap's 2 KiB)              node
//! byte  0  seed of the hash                 byte  0  next: tag | offset | marks
//!       8  *generation                            8  value, when it has at most 8 bytes,
//!      16  *generation swept up to                   else lengths and checksum
//!      24  *entries, when last known             16  order (48 bits) | generation (8) | check (8)
//!      32  *options                              24  key; then the value when it is not above
//!      40  *hash of the seed
//!      64  segments: 40 *offsets
//! ```
//!
//! A key of variable length with a value of at most 8 bytes has its length at 24 and begins at 32.
//! A short integer key is padded with zeros to 8 bytes. Words with a star have a check in their
//! highest 16 bits.
//!
//! ```text
//! lengths and checksum, of a short entry        of a long one
//! bit  0  length of the key, 12 bits            bit  0  length of the key, 30 bits
//!     12  length of the value, 19 bits              30  length of the value, 30 bits
//!     31  checksum, 32 bits                         63  1
//!     63  0                                     byte 24  checksum; the key begins at 32
//! ```
//!
//! The checksum covers the value and the tag. Through the tag it covers the key, too: the tag has
//! the order, which is 48 bits of the key's hash, and a reader compares the key with the one that
//! it looks for, or with the order.
//!
//! All entries form one list, sorted by *order*: the high 48 bits of the hash. The bucket of an
//! entry is the low bits of its order reversed, so that a doubling splits each bucket at one point.
//! A bucket is a place in that list, marked by a dummy. The dummy of bucket *b* is slot *b* of the
//! bucket array, one link word, since its order follows from *b*. A link to a dummy holds the
//! bucket number instead of an offset. The paper's dummies lie in the heap; this layout saves a
//! cache miss per operation and 32 bytes per bucket.
//!
//! The tag of a link has a check in its lower half (`seal.rs`). The upper half is the version of
//! the value in a node's link. In a slot, it tells a search how far off the first entry is
//! ([`Hint`]). The link of a removed node has two marks; one of them alone is damage.
//!
//! Segment 0 has the first 8192 slots ([`Key::BUCKET_BITS`]), and segment *i* the next 8192 ·
//! 2^(i−1). The number of segments determines the number of buckets, so that one word publishes a
//! doubling.

use remanent_pmem::{Medium, Word};

use crate::stored::Stored;

pub(super) const SEED: u64 = 0;
pub(super) const GENERATION: u64 = 8;
pub(super) const SWEPT: u64 = 16;
pub(super) const COUNT: u64 = 24;
pub(super) const OPTIONS: u64 = 32;
pub(super) const SEED_CHECK: u64 = 40;
pub(super) const SEGMENTS: u64 = 64;
pub(super) const SEGMENT_COUNT: usize = 40;
/// Bytes of the header.
pub(super) const HEADER_LEN: u64 = SEGMENTS + 8 * SEGMENT_COUNT as u64;

/// A link whose offset is a bucket number.
pub(super) const DUMMY: u64 = Word::FLAG_A;
/// A slot that is durably in the list: operations may begin here.
pub(super) const READY: u64 = Word::FLAG_B;
/// Both marks of a node that was removed.
pub(super) const GONE: u64 = Word::MARK | Word::FLAG_B;

/// Added to the tag of an entry's link when its value changes.
pub(super) const VERSION: u16 = 1 << 8;

/// In [`OPTIONS`]: entries have checksums.
pub(super) const SUMMED: u64 = 1;

pub(super) const VALUE: u64 = 8;
pub(super) const TAG: u64 = 16;
const DATA: u64 = 24;

/// Longest key and value: 512 MiB, as in Redis, and what a program may put before them, such as the
/// type of a value.
pub(super) const LEN_MAX: u64 = (512 << 20) + 64;

/// Place of an entry or a dummy in the list, 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order(pub(super) u64);

impl Order {
    #[inline(always)]
    pub(super) fn of_hash(hash: u64) -> Self {
        Order(hash >> 16)
    }

    #[inline(always)]
    pub(super) fn of_bucket(bucket: u64) -> Self {
        Order(bucket.reverse_bits() >> 16)
    }

    /// Whether this order begins with the first `bits` bits of `other`.
    #[inline(always)]
    pub(super) fn shares(self, other: Order, bits: u32) -> bool {
        (self.0 ^ other.0) >> (ORDER_BITS - bits) == 0
    }

    /// The number whose low bits are the buckets of this order: the order, reversed.
    #[inline(always)]
    pub(super) fn bucket_bits(self) -> u64 {
        (self.0 << 16).reverse_bits()
    }
}

/// Bits of a bucket's number when the bucket was made. All entries behind its slot share them.
#[inline(always)]
pub(super) fn level(bucket: u64, bits_min: u32) -> u32 {
    bits_min.max(64 - bucket.leading_zeros())
}

/// The bucket that `bucket` is split off from: its number without the highest bit.
#[inline(always)]
pub(super) fn parent(bucket: u64) -> u64 {
    debug_assert!(bucket > 0, "bucket 0 is always linked");
    bucket & !(1 << (63 - bucket.leading_zeros()))
}

/// A link to the dummy of `bucket`.
#[inline(always)]
pub(super) fn to_dummy(bucket: u64) -> Word {
    Word::from_raw(bucket << 4 | DUMMY)
}

/// The bucket that a link to a dummy leads to.
#[inline(always)]
pub(super) fn dummy_of(word: Word) -> u64 {
    word.offset() >> 4
}

/// The target of a link, without the marks that belong to the link itself.
#[inline(always)]
pub(super) fn target(word: Word) -> Word {
    Word::from_raw(word.raw() & (Word::OFFSET_MASK | DUMMY))
}

/// `link` with another target. The tag and READY belong to the link and stay.
#[inline(always)]
pub(super) fn redirect(link: Word, target: Word) -> Word {
    Word::from_raw(link.raw() & !(Word::OFFSET_MASK | DUMMY) | target.raw())
}

/// A lower bound of the order of the entry that a slot leads to. It lies in the slot's tag, so that
/// a search need not fetch an entry that lies behind what it looks for.
///
/// All entries that a slot can lead to share the bits of its bucket. A hint is the 7 bits of the
/// order that follow these, plus one. 0 means that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hint(u8);

impl Hint {
    /// No bound: the entry must be read.
    pub(super) const NONE: Hint = Hint(0);
    const BITS: u32 = 7;
    /// The hint's place in the slot's tag.
    const SHIFT: u32 = 8;

    /// The hint for an entry of `order` in a bucket whose number has `bits` bits.
    #[inline(always)]
    pub(super) fn of(order: Order, bits: u32) -> Self {
        let rest = order.0 << bits & (ORDER_END - 1);
        Hint((rest >> (ORDER_BITS - Self::BITS)) as u8 + 1)
    }

    /// The lowest order that this hint allows in a bucket of `bucket_order` and `bits` bits.
    pub(super) fn bound(self, bucket_order: Order, bits: u32) -> Option<Order> {
        let above = u64::from(self.0.checked_sub(1)?) << (ORDER_BITS - Self::BITS) >> bits;
        Some(Order(bucket_order.0 | above))
    }

    /// The hint in a slot's word.
    #[inline(always)]
    pub(super) fn in_slot(word: Word) -> Self {
        Hint((word.tag() >> Self::SHIFT) as u8)
    }

    /// The word of a slot with this hint, without its check.
    #[inline(always)]
    pub(super) fn put(self, word: Word) -> Word {
        word.with_tag(u16::from(self.0) << Self::SHIFT)
    }
}

pub(super) const ORDER_BITS: u32 = 48;
pub(super) const ORDER_END: u64 = 1 << ORDER_BITS;

/// The word of a node with its order and its generation, without its check.
#[inline(always)]
pub(super) fn tag(order: Order, generation: u8) -> u64 {
    order.0 << 16 | u64::from(generation) << 8
}

#[inline(always)]
pub(super) fn tag_order(tag: u64) -> Order {
    Order(tag >> 16)
}

#[inline(always)]
pub(super) fn tag_generation(tag: u64) -> u8 {
    (tag >> 8) as u8
}

/// Whether values of this type are updated in place.
pub(super) const fn in_place<V: Stored + ?Sized>() -> bool {
    matches!(V::LEN, Some(len) if len <= 8)
}

/// Set in the lengths of a long entry.
const LONG: u64 = 1 << 63;
const SHORT_KEY_BITS: u32 = 12;
const SHORT_VALUE_BITS: u32 = 19;
const LONG_BITS: u32 = 30;
const _: () = assert!(LEN_MAX < 1 << LONG_BITS);

/// Where a node's parts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) key_at: u64,
    pub(super) key_len: u64,
    pub(super) value_at: u64,
    pub(super) value_len: u64,
    pub(super) len: u64,
    /// Checksum of an entry whose value has more than 8 bytes.
    pub(super) sum: u32,
}

impl Shape {
    #[inline(always)]
    pub(super) fn new<K: Stored + ?Sized, V: Stored + ?Sized>(
        key_len: u64,
        value_len: u64,
    ) -> Self {
        let has_own_word = match in_place::<V>() {
            true => K::LEN.is_none(),
            false => is_long(key_len, value_len),
        };
        let key_at = if has_own_word { DATA + 8 } else { DATA };
        // An integer key is compared as a word, so it has one to itself.
        let key_room = if K::LEN.is_some_and(|len| len <= 8) { 8 } else { key_len };
        let (value_at, len) = if in_place::<V>() {
            (VALUE, key_at + key_room)
        } else {
            (key_at + key_room, key_at + key_room + value_len)
        };
        Shape { key_at, key_len, value_at, value_len, len, sum: 0 }
    }

    /// The shape of every entry whose key has a fixed length and whose value lies in place.
    #[inline(always)]
    pub(super) fn fixed<K: Stored + ?Sized, V: Stored + ?Sized>() -> Self {
        Self::new::<K, V>(K::LEN.map_or(0, u64::from), V::LEN.map_or(0, u64::from))
    }

    /// The shape of the node at `node`, from the lengths it holds. `None` when no entry of these
    /// types can have them.
    #[inline(always)]
    pub(super) fn read<K: Stored + ?Sized, V: Stored + ?Sized, M: Medium>(
        medium: &M,
        node: u64,
    ) -> Option<Self> {
        let (key_len, value_len, sum) = match (K::LEN, in_place::<V>()) {
            (Some(_), true) => return Some(Self::fixed::<K, V>()),
            (None, true) => (medium.load(node + DATA), V::LEN.map_or(0, u64::from), 0),
            (_, false) => read_lengths(medium.load(node + VALUE), || medium.load(node + DATA))?,
        };
        let fits = |len: u64, fixed: Option<u32>| match fixed {
            Some(fixed) => len == u64::from(fixed),
            None => len <= LEN_MAX,
        };
        if !fits(key_len, K::LEN) || !fits(value_len, V::LEN) {
            return None;
        }
        Some(Shape { sum, ..Self::new::<K, V>(key_len, value_len) })
    }

    /// The words that the node needs for lengths and checksum, each with its place in the node.
    pub(super) fn words<K: Stored + ?Sized, V: Stored + ?Sized>(
        &self,
    ) -> impl Iterator<Item = (u64, u64)> {
        let (key_len, value_len, sum) = (self.key_len, self.value_len, u64::from(self.sum));
        let words = match (K::LEN, in_place::<V>()) {
            (None, true) => [Some((DATA, key_len)), None],
            (Some(_), true) => [None, None],
            (_, false) if is_long(key_len, value_len) => {
                [Some((VALUE, key_len | value_len << LONG_BITS | LONG)), Some((DATA, sum))]
            }
            (_, false) => {
                let sum = sum << (SHORT_KEY_BITS + SHORT_VALUE_BITS);
                [Some((VALUE, key_len | value_len << SHORT_KEY_BITS | sum)), None]
            }
        };
        words.into_iter().flatten()
    }
}

/// Whether lengths and checksum take more than one word.
#[inline(always)]
fn is_long(key_len: u64, value_len: u64) -> bool {
    key_len >> SHORT_KEY_BITS != 0 || value_len >> SHORT_VALUE_BITS != 0
}

/// Lengths of key and value, and the checksum, which is in a word of its own if the entry is long.
#[inline(always)]
fn read_lengths(word: u64, sum: impl FnOnce() -> u64) -> Option<(u64, u64, u32)> {
    let bits = |from: u32, count: u32| word >> from & ((1 << count) - 1);
    if word & LONG == 0 {
        let sum = (word >> (SHORT_KEY_BITS + SHORT_VALUE_BITS)) as u32;
        return Some((bits(0, SHORT_KEY_BITS), bits(SHORT_KEY_BITS, SHORT_VALUE_BITS), sum));
    }
    let (key_len, value_len) = (bits(0, LONG_BITS), bits(LONG_BITS, LONG_BITS));
    is_long(key_len, value_len).then(|| (key_len, value_len, sum() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Key;

    #[test]
    fn small_entries_fill_half_lines_and_lines() {
        assert_eq!(Shape::new::<u64, u64>(8, 8).len, 32);
        assert_eq!(Shape::new::<u32, u16>(4, 2).len, 32);
        assert_eq!(Shape::new::<[u8; 40], u64>(40, 8).len, 64);
        assert_eq!(Shape::new::<[u8], [u8]>(16, 17).len, 57);
        assert_eq!(Shape::new::<[u8], [u8]>(4_095, (1 << 19) - 1).key_at, 24);
        assert_eq!(Shape::new::<[u8], [u8]>(4_096, 17).key_at, 32);
        assert_eq!(Shape::new::<u64, [u8]>(8, 1 << 19).key_at, 32);
        let mixed = Shape::new::<[u8], u64>(5, 8);
        assert_eq!((mixed.key_at, mixed.value_at, mixed.len), (32, VALUE, 37));
    }

    #[test]
    fn lengths_and_checksum_come_back() {
        for (key_len, value_len) in
            [(0, 0), (1, 100), (4_095, 7), (4_096, 7), (9, 1 << 19), (LEN_MAX, LEN_MAX)]
        {
            let sum = 0x8bad_f00d;
            let shape = Shape { sum, ..Shape::new::<[u8], [u8]>(key_len, value_len) };
            let words: Vec<_> = shape.words::<[u8], [u8]>().collect();
            let second = || words.get(1).map_or(0, |&(_, word)| word);
            assert_eq!(read_lengths(words[0].1, second), Some((key_len, value_len, sum)));
            assert!(words.iter().all(|&(at, _)| at + 8 <= shape.key_at));
        }
        assert_eq!(read_lengths(LONG | 1, || 0), None);
    }

    #[test]
    fn a_dummy_comes_before_the_entries_of_its_bucket() {
        for bits in [<u64 as Key>::BUCKET_BITS, 20, 39] {
            for hash in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
                let bucket = Order::of_hash(hash).bucket_bits() & ((1 << bits) - 1);
                assert!(Order::of_bucket(bucket) <= Order::of_hash(hash));
                let parent = bucket & !(1 << (63 - bucket.max(1).leading_zeros()));
                assert!(Order::of_bucket(parent) <= Order::of_bucket(bucket));
            }
        }
    }

    #[test]
    fn hints_order_as_the_entries_of_a_bucket_do() {
        for bits in [1, 13, 20, 40] {
            let bucket = (1_u64 << bits) - 2;
            let orders: Vec<Order> = (0..64)
                .map(|n| Order(Order::of_bucket(bucket).0 | n << (ORDER_BITS - bits) >> 6))
                .collect();
            for a in &orders {
                assert!(a.shares(Order::of_bucket(bucket), bits));
                for b in &orders {
                    if Hint::of(*a, bits) < Hint::of(*b, bits) {
                        assert!(a < b);
                    }
                }
            }
        }
        assert!(Hint::NONE < Hint::of(Order(0), 13));
        let order = Order::of_hash(0x1234_5678_9abc_def0);
        let bucket = order.bucket_bits() & 0x1fff;
        let bound = Hint::of(order, 13).bound(Order::of_bucket(bucket), 13).unwrap();
        assert!(bound <= order && bound.shares(order, 13 + Hint::BITS));
    }

    #[test]
    fn links_keep_their_own_marks() {
        let slot = redirect(to_dummy(5).with(READY).with_tag(7), Word::to(0x1230));
        assert_eq!(slot.raw(), Word::to(0x1230).with(READY).with_tag(7).raw());
        assert_eq!(dummy_of(to_dummy(77)), 77);
        assert_eq!(target(to_dummy(77).with(READY | Word::DIRTY)), to_dummy(77));
    }
}
