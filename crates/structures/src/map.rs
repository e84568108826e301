//! What maps have in common, so that dictionaries and indexes can swap them.

use std::borrow::Borrow;
use std::ops::{ControlFlow, RangeBounds};

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use crate::range::Range;
use crate::stored::{Key, OrderedKey, Stored};
use crate::{BatchMap, Change, HashMap, Result};

/// A map from keys to values, shared by any number of threads.
///
/// Every call is one step that neither other threads nor a crash divide. When it returns, what it did is durable
/// in the pool's class; a [`BatchMap`] makes it so later.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::{HashMap, Map, Result};
///
/// /// Numbers words in the order in which they come; on any map.
/// fn number(words: &impl Map<str, u64>, word: &str) -> Result<u64> {
///     let next = words.len()?;
///     words.insert(word, &next)?;
///     Ok(words.get(word)?.expect("just inserted"))
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let words: HashMap<str, u64> = HashMap::create(&pool, "words")?;
/// assert_eq!(number(&words, "pool")?, 0);
/// assert_eq!(number(&words, "fence")?, 1);
/// assert_eq!(number(&words, "pool")?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Map<K: Key + ?Sized, V: Stored + ?Sized>: Send + Sync {
    /// Passes the value of `key` to `use_value`, which should be quick and must not change the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn get_with<R>(&self, key: &K, use_value: impl FnOnce(&V) -> R) -> Result<Option<R>>;

    /// A copy of the value of `key`.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        self.get_with(key, V::to_owned)
    }

    /// Whether `key` has a value.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn contains(&self, key: &K) -> Result<bool> {
        Ok(self.get_with(key, |_| ())?.is_some())
    }

    /// Reads an entry and decides what becomes of it, as one step. `decide` may run again when another thread was
    /// quicker, and must not use the map.
    ///
    /// # Errors
    ///
    /// When the pool is full, the entry is too long, or the medium met a fault.
    fn modify<R, T: Borrow<V>>(
        &self,
        key: &K,
        decide: impl FnMut(Option<&V>) -> (Change<T>, R),
    ) -> Result<R>;

    /// Adds an entry unless the key is present. Returns whether it was added.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn insert(&self, key: &K, value: &V) -> Result<bool> {
        self.modify(key, |found| match found {
            None => (Change::Put(value), true),
            Some(_) => (Change::Keep, false),
        })
    }

    /// Sets the value of `key`. Returns whether the key is new.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn put(&self, key: &K, value: &V) -> Result<bool> {
        self.modify(key, |found| (Change::Put(value), found.is_none()))
    }

    /// Sets the value of `key` when it is present. Returns whether it was.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn update(&self, key: &K, value: &V) -> Result<bool> {
        self.modify(key, |found| match found {
            Some(_) => (Change::Put(value), true),
            None => (Change::Keep, false),
        })
    }

    /// Removes the entry of `key` and returns its value.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn remove(&self, key: &K) -> Result<Option<V::Owned>> {
        self.modify(key, |found| (Change::<&V>::Remove, found.map(V::to_owned)))
    }

    /// Removes the entry of `key`. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn discard(&self, key: &K) -> Result<bool> {
        self.modify(key, |found| (Change::<&V>::Remove, found.is_some()))
    }

    /// Removes every entry, and says about how many there were. One step, unless the map says otherwise.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or not even what removing needs is left in a full pool.
    fn clear(&self) -> Result<u64>;

    /// Number of entries.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn len(&self) -> Result<u64>;

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Visits entries until `visit` breaks: those that are there throughout once, others once or not at all.
    /// `visit` must not use the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn for_each(&self, visit: impl FnMut(&K, &V) -> ControlFlow<()>) -> Result<()>;

    /// Proves that the map is whole. No operation may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the map is the result, not an error.
    fn check(&self) -> Result<Vec<Violation>>;
}

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

/// Entries that [`Map::for_each`] takes out of a hash map at a time.
const BATCH: usize = 64;

/// Visits everything that `scan` visits from one cursor to the next.
fn visit_all<K: ?Sized, V: ?Sized>(
    scan: impl Fn(u64, usize, &mut dyn FnMut(&K, &V)) -> Result<u64>,
    mut visit: impl FnMut(&K, &V) -> ControlFlow<()>,
) -> Result<()> {
    let (mut cursor, mut flow) = (0, ControlFlow::Continue(()));
    loop {
        cursor = scan(cursor, BATCH, &mut |key, value| {
            if flow.is_continue() {
                flow = visit(key, value);
            }
        })?;
        if cursor == 0 || flow.is_break() {
            return Ok(());
        }
    }
}

/// Leads the trait's methods to those of the same names that a hash map has.
macro_rules! map_of {
    ($map:ident) => {
        impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Map<K, V> for $map<K, V, M> {
            #[inline]
            fn get_with<R>(&self, key: &K, use_value: impl FnOnce(&V) -> R) -> Result<Option<R>> {
                $map::get_with(self, key, use_value)
            }

            #[inline]
            fn modify<R, T: Borrow<V>>(
                &self,
                key: &K,
                decide: impl FnMut(Option<&V>) -> (Change<T>, R),
            ) -> Result<R> {
                $map::modify(self, key, decide)
            }

            #[inline]
            fn insert(&self, key: &K, value: &V) -> Result<bool> {
                $map::insert(self, key, value)
            }

            #[inline]
            fn put(&self, key: &K, value: &V) -> Result<bool> {
                $map::put(self, key, value)
            }

            #[inline]
            fn update(&self, key: &K, value: &V) -> Result<bool> {
                $map::update(self, key, value)
            }

            #[inline]
            fn remove(&self, key: &K) -> Result<Option<V::Owned>> {
                $map::remove(self, key)
            }

            #[inline]
            fn discard(&self, key: &K) -> Result<bool> {
                $map::discard(self, key)
            }

            fn clear(&self) -> Result<u64> {
                $map::clear(self)
            }

            fn len(&self) -> Result<u64> {
                $map::len(self)
            }

            fn for_each(&self, visit: impl FnMut(&K, &V) -> ControlFlow<()>) -> Result<()> {
                visit_all(|cursor, limit, visit| self.scan(cursor, limit, visit), visit)
            }

            fn check(&self) -> Result<Vec<Violation>> {
                $map::check(self)
            }
        }
    };
}

map_of!(HashMap);
map_of!(BatchMap);
