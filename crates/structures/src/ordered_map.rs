//! Maps whose entries have an order.

use std::borrow::Borrow;
use std::ops::{Bound, ControlFlow};

use crate::Result;
use crate::key_range::{KeyRange, PrefixKey};
use crate::map::{Map, remove_unwanted};
use crate::range::{Range, borrowed};
use crate::stored::{OrderedKey, Stored};

/// A [`Map`] whose entries have an order: that of their keys.
pub trait OrderedMap<K: OrderedKey + ?Sized, V: Stored + ?Sized>: Map<K, V> {
    /// Visits the entries of a range, in ascending order, until `visit` breaks. `visit` must not
    /// change the map.
    ///
    /// Each leaf is read as it is at one moment. Entries that are present throughout are visited
    /// exactly once.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn ascend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()>;

    /// As [`ascend`](OrderedMap::ascend), in descending order.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn descend(
        &self,
        range: impl KeyRange<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Copies of the entries of a range, from either end, fetched some at a time.
    ///
    /// Entries that are present throughout occur exactly once. The map may change meanwhile, even
    /// by the holder of the iterator.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::BlinkTree;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
    /// let primes: BlinkTree<u32, str> = BlinkTree::create(&pool, "primes")?;
    /// for (prime, name) in [(5, "five"), (2, "two"), (7, "seven"), (3, "three")] {
    ///     primes.insert(&prime, name)?;
    /// }
    /// let entries = primes.range(3..).rev().collect::<Result<Vec<_>, _>>()?;
    /// let names: Vec<&str> = entries.iter().map(|(_, name)| name.as_str()).collect();
    /// assert_eq!(names, ["seven", "five", "three"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn range(&self, range: impl KeyRange<K>) -> Range<'_, K, V, Self>
    where
        Self: Sized,
    {
        let (start, end) = range.key_bounds();
        Range::new(self, (start.map(K::to_owned), end.map(K::to_owned)))
    }

    /// Copies of the entries whose keys begin with `prefix`, as from [`range`](OrderedMap::range).
    /// Every key begins with the empty prefix.
    fn prefix(&self, prefix: &K::Prefix) -> Range<'_, K, V, Self>
    where
        Self: Sized,
        K: PrefixKey,
    {
        Range::new(self, K::prefix_range(prefix))
    }

    /// A copy of the entry with the least key.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        let mut first = None;
        self.ascend(.., |key, value| {
            first = Some((key.to_owned(), value.to_owned()));
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// A copy of the entry with the greatest key.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        let mut last = None;
        self.descend(.., |key, value| {
            last = Some((key.to_owned(), value.to_owned()));
            ControlFlow::Break(())
        })?;
        Ok(last)
    }

    /// Removes the entry with the least key and returns it.
    ///
    /// The removal is one step, so no two threads get the same entry. The key was the least at some
    /// moment during the call: if another thread inserts a lesser key meanwhile, the call may
    /// return the greater one. If a crash follows the removal, the entry is lost to the caller. To
    /// process every entry at least once, read it by [`first`](OrderedMap::first) and remove it
    /// after the work is done.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn pop_first(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        loop {
            let mut first = None;
            self.ascend(.., |key, _| {
                first = Some(key.to_owned());
                ControlFlow::Break(())
            })?;
            let Some(key) = first else { return Ok(None) };
            if let Some(value) = self.remove(key.borrow())? {
                return Ok(Some((key, value)));
            }
            // Another thread removed it: look for the entry that is first now.
        }
    }

    /// Removes the entry with the greatest key and returns it, as
    /// [`pop_first`](OrderedMap::pop_first) does with the least.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn pop_last(&self) -> Result<Option<(K::Owned, V::Owned)>> {
        loop {
            let mut last = None;
            self.descend(.., |key, _| {
                last = Some(key.to_owned());
                ControlFlow::Break(())
            })?;
            let Some(key) = last else { return Ok(None) };
            if let Some(value) = self.remove(key.borrow())? {
                return Ok(Some((key, value)));
            }
            // Another thread removed it: look for the entry that is last now.
        }
    }

    /// Removes the entries of a range, and returns how many it removed.
    ///
    /// This is not one step: entries are removed one by one, in ascending order, up to the key that
    /// is the last of the range when the call begins. Entries that are there throughout are
    /// removed. Entries that other threads insert meanwhile may stay. A crash leaves those that
    /// were not reached.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify). What was removed before stays removed.
    fn remove_range(&self, range: impl KeyRange<K>) -> Result<u64> {
        retain_in(self, range.key_bounds(), |_, _| false)
    }
}

/// Keys that are collected before their entries are removed.
const BATCH: usize = 64;

/// Removes the entries of a range for which `keep` returns false, and returns how many it removed.
pub(crate) fn retain_in<K: OrderedKey + ?Sized, V: Stored + ?Sized>(
    map: &(impl OrderedMap<K, V> + ?Sized),
    (start, end): (Bound<&K>, Bound<&K>),
    mut keep: impl FnMut(&K, &V) -> bool,
) -> Result<u64> {
    // The range ends at the key that is last now. Other threads may insert greater ones for ever,
    // and the loop below must end.
    let mut last = None;
    map.descend((start, end), |key, _| {
        last = Some(key.to_owned());
        ControlFlow::Break(())
    })?;
    let Some(last) = last else { return Ok(0) };
    let mut start = start.map(K::to_owned);
    let mut removed = 0;
    loop {
        let mut unwanted: Vec<K::Owned> = Vec::new();
        let rest = (borrowed::<K>(&start), Bound::Included(last.borrow()));
        map.ascend(rest, |key, value| {
            if !keep(key, value) {
                unwanted.push(key.to_owned());
            }
            if unwanted.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        removed += remove_unwanted(map, &unwanted, &mut keep)?;
        if unwanted.len() < BATCH {
            return Ok(removed);
        }
        start = unwanted.pop().map_or(Bound::Unbounded, Bound::Excluded);
    }
}
