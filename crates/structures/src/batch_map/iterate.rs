//! Every entry, some at a time.

use std::collections::VecDeque;

use remanent_pmem::Medium;

use super::BatchMap;
use crate::Result;
use crate::stored::{Key, Stored};

/// Entries fetched at a time.
const BATCH: usize = 64;

/// The entries of a [`BatchMap`]: those that are there throughout, and perhaps others.
#[derive(Debug)]
pub struct Iter<'m, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> {
    map: &'m BatchMap<K, V, M>,
    /// Where to go on; `None` once the end was reached.
    cursor: Option<u64>,
    entries: VecDeque<(K::Owned, V::Owned)>,
}

impl<'m, K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Iter<'m, K, V, M> {
    pub(super) fn new(map: &'m BatchMap<K, V, M>) -> Self {
        Iter { map, cursor: Some(0), entries: VecDeque::new() }
    }
}

impl<K: Key + ?Sized, V: Stored + ?Sized, M: Medium> Iterator for Iter<'_, K, V, M> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Some(Ok(entry));
            }
            let entries = &mut self.entries;
            let scanned = self.map.scan(self.cursor?, BATCH, |key, value| {
                entries.push_back((key.to_owned(), value.to_owned()));
            });
            match scanned {
                Ok(next) => self.cursor = (next != 0).then_some(next),
                Err(error) => {
                    self.cursor = None;
                    return Some(Err(error));
                }
            }
        }
    }
}
