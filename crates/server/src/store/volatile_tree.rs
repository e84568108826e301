//! An ordered map in ordinary memory.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use remanent_pmem::Error as PoolError;
use remanent_pmem::heap::Violation;
use remanent_structures::{Change, KeyRange, Map, OrderedMap, Result};

/// The tree of a [`Volatile`](super::Volatile) store.
#[derive(Debug)]
pub struct VolatileTree {
    entries: RwLock<Entries>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Entries {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: u64,
}

/// Bytes that an entry counts besides its key and value.
const OVERHEAD: usize = 64;

fn size(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + OVERHEAD) as u64
}

impl VolatileTree {
    /// An empty tree that holds at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: u64) -> Self {
        VolatileTree { entries: RwLock::default(), bytes_max }
    }

    /// Locks for reading. A poisoned lock is taken as it is, because no call that panics changes
    /// the map.
    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Map<[u8], [u8]> for VolatileTree {
    fn get_with<R>(&self, key: &[u8], use_value: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.read().map.get(key).map(|value| use_value(value)))
    }

    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R> {
        let mut entries = self.write();
        let old = entries.map.get(key).map(Vec::as_slice);
        let without_old = entries.bytes - old.map_or(0, |old| size(key, old));
        let (change, result) = decide(old);
        match change {
            Change::Keep => {}
            Change::Put(value) => {
                let bytes = without_old + size(key, value.borrow());
                if bytes > self.bytes_max {
                    let (needed, size) = (size(key, value.borrow()), entries.bytes);
                    return Err(PoolError::Full { needed, size, size_max: self.bytes_max }.into());
                }
                entries.map.insert(key.to_vec(), value.borrow().to_vec());
                entries.bytes = bytes;
            }
            Change::Remove => {
                entries.map.remove(key);
                entries.bytes = without_old;
            }
        }
        Ok(result)
    }

    fn clear(&self) -> Result<u64> {
        Ok(std::mem::take(&mut *self.write()).map.len() as u64)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.read().map.len() as u64)
    }

    fn for_each(&self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        self.ascend(.., visit)
    }

    fn check(&self) -> Result<Vec<Violation>> {
        Ok(Vec::new())
    }
}

impl OrderedMap<[u8], [u8]> for VolatileTree {
    fn ascend(
        &self,
        range: impl KeyRange<[u8]>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        each(self.read().range(range.key_bounds()), visit);
        Ok(())
    }

    fn descend(
        &self,
        range: impl KeyRange<[u8]>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        each(self.read().range(range.key_bounds()).rev(), visit);
        Ok(())
    }
}

impl Entries {
    /// The entries of a range. An inverted range has none; the map of the standard library would
    /// panic.
    fn range(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = (&Vec<u8>, &Vec<u8>)> {
        let range = (!is_inverted(bounds)).then(|| self.map.range::<[u8], _>(bounds));
        range.into_iter().flatten()
    }
}

/// Whether a range has its end before its start.
fn is_inverted(bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match bounds {
        (Bound::Excluded(start), Bound::Excluded(end)) => start >= end,
        (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) => start > end,
        _ => false,
    }
}

fn each<'e>(
    entries: impl Iterator<Item = (&'e Vec<u8>, &'e Vec<u8>)>,
    mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
) {
    for (key, value) in entries {
        if visit(key, value).is_break() {
            return;
        }
    }
}
