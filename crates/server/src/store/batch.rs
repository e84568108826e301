//! The batched map as a store: writes are acknowledged at once, and safe within a bound.

use std::borrow::Borrow;

use remanent_pmem::{Mapped, Medium, Pool};
use remanent_structures::{BatchMap, BatchOptions, BlinkTree, Result};

use super::form::refuse_two_maps;
use super::tree::PoolTree;
use super::{Change, Description, Edit, Lag, ROOT, Store, StoreError, TABLE_ROOT};

/// A server's entries in a pool: a [`BatchMap`] under the root [`ROOT`].
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_server::store::Change;
/// use remanent_server::{BatchStore, Store};
/// use remanent_structures::BatchOptions;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("batched.pool");
/// let pool = Pool::options().size_max(1 << 30).create(&path)?;
/// let store = BatchStore::open(&pool, BatchOptions::default())?;
/// store.modify(b"key", |_| (Change::Put(*b"value"), ()))?; // acknowledged; safe within the bound
/// store.sync()?; // safe
/// assert_eq!(store.lag().map(|lag| lag.bytes), Some(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchStore<M: Medium = Mapped> {
    map: BatchMap<[u8], [u8], M>,
    tree: PoolTree<M>,
}

impl<M: Medium> BatchStore<M> {
    /// Opens the entries in `pool`, which are made if it has none.
    ///
    /// # Errors
    ///
    /// When the pool has entries in a map of another type or in two maps, when there is no room for
    /// one, or when the thread that makes batches safe cannot be started.
    pub fn open(pool: &Pool<M>, options: BatchOptions) -> Result<Self> {
        refuse_two_maps(pool)?;
        if !pool.has_root(ROOT)? && pool.has_root(TABLE_ROOT)? {
            // Refused, for its type.
            drop(BatchMap::<[u8], [u8], M>::open(pool, TABLE_ROOT, options)?);
        }
        Ok(BatchStore {
            map: BatchMap::open_or_create(pool, ROOT, options)?,
            tree: PoolTree::open(pool)?,
        })
    }

    /// The map behind the store.
    pub fn map(&self) -> &BatchMap<[u8], [u8], M> {
        &self.map
    }
}

impl<M: Medium> Store for BatchStore<M> {
    type Tree = BlinkTree<[u8], [u8], M>;

    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        Ok(self.map.get_with(key, read)?)
    }

    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError> {
        Ok(self.map.modify(key, change)?)
    }

    fn clear(&self) -> Result<(), StoreError> {
        self.map.clear()?;
        Ok(())
    }

    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.map.len()?)
    }

    fn scan(
        &self,
        cursor: u64,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError> {
        Ok(self.map.scan(cursor, limit, visit)?)
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(self.map.sync()?)
    }

    fn lag(&self) -> Option<Lag> {
        let options = self.map.options();
        Some(Lag {
            bytes: self.map.lag().bytes,
            bytes_max: options.lag_bytes,
            age_max: options.lag_age,
        })
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
