//! How a hash map lies in its heap.
//!
//! ```text
//! header (in the heap's 2 KiB)              node
//! byte  0  seed of the hash                 byte  0  next: tag | offset | MARK, DIRTY, DUMMY
//!       8  generation                             8  value, when it has at most 8 bytes,
//!      16  generation swept up to                    else lengths: key (u32), value (u32)
//!      24  entries, when last known              16  order (48 bits) | generation (16 bits)
//!      64  segments: 40 offsets                  24  key; then the value when it is not above
//! ```
//!
//! A key of variable length with a value of at most 8 bytes has its length at 24 and begins at 32. A
//! short integer key is padded with zeros to 8 bytes.
//!
//! All entries form one list, sorted by *order*: the high 48 bits of the hash. The bucket of an entry is
//! the low bits of its order reversed, so that a doubling splits each bucket at one point. A bucket is a
//! place in that list, marked by a dummy. The dummy of bucket *b* is nothing but slot *b* of the bucket
//! array, one link word: its order follows from *b*. A link to a dummy holds the bucket number instead
//! of an offset. Compared with the paper's dummies in the heap this saves a cache miss for every
//! operation and 32 bytes for every bucket.
//!
//! The tag of a node's link is the version of its value; that of a slot tells a search how far off the
//! first entry is ([`Hint`]).
//!
//! Segment 0 has the first 8192 slots ([`Key::BUCKET_BITS`]), segment *i* the next 8192 · 2^(i−1). The
//! number of segments is the number of buckets: one word publishes a doubling.

use remanent_pmem::{Medium, Word};

use crate::stored::{Key, Stored};

pub(super) const SEED: u64 = 0;
pub(super) const GENERATION: u64 = 8;
pub(super) const SWEPT: u64 = 16;
pub(super) const COUNT: u64 = 24;
pub(super) const SEGMENTS: u64 = 64;
pub(super) const SEGMENT_COUNT: usize = 40;

/// A link whose offset is a bucket number.
pub(super) const DUMMY: u64 = Word::FLAG_A;
/// A slot that is in the list for good: operations may begin here.
pub(super) const READY: u64 = Word::FLAG_B;

pub(super) const VALUE: u64 = 8;
pub(super) const TAG: u64 = 16;
const DATA: u64 = 24;

/// Longest key and value: 512 MiB, as Redis.
pub(super) const LEN_MAX: u64 = 512 << 20;

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

/// What a link leads to, without the marks that belong to the link itself.
#[inline(always)]
pub(super) fn target(word: Word) -> Word {
    Word::from_raw(word.raw() & (Word::OFFSET_MASK | DUMMY))
}

/// `link` leading to `target` instead; tag and READY belong to the link and stay.
#[inline(always)]
pub(super) fn redirect(link: Word, target: Word) -> Word {
    Word::from_raw(link.raw() & !(Word::OFFSET_MASK | DUMMY) | target.raw())
}

/// What the tag of a slot says about the entry it leads to: a lower bound of its order, so that a search
/// need not fetch an entry that lies behind what it looks for.
///
/// All entries that a slot can lead to share the bits of its bucket; a hint is the 15 bits of the order
/// that come after those, plus one. 0 says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hint(u16);

impl Hint {
    /// No bound: what follows has to be looked at.
    pub(super) const NONE: Hint = Hint(0);
    const BITS: u32 = 15;

    /// The hint for an entry of `order` in a bucket whose number has `bits` bits.
    #[inline(always)]
    pub(super) fn of(order: Order, bits: u32) -> Self {
        let rest = order.0 << bits & (ORDER_END - 1);
        Hint((rest >> (ORDER_BITS - Self::BITS)) as u16 + 1)
    }

    /// The lowest order that this hint allows in a bucket of `bucket_order` and `bits` bits.
    pub(super) fn bound(self, bucket_order: Order, bits: u32) -> Option<Order> {
        let above = u64::from(self.0.checked_sub(1)?) << (ORDER_BITS - Self::BITS) >> bits;
        Some(Order(bucket_order.0 | above))
    }

    /// The hint in a slot's word.
    #[inline(always)]
    pub(super) fn in_slot(word: Word) -> Self {
        Hint(word.tag())
    }

