//! Indexes: from the cells of a key to rows, each of which is looked at. A hash index has no keys,
//! and an ordered one may have keys that its rows have lost.

mod key;
mod locks;
pub(crate) mod order;
mod rows;
mod structure;

use std::ops::ControlFlow;

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

pub(crate) use self::key::Key;
pub(crate) use self::locks::{HeldKeys, KeyLocks};
use self::order::{Order, Span};
pub(crate) use self::rows::{Dram, Rows};
pub(crate) use self::structure::{Tree, Words};

use crate::Result;
use crate::schema::IndexSpec;
use crate::table::layout::Format;

/// An index of a table.
pub(crate) struct Index<M: Medium> {
    pub(crate) spec: IndexSpec,
    /// Its number among the members of the heap.
    pub(crate) number: u32,
    pub(crate) rows: Rows<M>,
}

/// Numbers of rows.
pub(crate) type Candidates = SmallVec<[RowId; 8]>;

impl<M: Medium> Index<M> {
    /// The key of a row, by its first group; `None` when the row is not in the index.
    #[inline]
    pub(crate) fn key_of(&self, format: &Format, keys: &[u8]) -> Option<Key> {
        Key::of_row(format, &self.spec, keys)
    }

    /// Whether only one row can have a key.
    #[inline]
    pub(crate) fn is_unique_in(&self, key: &Key) -> bool {
        self.spec.kind.is_unique() && !key.has_null
    }

    /// Numbers of the rows that may have a key: those that have it, and perhaps others, some of
    /// them twice. If the index is not rebuilt yet, some may be missing: see
    /// [`Table::search`](crate::table::Table::search).
    #[inline]
    pub(crate) fn candidates(&self, key: &Key) -> Result<Candidates> {
        self.rows.candidates(key)
    }

    /// Whether the index leads from a key to a row.
    pub(crate) fn has(&self, key: &Key, row: RowId) -> Result<bool> {
        self.rows.has(key, row)
    }

    /// Calls `visit` with the entries of a range of an ordered index, until it breaks: those of all
    /// rows, and perhaps some whose row has another key, or none.
    pub(crate) fn scan(
        &self,
        span: &Span,
        order: Order,
        visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.rows.scan(span, order, visit)
    }

    /// Puts rows into the index that are not in it, by their first groups.
    pub(crate) fn insert_rows<'k>(
        &self,
        format: &Format,
        rows: impl Iterator<Item = (RowId, &'k [u8])>,
    ) -> Result<()> {
        self.rows.insert_rows(format, &self.spec, rows)
    }
}
