//! Changing the schema.

use std::sync::Arc;

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Medium, WORD_LEN};
use remanent_structures::shared::{MemberId, Site};

use super::{CATALOG_LEN_MAX, Catalog, CatalogBlock, IndexEntry, TableEntry};
use crate::engine::Engine;
use crate::index::{Index, Rows, Words};
use crate::schema::{IndexSpec, Placement, TableSpec};
use crate::table::Table;
use crate::table::layout::{Kind, NUMBER, STATE_LEN};
use crate::{Error, Result};

/// The refusal of a table for which the database has too many of something.
#[cold]
fn too_much(spec: &TableSpec, what: &str) -> Error {
    let reason = format!("the database has as many tables and {what} as it can have");
    Error::Schema { table: spec.name.clone(), reason }
}

/// What was made for a table that nothing leads to yet.
struct Made<M: Medium> {
    blocks: Vec<Block>,
    indexes: Vec<Index<M>>,
}

impl<M: Medium> Made<M> {
    fn give_back(self, lane: &mut Lane<'_, M>) -> Result<()> {
        for index in self.indexes {
            index.rows.abandon(lane)?;
        }
        for block in self.blocks {
            lane.give_back(block);
        }
        Ok(())
    }
}

impl<M: Medium> Engine<M> {
    /// Makes a table.
    pub(crate) fn create_table(&self, spec: &TableSpec) -> Result<Arc<Table<M>>> {
        let indexes = spec.resolve()?;
        let mut schema = self.schema.lock(self.medium());
        if schema.catalog.tables.iter().any(|table| table.name == spec.name) {
            let reason = "a table of this name is there".to_owned();
            return Err(Error::Schema { table: spec.name.clone(), reason });
        }
        let made = match self.make_table(&schema.catalog, spec, &indexes) {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.make_table(&schema.catalog, spec, &indexes)
            }
            made => made,
        };
        let (catalog, entry, indexes) = made?;
        let table = Arc::new(Table::open(&self.heap, entry, indexes, &self.statuses)?);
        schema.catalog = catalog;
        schema.tables.push(Arc::clone(&table));
        Ok(table)
    }

    /// Makes the table durable. It does so in one lane, so that a crash leaves no block that nobody
    /// asks about.
    fn make_table(
        &self,
        before: &Catalog,
        spec: &TableSpec,
        indexes: &[IndexSpec],
    ) -> Result<(Catalog, TableEntry, Vec<Index<M>>)> {
        let mut catalog = before.clone();
        catalog.version += 1;
        let mut lane = self.heap.enter().prepare_to_write();
        let mut made = Made { blocks: Vec::new(), indexes: Vec::new() };
        let entry = match self.prepare_table(&mut lane, &mut made, &mut catalog, spec, indexes) {
            Ok(entry) => entry,
            Err(error) => {
                made.give_back(&mut lane)?;
                return Err(error);
            }
        };
        let new = made.blocks.last().expect("the catalog's block is the last").offset;
        self.publish_catalog(&mut lane, new, &[])?;
        Ok((catalog, entry, made.indexes))
    }

    /// Writes and flushes everything of a new table, and a catalog that has it.
    fn prepare_table(
        &self,
        lane: &mut Lane<'_, M>,
        made: &mut Made<M>,
        catalog: &mut Catalog,
        spec: &TableSpec,
        indexes: &[IndexSpec],
    ) -> Result<TableEntry> {
        let medium = self.medium();
        let mut next_number = || {
            catalog.last_number += 1;
            catalog.last_number
        };
        let number = next_number();
        let mut zeroed = |lane: &mut Lane<'_, M>, len: u64| -> Result<u64> {
            let block = lane.allocate(len)?;
            made.blocks.push(block);
            medium.write_zeros(block.offset, len);
            // Flush: fenced before anything leads to the block.
            // Redundant: but where the block was used before; short runs use none again.
            medium.flush(block.offset, len);
            Ok(block.offset)
        };
        let state = zeroed(lane, STATE_LEN)?;
        medium.store(state, Kind::State.tag(number));
        medium.store(state + NUMBER, 0);
        // Flush: fenced by the caller.
        medium.flush(state, 2 * WORD_LEN);
        for index in indexes {
            let number = next_number();
            let member = MemberId::new(number).ok_or_else(|| too_much(spec, "indexes"))?;
            let rows = match index.placement {
                Placement::Dram => self.dram.create(number, index.structure)?,
                Placement::Pmem => {
                    let header = zeroed(lane, Words::<M>::header_len(index.structure))?;
                    let site = Site::shared(&self.heap, header, member);
                    let words = Words::create_in_lane(index.structure, site, lane)?;
                    Rows::Pool { header, words }
                }
            };
            made.indexes.push(Index { spec: index.clone(), number, rows });
        }
        let entries = made.indexes.iter().map(|index| IndexEntry {
            spec: index.spec.clone(),
            number: index.number,
            header: index.rows.header(),
        });
        let entry = TableEntry {
            name: spec.name.clone(),
            number,
            columns: spec.columns.clone(),
            indexes: entries.collect(),
            state,
            tile_rows: spec.tile_rows,
        };
        catalog.tables.push(entry.clone());
        let content = CatalogBlock::of(catalog);
        if content.len() > CATALOG_LEN_MAX {
            return Err(too_much(spec, "columns"));
        }
        let block = lane.allocate(content.len())?;
        made.blocks.push(block);
        content.write(medium, block.offset);
        Ok(entry)
    }
}
