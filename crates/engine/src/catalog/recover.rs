//! Opening the tables of a catalog.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::RowIndex;
use remanent_structures::shared::{MemberId, Recovery, Site};

use super::{CatalogBlock, HEADER_CATALOG, HEADER_SLOTS, IndexEntry};
use crate::engine::Schema;
use crate::index::Index;
use crate::table::{Table, leads_to};

/// The catalog of a heap and its tables; the heap has recovered, then.
pub(crate) fn open<M: Medium>(heap: &Arc<Heap<M>>) -> Result<Schema<M>, PoolError> {
    let medium = heap.medium();
    let at = medium.load(heap.header() + HEADER_CATALOG);
    let catalog = CatalogBlock::read(medium, at).map_err(|what| PoolError::corrupt(at, what))?;
    let mut recovery = Recovery::new();
    let mut found = Vec::new();
    for table in &catalog.tables {
        let mut of_table = Vec::new();
        for index in &table.indexes {
            let number = MemberId::new(index.number)
                .ok_or_else(|| PoolError::corrupt(at, "an index has no number"))?;
            let site = Site::shared(heap, index.header, number);
            of_table.push(recovery.find::<RowIndex<M>>(site)?);
        }
        found.push(of_table);
    }
    let states: HashMap<u32, u64> =
        catalog.tables.iter().map(|table| (table.number, table.state)).collect();
    let mut own: HashSet<u64> = states.values().copied().collect();
    own.extend([at, medium.load(heap.header() + HEADER_SLOTS)]);
    recovery.run(heap, |block| own.contains(&block.offset) || leads_to(medium, &states, block))?;
    let mut tables = Vec::new();
    for (entry, found) in catalog.tables.iter().zip(found) {
        let mut indexes = Vec::new();
        for (IndexEntry { spec, number, header }, found) in entry.indexes.iter().zip(found) {
            let (number, header, rows) = (*number, *header, found.finish()?);
            indexes.push(Index { spec: spec.clone(), header, number, rows });
        }
        tables.push(Arc::new(Table::open(heap, entry.clone(), indexes)?));
    }
    Ok(Schema { catalog, tables })
}
