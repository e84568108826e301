//! Remanent's hash map in a pool of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use remanent_pmem::{Emulation, Pool};
use remanent_structures::{HashMap, Key};

use super::{Answer, Map, Operation};
use crate::memory::pool;
use crate::report::Ground;
use crate::workloads::keys::BenchKey;

/// A map in a pool file of its own, removed when dropped.
pub(crate) struct RemanentMap<K: BenchKey + Key> {
    map: HashMap<K, u64>,
    pool: Pool,
    path: PathBuf,
}

impl<K: BenchKey + Key> RemanentMap<K> {
    /// A new pool in `directory` that may grow to `size_max` bytes, durable against process death.
    ///
    /// # Errors
    ///
    /// When the pool cannot be made.
    pub(crate) fn create(directory: &Path, size_max: u64, emulation: Emulation) -> Result<Self> {
        let path = directory.join(format!("remanent-{}-{emulation}.pool", K::NAME));
        let pool = pool::options(emulation).size_max(size_max).create(&path)?;
        let map = HashMap::create(&pool, "bench").context("cannot create the map")?;
        Ok(RemanentMap { map, pool, path })
    }

    /// What the pool says about itself.
    pub(crate) fn ground(&self) -> Ground {
        Ground::of_pool(&self.pool)
    }
}

impl<K: BenchKey + Key> Map<K> for RemanentMap<K> {
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        let mut answer = Answer::default();
        match operation {
            Operation::Insert => {
                for key in keys {
                    answer.done += u64::from(self.map.insert(key, &key.value())?);
                }
            }
            Operation::Lookup => {
                for key in keys {
                    self.lookup(key, &mut answer)?;
                }
            }
            Operation::Update => {
                for key in keys {
                    answer.done += u64::from(self.map.update(key, &!key.value())?);
                }
            }
            Operation::Mixed => {
                for pair in keys.chunks_exact(2) {
                    self.lookup(&pair[0], &mut answer)?;
                    answer.done += u64::from(self.map.insert(&pair[1], &pair[1].value())?);
                }
            }
            Operation::Remove => {
                for key in keys {
                    answer.done += u64::from(self.map.discard(key)?);
                }
            }
        }
        Ok(answer)
    }
}

impl<K: BenchKey + Key> RemanentMap<K> {
    fn lookup(&self, key: &K, answer: &mut Answer) -> Result<()> {
        if let Some(value) = self.map.get(key)? {
            answer.done += 1;
            answer.sum = answer.sum.wrapping_add(value);
        }
        Ok(())
    }
}

impl<K: BenchKey + Key> Drop for RemanentMap<K> {
    fn drop(&mut self) {
        // The mapping keeps the file's memory until the pool closes, right after this.
        let _ = std::fs::remove_file(&self.path);
    }
}
