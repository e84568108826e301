//! Reading an entry: whether it is there, its key, and its value.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use remanent_pmem::{Frozen, Link, Medium, Word};

use super::Core;
use super::damage::Damage;
use super::layout::{GONE, Order, Shape, TAG, VALUE, in_place, tag_order};
use super::seal::{entry_sum, is_tag};
use crate::stored::{Key, Stored};

/// An entry, and its own link as it was when it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) node: u64,
    pub(super) link: Word,
}

/// A value read from an entry.
pub(super) enum Value<'m> {
    Word([u8; 8]),
    Bytes(Cow<'m, [u8]>),
}

impl Value<'_> {
    /// The value, when it has at most 8 bytes.
    #[inline(always)]
    pub(super) fn word(&self) -> Option<u64> {
        match self {
            Value::Word(bytes) => Some(u64::from_le_bytes(*bytes)),
            Value::Bytes(_) => None,
        }
    }

    #[inline(always)]
    pub(super) fn with<V: Stored + ?Sized, R>(&self, use_value: impl FnOnce(&V) -> R) -> R {
        match self {
            Value::Word(bytes) => {
                let len = V::LEN.map_or(8, |len| len as usize).min(8);
                V::with_stored(&bytes[..len], use_value)
            }
            Value::Bytes(bytes) => V::with_stored(bytes, use_value),
        }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium, const MULTI: bool> Core<K, V, M, MULTI> {
    #[inline(always)]
    pub(super) fn hash(&self, key: &K) -> u64 {
        key.hash(self.seed)
    }

    /// Whether the tag of the node at `node` is one of this map's.
    #[inline(always)]
    pub(super) fn is_tag(&self, node: u64, tag: u64) -> bool {
        is_tag(self.heap.member(), node, tag)
    }

    /// Whether entries of this generation are still in the map.
    #[inline(always)]
    pub(super) fn is_alive(generation: u8, now: u8) -> bool {
        // Wrapping: sweeping keeps all generations in the list within half the range.
        generation.wrapping_sub(now) < 1 << 7
    }

    #[inline(always)]
    pub(super) fn generation(&self) -> u8 {
        // Acquire: pairs with the Release in `clear_all`, which follows the durable word.
        self.generation.load(Ordering::Acquire) as u8
    }

    /// Whether the entry at `node`, whose own link this is, is in the map. A link without marks is
    /// not checked.
    #[inline(always)]
    pub(super) fn is_there(&self, node: u64, own: Word) -> Result<bool, Damage> {
        Ok(own.raw() & GONE == 0 || !self.is_gone(node, own)?)
    }

    /// Whether the entry at `node`, whose own link this is, was removed.
    #[inline(always)]
    pub(super) fn is_gone(&self, node: u64, own: Word) -> Result<bool, Damage> {
        self.check_link(node, own)?;
        match own.raw() & GONE {
            0 => Ok(false),
            GONE => Ok(true),
            _ => Err(Damage::at(node, "half of an entry's mark is there")),
        }
    }

    /// The shape of the node at `node`, whose parts must lie in the pool.
    #[inline(always)]
    pub(super) fn shape(&self, node: u64) -> Result<Shape, Damage> {
        match Shape::read::<K, V, M>(self.medium(), node) {
            Some(shape) if self.is_inside(node, shape.len) => Ok(shape),
            _ => Err(Damage::at(node, "no entry can have these lengths")),
        }
    }

    /// Passes the key of the entry at `node` to `use_key`, if it has the order that is in the
    /// entry's tag.
    pub(super) fn with_key<R>(
        &self,
        node: u64,
        tag: u64,
        use_key: impl FnOnce(&K) -> R,
    ) -> Result<R, Damage> {
        let shape = self.shape(node)?;
        // SAFETY: the key of a published node never changes, and the caller's lane keeps the node
        // from being freed.
        let range = unsafe { Frozen::new(node + shape.key_at, shape.key_len) };
        K::with_stored(&self.medium().view(range), |key| {
            if Order::of_hash(self.hash(key)) != tag_order(tag) {
                return Err(Damage::at(
                    node,
                    "the key of an entry has changed: it belongs elsewhere",
                ));
            }
            Ok(use_key(key))
        })
    }

    /// The shape of the entry at `node`, which has the order of `key`, if the entry's key is `key`.
    #[inline(always)]
    pub(super) fn entry_of(&self, node: u64, tag: u64, key: &K) -> Result<Option<Shape>, Damage> {
        let shape = self.shape(node)?;
        let has_len = K::LEN.is_some() || shape.key_len == key.stored_len();
        if has_len && key.matches(self.medium(), node + shape.key_at) {
            return Ok(Some(shape));
        }
        // It is another key of the same order, which is rare, or the same key, damaged.
        self.with_key(node, tag, |_| None)
    }

    /// Compares the checksum of the entry at `node` with its value's bytes.
    #[inline(always)]
    pub(super) fn check_sum(
        &self,
        node: u64,
        tag: u64,
        shape: &Shape,
        value: &[u8],
    ) -> Result<(), Damage> {
        if !self.is_summed {
            return Ok(());
        }
        let computed = entry_sum(tag, value);
        if computed == shape.sum {
            return Ok(());
        }
        Err(Damage::Sum { node, stored: shape.sum, computed })
    }

    /// Reads the value of an entry that was found.
    #[inline(always)]
    pub(super) fn value(&self, found: Found) -> Result<Value<'_>, Damage> {
        let tag = if in_place::<V>() { 0 } else { self.medium().load(found.node + TAG) };
        self.value_in(found, tag, &self.shape(found.node)?)
    }

    /// As `value`, for an entry whose tag and shape are known.
    #[inline(always)]
    pub(super) fn value_in(
        &self,
        found: Found,
        tag: u64,
        shape: &Shape,
    ) -> Result<Value<'_>, Damage> {
        let medium = self.medium();
        if !in_place::<V>() {
            // SAFETY: the value of a published node never changes. The lane that every caller holds
            // keeps the node from being freed, and the view does not outlive the lane.
            let range = unsafe { Frozen::new(found.node + shape.value_at, shape.value_len) };
            let bytes = medium.view(range);
            self.check_sum(found.node, tag, shape, &bytes)?;
            return Ok(Value::Bytes(bytes));
        }
        let mut own = found.link;
        loop {
            let word = medium.load(found.node + VALUE);
            // A value and its link's tag change together. So an equal tag before and after the read
            // means that the value belongs to the clean link, and is durable.
            let after = Link::at(medium, found.node).load_durable();
            if after.tag() == own.tag() {
                return Ok(Value::Word(word.to_le_bytes()));
            }
            own = after;
        }
    }
}
