//! Changing the schema.

use std::sync::Arc;

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Medium, WORD_LEN};
use remanent_structures::shared::{MemberId, Site};

use super::promise::{Author, PromiseKind};
use super::{CATALOG_LEN_MAX, Catalog, CatalogBlock, DictionaryEntry, IndexEntry, TableEntry};
use crate::dictionary;
use crate::dictionary::recover::FoundDictionary;
use crate::engine::Engine;
use crate::foreign::spec::ForeignKeyEntry;
use crate::index::{Index, Rows, Words};
use crate::replicate::SchemaChange;
use crate::replicate::apply::is_own;
use crate::replicate::schema::Altering;
use crate::schema::{IndexSpec, Placement, Structure, TableSpec};
use crate::table::Table;
use crate::table::layout::{Format, Kind, NUMBER, STATE_LEN};
use crate::{Error, Result};

/// The refusal of a table for which the database has too many of something.
#[cold]
pub(super) fn too_much(table: &str, what: &str) -> Error {
    let reason = format!("the database has as many tables and {what} as it can have");
    Error::Schema { table: table.to_owned(), reason }
}

/// The description of a table, its indexes, and its foreign keys.
type DescribedTable<'d> = (&'d TableSpec, &'d [IndexSpec], &'d [ForeignKeyEntry]);

/// What was made for a table that nothing leads to yet, or for an index.
pub(super) struct Made<M: Medium> {
    pub(super) blocks: Vec<Block>,
    pub(super) indexes: Vec<Index<M>>,
    /// The words of an index that is made by itself.
    pub(super) rows: Option<Rows<M>>,
    /// Those of encoded columns, and their indexes.
    pub(super) dictionaries: Vec<(DictionaryEntry, Rows<M>)>,
}

/// A table that is durable, and not open.
type MadeTable<M> = (Catalog, TableEntry, Made<M>);

impl<M: Medium> Made<M> {
    pub(super) fn nothing() -> Self {
        Made { blocks: Vec::new(), indexes: Vec::new(), rows: None, dictionaries: Vec::new() }
    }

    pub(super) fn give_back(self, lane: &mut Lane<'_, M>) -> Result<()> {
        let of_indexes = self.indexes.into_iter().map(|index| index.rows);
        let of_dictionaries = self.dictionaries.into_iter().map(|(_, rows)| rows);
        for rows in of_indexes.chain(of_dictionaries).chain(self.rows) {
            rows.abandon(lane)?;
        }
        for block in self.blocks {
            lane.give_back(block);
        }
        Ok(())
    }
}

/// Chunks of blocks that nobody knows yet, if a table is made without dictionaries.
const SUSPECTS: usize = 32;

/// The same with those of a table: four segments of indexes, or 100 states, have a chunk.
fn suspects_of(spec: &TableSpec) -> usize {
    let count = spec.pool_dictionaries();
    SUSPECTS + count.div_ceil(4) + count.div_ceil(100)
}

impl<M: Medium> Engine<M> {
    /// Makes a table.
    pub(crate) fn create_table(&self, spec: &TableSpec) -> Result<Arc<Table<M>>> {
        self.alter(|| self.create_table_by(Author::Alone, spec))
    }

