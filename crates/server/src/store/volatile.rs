//! A store in ordinary memory.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Change, Description, Store, StoreError, VolatileTree};

/// Entries in ordinary memory, behind one lock. Nothing survives the process.
///
/// For tests, and for measuring what the server costs without a persistent map. Each entry counts
/// as the length of its key and value, and 64 bytes. With `bytes_max` of them the store is full;
/// the tree beside it has the same bound of its own.
#[derive(Debug)]
pub struct Volatile {
    entries: Mutex<Entries>,
    tree: VolatileTree,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Entries {
    /// In the order of hashes, so that a scan can go on at the hash where it stopped.
    map: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    bytes: u64,
}

/// Hash and key of an entry. The hash is not 0, which as a cursor means the beginning.
fn place(key: &[u8]) -> (u64, Vec<u8>) {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish().max(1), key.to_vec())
}

impl Volatile {
    /// An empty store that holds at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Volatile { entries: Mutex::default(), tree: VolatileTree::new(bytes_max), bytes_max }
    }

    /// Locks the entries. A poisoned lock is taken as it is, because no call that panics changes
    /// the map.
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn put(&mut self, key: &[u8], value: Vec<u8>, bytes_max: u64) -> Result<(), StoreError> {
        let size = |value: &Vec<u8>| (key.len() + value.len() + 64) as u64;
        let bytes = self.bytes - self.map.get(&place(key)).map_or(0, size) + size(&value);
        if bytes > bytes_max {
            return Err(StoreError::Full);
        }
        self.bytes = bytes;
        self.map.insert(place(key), value);
        Ok(())
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        let removed = self.map.remove(&place(key));
        self.bytes -= removed.as_ref().map_or(0, |value| (key.len() + value.len() + 64) as u64);
        removed.is_some()
    }
}

impl Store for Volatile {
    type Tree = VolatileTree;

    fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, StoreError> {
        Ok(self.entries().map.get(&place(key)).map(|value| read(value)))
    }

    fn modify<R, T: Borrow<[u8]>>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
    ) -> Result<R, StoreError> {
        let mut entries = self.entries();
        let (change, result) = change(entries.map.get(&place(key)).map(Vec::as_slice));
        match change {
            Change::Keep => {}
            Change::Put(value) => entries.put(key, value.borrow().to_vec(), self.bytes_max)?,
            Change::Remove => {
                entries.remove(key);
            }
        }
        Ok(result)
    }

    fn clear(&self) -> Result<(), StoreError> {
        *self.entries() = Entries::default();
        Ok(())
    }

    fn len(&self) -> Result<u64, StoreError> {
        Ok(self.entries().map.len() as u64)
    }

    fn scan(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, StoreError> {
        let entries = self.entries();
        let mut last = 0;
        for (index, ((hash, key), value)) in entries.map.range((cursor, Vec::new())..).enumerate() {
            if index >= limit && *hash != last {
                return Ok(*hash);
            }
            visit(key, value);
            last = *hash;
        }
        Ok(0)
    }

    fn describe(&self) -> Description {
        Description {
            path: "(memory of this process)".into(),
            backing: "volatile".into(),
            durability: "none".into(),
            emulation: "none".into(),
            used_bytes: self.entries().bytes,
            size_max_bytes: self.bytes_max,
            opened_clean: true,
        }
    }

    fn tree(&self) -> Option<&VolatileTree> {
        Some(&self.tree)
    }

    fn create_tree(&self) -> Result<&VolatileTree, StoreError> {
        Ok(&self.tree)
    }
}
