//! Maps in Rust, which are called once for each key.

use anyhow::Result;

use super::{Answer, Operation};
use crate::workloads::keys::BenchKey;
use crate::workloads::values::BenchValue;

/// Operations of a map on one entry.
pub(super) trait Single<K, V> {
    /// Adds an entry unless the key is present. Whether it was added.
    fn insert(&self, key: &K, value: &V) -> Result<bool>;

    /// The word of the key's value, read where the value lies.
    fn look_up(&self, key: &K) -> Result<Option<u64>>;

    /// Replaces the value of a key that is present. Whether it was.
    fn update(&self, key: &K, value: &V) -> Result<bool>;

    /// Removes the key's entry. Whether there was one.
    fn remove(&self, key: &K) -> Result<bool>;
}

/// Performs one operation on every key of a batch.
///
/// # Errors
///
/// Where the map reports one.
#[inline(always)]
pub(super) fn perform<K: BenchKey, V: BenchValue>(
    map: &impl Single<K, V>,
    operation: Operation,
    keys: &[K],
) -> Result<Answer> {
    let mut answer = Answer::default();
    let insert = |key: &K| -> Result<u64> { Ok(u64::from(map.insert(key, &V::of(key.value()))?)) };
    match operation {
        Operation::Insert => {
            for key in keys {
                answer.done += insert(key)?;
            }
        }
        Operation::Lookup => {
            for key in keys {
                answer = answer.plus(look_up(map, key)?);
            }
        }
        Operation::Update => {
            for key in keys {
                answer.done += u64::from(map.update(key, &V::of(!key.value()))?);
            }
        }
        Operation::Mixed => {
            for pair in keys.chunks_exact(2) {
                answer = answer.plus(look_up(map, &pair[0])?);
                answer.done += insert(&pair[1])?;
            }
        }
        Operation::Remove => {
            for key in keys {
                answer.done += u64::from(map.remove(key)?);
            }
        }
    }
    Ok(answer)
}

#[inline(always)]
fn look_up<K, V>(map: &impl Single<K, V>, key: &K) -> Result<Answer> {
    let found = map.look_up(key)?;
    Ok(found.map_or_else(Answer::default, |sum| Answer { done: 1, sum }))
}
