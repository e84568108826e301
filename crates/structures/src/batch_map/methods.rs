//! What programs call on a map beyond single reads and writes.

use std::borrow::Borrow;

use remanent_pmem::Medium;

use super::BatchMap;
use crate::iterate::{Copies, Iter, retain, scan_of};
use crate::map::Map;
use crate::stored::{Key, Stored};
use crate::{Change, Result};

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> BatchMap<K, V, M> {
    /// As [`modify`](BatchMap::modify), with a `decide` that may fail. Its error is returned as the
    /// inner result, and changes nothing. [`HashMap::try_modify`](crate::HashMap::try_modify) has
    /// an example.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert): that is the outer result.
    pub fn try_modify<R, T: Borrow<V>, E>(
        &self,
        key: &K,
        decide: impl FnMut(Option<&V>) -> Result<(Change<T>, R), E>,
    ) -> Result<Result<R, E>> {
        Map::try_modify(self, key, decide)
    }

    /// Sets the value of a key and returns the one it had, as one step.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert).
    pub fn swap(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        Map::swap(self, key, value)
    }

    /// Sets the entry of `key` to `new` if it equals `expected`, as one step. `None` stands for no
    /// entry. The inner error holds what was there instead; nothing was changed then.
    /// [`HashMap::compare_exchange`](crate::HashMap::compare_exchange) says more, and has an
    /// example.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert): that is the outer result.
    pub fn compare_exchange(
        &self,
        key: &K,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<Result<(), Option<V::Owned>>> {
        Map::compare_exchange(self, key, expected, new)
    }

    /// A copy of the value of `key`. A key without a value gets the one that `make` returns first.
    ///
    /// `make` is called at most once, before the step that inserts, so it may use the map. If
    /// another thread inserts a value meanwhile, that value is returned and the one of `make` is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert).
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V::Owned) -> Result<V::Owned> {
        Map::get_or_insert_with(self, key, make)
    }

    /// Puts entries into the map, one after the other, and returns how many of their keys are new.
    /// This is not one step: after a crash a prefix of the sequence is there.
    ///
    /// # Errors
    ///
    /// As for [`insert`](BatchMap::insert). What was put before stays.
    pub fn extend<A: Borrow<K>, B: Borrow<V>>(
        &self,
        entries: impl IntoIterator<Item = (A, B)>,
    ) -> Result<u64> {
        Map::extend(self, entries)
    }

    /// Removes the entries for which `keep` returns false, and returns how many it removed. This is
    /// not one step. [`HashMap::retain`](crate::HashMap::retain) says more, and has an example.
    ///
    /// # Errors
    ///
    /// As for [`remove`](BatchMap::remove). What was removed before stays removed.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) -> Result<u64> {
        retain(self, keep)
    }

    /// Copies of all keys, in no particular order; see [`scan`](BatchMap::scan).
    pub fn keys(&self) -> impl Iterator<Item = Result<K::Owned>> + '_ {
        Copies::new(self, |key: &K, _: &V| key.to_owned())
    }

    /// Copies of all values, in no particular order; see [`scan`](BatchMap::scan).
    pub fn values(&self) -> impl Iterator<Item = Result<V::Owned>> + '_ {
        Copies::new(self, |_: &K, value: &V| value.to_owned())
    }
}

scan_of!(BatchMap);

impl<'m, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> IntoIterator for &'m BatchMap<K, V, M> {
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Iter<'m, K, V, BatchMap<K, V, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
