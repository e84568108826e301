//! A map with any number of entries for a key.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::heap::Violation;
use remanent_pmem::{Link, Mapped, Medium, Pool};

use super::Core;
use super::entry::Found;
use super::layout::{Order, tag_generation};
use super::list::Edge;
use super::ops::Attempt;
use crate::options::MapOptions;
use crate::shared::Site;
use crate::stored::{Key, Stored};
use crate::{Error, Result};

/// A map that holds any number of entries for a key, as the paper's dictionaries and indexes need.
///
/// Lock-free and durable as [`HashMap`](super::HashMap), from which it differs only in that a key
/// may occur several times. Entries of one key come back newest first.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_structures::HashMultiMap;
///
/// # let dir = tempfile::tempdir()?;
/// # let pool = Pool::options().create(dir.path().join("example.pool"))?;
/// let rows: HashMultiMap<str, u64> = HashMultiMap::create(&pool, "rows by city")?;
/// rows.insert("Potsdam", &1)?;
/// rows.insert("Potsdam", &7)?;
/// assert_eq!(rows.get_all("Potsdam")?, [7, 1]);
/// assert!(rows.remove_one("Potsdam", &1)?);
/// assert_eq!(rows.get_all("Potsdam")?, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HashMultiMap<K: Key + ?Sized, V: Stored + ?Sized, M: Medium = Mapped> {
    pub(super) core: Arc<Core<K, V, M, true>>,
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> HashMultiMap<K, V, M> {
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
        Ok(HashMultiMap { core: pool.create_root(name)? })
    }

    /// As [`create`](HashMultiMap::create), with options that the map keeps.
    ///
    /// # Errors
    ///
    /// As for [`create`](HashMultiMap::create).
    pub fn create_with(pool: &Pool<M>, name: &str, options: &MapOptions) -> Result<Self>
    where
        K: 'static,
        V: 'static,
    {
        let core =
            pool.create_root_with(name, |heap| Core::create_at(Site::alone(heap), options))?;
        Ok(HashMultiMap { core })
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
        Ok(HashMultiMap { core: pool.open_root(name)? })
    }

    /// Opens a map, or creates it when there is no root of that name.
    ///
    /// # Errors
    ///
    /// As for [`open`](HashMultiMap::open) and [`create`](HashMultiMap::create).
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

    /// Adds an entry. The key may have other entries. Two fences.
    ///
    /// # Errors
    ///
    /// When the pool is full or the entry is too long: nothing was changed.
    pub fn insert(&self, key: &K, value: &V) -> Result<()> {
        self.core.add(key, value)
    }

    /// Passes the values of `key` to `visit`, newest first, until it breaks.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn for_each(&self, key: &K, visit: impl FnMut(&V) -> ControlFlow<()>) -> Result<()> {
        self.core.for_each(key, visit)
    }

    /// Copies of the values of `key`, newest first. No fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn get_all(&self, key: &K) -> Result<Vec<V::Owned>> {
        let mut values = Vec::new();
        self.core.for_each(key, |value| {
            values.push(value.to_owned());
            ControlFlow::Continue(())
        })?;
        Ok(values)
    }

    /// Removes one entry with this key and value. Returns whether there was one. One fence.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn remove_one(&self, key: &K, value: &V) -> Result<bool>
    where
        V: PartialEq,
    {
        self.core.remove_where(key, |found| found == value)
    }

    /// Removes the entries of `key` one by one and returns how many there were. One fence each.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn remove_all(&self, key: &K) -> Result<u64> {
        let mut removed = 0;
        while self.core.remove_where(key, |_| true)? {
            removed += 1;
        }
        Ok(removed)
    }

    /// Removes every entry at once; see [`HashMap::clear`](super::HashMap::clear).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn clear(&self) -> Result<u64> {
        self.core.clear()
    }

    /// Number of entries; see [`HashMap::len`](super::HashMap::len).
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

    /// Passes about `limit` entries to `visit`; see [`HashMap::scan`](super::HashMap::scan). All
    /// entries of a key come in one call.
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn scan(&self, cursor: u64, limit: usize, visit: impl FnMut(&K, &V)) -> Result<u64> {
        self.core.scan(cursor, limit, visit)
    }

    /// Checks that the map is consistent; see [`HashMap::check`](super::HashMap::check).
    ///
    /// # Errors
    ///
    /// When the medium met a fault.
    pub fn check(&self) -> Result<Vec<Violation>> {
        self.core.check()
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Clone for HashMultiMap<K, V, M> {
    fn clone(&self) -> Self {
        HashMultiMap { core: Arc::clone(&self.core) }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> fmt::Debug for HashMultiMap<K, V, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashMultiMap")
            .field("type", &format_args!("{}, {}", K::type_name(), V::type_name()))
            .finish_non_exhaustive()
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Core<K, V, M, true> {
    fn add(&self, key: &K, value: &V) -> Result<()> {
        self.twice_when_full(|| self.try_add(key, value))
    }

    fn try_add(&self, key: &K, value: &V) -> Result<()> {
        let order = Order::of_hash(self.hash(key));
        let mut lane = self.heap.enter().prepare_to_write();
        loop {
            let generation = self.generation();
            // In front of the key's other entries, which need not be passed then.
            let place = self.told(self.find(order, Edge::First, |_, _| Ok(false)))?;
            if place.overflow {
                lane = self.clear_run(lane, &place, order)?;
                continue;
            }
            if let Attempt::Done = self.link(&mut lane, place, order, generation, key, value)? {
                break;
            }
            self.heap.verify()?;
        }
        self.finish(lane)
    }

    fn for_each(&self, key: &K, mut visit: impl FnMut(&V) -> ControlFlow<()>) -> Result<()> {
        let order = Order::of_hash(self.hash(key));
        let _pin = self.heap.pin();
        let generation = self.generation();
        let visited = self.visit_order(order, |found, tag| {
            if Self::is_alive(tag_generation(tag), generation)
                && self.entry_of(found.node, tag, key)?.is_some()
            {
                return Ok(self.value(found)?.with(&mut visit));
            }
            Ok(ControlFlow::Continue(()))
        });
        self.heap.verify()?;
        self.told(visited)
    }

    fn remove_where(&self, key: &K, accept: impl Fn(&V) -> bool) -> Result<bool> {
        let order = Order::of_hash(self.hash(key));
        let mut lane = self.heap.enter().prepare_to_write();
        let removed = loop {
            let generation = self.generation();
            let place = self.find(order, Edge::Last, |node, tag| {
                // Values of a multi-map never change, so the value does not depend on the node's
                // link.
                let link = Link::at(self.medium(), node).load_durable();
                Ok(Self::is_alive(tag_generation(tag), generation)
                    && self.entry_of(node, tag, key)?.is_some()
                    && self.value(Found { node, link })?.with(&accept))
            });
            let place = self.told(place)?;
            if place.overflow {
                lane = self.clear_run(lane, &place, order)?;
                continue;
            }
            let Some(found) = place.found else { break false };
            if let Attempt::Done = self.unlink(&mut lane, place, found, order) {
                break true;
            }
            self.heap.verify()?;
        };
        self.finish(lane)?;
        Ok(removed)
    }
}
