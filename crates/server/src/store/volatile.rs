//! A store in ordinary memory.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Change, Description, Store, StoreError, VolatileTree};

/// Entries in ordinary memory, behind one lock: for tests, and for measuring what the server costs
/// apart from its map. Nothing survives.
///
/// Each entry counts as its key, its value and 64 bytes; beyond `bytes_max` the store is full, and the tree beside
/// it likewise.
#[derive(Debug)]
pub struct Volatile {
    entries: Mutex<Entries>,
    tree: VolatileTree,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Entries {
    /// Ordered by hash, so that a scan can go on behind the hash where it stopped.
    map: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    bytes: u64,
}

/// Never 0, which as a cursor means the beginning.
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

    /// A panic elsewhere leaves the map whole: it is changed only by calls that do not panic.
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
