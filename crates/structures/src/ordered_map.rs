//! Maps whose entries have an order, and copies of the entries of a range.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, ControlFlow, RangeBounds};

use crate::map::Map;
use crate::stored::{OrderedKey, Stored};
use crate::{Error, Result};

/// A [`Map`] whose entries have an order: that of their keys.
pub trait OrderedMap<K: OrderedKey + ?Sized, V: Stored + ?Sized>: Map<K, V> {
    /// Visits the entries of a range, in ascending order, until `visit` breaks. `visit` must not change the map.
    ///
    /// Each leaf is seen as it is at one moment. What is there throughout is visited exactly once.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn ascend(
        &self,
        range: impl RangeBounds<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()>;

    /// As [`ascend`](OrderedMap::ascend), in descending order.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn descend(
        &self,
        range: impl RangeBounds<K>,
        visit: impl FnMut(&K, &V) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Copies of the entries of a range, from either end, fetched some at a time.
    ///
    /// What is there throughout occurs exactly once. The map may change meanwhile, by whoever holds the iterator too.
    ///
    /// ```
    /// use remanent_pmem::Pool;
    /// use remanent_structures::{BlinkTree, Map, OrderedMap};
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
    fn range(&self, range: impl RangeBounds<K>) -> Range<'_, K, V, Self>
    where
        Self: Sized,
        K::Owned: Clone,
    {
        Range::new(self, range.start_bound(), range.end_bound())
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
}

/// Entries that are fetched at a time.
const BATCH: usize = 64;

/// Copies of the entries of a range, fetched some at a time; see [`OrderedMap::range`].
pub struct Range<'m, K: OrderedKey + ?Sized, V: Stored + ?Sized, T: ?Sized> {
    map: &'m T,
    /// What was not fetched yet lies between these.
    start: Bound<K::Owned>,
    end: Bound<K::Owned>,
    /// Fetched from the front, in ascending order.
    front: VecDeque<(K::Owned, V::Owned)>,
    /// Fetched from the back, in descending order.
    back: VecDeque<(K::Owned, V::Owned)>,
    /// Whether nothing is left between the two, or fetching it failed.
    is_done: bool,
}

impl<'m, K, V, T> Range<'m, K, V, T>
where
    K: OrderedKey + ?Sized,
    K::Owned: Clone,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    fn new(map: &'m T, start: Bound<&K>, end: Bound<&K>) -> Self {
        Range {
            map,
            start: start.map(K::to_owned),
            end: end.map(K::to_owned),
            front: VecDeque::new(),
            back: VecDeque::new(),
            is_done: false,
        }
    }

    fn fetch(&mut self, backwards: bool) -> Result<()> {
        let bounds =
            (self.start.as_ref().map(Borrow::borrow), self.end.as_ref().map(Borrow::borrow));
        let batch = if backwards { &mut self.back } else { &mut self.front };
        let visit = |key: &K, value: &V| {
            batch.push_back((key.to_owned(), value.to_owned()));
            if batch.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if backwards {
            self.map.descend(bounds, visit)?;
        } else {
            self.map.ascend(bounds, visit)?;
        }
        match batch.back() {
            Some((last, _)) => {
                let beyond = Bound::Excluded(last.clone());
                if backwards { self.end = beyond } else { self.start = beyond }
            }
            // What comes later would be out of order once the other end's are given out.
            None => self.is_done = true,
        }
        Ok(())
    }

    fn take(&mut self, backwards: bool) -> Option<Result<(K::Owned, V::Owned)>> {
        let is_empty = if backwards { self.back.is_empty() } else { self.front.is_empty() };
        if is_empty
            && !self.is_done
            && let Err(error) = self.fetch(backwards)
        {
            self.is_done = true;
            // Nothing follows an error, whatever came before it.
            self.front.clear();
            self.back.clear();
            return Some(Err(error));
        }
        // When nothing is left between both, what the other end has fetched comes next.
        let entry = if backwards {
            self.back.pop_front().or_else(|| self.front.pop_back())
        } else {
            self.front.pop_front().or_else(|| self.back.pop_back())
        };
        entry.map(Ok::<_, Error>)
    }
}

impl<K, V, T> Iterator for Range<'_, K, V, T>
where
    K: OrderedKey + ?Sized,
    K::Owned: Clone,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

impl<K, V, T> DoubleEndedIterator for Range<'_, K, V, T>
where
    K: OrderedKey + ?Sized,
    K::Owned: Clone,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, T: ?Sized> fmt::Debug for Range<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
