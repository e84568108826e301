//! Copies of a hash map's entries, fetched some at a time.

use std::collections::VecDeque;
use std::fmt;

use crate::Result;
use crate::map::{Map, remove_unwanted};
use crate::stored::{Key, Stored};

/// Entries that are fetched at a time.
const BATCH: usize = 64;

/// A map whose entries are visited in parts, from one cursor to the next.
pub(crate) trait Scan<K: Key + ?Sized, V: Stored + ?Sized> {
    /// Visits about `limit` entries, and returns the cursor for the next call; 0 when done.
    fn scan_part(&self, cursor: u64, limit: usize, visit: &mut dyn FnMut(&K, &V)) -> Result<u64>;
}

/// Implements `Scan` by each map's method `scan`.
macro_rules! scan_of {
    ($($map:ident),*) => {$(
        impl<K, V, M> $crate::iterate::Scan<K, V> for $map<K, V, M>
        where
            K: $crate::Key + ?Sized,
            V: $crate::Stored + ?Sized,
            M: ::remanent_pmem::Medium,
        {
            fn scan_part(
                &self,
                cursor: u64,
                limit: usize,
                visit: &mut dyn FnMut(&K, &V),
            ) -> $crate::Result<u64> {
                self.scan(cursor, limit, visit)
            }
        }
    )*};
}

pub(crate) use scan_of;

/// Copies of all entries of a map without an order, fetched some at a time.
///
/// Entries that are present throughout occur exactly once, others at most once.
pub struct Iter<'m, K: Key + ?Sized, V: Stored + ?Sized, T> {
    entries: Copies<'m, K, V, T, (K::Owned, V::Owned)>,
}

impl<'m, K: Key + ?Sized, V: Stored + ?Sized, T> Iter<'m, K, V, T> {
    pub(crate) fn new(map: &'m T) -> Self {
        let copy = |key: &K, value: &V| (key.to_owned(), value.to_owned());
        Iter { entries: Copies::new(map, copy) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, T: Scan<K, V>> Iterator for Iter<'_, K, V, T> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, T> fmt::Debug for Iter<'_, K, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// What `copy` makes of all entries of a map.
pub(crate) struct Copies<'m, K: ?Sized, V: ?Sized, T, C> {
    map: &'m T,
    copy: fn(&K, &V) -> C,
    /// Cursor of the next fetch. `None` after the last entry, or when fetching failed.
    cursor: Option<u64>,
    fetched: VecDeque<C>,
}

impl<'m, K: ?Sized, V: ?Sized, T, C> Copies<'m, K, V, T, C> {
    pub(crate) fn new(map: &'m T, copy: fn(&K, &V) -> C) -> Self {
        Copies { map, copy, cursor: Some(0), fetched: VecDeque::new() }
    }
}

impl<K, V, T, C> Iterator for Copies<'_, K, V, T, C>
where
    K: Key + ?Sized,
    V: Stored + ?Sized,
    T: Scan<K, V>,
{
    type Item = Result<C>;

    fn next(&mut self) -> Option<Result<C>> {
        loop {
            if let Some(copy) = self.fetched.pop_front() {
                return Some(Ok(copy));
            }
            let scanned = self.map.scan_part(self.cursor.take()?, BATCH, &mut |key, value| {
                self.fetched.push_back((self.copy)(key, value));
            });
            match scanned {
                Ok(next) => self.cursor = (next != 0).then_some(next),
                Err(error) => {
                    // Nothing follows an error, not even entries that were fetched before it.
                    self.fetched.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// Removes the entries for which `keep` returns false, and returns how many it removed.
pub(crate) fn retain<K: Key + ?Sized, V: Stored + ?Sized>(
    map: &(impl Map<K, V> + Scan<K, V>),
    mut keep: impl FnMut(&K, &V) -> bool,
) -> Result<u64> {
    let (mut cursor, mut removed) = (0, 0);
    loop {
        let mut unwanted: Vec<K::Owned> = Vec::new();
        cursor = map.scan_part(cursor, BATCH, &mut |key, value| {
            if !keep(key, value) {
                unwanted.push(key.to_owned());
            }
        })?;
        removed += remove_unwanted(map, &unwanted, &mut keep)?;
        if cursor == 0 {
            return Ok(removed);
        }
    }
}
