//! The interface that all maps have, so that dictionaries and indexes can exchange one for another.

use std::borrow::Borrow;
use std::ops::ControlFlow;

use remanent_pmem::heap::Violation;

use crate::Result;
use crate::stored::{Key, Stored};

/// What happens to an entry; see [`Map::modify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// The entry stays as it is, present or absent.
    Keep,
    /// The entry gets this value.
    Put(T),
    /// The entry is removed, if there is one.
    Remove,
}

/// A map from keys to values, shared by any number of threads.
///
/// Every call is atomic, for other threads and for a crash, unless its method says otherwise. When
/// it returns, its effect is durable in the pool's class. The effect of a call on a
/// [`BatchMap`](crate::BatchMap) becomes durable later.
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

    /// Reads an entry and changes it as `decide` says, as one step. `decide` runs again when
    /// another thread changed the entry first, and must not use the map.
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

    /// As [`modify`](Map::modify), with a `decide` that may fail. Its error is returned as the
    /// inner result, and nothing is changed.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify): that is the outer result.
    fn try_modify<R, T: Borrow<V>, E>(
        &self,
        key: &K,
        mut decide: impl FnMut(Option<&V>) -> Result<(Change<T>, R), E>,
    ) -> Result<Result<R, E>> {
        self.modify(key, |found| match decide(found) {
            Ok((change, result)) => (change, Ok(result)),
            Err(error) => (Change::Keep, Err(error)),
        })
    }

    /// Sets the value of `key` and returns the one it had, as one step.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn swap(&self, key: &K, value: &V) -> Result<Option<V::Owned>> {
        self.modify(key, |found| (Change::Put(value), found.map(V::to_owned)))
    }

    /// Sets the entry of `key` to `new` if it equals `expected`, as one step. `None` stands for no
    /// entry. The inner error holds what was there instead; nothing was changed then.
    ///
    /// Values are equal when their stored forms are. So `0.0` does not equal `-0.0`, and a `NaN`
    /// equals itself.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify): that is the outer result.
    fn compare_exchange(
        &self,
        key: &K,
        expected: Option<&V>,
        new: Option<&V>,
    ) -> Result<Result<(), Option<V::Owned>>> {
        self.modify(key, |found| {
            let is_expected = match (found, expected) {
                (Some(found), Some(expected)) => is_same(found, expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            match new {
                _ if !is_expected => (Change::Keep, Err(found.map(V::to_owned))),
                Some(new) => (Change::Put(new), Ok(())),
                None => (Change::Remove, Ok(())),
            }
        })
    }

    /// A copy of the value of `key`. A key without a value gets the one that `make` returns first.
    ///
    /// `make` is called at most once, before the step that inserts, so it may use the map. If
    /// another thread inserts a value meanwhile, that value is returned and the one of `make` is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify).
    fn get_or_insert_with(&self, key: &K, make: impl FnOnce() -> V::Owned) -> Result<V::Owned> {
        if let Some(value) = self.get(key)? {
            return Ok(value);
        }
        let made = make();
        let value: &V = made.borrow();
        let found = self.modify(key, |found| match found {
            None => (Change::Put(value), None),
            Some(found) => (Change::Keep, Some(found.to_owned())),
        })?;
        Ok(found.unwrap_or(made))
    }

    /// Puts entries into the map, one after the other, and returns how many of their keys are new.
    /// This is not one step: after a crash a prefix of the sequence is there.
    ///
    /// # Errors
    ///
    /// As for [`modify`](Map::modify). What was put before stays.
    fn extend<A: Borrow<K>, B: Borrow<V>>(
        &self,
        entries: impl IntoIterator<Item = (A, B)>,
    ) -> Result<u64> {
        let mut count = 0;
        for (key, value) in entries {
            count += u64::from(self.put(key.borrow(), value.borrow())?);
        }
        Ok(count)
    }

    /// Removes every entry, and returns about how many there were. One step, unless the map says
    /// otherwise.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or a full pool lacks even the space that removing needs.
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

    /// Visits entries until `visit` breaks. Entries that are present throughout are visited once,
    /// others at most once. `visit` must not use the map.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    fn for_each(&self, visit: impl FnMut(&K, &V) -> ControlFlow<()>) -> Result<()>;

    /// Checks that the map is consistent. No operation may be in progress.
    ///
    /// # Errors
    ///
    /// When the medium met a fault. What is wrong with the map is the result, not an error.
    fn check(&self) -> Result<Vec<Violation>>;
}

/// Whether the stored forms of two values are equal.
pub(crate) fn is_same<V: Stored + ?Sized>(one: &V, other: &V) -> bool {
    one.with_bytes(|one| other.with_bytes(|other| one == other))
}

/// Removes the entries of these keys for which `keep` still returns false, and returns how many it
/// removed.
pub(crate) fn remove_unwanted<K: Key + ?Sized, V: Stored + ?Sized>(
    map: &(impl Map<K, V> + ?Sized),
    keys: &[K::Owned],
    keep: &mut impl FnMut(&K, &V) -> bool,
) -> Result<u64> {
    let mut removed = 0;
    for key in keys.iter().map(<K::Owned as Borrow<K>>::borrow) {
        let is_removed = map.modify(key, |found| match found {
            Some(value) if !keep(key, value) => (Change::<&V>::Remove, true),
            _ => (Change::Keep, false),
        })?;
        removed += u64::from(is_removed);
    }
    Ok(removed)
}

/// Entries of a hash map that [`Map::for_each`] scans at a time.
const BATCH: usize = 64;

/// Visits all entries, scanning from one cursor to the next, until `visit` breaks.
pub(crate) fn visit_all<K: ?Sized, V: ?Sized>(
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

/// Implements `Map` by a hash map's own methods of the same names.
macro_rules! map_of {
    ($map:ident) => {
        impl<K, V, M> $crate::Map<K, V> for $map<K, V, M>
        where
            K: $crate::Key + ?Sized,
            V: $crate::Stored + ?Sized,
            M: ::remanent_pmem::Medium,
        {
            #[inline]
            fn get_with<R>(
                &self,
                key: &K,
                use_value: impl FnOnce(&V) -> R,
            ) -> $crate::Result<Option<R>> {
                $map::get_with(self, key, use_value)
            }

            #[inline]
            fn modify<R, T: ::std::borrow::Borrow<V>>(
                &self,
                key: &K,
                decide: impl FnMut(Option<&V>) -> ($crate::Change<T>, R),
            ) -> $crate::Result<R> {
                $map::modify(self, key, decide)
            }

            #[inline]
            fn insert(&self, key: &K, value: &V) -> $crate::Result<bool> {
                $map::insert(self, key, value)
            }

            #[inline]
            fn put(&self, key: &K, value: &V) -> $crate::Result<bool> {
                $map::put(self, key, value)
            }

            #[inline]
            fn update(&self, key: &K, value: &V) -> $crate::Result<bool> {
                $map::update(self, key, value)
            }

            #[inline]
            fn remove(&self, key: &K) -> $crate::Result<Option<V::Owned>> {
                $map::remove(self, key)
            }

            #[inline]
            fn discard(&self, key: &K) -> $crate::Result<bool> {
                $map::discard(self, key)
            }

            fn clear(&self) -> $crate::Result<u64> {
                $map::clear(self)
            }

            fn len(&self) -> $crate::Result<u64> {
                $map::len(self)
            }

            fn for_each(
                &self,
                visit: impl FnMut(&K, &V) -> ::std::ops::ControlFlow<()>,
            ) -> $crate::Result<()> {
                let scan =
                    |cursor, limit, visit: &mut dyn FnMut(&K, &V)| self.scan(cursor, limit, visit);
                $crate::map::visit_all(scan, visit)
            }

            fn check(&self) -> $crate::Result<Vec<::remanent_pmem::heap::Violation>> {
                $map::check(self)
            }
        }
    };
}

pub(crate) use map_of;
