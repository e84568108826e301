//! Copies of the entries of a range, fetched some at a time.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, ControlFlow};

use crate::Result;
use crate::ordered_map::OrderedMap;
use crate::stored::{OrderedKey, Stored};

/// Entries that are fetched at a time.
const BATCH: usize = 64;

/// Copies of the entries of a range, fetched some at a time; see [`OrderedMap::range`].
pub struct Range<'m, K: OrderedKey + ?Sized, V: Stored + ?Sized, T: ?Sized> {
    entries: RangeCopies<'m, K, V, T, (K::Owned, V::Owned)>,
}

impl<'m, K, V, T> Range<'m, K, V, T>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    pub(crate) fn new(map: &'m T, bounds: (Bound<K::Owned>, Bound<K::Owned>)) -> Self {
        let copy = |key: &K, value: &V| (key.to_owned(), value.to_owned());
        Range { entries: RangeCopies::new(map, bounds, copy) }
    }
}

impl<K, V, T> Iterator for Range<'_, K, V, T>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }
}

impl<K, V, T> DoubleEndedIterator for Range<'_, K, V, T>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.next_back()
    }
}

impl<K: OrderedKey + ?Sized, V: Stored + ?Sized, T: ?Sized> fmt::Debug for Range<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

/// What `copy` makes of the entries of a range, from either end.
pub(crate) struct RangeCopies<'m, K: OrderedKey + ?Sized, V: Stored + ?Sized, T: ?Sized, C> {
    map: &'m T,
    copy: fn(&K, &V) -> C,
    /// Bounds of the entries that are not fetched yet.
    start: Bound<K::Owned>,
    end: Bound<K::Owned>,
    /// Fetched from the front, in ascending order.
    front: VecDeque<C>,
    /// Fetched from the back, in descending order.
    back: VecDeque<C>,
    /// Whether nothing is left between the two, or fetching it failed.
    is_done: bool,
}

impl<'m, K, V, T, C> RangeCopies<'m, K, V, T, C>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    pub(crate) fn new(
        map: &'m T,
        (start, end): (Bound<K::Owned>, Bound<K::Owned>),
        copy: fn(&K, &V) -> C,
    ) -> Self {
        let (front, back) = (VecDeque::new(), VecDeque::new());
        RangeCopies { map, copy, start, end, front, back, is_done: false }
    }

    fn fetch(&mut self, backwards: bool) -> Result<()> {
        let bounds = (borrowed::<K>(&self.start), borrowed::<K>(&self.end));
        let batch = if backwards { &mut self.back } else { &mut self.front };
        let mut last = None;
        let visit = |key: &K, value: &V| {
            batch.push_back((self.copy)(key, value));
            if batch.len() < BATCH {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_owned());
            ControlFlow::Break(())
        };
        if backwards {
            self.map.descend(bounds, visit)?;
        } else {
            self.map.ascend(bounds, visit)?;
        }
        match last.map(Bound::Excluded) {
            Some(beyond) if backwards => self.end = beyond,
            Some(beyond) => self.start = beyond,
            // Entries that are inserted later would be out of order once the other end's are handed
            // out.
            None => self.is_done = true,
        }
        Ok(())
    }

    fn take(&mut self, backwards: bool) -> Option<Result<C>> {
        let is_empty = if backwards { self.back.is_empty() } else { self.front.is_empty() };
        if is_empty
            && !self.is_done
            && let Err(error) = self.fetch(backwards)
        {
            self.is_done = true;
            // Nothing follows an error, not even entries that were fetched before it.
            self.front.clear();
            self.back.clear();
            return Some(Err(error));
        }
        // When nothing is left to fetch, the entries that the other end has fetched come next.
        let copy = if backwards {
            self.back.pop_front().or_else(|| self.front.pop_back())
        } else {
            self.front.pop_front().or_else(|| self.back.pop_back())
        };
        copy.map(Ok)
    }
}

impl<K, V, T, C> Iterator for RangeCopies<'_, K, V, T, C>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    type Item = Result<C>;

    fn next(&mut self) -> Option<Self::Item> {
        self.take(false)
    }
}

impl<K, V, T, C> DoubleEndedIterator for RangeCopies<'_, K, V, T, C>
where
    K: OrderedKey + ?Sized,
    V: Stored + ?Sized,
    T: OrderedMap<K, V>,
{
    fn next_back(&mut self) -> Option<Self::Item> {
        self.take(true)
    }
}

/// An owned bound of a range as a borrowed one, which maps take.
pub(crate) fn borrowed<K: OrderedKey + ?Sized>(bound: &Bound<K::Owned>) -> Bound<&K> {
    bound.as_ref().map(<K::Owned as Borrow<K>>::borrow)
}
