//! The persistent hash maps as a store.

use std::borrow::Borrow;
use std::collections::HashSet;

use remanent_pmem::{Mapped, Medium, Pool};
use remanent_structures::{Batch, BlinkTree, ExtendibleMap, HashMap, Result};

use super::convert::forget_conversion;
use super::form::refuse_two_maps;
use super::tree::PoolTree;
use super::{Change, Description, Edit, ROOT, Store, StoreError, TABLE_ROOT};

/// A server's entries in a pool, each durable when the call returns that writes it: an
/// [`ExtendibleMap`] under the root [`TABLE_ROOT`], or in a pool of an older version a [`HashMap`]
/// under the root [`ROOT`].
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_server::store::Change;
/// use remanent_server::{MapStore, Store};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("map.pool");
/// let pool = Pool::options().size_max(1 << 30).create(&path)?;
/// let store = MapStore::open(&pool)?;
/// store.modify(b"key", |_| (Change::Put(*b"value"), ()))?;
/// assert_eq!(store.get_with(b"key", <[u8]>::len)?, Some(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MapStore<M: Medium = Mapped> {
    entries: Entries<M>,
    tree: PoolTree<M>,
}

/// The map that a pool has.
#[derive(Debug)]
enum Entries<M: Medium> {
    Extendible(ExtendibleMap<[u8], [u8], M>),
    Hash(HashMap<[u8], [u8], M>),
}

/// Evaluates `$use` with the map of a store, whichever it is.
macro_rules! with_map {
    ($store:expr, $map:ident => $use:expr) => {
        match &$store.entries {
            Entries::Extendible($map) => $use,
            Entries::Hash($map) => $use,
        }
    };
}

impl<M: Medium> MapStore<M> {
    /// Opens the entries in `pool`. If it has none, an [`ExtendibleMap`] is made for them.
    ///
    /// # Errors
    ///
    /// When the root has another type, or there is no room for it.
    /// [`RootExists`](remanent_pmem::Error::RootExists) when the pool [has both
    /// maps](super::has_two_maps).
    pub fn open(pool: &Pool<M>) -> Result<Self> {
        refuse_two_maps(pool)?;
        let entries = match pool.has_root(ROOT)? {
            true => Entries::Hash(HashMap::open(pool, ROOT)?),
            false => {
                forget_conversion(pool)?;
                Entries::Extendible(ExtendibleMap::open_or_create(pool, TABLE_ROOT)?)
            }
        };
        Ok(MapStore { entries, tree: PoolTree::open(pool)? })
    }
}

impl<M: Medium> Store for MapStore<M> {
    type Tree = BlinkTree<[u8], [u8], M>;

    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        Ok(with_map!(self, map => map.get_with(key, read))?)
    }

    fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]> + Clone) {
        if let Entries::Extendible(map) = &self.entries {
            map.prefetch(keys);
        }
    }

    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError> {
        Ok(with_map!(self, map => map.modify(key, change))?)
    }

    fn apply(&self, edits: &[Edit<'_>]) -> Result<Vec<bool>, StoreError> {
        let mut batch = Batch::new(self.tree.pool())?;
        // Where a key is named again, the batch has one change for both.
        let mut first: HashSet<&[u8]> = HashSet::with_capacity(edits.len());
        let mut is_first = Vec::with_capacity(edits.len());
        for Edit { key, value } in edits {
            match value {
                Some(value) => with_map!(self, map => batch.put(map, *key, *value))?,
                None => with_map!(self, map => batch.remove(map, *key))?,
            }
            is_first.push(first.insert(key));
        }
        let mut presence = batch.commit()?.into_iter();
        let answer = |(edit, is_first): (&Edit<'_>, bool)| match is_first {
            true => presence.next().unwrap_or(false),
            // What the first of them has left.
            false => edit.value.is_some(),
        };
        Ok(edits.iter().zip(is_first).map(answer).collect())
    }

    fn clear(&self) -> Result<(), StoreError> {
        with_map!(self, map => map.clear())?;
        Ok(())
    }

    fn len(&self) -> Result<u64, StoreError> {
        Ok(with_map!(self, map => map.len())?)
    }

    fn scan(
        &self,
        cursor: u64,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError> {
        Ok(with_map!(self, map => map.scan(cursor, limit, visit))?)
    }

    fn fault(&self) -> Option<String> {
        let fault = self.tree.pool().medium().fault()?;
        Some(remanent_pmem::Error::Medium(fault).to_string())
    }

    fn describe(&self) -> Description {
        Description::of(self.tree.pool())
    }

    fn tree(&self) -> Option<&Self::Tree> {
        self.tree.get()
    }

    fn create_tree(&self) -> Result<&Self::Tree, StoreError> {
        Ok(self.tree.get_or_create()?)
    }

    fn change_tree(&self, edits: &[Edit<'_>]) -> Result<(), StoreError> {
        Ok(self.tree.change(edits)?)
    }

    fn pause(&self) {
        self.tree.pool().medium().pause();
    }
}
