//! A map with any number of values for a key.

pub(super) mod chain;
mod ops;
pub(super) mod recover;

use std::borrow::Borrow;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::heap::{Usage, Violation};
use remanent_pmem::{Mapped, Medium, Pool};

use super::Core;
use crate::iterate::{Iter, scan_of};
use crate::options::MapOptions;
use crate::shared::Site;
use crate::stored::{Key, Stored};
use crate::{Change, Error, Result};

/// An [`ExtendibleMap`](super::ExtendibleMap) that holds any number of values for a key.
///
/// The values of one key come back newest first. Each lies in a record of its own, which leads to
/// the one before it. So adding a value costs two fences however many there are, and removing one
/// costs a fence and a walk from the newest value to it. A record takes 32 bytes beside key and
/// value; a key takes a slot of 16 bytes more. Steps and batches cannot change a map of this form.
///
/// Readers take no lock and see nothing that a crash can undo. A visit of a key's values that other
/// threads change meanwhile finds all that are there throughout, once, and any of the others.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::ExtendibleMultiMap;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let rows: ExtendibleMultiMap<str, u64> = ExtendibleMultiMap::create(&pool, "rows by city")?;
/// rows.insert("Potsdam", &1)?;
/// rows.insert("Potsdam", &7)?;
/// assert_eq!(rows.get_all("Potsdam")?, [7, 1]);
/// assert!(rows.remove_one("Potsdam", &1)?);
/// assert_eq!(rows.get_all("Potsdam")?, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExtendibleMultiMap<K: Key + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    pub(super) core: Arc<Core<K, V, M, true>>,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> ExtendibleMultiMap<K, V, M> {
    /// Creates an empty map under a new root.
    ///
    /// # Errors
    ///
    /// When the name is taken or the pool is full.
    pub fn create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        Ok(ExtendibleMultiMap { core: pool.create_root(name)? })
    }

    /// As [`create`](ExtendibleMultiMap::create), with options that the map keeps.
    ///
    /// # Errors
    ///
    /// As for [`create`](ExtendibleMultiMap::create).
    pub fn create_with(pool: &Pool<M>, name: &str, options: &MapOptions) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let core =
            pool.create_root_with(name, |heap| Core::create_at(Site::alone(heap), options))?;
        Ok(ExtendibleMultiMap { core })
    }

    /// Opens an existing map, whatever state a crash left it in.
    ///
    /// # Errors
    ///
    /// When there is no such root, or it is of another type.
    pub fn open(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        Ok(ExtendibleMultiMap { core: pool.open_root(name)? })
    }

    /// Opens a map, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](ExtendibleMultiMap::open) and [`create`](ExtendibleMultiMap::create).
    pub fn open_or_create(pool: &Pool<M>, name: &str) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        match Self::open(pool, name) {
            Err(Error::Pool(remanent_pmem::Error::NoSuchRoot { .. })) => Self::create(pool, name),
            opened => opened,
        }
    }

    /// Adds a value. The key may have others, and the same one. Two fences.
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long, or the newest record of the key is damaged
    /// but for its value: nothing was changed.
    #[inline]
    pub fn insert(&self, key: &K, value: &V) -> Result<()> {
        self.core.edit_unread(key, |_| (Change::Put(value), ()))
    }

    /// Adds entries, one after the other. This is not one step: after a crash a prefix of the
    /// sequence is there. Two fences for each.
    ///
    /// # Errors
    ///
    /// As for [`insert`](ExtendibleMultiMap::insert). What was added before stays.
    pub fn extend<A: Borrow<K>, B: Borrow<V>>(
        &self,
        entries: impl IntoIterator<Item = (A, B)>,
    ) -> Result<()> {
        entries.into_iter().try_for_each(|(key, value)| self.insert(key.borrow(), value.borrow()))
    }

    /// Passes the values of `key` to `visit`, newest first, until it breaks. No fence.
    ///
    /// Their space is not freed meanwhile, so `visit` should be quick. It must not change the map,
    /// or it may wait for itself.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or a value is damaged: those before it were visited.
    pub fn for_each(&self, key: &K, visit: impl FnMut(&V) -> ControlFlow<()>) -> Result<()> {
        self.core.for_each(key, visit)
    }

    /// Copies of the values of `key`, newest first. No fence.
    ///
    /// # Errors
    ///
    /// As for [`for_each`](ExtendibleMultiMap::for_each).
    pub fn get_all(&self, key: &K) -> Result<Vec<V::Owned>> {
        let mut values = Vec::new();
        self.core.for_each(key, |value| {
            values.push(value.to_owned());
            ControlFlow::Continue(())
        })?;
        Ok(values)
    }

    /// Removes the newest entry with this key and value. Returns whether there was one. One fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or a value before it is damaged.
    pub fn remove_one(&self, key: &K, value: &V) -> Result<bool>
    where
        V: PartialEq,
    {
        self.core.remove_where(key, Some(&|found: &V| found == value))
    }

    /// Removes the entries of `key` one by one, the newest first, and returns how many there were.
    /// One fence each. Values are not read, so that damaged ones can be removed.
    ///
    /// # Errors
    ///
    /// When the medium met a fault, or a record is damaged but for its value. What was removed
    /// before stays removed.
    pub fn remove_all(&self, key: &K) -> Result<u64> {
        self.core.remove_all_of(key)
    }

    /// Removes every entry at once; see [`ExtendibleMap::clear`](super::ExtendibleMap::clear).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    /// Number of entries; see [`ExtendibleMap::len`](super::ExtendibleMap::len).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn len(&self) -> Result<u64> {
        self.core.len()
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Passes about `limit` entries to `visit`; see
    /// [`ExtendibleMap::scan`](super::ExtendibleMap::scan). All entries of a key come in one call.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn scan(&self, cursor: u64, limit: usize, visit: impl FnMut(&K, &V)) -> Result<u64> {
        self.core.scan(cursor, limit, visit)
    }

    /// Copies of all entries. Those of one key come one after the other, keys in no particular
    /// order; see [`scan`](ExtendibleMultiMap::scan).
    pub fn iter(&self) -> Iter<'_, K, V, Self> {
        Iter::new(self)
    }

    /// Space that the map takes in the pool.
    ///
    /// # Errors
    ///
    /// When the pool is damaged.
    pub fn usage(&self) -> Result<Usage> {
        Ok(self.core.heap.usage()?)
    }

    /// Checks that the map is consistent; see
    /// [`ExtendibleMap::check`](super::ExtendibleMap::check).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

scan_of!(ExtendibleMultiMap);

impl<'m, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> IntoIterator
    for &'m ExtendibleMultiMap<K, V, M>
{
    type Item = Result<(K::Owned, V::Owned)>;
    type IntoIter = Iter<'m, K, V, ExtendibleMultiMap<K, V, M>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Clone for ExtendibleMultiMap<K, V, M> {
    fn clone(&self) -> Self {
        ExtendibleMultiMap { core: Arc::clone(&self.core) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for ExtendibleMultiMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("ExtendibleMultiMap<{}, {}>", K::type_name(), V::type_name());
        f.debug_struct(&name).finish_non_exhaustive()
    }
}
