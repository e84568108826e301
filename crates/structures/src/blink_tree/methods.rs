//! What a program calls on a tree: entries by their keys, and all of them.

use std::borrow::Borrow;

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::BlinkTree;
use crate::map::Map;
use crate::stored::{OrderedKey, Stored};
use crate::{Change, Result};

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BlinkTree<K, V, M> {
    /// A copy of the value of `key`. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        Map::get(self, key)
    }

    /// Passes the value of `key` to `use_value`, without a copy where memory is mapped. No fence.
    ///
    /// The value's space is not freed meanwhile, so `use_value` should be quick; and it may not
    /// change the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn get_with<R>(&self, key: &K, use_value: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        Map::get_with(self, key, use_value)
    }

    /// Whether `key` has a value. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn contains(&self, key: &K) -> Result<bool> {
        Map::contains(self, key)
    }

    /// Adds an entry unless the key is present. Returns whether it was added. One fence, two where
    /// there is a record.
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long: nothing was changed. When the medium met a
    /// fault.
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<bool> {
        Map::insert(self, key, value)
    }

    /// Sets the value of `key`. Returns whether the key is new. Fences as for
    /// [`insert`](BlinkTree::insert), or as for [`update`](BlinkTree::update).
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert).
    #[inline]
    pub fn put(&self, key: &K, value: &V) -> Result<bool> {
        Map::put(self, key, value)
    }

    /// Sets the value of `key` when it is present. Returns whether it was. One fence for a value of
    /// at most 8 bytes, else two.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert).
    #[inline]
    pub fn update(&self, key: &K, value: &V) -> Result<bool> {
        Map::update(self, key, value)
    }

    /// Removes the entry of `key` and returns its value. One fence, two where there is a record.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn remove(&self, key: &K) -> Result<Option<V::Owned>> {
        Map::remove(self, key)
    }

    /// Removes the entry of `key`. Returns whether there was one. Fences as for
    /// [`remove`](BlinkTree::remove).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn discard(&self, key: &K) -> Result<bool> {
        Map::discard(self, key)
    }

    /// Reads an entry and decides what becomes of it, as one step that no other thread and no crash
    /// divides.
    ///
    /// `decide` runs while the leaf is held: other threads wait for it, and it may not use the map.
    /// It runs again after a leaf was divided, or when the pool was full and room could be made, so
    /// it should have no other effect. It should not change other maps, count or clear them, or
    /// commit a batch: where that would have to wait for others, it is refused with
    /// [`Error::Nested`](crate::Error::Nested), since they may wait for the closure.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::{BlinkTree, Change};
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let visits: BlinkTree<str, u64> = BlinkTree::create(&pool, "visits")?;
    /// let count = visits.modify("home", |found| {
    ///     let count = found.copied().unwrap_or(0) + 1;
    ///     (Change::Put(count), count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert).
    #[inline]
    pub fn modify<R, T: Borrow<V>>(
        &self,
        key: &K,
        decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R> {
        Map::modify(self, key, decide)
    }

    /// As [`modify`](BlinkTree::modify), with a `decide` that may fail. Its error is returned as
    /// the inner result, and changes nothing. [`HashMap::try_modify`](crate::HashMap::try_modify)
    /// has an example.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert): that is the outer result.
    #[inline]
    pub fn try_modify<R, T: Borrow<V>, E>(
        &self,
        key: &K,
        decide: impl FnMut(Option<&V>) -> Result<(Change<T>, R), E>,
    ) -> Result<Result<R, E>> {
        Map::try_modify(self, key, decide)
    }

    /// Sets the value of `key` and returns the one it had, as one step. Fences as for
    /// [`put`](BlinkTree::put).
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert).
    #[inline]
    pub fn swap(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        Map::swap(self, key, value)
    }

    /// Sets the entry of `key` to `new` if it equals `expected`, as one step. `None` stands for no
    /// entry. The inner error holds what was there instead; nothing was changed then.
    /// [`HashMap::compare_exchange`](crate::HashMap::compare_exchange) says more, and has an
    /// example.
    ///
    /// Fences as for [`insert`](BlinkTree::insert), [`update`](BlinkTree::update) or
    /// [`remove`](BlinkTree::remove), depending on what is exchanged; none when nothing is changed.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert): that is the outer result.
    #[inline]
    pub fn compare_exchange(
        &self,
        key: &K,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<Result<(), Option<V::Owned>>> {
        Map::compare_exchange(self, key, expected, new)
    }

    /// A copy of the value of `key`. A key without a value gets the one that `make` returns first.
    /// Fences as for [`insert`](BlinkTree::insert), and none when the key is present.
    ///
    /// `make` is called at most once, before the step that inserts, so it may use the map. If
    /// another thread inserts a value meanwhile, that value is returned and the one of `make` is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert).
    #[inline]
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V::Owned) -> Result<V::Owned> {
        Map::get_or_insert_with(self, key, make)
    }

    /// Puts entries into the map, one after the other, and returns how many of their keys are new.
    /// This is not one step: after a crash a prefix of the sequence is there.
    ///
    /// Each entry costs what [`put`](BlinkTree::put) costs. [`bulk_load`](BlinkTree::bulk_load)
    /// takes what this takes, and needs four fences for a whole leaf where sorted entries come
    /// behind all that are there.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BlinkTree::insert). What was put before stays.
    pub fn extend<A: Borrow<K>, B: Borrow<V>>(
        &self,
        entries: impl IntoIterator<Item = (A, B)>,
    ) -> Result<u64> {
        Map::extend(self, entries)
    }

    /// Removes every entry in one pass from the least key to the greatest, and returns how many it
    /// removed.
    ///
    /// This is not one step: entries that are there throughout are removed, and entries that other
    /// threads insert meanwhile may stay. A crash leaves those that were not reached. Each 24
    /// entries of a leaf take two fences, and joining leaves takes four.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or not even what removing needs is left in a full pool.
    pub fn clear(&self) -> Result<u64> {
        Map::clear(self)
    }

    /// Number of entries. The first call after a crash has to count, and holds other operations up
    /// while it visits every leaf: about a microsecond for thirty entries.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn len(&self) -> Result<u64> {
        Map::len(self)
    }

    /// Whether there is no entry. Looks for one, and counts none.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn is_empty(&self) -> Result<bool> {
        Map::is_empty(self)
    }

    /// Proves that the map is whole: every key where it belongs and there once, nodes and leaves
    /// linked as they should be, and exactly the reachable blocks allocated. No operation may be in
    /// progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the map is the result, not an error.
    pub fn check(&self) -> Result<Vec<Violation>> {
        Map::check(self)
    }
}
