//! Opening the tables of a catalog.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::RowIndex;
use remanent_structures::shared::{Found, MemberId, Recovery, Site};

use super::{
    Catalog, CatalogBlock, DroppedEntry, HEADER_CATALOG, HEADER_SLOTS, IndexEntry, TableEntry,
};
use crate::Error;
use crate::dictionary::Dictionary;
use crate::dictionary::recover::FoundDictionary;
use crate::engine::Schema;
use crate::index::{Dram, Index, Rows, Tree, Words};
use crate::schema::Structure;
use crate::table::Table;
use crate::transaction::list;
use crate::transaction::recover::{Completed, require_slots};
use crate::transaction::statuses::Statuses;

/// An index in the pool that was found, and may be used once the heap has recovered.
enum FoundWords<M: Medium> {
    Hash(Found<RowIndex<M>, M>),
    Ordered(Found<Tree<M>, M>),
}

impl<M: Medium> FoundWords<M> {
    fn find(
        recovery: &mut Recovery<M>,
        structure: Structure,
        site: Site<M>,
    ) -> Result<Self, PoolError> {
        Ok(match structure {
            Structure::Hash => FoundWords::Hash(recovery.find(site)?),
            Structure::Ordered => FoundWords::Ordered(recovery.find(site)?),
        })
    }

    fn finish(self) -> Result<Words<M>, PoolError> {
        Ok(match self {
            FoundWords::Hash(found) => Words::Hash(found.finish()?),
            FoundWords::Ordered(found) => Words::Ordered(found.finish()?),
        })
    }
}

/// A dictionary, and its index if that is in the pool.
type FoundOf<M> = (FoundDictionary<M>, Option<FoundWords<M>>);

/// The dictionaries of a table, and which member is the index of which one.
fn find_dictionaries<M: Medium>(
    heap: &Arc<Heap<M>>,
    recovery: &mut Recovery<M>,
    table: &TableEntry,
) -> Result<Vec<FoundOf<M>>, PoolError> {
    let mut found = Vec::new();
    for entry in &table.dictionaries {
        let of_entry = FoundDictionary::find(heap, entry.site(table))?;
        let number = MemberId::new(entry.number)
            .ok_or_else(|| PoolError::corrupt(entry.state, "a dictionary's index has no number"))?;
        let site = |header| Site::shared(heap, header, number);
        let words =
            entry.header.map(|header| FoundWords::find(recovery, Structure::Hash, site(header)));
        found.push((of_entry, words.transpose()?));
    }
    Ok(found)
}

/// Opens the dictionaries of a table once the heap has recovered.
fn open_dictionaries<M: Medium>(
    table: &TableEntry,
    found: Vec<FoundOf<M>>,
    dram: &Dram,
) -> Result<Vec<(usize, Dictionary<M>)>, PoolError> {
    let mut opened = Vec::new();
    for (entry, (dictionary, words)) in table.dictionaries.iter().zip(found) {
        let index = match (entry.header, words) {
            (Some(header), Some(words)) => Rows::Pool { header, words: words.finish()? },
            _ => dram.create(entry.number, Structure::Hash)?,
        };
        let dictionary = dictionary.open(entry.number, index).map_err(Error::into_pool)?;
        opened.push((entry.column, dictionary));
    }
    Ok(opened)
}

/// The catalog with what became of the changes of the schema that a transaction has made: durably,
/// because its slot may be used for others from now on, and its next statement may have the number
/// of one that did not take effect.
fn settle<M: Medium>(
    medium: &M,
    at: u64,
    mut catalog: Catalog,
    completed: &Completed,
) -> Result<Catalog, PoolError> {
    let Some(promised) = &catalog.promised else { return Ok(catalog) };
    let settled = completed.settled(promised);
    if !catalog.settle(settled).is_empty() {
        CatalogBlock::settle(medium, at, settled).map_err(|what| PoolError::corrupt(at, what))?;
    }
    Ok(catalog)
}

/// The indexes of all tables and their dictionaries, and blocks by which tables are known.
type FoundMembers<M> = (Vec<Vec<Option<FoundWords<M>>>>, Vec<Vec<FoundOf<M>>>, HashSet<u64>);

