//! Indexes that the catalog does not count among those of a table or a dictionary; and what sets of
//! indexes have still although it is not there any more.

use std::sync::Arc;

use remanent_pmem::Medium;

use crate::dictionary::index::ValueIndex;
use crate::foreign::ForeignKey;
use crate::index::{Index, Rows};
use crate::table::Table;

/// An index that was dropped, exchanged for another one, or is being built. Somebody may have it.
pub(crate) enum Retired<M: Medium> {
    OfRows(Arc<Index<M>>),
    OfValues(Arc<ValueIndex<M>>),
}

impl<M: Medium> Retired<M> {
    /// Its number among the members of the heap.
    pub(crate) fn number(&self) -> u32 {
        match self {
            Retired::OfRows(index) => index.number,
            Retired::OfValues(index) => index.number,
        }
    }

    pub(crate) fn rows(&self) -> &Rows<M> {
        match self {
            Retired::OfRows(index) => &index.rows,
            Retired::OfValues(index) => &index.rows,
        }
    }

    /// Whether nobody else has it. What those did who had it is seen.
    pub(crate) fn is_unused(&mut self) -> bool {
        match self {
            Retired::OfRows(index) => Arc::get_mut(index).is_some(),
            Retired::OfValues(index) => Arc::get_mut(index).is_some(),
        }
    }
}

/// What is left in sets of indexes, or in a table, of what is not there any more.
pub(crate) enum Unfinished<M: Medium> {
    Table(Arc<Table<M>>),
    Index(Arc<Table<M>>, Arc<Index<M>>),
    ForeignKey(Arc<Table<M>>, Arc<ForeignKey<M>>),
    Column(Arc<Table<M>>),
}
