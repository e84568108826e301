//! What a program calls on a tree: entries in the order of their keys.

use std::ops::{Bound, ControlFlow};

use remanent_pmem::Medium;

use super::BlinkTree;
use crate::Result;
use crate::key_range::{KeyRange, PrefixKey};
use crate::ordered_map::{OrderedMap, retain_in};
use crate::range::{Range, RangeCopies};
use crate::stored::{OrderedKey, Stored};

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> BlinkTree<K, V, M> {
    /// Visits the entries of a range, in ascending order, until `visit` breaks. `visit` must not
    /// change the map. No fence.
    ///
    /// Each leaf is seen as it is at one moment. What is there throughout is visited exactly once.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn ascend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        OrderedMap::ascend(self, range, visit)
    }

    /// As [`ascend`](BlinkTree::ascend), in descending order.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    #[inline]
    pub fn descend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()> {
        OrderedMap::descend(self, range, visit)
    }

    /// Copies of the entries of a range, from either end, fetched some at a time. [`KeyRange`] says
    /// what is a range.
    ///
    /// What is there throughout occurs exactly once. The map may change meanwhile, even by the
    /// thread that holds the iterator.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::BlinkTree;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let ages: BlinkTree<str, u64> = BlinkTree::create(&pool, "ages")?;
    /// ages.extend([("Alan", 41), ("Ada", 36), ("Grace", 85)])?;
    /// let entries = ages.range("Ada".."B").collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(entries, [("Ada".to_owned(), 36), ("Alan".to_owned(), 41)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range(&self, range: impl KeyRange<K>) -> Range<'_, K, V, Self> {
        OrderedMap::range(self, range)
    }

    /// Copies of the entries whose keys begin with `prefix`, as those of a
    /// [`range`](BlinkTree::range). An empty prefix is that of all keys.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::BlinkTree;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let hits: BlinkTree<str, u64> = BlinkTree::create(&pool, "hits")?;
    /// hits.extend([("/", 9), ("/docs/api", 2), ("/docs/model", 3), ("/download", 4)])?;
    /// let docs = hits.prefix("/docs/").collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(docs, [("/docs/api".to_owned(), 2), ("/docs/model".to_owned(), 3)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefix(&self, prefix: &K::Prefix) -> Range<'_, K, V, Self>
    where
        K: PrefixKey,
    {
        OrderedMap::prefix(self, prefix)
    }

    /// Copies of all entries in the order of their keys, from either end; see
    /// [`range`](BlinkTree::range).
    pub fn iter(&self) -> Range<'_, K, V, Self> {
        self.range(..)
    }

    /// Copies of all keys in their order, from either end; see [`range`](BlinkTree::range).
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = Result<K::Owned>> + '_ {
        RangeCopies::new(self, (Bound::Unbounded, Bound::Unbounded), |key: &K, _: &V| {
            key.to_owned()
        })
    }

    /// Copies of all values in the order of their keys, from either end; see
    /// [`range`](BlinkTree::range).
    pub fn values(&self) -> impl DoubleEndedIterator<Item = Result<V::Owned>> + '_ {
        RangeCopies::new(self, (Bound::Unbounded, Bound::Unbounded), |_: &K, value: &V| {
            value.to_owned()
        })
    }

    /// A copy of the entry with the least key. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        OrderedMap::first(self)
    }

    /// A copy of the entry with the greatest key. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        OrderedMap::last(self)
    }

    /// Removes the entry with the least key and returns it. Fences as for
    /// [`remove`](BlinkTree::remove).
    ///
    /// The removal is one step, so no two threads get the same entry. The key was the least at some
    /// moment during the call: if another thread inserts a lesser key meanwhile, the call may
    /// return the greater one. If a crash follows the removal, the entry is lost to the caller. To
    /// process every entry at least once, read it by [`first`](BlinkTree::first) and remove it
    /// after the work is done.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::BlinkTree;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let by_priority: BlinkTree<(u32, u64), str> = BlinkTree::create(&pool, "jobs")?;
    /// by_priority.insert(&(2, 1), "sweep")?;
    /// by_priority.insert(&(1, 2), "answer")?;
    /// assert_eq!(by_priority.pop_first()?, Some(((1, 2), "answer".to_owned())));
    /// assert_eq!(by_priority.pop_first()?, Some(((2, 1), "sweep".to_owned())));
    /// assert_eq!(by_priority.pop_first()?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn pop_first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        OrderedMap::pop_first(self)
    }

    /// Removes the entry with the greatest key and returns it, as
    /// [`pop_first`](BlinkTree::pop_first) does with the least.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn pop_last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        OrderedMap::pop_last(self)
    }

    /// Removes the entries of a range, and returns how many it removed. Fences as for
    /// [`remove`](BlinkTree::remove), for each entry.
    ///
    /// This is not one step: entries are removed one by one, in ascending order, up to the key that
    /// is the last of the range when the call begins. Entries that are there throughout are
    /// removed. Entries that other threads insert meanwhile may stay. A crash leaves those that
    /// were not reached. To remove everything, [`clear`](BlinkTree::clear) needs fewer fences.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::BlinkTree;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let loads: BlinkTree<u64, f64> = BlinkTree::create(&pool, "load by second")?;
    /// loads.bulk_load((0..1000).map(|second| (second, 0.5)))?;
    /// assert_eq!(loads.remove_range(..900)?, 900);
    /// assert_eq!(loads.first()?, Some((900, 0.5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What was removed before stays removed.
    pub fn remove_range(&self, range: impl KeyRange<K>) -> Result<u64> {
        OrderedMap::remove_range(self, range)
    }

    /// Removes the entries for which `keep` returns false, and returns how many it removed. Fences
    /// as for [`remove`](BlinkTree::remove), for each entry that is removed.
    ///
    /// This is not one step: entries are removed one by one, as by
    /// [`remove_range`](BlinkTree::remove_range). `keep` is called for each entry while all are
    /// visited, and again inside the step that removes the entry. So an entry that another thread
    /// changes meanwhile is judged by its new value. `keep` should have no other effect, and may
    /// not use the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What was removed before stays removed.
    pub fn retain(&self, keep: impl FnMut(&K, &V) -> bool) -> Result<u64> {
        retain_in(self, (Bound::Unbounded, Bound::Unbounded), keep)
    }
}

impl<'m, K: OrderedKey + ?Sized, V: Stored + ?Sized, M: Medium> IntoIterator
    for &'m BlinkTree<K, V, M>
{
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Range<'m, K, V, BlinkTree<K, V, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
