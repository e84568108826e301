//! The catalog: which tables there are, with their columns and indexes.
//!
//! A catalog is a block that never changes. Whatever changes the schema writes a new one and has
//! the header lead to it, which is one word: so a change of any number of tables and indexes is one
//! durable step.

mod drop;
mod layout;
mod ops;
pub(crate) mod recover;

use crate::schema::{Column, IndexSpec};

pub(crate) use self::layout::{
    CATALOG_LEN_MAX, CatalogBlock, HEADER_CATALOG, HEADER_SLOTS, LAYOUT,
};

/// What a catalog says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Counts changes of the schema.
    pub(crate) version: u64,
    /// The greatest number that a table or an index has, or had.
    pub(crate) last_number: u32,
    pub(crate) tables: Vec<TableEntry>,
    /// Tables that are not there any more, and whose blocks are not free.
    pub(crate) dropped: Vec<DroppedEntry>,
}

/// A table that was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DroppedEntry {
    pub(crate) number: u32,
    /// Offset of its state.
    pub(crate) state: u64,
    /// Numbers and headers of its indexes.
    pub(crate) indexes: Vec<(u32, Option<u64>)>,
}

impl DroppedEntry {
    pub(crate) fn of(table: &TableEntry) -> Self {
        let indexes = table.indexes.iter().map(|index| (index.number, index.header)).collect();
        DroppedEntry { number: table.number, state: table.state, indexes }
    }

    /// Blocks by which it is known. They are freed last.
    pub(crate) fn fixed_blocks(&self) -> impl Iterator<Item = u64> {
        let headers = self.indexes.iter().filter_map(|(_, header)| *header);
        std::iter::once(self.state).chain(headers)
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) columns: Vec<Column>,
    pub(crate) indexes: Vec<IndexEntry>,
    /// Offset of its state.
    pub(crate) state: u64,
    pub(crate) tile_rows: Option<u32>,
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) spec: IndexSpec,
    pub(crate) number: u32,
    /// Offset of its header; `None` if it is in DRAM.
    pub(crate) header: Option<u64>,
}
