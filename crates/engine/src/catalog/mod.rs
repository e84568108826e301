//! The catalog: which tables there are, with their columns and indexes.
//!
//! A catalog is a block that never changes. Whatever changes the schema writes a new one and has
//! the header lead to it, which is one word: so a change of any number of tables and indexes is one
//! durable step.

mod column;
mod dictionary;
mod drop;
pub(crate) mod foreign;
pub(crate) mod index;
mod layout;
mod ops;
pub(crate) mod promise;
pub(crate) mod recover;
pub(crate) mod retired;

use remanent_pmem::Medium;

use crate::dictionary::recover::Site;
use crate::foreign::spec::ForeignKeyEntry;
use crate::index::Index;
use crate::new_column::AddedColumn;
use crate::schema::{Column, IndexSpec, Placement};
use crate::table::layout::Format;

pub(crate) use self::layout::{
    CATALOG_LEN_MAX, CatalogBlock, HEADER_CATALOG, HEADER_SLOTS, LAYOUT,
};
use self::promise::Promised;

/// What a catalog says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Catalog {
    /// Counts catalogs.
    pub(crate) version: u64,
    /// Counts changes of the schema that others can see: not where indexes lie.
    pub(crate) schema_version: u64,
    /// The stamp of the last change of the schema that the gate was told; 0 if there was none.
    pub(crate) stamp: u64,
    /// The greatest number that a table or an index has, or had.
    pub(crate) last_number: u32,
    pub(crate) tables: Vec<TableEntry>,
    /// Tables that are not there any more, and whose blocks are not free.
    pub(crate) dropped: Vec<DroppedEntry>,
    /// Changes of all this that count once a transaction has committed.
    pub(crate) promised: Option<Promised>,
}

/// A table that was dropped, or an index: one that was dropped, or that is being built. A crash
/// then leaves no trace of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DroppedEntry {
    /// The table's number, and the offset of its state.
    pub(crate) table: Option<(u32, u64)>,
    /// Numbers and headers of its indexes, and of those of its dictionaries.
    pub(crate) indexes: Vec<(u32, Option<u64>)>,
}

impl DroppedEntry {
    pub(crate) fn of(table: &TableEntry) -> Self {
        let indexes = table.indexes.iter().map(|index| (index.number, index.header));
        let of_dictionaries = table.dictionaries.iter().map(|of| (of.number, of.header));
        let indexes = indexes.chain(of_dictionaries).collect();
        DroppedEntry { table: Some((table.number, table.state)), indexes }
    }

    /// An index in the pool.
    pub(crate) fn of_index(number: u32, header: u64) -> Self {
        DroppedEntry { table: None, indexes: vec![(number, Some(header))] }
    }

    /// Whether it is this index, and no table.
    pub(crate) fn is_index(&self, number: u32) -> bool {
        self.table.is_none() && self.indexes.iter().any(|(other, _)| *other == number)
    }

    /// Blocks by which it is known. They are freed last.
    pub(crate) fn fixed_blocks(&self) -> impl Iterator<Item = u64> {
        let headers = self.indexes.iter().filter_map(|(_, header)| *header);
        self.table.map(|(_, state)| state).into_iter().chain(headers)
    }
}

impl TableEntry {
    /// Has the dictionary of a column another index, of this number and with this header, if it
    /// has one.
    fn place_dictionary(&mut self, column: usize, (number, header): (u32, Option<u64>)) {
        if let Some(entry) = self.dictionaries.iter_mut().find(|entry| entry.column == column) {
            (entry.number, entry.header) = (number, header);
            self.columns[column].dictionary = Some(entry.placement());
        }
    }

    /// Its columns, and those that were added.
    pub(crate) fn all_columns(&self) -> impl Iterator<Item = &Column> {
        let added = self.added.iter().filter(|added| !added.is_gone);
        self.columns.iter().chain(added.map(|added| &added.column))
    }

    /// How its rows lie.
    pub(crate) fn format(&self) -> Format {
        let format = Format::new(&self.columns, &self.are_keys, self.tile_rows);
        self.added.iter().for_each(|added| added.add_to(&format.cells));
        format
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub(crate) name: String,
    pub(crate) number: u32,
    /// Those that it was made with.
    pub(crate) columns: Vec<Column>,
    /// Which of them are in the first group of a row: it does not change with the indexes.
    pub(crate) are_keys: Vec<bool>,
    /// Columns that were added since.
    pub(crate) added: Vec<AddedColumn>,
    pub(crate) indexes: Vec<IndexEntry>,
    /// Those of encoded columns, in the order of these.
    pub(crate) dictionaries: Vec<DictionaryEntry>,
    /// Those by which its rows refer to others.
    pub(crate) foreign_keys: Vec<ForeignKeyEntry>,
    /// Offset of its state.
    pub(crate) state: u64,
    pub(crate) tile_rows: Option<u32>,
}

/// The dictionary of an encoded column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DictionaryEntry {
    /// Number of the column.
    pub(crate) column: usize,
    /// Offset of its state.
    pub(crate) state: u64,
    /// Number of its index.
    pub(crate) number: u32,
    /// Offset of the header of its index; `None` if that is in DRAM.
    pub(crate) header: Option<u64>,
}

impl DictionaryEntry {
    /// Where its index lies.
    pub(crate) fn placement(&self) -> Placement {
        if self.header.is_some() { Placement::Pmem } else { Placement::Dram }
    }

    /// What it takes to find it, in a table of this number and these columns.
    pub(crate) fn site(&self, table: &TableEntry) -> Site {
        let DictionaryEntry { column, state, .. } = *self;
        Site { state, table: table.number, column, of_type: table.columns[column].of_type }
    }
}

/// An index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) spec: IndexSpec,
    pub(crate) number: u32,
    /// Offset of its header; `None` if it is in DRAM.
    pub(crate) header: Option<u64>,
}

impl IndexEntry {
    fn of<M: Medium>(index: &Index<M>) -> Self {
        let (spec, number) = (index.spec.clone(), index.number);
        IndexEntry { spec, number, header: index.rows.header() }
    }
}
