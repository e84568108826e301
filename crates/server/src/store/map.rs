//! The persistent hash map as a store.

use std::os::unix::fs::MetadataExt;

use remanent_pmem::{Mapped, Medium, Pool};
use remanent_structures::{Error, HashMap, Result};

use super::{Change, Description, Store, StoreError};

/// Name of the root under which a server keeps its entries.
pub const ROOT: &str = "redis";

/// A server's entries in a pool: a [`HashMap`] under the root [`ROOT`].
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_server::{MapStore, Store};
///
/// # let path = std::env::temp_dir().join(format!("doc-{}.pool", std::process::id()));
/// let pool = Pool::options().size_max(1 << 30).create(&path)?;
/// let store = MapStore::open(&pool)?;
/// store.put(b"key", b"value")?;
/// assert_eq!(store.get_with(b"key", <[u8]>::len)?, Some(5));
/// # drop((store, pool));
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MapStore<M: Medium = Mapped> {
    map: HashMap<[u8], [u8], M>,
    pool: Pool<M>,
}

impl<M: Medium> MapStore<M> {
    /// Opens the entries that `pool` holds, or makes it hold none.
    ///
    /// # Errors
    ///
    /// When the root holds something else, or there is no room for it.
    pub fn open(pool: &Pool<M>) -> Result<Self> {
        Ok(MapStore { map: HashMap::open_or_create(pool, ROOT)?, pool: pool.clone() })
    }

    /// The map behind the store.
    pub fn map(&self) -> &HashMap<[u8], [u8], M> {
        &self.map
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        if error.is_full() { StoreError::Full } else { StoreError::Failed(error.to_string()) }
    }
}

impl<M: Medium> Store for MapStore<M> {
    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        Ok(self.map.get_with(key, read)?)
    }

    fn contains(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.map.contains(key)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.map.put(key, value)?;
        Ok(())
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        Ok(self.map.insert(key, value)?)
    }

    fn replace(&self, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        Ok(self.map.update(key, value)?)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, StoreError> {
        Ok(self.map.discard(key)?)
    }

    fn modify<R>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Change, R),
    ) -> Result<R, StoreError> {
        let decide = |found: Option<&[u8]>| {
            let (change, result) = change(found);
            let change = match change {
                Change::Keep => remanent_structures::Change::Keep,
                Change::Put(value) => remanent_structures::Change::Put(value),
                Change::Remove => remanent_structures::Change::Remove,
            };
            (change, result)
        };
        Ok(self.map.modify::<R, Vec<u8>>(key, decide)?)
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

    fn describe(&self) -> Description {
        let guarantee = self.pool.guarantee();
        let blocks = std::fs::metadata(&guarantee.path).map_or(0, |metadata| metadata.blocks());
        Description {
            path: guarantee.path.display().to_string(),
            backing: guarantee.backing.to_string(),
            durability: guarantee.durability.to_string(),
            emulation: guarantee.emulation.to_string(),
            // The system counts in 512 bytes, whatever the file system's own blocks are.
            used_bytes: blocks * 512,
            size_max_bytes: self.pool.size_max(),
            opened_clean: self.pool.was_clean(),
        }
    }
}
