//! What programs call on a map beyond single reads and writes.

use std::borrow::Borrow;

use remanent_pmem::Medium;

use super::ExtendibleMap;
use crate::iterate::{Copies, Iter, retain, scan_of};
use crate::map::Map;
use crate::stored::{Key, Stored};
use crate::{Change, Result};

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> ExtendibleMap<K, V, M> {
    /// Begins to fetch the entries of some keys into the CPU's caches. No fence.
    ///
    /// Calls for several keys wait for memory one after the other. If the keys are known before,
    /// this lets the waits overlap: some ten keys at a time, whose entries are read or written soon
    /// after. It changes nothing and fails never, but waits where [`get`](ExtendibleMap::get) does.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::ExtendibleMap;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let ages: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "ages")?;
    /// ages.extend([("Ada", 36), ("Grace", 85)])?;
    /// let names = ["Ada", "Grace", "Alan"];
    /// ages.prefetch(names.into_iter());
    /// let found = names.map(|name| ages.get(name)).into_iter().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(found, [Some(36), Some(85), None]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k K> + Clone)
    where
        K: 'k,
    {
        self.core.prefetch_all(keys);
    }

    /// As [`modify`](ExtendibleMap::modify), with a `decide` that may fail. Its error is returned
    /// as the inner result, and changes nothing.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::{Change, ExtendibleMap};
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let balances: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "balances")?;
    /// balances.put("Ada", &100)?;
    /// let withdraw = |amount: u64| {
    ///     balances.try_modify("Ada", |found| {
    ///         let balance = found.ok_or("there is no such account")?;
    ///         let rest = balance.checked_sub(amount).ok_or("there is not so much")?;
    ///         Ok::<_, &str>((Change::Put(rest), rest))
    ///     })
    /// };
    /// assert_eq!(withdraw(30)??, 70); // the pool's result, then that of the closure
    /// assert_eq!(withdraw(80)?, Err("there is not so much"));
    /// assert_eq!(balances.get("Ada")?, Some(70));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert): that is the outer result.
    #[inline]
    pub fn try_modify<R, T: Borrow<V>, E>(
        &self,
        key: &K,
        decide: impl FnMut(Option<&V>) -> Result<(Change<T>, R), E>,
    ) -> Result<Result<R, E>> {
        Map::try_modify(self, key, decide)
    }

    /// Sets the value of `key` and returns the one it had, as one step. At most two fences, as
    /// [`put`](ExtendibleMap::put).
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert).
    #[inline]
    pub fn swap(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        Map::swap(self, key, value)
    }

    /// Sets the entry of `key` to `new` if it equals `expected`, as one step. `None` stands for no
    /// entry. The inner error holds what was there instead; nothing was changed then.
    ///
    /// Values are equal when their stored forms are. So `0.0` does not equal `-0.0`, and a `NaN`
    /// equals itself.
    ///
    /// Fences as for [`insert`](ExtendibleMap::insert), [`update`](ExtendibleMap::update) or
    /// [`remove`](ExtendibleMap::remove), depending on what is exchanged; none when nothing is
    /// changed.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::ExtendibleMap;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let owners: ExtendibleMap<str, str> = ExtendibleMap::create(&pool, "owners of locks")?;
    /// assert_eq!(owners.compare_exchange("lock", None, Some("one"))?, Ok(()));
    /// let refused = owners.compare_exchange("lock", None, Some("other"))?;
    /// assert_eq!(refused, Err(Some("one".to_owned())));
    /// assert_eq!(owners.compare_exchange("lock", Some("one"), None)?, Ok(())); // removed
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert): that is the outer result.
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
    /// Two fences, or none when the key is present.
    ///
    /// `make` is called at most once, before the step that inserts, so it may use the map. If
    /// another thread inserts a value meanwhile, that value is returned and the one of `make` is
    /// dropped.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::ExtendibleMap;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let titles: ExtendibleMap<u64, str> = ExtendibleMap::create(&pool, "titles")?;
    /// assert_eq!(titles.get_or_insert_with(&1, || "fetched".to_owned())?, "fetched");
    /// assert_eq!(titles.get_or_insert_with(&1, || unreachable!())?, "fetched");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert).
    #[inline]
    pub fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V::Owned) -> Result<V::Owned> {
        Map::get_or_insert_with(self, key, make)
    }

    /// Puts entries into the map, one after the other, and returns how many of their keys are new.
    /// This is not one step: after a crash a prefix of the sequence is there. Each entry costs what
    /// [`put`](ExtendibleMap::put) costs.
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMap::insert). What was put before stays.
    pub fn extend<A: Borrow<K>, B: Borrow<V>>(
        &self,
        entries: impl IntoIterator<Item = (A, B)>,
    ) -> Result<u64> {
        Map::extend(self, entries)
    }

    /// Removes the entries for which `keep` returns false, and returns how many it removed. One
    /// fence for each of them.
    ///
    /// This is not one step: entries are removed one by one, and a crash leaves those that were not
    /// reached. `keep` is called for each entry during a [`scan`](ExtendibleMap::scan), and again
    /// inside the step that removes the entry. So an entry that another thread changes meanwhile is
    /// judged by its new value. `keep` should have no other effect, and may not use the map.
    ///
    /// ```
    /// # use remanent_pmem::Pool;
    /// # use remanent_structures::ExtendibleMap;
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let expiries_unix_s: ExtendibleMap<str, u64> = ExtendibleMap::create(&pool, "expiries")?;
    /// expiries_unix_s.extend([("a", 100), ("b", 200), ("c", 300)])?;
    /// assert_eq!(expiries_unix_s.retain(|_, expiry_unix_s| *expiry_unix_s > 150)?, 1);
    /// assert!(!expiries_unix_s.contains("a")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What was removed before stays removed.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) -> Result<u64> {
        retain(self, keep)
    }

    /// Copies of all keys, in no particular order; see [`scan`](ExtendibleMap::scan).
    pub fn keys(&self) -> impl Iterator<Item = Result<K::Owned>> + '_ {
        Copies::new(self, |key: &K, _: &V| key.to_owned())
    }

    /// Copies of all values, in no particular order; see [`scan`](ExtendibleMap::scan).
    pub fn values(&self) -> impl Iterator<Item = Result<V::Owned>> + '_ {
        Copies::new(self, |_: &K, value: &V| value.to_owned())
    }
}

scan_of!(ExtendibleMap);

impl<'m, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> IntoIterator
    for &'m ExtendibleMap<K, V, M>
{
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Iter<'m, K, V, ExtendibleMap<K, V, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
