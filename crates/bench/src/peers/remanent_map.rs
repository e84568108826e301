//! Remanent's hash maps, each in a pool of its own.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use remanent_pmem::heap::Usage;
use remanent_pmem::{Emulation, Pool};
use remanent_structures::{ExtendibleMap, HashMap, Key, Map as Structure, Stored};

use super::single::{Single, perform};
use super::{Answer, Map, Operation};
use crate::memory::pool;
use crate::report::Ground;
use crate::workloads::keys::BenchKey;
use crate::workloads::values::BenchValue;

/// A kind of map that lies in a pool.
pub(crate) trait Kind: Sized {
    /// Its name in the names of files.
    const NAME: &'static str;

    fn create(pool: &Pool) -> remanent_structures::Result<Self>;

    fn usage(&self) -> remanent_structures::Result<Usage>;
}

macro_rules! kind_of {
    ($map:ident, $name:literal) => {
        impl<K: Key + 'static, V: Stored + 'static> Kind for $map<K, V> {
            const NAME: &'static str = $name;

            fn create(pool: &Pool) -> remanent_structures::Result<Self> {
                $map::create(pool, "bench")
            }

            fn usage(&self) -> remanent_structures::Result<Usage> {
                $map::usage(self)
            }
        }
    };
}

kind_of!(HashMap, "hashmap");
kind_of!(ExtendibleMap, "extendible");

/// A map `T` in a pool file of its own, removed when dropped.
pub(crate) struct RemanentMap<T, K, V> {
    map: T,
    pool: Pool,
    path: PathBuf,
    types: PhantomData<fn(K, V)>,
}

impl<T: Kind, K: BenchKey, V: BenchValue> RemanentMap<T, K, V> {
    /// A new pool in `directory` that may grow to `size_max` bytes, durable against process death.
    ///
    /// # Errors
    ///
    /// When the pool cannot be made.
    pub(crate) fn create(directory: &Path, size_max: u64, emulation: Emulation) -> Result<Self> {
        let file = format!("{}-{}{}-{emulation}.pool", T::NAME, K::NAME, V::SUFFIX);
        let path = directory.join(file);
        let pool = pool::options(emulation).size_max(size_max).create(&path)?;
        let map = T::create(&pool).context("cannot create the map")?;
        Ok(RemanentMap { map, pool, path, types: PhantomData })
    }

    /// What the pool says about itself.
    pub(crate) fn ground(&self) -> Ground {
        Ground::of_pool(&self.pool)
    }
}

/// Calls of one structure, for any map of ours.
struct Calls<'a, T>(&'a T);

impl<T, K, V> Single<K, V> for Calls<'_, T>
where
    T: Structure<K, V>,
    K: BenchKey + Key,
    V: BenchValue,
{
    #[inline(always)]
    fn insert(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.0.insert(key, value)?)
    }

    #[inline(always)]
    fn look_up(&self, key: &K) -> Result<Option<u64>> {
        Ok(self.0.get_with(key, V::word)?)
    }

    #[inline(always)]
    fn update(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.0.update(key, value)?)
    }

    #[inline(always)]
    fn remove(&self, key: &K) -> Result<bool> {
        Ok(self.0.discard(key)?)
    }
}

impl<T, K, V> Map<K> for RemanentMap<T, K, V>
where
    T: Kind + Structure<K, V>,
    K: BenchKey + Key,
    V: BenchValue,
{
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        perform(&Calls(&self.map), operation, keys)
    }

    fn usage(&self) -> Result<Option<Usage>> {
        Ok(Some(self.map.usage()?))
    }
}

impl<T, K, V> Drop for RemanentMap<T, K, V> {
    fn drop(&mut self) {
        // The mapping keeps the file's memory until the pool closes, right after this.
        let _ = std::fs::remove_file(&self.path);
    }
}
