//! Maps of a program's own in the place of hash indexes in DRAM, for evaluation.

use std::fmt;
use std::ops::ControlFlow;

use remanent_structures::RowId;
use remanent_structures::shared::Inspection;

use super::backlog::Word;
use super::order::{Order, Span};
use super::{Candidates, Key};
use crate::Result;
use crate::schema::IndexSpec;
use crate::table::layout::{Format, KeyCells};

/// A map from hashes of keys to rows that a database uses in the place of its own hash indexes; see
/// [`Database::set_row_maps`](crate::Database::set_row_maps).
///
/// Several rows may have one hash. All methods are called by many threads at once; what one of them
/// has done is seen by those that begin later. No method may use the database.
pub trait RowMap: Send + Sync {
    /// Adds a row. It may be there already: then it does not matter how often it is there
    /// afterwards.
    ///
    /// # Errors
    ///
    /// When it has no room, say; the statement is refused then.
    fn insert(&self, hash: u64, row: RowId) -> Result<()>;

    /// Removes a row, if it is there.
    ///
    /// # Errors
    ///
    /// As for [`insert`](RowMap::insert).
    fn remove(&self, hash: u64, row: RowId) -> Result<()>;

    /// Calls `visit` with all rows of a hash.
    ///
    /// # Errors
    ///
    /// As for [`insert`](RowMap::insert).
    fn find(&self, hash: u64, visit: &mut dyn FnMut(RowId)) -> Result<()>;
}

/// What makes a map for an index.
pub(crate) type MakeMap = dyn Fn() -> Box<dyn RowMap> + Send + Sync;

/// Such a map, as an index uses it.
pub(crate) struct OwnMap(pub(super) Box<dyn RowMap>);

impl fmt::Debug for OwnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMap").finish_non_exhaustive()
    }
}

/// The methods of [`Words`](super::structure::Words).
impl OwnMap {
    fn of_hash(&self, hash: u64) -> Result<Candidates> {
        let mut found = Candidates::new();
        self.0.find(hash, &mut |row| found.push(row))?;
        Ok(found)
    }

    pub(super) fn candidates(&self, key: &Key) -> Result<Candidates> {
        self.of_hash(key.hash)
    }

    pub(super) fn has(&self, key: &Key, row: RowId) -> Result<bool> {
        Ok(self.of_hash(key.hash)?.contains(&row))
    }

    /// Has no ranges.
    pub(super) fn scan(
        &self,
        _: &Span,
        _: Order,
        _: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        Ok(())
    }

    pub(super) fn insert(&self, key: &Key, row: RowId) -> Result<()> {
        self.0.insert(key.hash, row)
    }

    pub(super) fn insert_rows<'k>(
        &self,
        format: &Format,
        spec: &IndexSpec,
        mut rows: impl Iterator<Item = (RowId, KeyCells<'k>)>,
    ) -> Result<()> {
        rows.try_for_each(|(row, keys)| match Key::hash_of_row(format, spec, keys) {
            Some(hash) => self.0.insert(hash, row),
            None => Ok(()),
        })
    }

    pub(super) fn insert_words(&self, added: &[Word]) -> Result<()> {
        added.iter().try_for_each(|(hash, row)| self.0.insert(*hash, *row))
    }

    pub(super) fn insert_partition(&self, _: u32, added: &[Word]) -> Result<()> {
        self.insert_words(added)
    }

    pub(super) fn insert_missing(&self, words: &[Word]) -> Result<()> {
        words.iter().try_for_each(|(hash, row)| self.ensure_word(*hash, *row))
    }

    pub(super) fn ensure_word(&self, hash: u64, row: RowId) -> Result<()> {
        match self.of_hash(hash)?.contains(&row) {
            true => Ok(()),
            false => self.0.insert(hash, row),
        }
    }

    pub(super) fn partition(&self, hash: u64, bits: u32) -> u64 {
        hash.checked_shr(64 - bits).unwrap_or(0)
    }

    pub(super) fn is_one_word(&self, key: &Key, other: &Key) -> bool {
        key.hash == other.hash
    }

    pub(super) fn ensure(&self, key: &Key, row: RowId) -> Result<()> {
        self.ensure_word(key.hash, row)
    }

    pub(super) fn remove(&self, key: &Key, row: RowId) -> Result<()> {
        self.0.remove(key.hash, row)
    }

    /// What it is made of is the program's matter.
    pub(super) fn inspect(&self) -> Result<Inspection> {
        Ok(Inspection { violations: Vec::new(), blocks: Some(Vec::new()) })
    }
}
