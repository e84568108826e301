//! The map as a [`BatchList`], for comparison with the paper's variants: it finds by its index what
//! they find by walking.

use remanent_pmem::Medium;
use remanent_pmem::heap::Violation;

use super::BatchMap;
use crate::batch_list::{BatchList, ChangeList};
use crate::{Lag, Result};

/// Elements that one call of `scan` visits.
const BATCH: usize = 64;

/// A key is present once: inserting it again does nothing. Elements are visited in no particular
/// order.
impl<M: Medium> BatchList for BatchMap<u64, [u8], M> {
    #[inline]
    fn insert(&mut self, key: u64, value: &[u8]) -> Result<bool> {
        BatchMap::insert(self, &key, value)
    }

    #[inline]
    fn get_with<R>(&self, key: u64, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        BatchMap::get_with(self, &key, read)
    }

    fn for_each(&self, mut visit: impl FnMut(u64, &[u8])) -> Result<()> {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, BATCH, |&key, value| visit(key, value))?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    fn len(&self) -> u64 {
        self.core().count()
    }

    fn sync(&self) -> Result<()> {
        BatchMap::sync(self)
    }

    fn lag(&self) -> Lag {
        BatchMap::lag(self)
    }

    fn close(self) -> Result<()> {
        BatchMap::close(self)
    }

    fn check(&mut self) -> Result<Vec<Violation>> {
        BatchMap::check(self)
    }
}

impl<M: Medium> ChangeList for BatchMap<u64, [u8], M> {
    fn update(&mut self, key: u64, value: &[u8]) -> Result<bool> {
        BatchMap::update(self, &key, value)
    }

    fn remove(&mut self, key: u64) -> Result<bool> {
        self.discard(&key)
    }
}
