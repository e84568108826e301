//! Visiting all rows.

use remanent_pmem::Medium;

use super::super::layout::{Hash, each_slot};
use super::layout::{Bucket, Entry, Word};
use super::{Core, RowId};
use crate::Result;

/// Where a row was found.
#[derive(Clone, Copy)]
enum Found {
    /// In this slot of the bucket of this number. A split leaves it there.
    Slot { index: u64, slot: u32, word: Word },
    /// In a chain of this hash.
    Chain(Hash),
}

type Rows = Vec<(Found, RowId)>;

impl<M: Medium> Core<M> {
    /// Calls `visit` with every row.
    pub(super) fn for_each(&self, mut visit: impl FnMut(RowId)) -> Result<()> {
        self.by_segment(|rows| {
            rows.into_iter().for_each(|(_, row)| visit(row));
            Ok(())
        })
    }

    /// Removes the rows for which `keep` is false, and returns how many.
    pub(super) fn retain(&self, mut keep: impl FnMut(RowId) -> bool) -> Result<u64> {
        let mut removed = 0;
        self.by_segment(|rows| {
            for (found, row) in rows {
                if !keep(row) {
                    removed += u64::from(self.remove_found(found, row)?);
                }
            }
            Ok(())
        })?;
        Ok(removed)
    }

    /// Calls `visit` with the rows of each segment, as they are at one moment.
    fn by_segment(&self, mut visit: impl FnMut(Rows) -> Result<()>) -> Result<()> {
        let mut from = Hash(0);
        loop {
            let (rows, next) = self.rows_from(from)?;
            self.heap.verify()?;
            visit(rows)?;
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// The rows of the segment of `from`, and the first hash behind the segment.
    fn rows_from(&self, from: Hash) -> Result<(Rows, Option<Hash>)> {
        loop {
            let place = self.place(from)?;
            let buckets = self.lock_segment(place.segment);
            let pointer = {
                let _shape = self.shape.lock(self.medium());
                if !self.directory.leads_to(place, from) {
                    continue;
                }
                // A split that has met a fault leaves the two directories different.
                self.heap.verify()?;
                self.nodes().pointer_to(place.segment, from)?
            };
            let mut rows = Vec::new();
            for bucket in self.buckets.of(place.segment) {
                for slot in each_slot(bucket.slots()) {
                    let word = self.word(bucket, slot);
                    if word != Word::NONE && word.is_below(from, pointer.depth) {
                        self.rows_of(bucket, slot, word, &mut rows)?;
                    }
                }
            }
            drop(buckets);
            return Ok((rows, from.first_behind(pointer.depth)));
        }
    }

    fn rows_of(&self, bucket: Bucket, slot: u32, word: Word, rows: &mut Rows) -> Result<()> {
        if let Some(Entry::Row(row)) = word.entry() {
            rows.push((Found::Slot { index: bucket.index, slot, word }, row));
        }
        let mut next = self.first_block(word)?;
        while let Some(block) = next {
            for at in block.words() {
                rows.extend(self.row_at(block, at)?.map(|row| (Found::Chain(block.hash), row)));
            }
            next = self.next_block(block)?;
        }
        Ok(())
    }

    /// Removes a row that was found there.
    fn remove_found(&self, found: Found, row: RowId) -> Result<bool> {
        let (index, slot, word) = match found {
            Found::Chain(hash) => return self.remove(hash, row),
            Found::Slot { index, slot, word } => (index, slot, word),
        };
        loop {
            let place = self.place(word.hash())?;
            let bucket = Bucket::new(place.segment, index);
            let lock = self.locks.lock(self.medium(), bucket);
            if !self.directory.leads_to(place, word.hash()) {
                continue;
            }
            let present = self.word(bucket, slot);
            if present == word {
                self.change(bucket.slot_at(slot), Word::NONE);
                return Ok(true);
            }
            // A chain may have begun with the row.
            let chain = self.first_block(present)?.filter(|block| word.is_of(block.hash));
            drop(lock);
            return chain.map_or(Ok(false), |block| self.remove(block.hash, row));
        }
    }
}
