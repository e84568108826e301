//! Volatile maps of Rust crates: dashmap and papaya.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use anyhow::Result;
use xxhash_rust::xxh3::xxh3_64;

use super::single::{Single, perform};
use super::{Answer, Map, Operation};
use crate::workloads::keys::BenchKey;
use crate::workloads::values::BenchValue;

/// Hashes a key in one step: the finaliser of MurmurHash3 for words, as for the maps in C++, and
/// XXH3 for bytes. The crates' default resists attackers, which no other contender here does.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        let mut hash = word;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = hash ^ (hash >> 33);
    }

    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    /// The length of an array, which all keys have in common.
    #[inline(always)]
    fn write_usize(&mut self, _: usize) {}

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0
    }
}

type BuildKeyHasher = BuildHasherDefault<KeyHasher>;

/// `DashMap`: shards of hash tables, each behind a lock.
pub(crate) type Dash<K, V> = dashmap::DashMap<K, V, BuildKeyHasher>;

/// papaya's `HashMap`: a table of pointers to entries that are never changed in place.
pub(crate) type Papaya<K, V> = papaya::HashMap<K, V, BuildKeyHasher>;

impl<K: BenchKey + Hash + Eq, V: BenchValue> Single<K, V> for Dash<K, V> {
    #[inline(always)]
    fn insert(&self, key: &K, value: &V) -> Result<bool> {
        match self.entry(*key) {
            dashmap::Entry::Occupied(_) => Ok(false),
            dashmap::Entry::Vacant(place) => {
                place.insert(*value);
                Ok(true)
            }
        }
    }

    #[inline(always)]
    fn look_up(&self, key: &K) -> Result<Option<u64>> {
        Ok(self.get(key).map(|found| found.word()))
    }

    #[inline(always)]
    fn update(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.get_mut(key).map(|mut found| *found = *value).is_some())
    }

    #[inline(always)]
    fn remove(&self, key: &K) -> Result<bool> {
        Ok(dashmap::DashMap::remove(self, key).is_some())
    }
}

impl<K: BenchKey + Hash + Eq, V: BenchValue> Map<K> for Dash<K, V> {
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        perform(self, operation, keys)
    }
}

/// A map of papaya while the calling thread keeps entries from being freed.
struct Pinned<'a, K, V>(papaya::HashMapRef<'a, K, V, BuildKeyHasher, papaya::LocalGuard<'a>>);

impl<K: BenchKey + Hash + Eq, V: BenchValue> Single<K, V> for Pinned<'_, K, V> {
    #[inline(always)]
    fn insert(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.0.try_insert(*key, *value).is_ok())
    }

    #[inline(always)]
    fn look_up(&self, key: &K) -> Result<Option<u64>> {
        Ok(self.0.get(key).map(V::word))
    }

    #[inline(always)]
    fn update(&self, key: &K, value: &V) -> Result<bool> {
        Ok(self.0.update(*key, |_| *value).is_some())
    }

    #[inline(always)]
    fn remove(&self, key: &K) -> Result<bool> {
        Ok(self.0.remove(key).is_some())
    }
}

/// Operations between two pins: enough to hide what a pin costs, and few enough for memory to be
/// freed meanwhile. An even number, so that pairs stay together.
const OPERATIONS_PER_PIN: usize = 64;

impl<K: BenchKey + Hash + Eq, V: BenchValue> Map<K> for Papaya<K, V> {
    fn run(&self, operation: Operation, keys: &[K]) -> Result<Answer> {
        let mut answer = Answer::default();
        for keys in keys.chunks(OPERATIONS_PER_PIN) {
            answer = answer.plus(perform(&Pinned(self.pin()), operation, keys)?);
        }
        Ok(answer)
    }
}