    /// The word of a slot with this hint.
    #[inline(always)]
    pub(super) fn put(self, word: Word) -> Word {
        word.with_tag(self.0)
    }
}

const ORDER_BITS: u32 = 48;
const ORDER_END: u64 = 1 << ORDER_BITS;

/// The word that holds a node's order and generation.
#[inline(always)]
pub(super) fn tag(order: Order, generation: u16) -> u64 {
    order.0 << 16 | u64::from(generation)
}

#[inline(always)]
pub(super) fn tag_order(tag: u64) -> Order {
    Order(tag >> 16)
}

#[inline(always)]
pub(super) fn tag_generation(tag: u64) -> u16 {
    tag as u16
}

/// Whether values of this type are updated in place.
pub(super) const fn in_place<V: Stored + ?Sized>() -> bool {
    matches!(V::LEN, Some(len) if len <= 8)
}

/// Where a node's parts lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) key_at: u64,
    pub(super) key_len: u64,
    pub(super) value_at: u64,
    pub(super) value_len: u64,
    pub(super) len: u64,
}

impl Shape {
    #[inline(always)]
    pub(super) fn new<K: Stored + ?Sized, V: Stored + ?Sized>(
        key_len: u64,
        value_len: u64,
    ) -> Self {
        let separate = K::LEN.is_none() && in_place::<V>();
        let key_at = if separate { DATA + 8 } else { DATA };
        // An integer key is compared as a word, so it has one to itself.
        let key_room = if K::LEN.is_some_and(|len| len <= 8) { 8 } else { key_len };
        let (value_at, value_len, len) = if in_place::<V>() {
            (VALUE, value_len, key_at + key_room)
        } else {
            (key_at + key_room, value_len, key_at + key_room + value_len)
        };
        Shape { key_at, key_len, value_at, value_len, len }
    }

    /// The shape of the node at `node`, from the lengths it holds.
    #[inline(always)]
    pub(super) fn read<K: Stored + ?Sized, V: Stored + ?Sized, M: Medium>(
        medium: &M,
        node: u64,
    ) -> Self {
        let lengths = match (K::LEN, V::LEN) {
            (Some(_), Some(_)) => 0,
            (None, _) if in_place::<V>() => medium.load(node + DATA),
            _ => medium.load(node + VALUE),
        };
        let key_len = K::LEN.map_or(lengths & u64::from(u32::MAX), u64::from);
        let value_len = V::LEN.map_or(lengths >> 32, u64::from);
        Self::new::<K, V>(key_len, value_len)
    }

    /// The word with the lengths, and where it goes, when the node needs one.
    pub(super) fn lengths<K: Stored + ?Sized, V: Stored + ?Sized>(&self) -> Option<(u64, u64)> {
        match (K::LEN, in_place::<V>()) {
            (None, true) => Some((DATA, self.key_len)),
            (Some(_), true) => None,
            (_, false) => Some((VALUE, self.key_len | self.value_len << 32)),
        }
    }
}

/// Whether the key of the node at `node` is `key`.
#[inline(always)]
pub(super) fn has_key<K: Key + ?Sized, V: Stored + ?Sized, M: Medium>(
    medium: &M,
    node: u64,
    key: &K,
) -> bool {
    if K::LEN.is_some() {
        let key_at = Shape::new::<K, V>(0, 0).key_at;
        return key.matches(medium, node + key_at);
    }
    let shape = Shape::read::<K, V, M>(medium, node);
    shape.key_len == key.stored_len() && key.matches(medium, node + shape.key_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_entries_fill_half_lines_and_lines() {
        assert_eq!(Shape::new::<u64, u64>(8, 8).len, 32);
        assert_eq!(Shape::new::<u32, u16>(4, 2).len, 32);
        assert_eq!(Shape::new::<[u8; 40], u64>(40, 8).len, 64);
        assert_eq!(Shape::new::<[u8], [u8]>(16, 17).len, 57);
        let mixed = Shape::new::<[u8], u64>(5, 8);
        assert_eq!((mixed.key_at, mixed.value_at, mixed.len), (32, VALUE, 37));
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