/// Finds the indexes of a catalog's tables, before the heap recovers.
fn find_members<M: Medium>(
    heap: &Arc<Heap<M>>,
    recovery: &mut Recovery<M>,
    at: u64,
    catalog: &Catalog,
) -> Result<FoundMembers<M>, PoolError> {
    let (mut found, mut dictionaries) = (Vec::new(), Vec::new());
    let mut own: HashSet<u64> = catalog.tables.iter().map(|table| table.state).collect();
    for table in &catalog.tables {
        let of_table = find_dictionaries(heap, recovery, table)?;
        own.extend(of_table.iter().flat_map(|(dictionary, _)| dictionary.blocks()));
        dictionaries.push(of_table);
        let mut of_table = Vec::new();
        for index in &table.indexes {
            let number = MemberId::new(index.number)
                .ok_or_else(|| PoolError::corrupt(at, "an index has no number"))?;
            let site = |header| Site::shared(heap, header, number);
            let found = index
                .header
                .map(|header| FoundWords::find(recovery, index.spec.structure, site(header)));
            of_table.push(found.transpose()?);
        }
        found.push(of_table);
    }
    Ok((found, dictionaries, own))
}

/// The catalog of a heap and its tables; the heap has recovered, then. Also the states that rows
/// are to get.
pub(crate) fn open<M: Medium>(
    heap: &Arc<Heap<M>>,
    statuses: &Arc<Statuses>,
    dram: &Dram,
) -> Result<(Schema<M>, Completed), PoolError> {
    let medium = heap.medium();
    let at = medium.load(heap.header() + HEADER_CATALOG);
    let catalog = CatalogBlock::read(medium, at).map_err(|what| PoolError::corrupt(at, what))?;
    // Of rows alone: indexes are not ready yet.
    let open_rows =
        |table: &TableEntry| Table::open(heap, table.clone(), Vec::new(), Vec::new(), statuses);
    let mut tables: HashMap<u32, Table<M>> = HashMap::new();
    for table in &catalog.tables {
        tables.insert(table.number, open_rows(table)?);
    }
    let slots = medium.load(heap.header() + HEADER_SLOTS);
    require_slots(heap, slots)?;
    let mut completed = Completed::find(heap, slots, &tables, statuses)?;
    let catalog = settle(medium, at, catalog, &completed)?;
    let is_there = |number| catalog.tables.iter().any(|table| table.number == number);
    tables.retain(|number, _| is_there(*number));
    completed.keep_tables(is_there);
    let mut recovery = Recovery::new();
    let (found, dictionaries, mut own) = find_members(heap, &mut recovery, at, &catalog)?;
    own.extend([at, slots]);
    own.extend(list::all(heap, slots));
    // All others of their blocks are free, or freed later.
    own.extend(catalog.dropped.iter().flat_map(DroppedEntry::fixed_blocks));
    recovery.run(heap, |block| {
        let table = tables.get(&(medium.load(block.offset) as u32));
        // A block is kept if damage hides whether anything leads to it.
        own.contains(&block.offset)
            || table.is_some_and(|of| of.leads_to(block, &completed).unwrap_or(true))
    })?;
    let mut tables = Vec::new();
    for ((entry, found), dictionaries) in catalog.tables.iter().zip(found).zip(dictionaries) {
        let (mut indexes, format) = (Vec::new(), entry.format());
        for (IndexEntry { spec, number, header }, found) in entry.indexes.iter().zip(found) {
            let rows = match (header, found) {
                (Some(header), Some(found)) => {
                    Rows::Pool { header: *header, words: found.finish()? }
                }
                _ => dram.create(*number, spec.structure)?,
            };
            indexes.push(Index::new(&format, spec.clone(), *number, rows));
        }
        let dictionaries = open_dictionaries(entry, dictionaries, dram)?;
        let table = Table::open(heap, entry.clone(), indexes, dictionaries, statuses)?;
        tables.push(Arc::new(table));
    }
    let schema = Schema::of(catalog, tables);
    schema.show_promised_indexes();
    for (entry, table) in schema.catalog.tables.iter().zip(&schema.tables) {
        schema.attach_foreign_keys(entry, table)?;
    }
    schema.show_promises(statuses);
    Ok((schema, completed))
}