    /// The same for an author.
    pub(crate) fn create_table_by(
        &self,
        author: Author,
        spec: &TableSpec,
    ) -> Result<Arc<Table<M>>> {
        let indexes = spec.resolve()?;
        // Who refers to other tables exchanges their sets of indexes.
        let exchanges = !spec.foreign_keys.is_empty() || author != Author::Alone;
        let _altering = exchanges.then(|| self.lock_altering()).transpose()?;
        let mut change;
        let mut schema = self.schema.lock(self.medium());
        schema.require_free(author)?;
        if schema.entry_of_name(&spec.name).is_some() {
            let reason = "a table of this name is there".to_owned();
            return Err(Error::Schema { table: spec.name.clone(), reason });
        }
        let mut before = schema.next_catalog();
        let number = before.last_number + 1;
        let foreign_keys = schema.foreign_keys_of(spec, &indexes, number)?;
        let described = (spec, &indexes[..], &foreign_keys[..]);
        before.note(author, number, PromiseKind::CreateTable);
        change = match is_own(&spec.name) {
            true => Altering::untold(),
            false => self.begin_altering(author, &mut before),
        };
        let made = match self.make_table(&before, described) {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.make_table(&before, described)
            }
            made => made,
        };
        let (catalog, entry, Made { indexes, dictionaries, .. }) =
            made.map_err(|error| change.fail(error))?;
        let mut of_columns = Vec::new();
        for (of, rows) in dictionaries {
            let found = FoundDictionary::find(&self.heap, of.site(&entry))?;
            of_columns.push((of.column, found.open(of.number, rows)?));
        }
        let opened = Table::open(&self.heap, entry.clone(), indexes, of_columns, &self.statuses);
        let table = Arc::new(opened?);
        // Before anybody gets the table.
        schema.attach_foreign_keys(&entry, &table)?;
        if author != Author::Alone {
            table.presence.promise();
        }
        schema.last_number = catalog.last_number;
        self.show_schema(&catalog);
        schema.catalog = catalog;
        schema.tables.push(Arc::clone(&table));
        drop(schema);
        change.end(|| SchemaChange::CreateTable(spec.clone()))?;
        Ok(table)
    }

    /// Makes the table durable. It does so in one lane, so that a crash leaves no block that nobody
    /// asks about.
    fn make_table(&self, before: &Catalog, described: DescribedTable<'_>) -> Result<MadeTable<M>> {
        let mut catalog = before.clone();
        let mut lane = self.heap.enter().prepare_for(suspects_of(described.0));
        let mut made = Made::nothing();
        let entry = match self.prepare_table(&mut lane, &mut made, &mut catalog, described) {
            Ok(entry) => entry,
            Err(error) => {
                made.give_back(&mut lane)?;
                return Err(error);
            }
        };
        let new = made.blocks.last().expect("the catalog's block is the last").offset;
        self.publish_catalog(&mut lane, new, &[])?;
        Ok((catalog, entry, made))
    }

    /// Writes and flushes everything of a new table, and a catalog that has it.
    fn prepare_table(
        &self,
        lane: &mut Lane<'_, M>,
        made: &mut Made<M>,
        catalog: &mut Catalog,
        (spec, indexes, foreign_keys): DescribedTable<'_>,
    ) -> Result<TableEntry> {
        let medium = self.medium();
        let mut next_number = || {
            catalog.last_number += 1;
            catalog.last_number
        };
        let number = next_number();
        let are_keys = spec.key_columns(indexes);
        let format = Format::new(&spec.columns, &are_keys, spec.tile_rows);
        let state = self.zeroed(lane, &mut made.blocks, STATE_LEN)?;
        medium.store(state, Kind::State.tag(number));
        medium.store(state + NUMBER, 0);
        // Flush: fenced by the caller.
        medium.flush(state, 2 * WORD_LEN);
        for index in indexes {
            let number = next_number();
            let how = (index.structure, index.placement);
            let rows = self.make_rows(lane, &mut made.blocks, number, how)?;
            let rows = rows.ok_or_else(|| too_much(&spec.name, "indexes"))?;
            made.indexes.push(Index::new(&format, index.clone(), number, rows));
        }
        for (column, of_column) in spec.columns.iter().enumerate() {
            let Some(placement) = of_column.dictionary else { continue };
            let state = self.zeroed(lane, &mut made.blocks, dictionary::STATE_LEN)?;
            dictionary::new_state(medium, state, number, column as u32);
            let number = next_number();
            let how = (Structure::Hash, placement);
            let rows = self.make_rows(lane, &mut made.blocks, number, how)?;
            let rows = rows.ok_or_else(|| too_much(&spec.name, "dictionaries"))?;
            let header = rows.header();
            made.dictionaries.push((DictionaryEntry { column, state, number, header }, rows));
        }
        let entry = TableEntry {
            name: spec.name.clone(),
            number,
            columns: spec.columns.clone(),
            are_keys,
            added: Vec::new(),
            indexes: made.indexes.iter().map(IndexEntry::of).collect(),
            dictionaries: made.dictionaries.iter().map(|(entry, _)| entry.clone()).collect(),
            foreign_keys: foreign_keys.to_vec(),
            state,
            tile_rows: spec.tile_rows,
        };
        catalog.tables.push(entry.clone());
        let content = CatalogBlock::of(catalog);
        if content.len() > CATALOG_LEN_MAX {
            return Err(too_much(&spec.name, "columns"));
        }
        let block = lane.allocate(content.len())?;
        made.blocks.push(block);
        content.write(medium, block.offset);
        Ok(entry)
    }

    /// An empty index of this number, whose header is among the blocks. `None` if the heap can have
    /// no index of the number.
    pub(super) fn make_rows(
        &self,
        lane: &mut Lane<'_, M>,
        blocks: &mut Vec<Block>,
        number: u32,
        (structure, placement): (Structure, Placement),
    ) -> Result<Option<Rows<M>>> {
        let Some(member) = MemberId::new(number) else { return Ok(None) };
        Ok(Some(match placement {
            Placement::Dram => self.dram.create(number, structure)?,
            Placement::Pmem => {
                let header = self.zeroed(lane, blocks, Words::<M>::header_len(structure))?;
                let site = Site::shared(&self.heap, header, member);
                let words = Words::create_in_lane(structure, site, lane)?;
                Rows::Pool { header, words }
            }
        }))
    }

    /// A block of zeros, which is flushed.
    fn zeroed(&self, lane: &mut Lane<'_, M>, blocks: &mut Vec<Block>, len: u64) -> Result<u64> {
        let (block, medium) = (lane.allocate(len)?, self.medium());
        blocks.push(block);
        medium.write_zeros(block.offset, len);
        // Flush: fenced before anything leads to the block.
        // Redundant: but where the block was used before; short runs use none again.
        medium.flush(block.offset, len);
        Ok(block.offset)
    }
}
