//! Dropping a table or an index: one word, and then its blocks are given back.
//!
//! The catalog says which were dropped until all of their blocks are free. Blocks say to
//! which table or index they belong, so that nothing has to be unlinked one by one, and a crash
//! meanwhile leaves nothing that the next sweep does not find. They are freed when nobody has the
//! table any more: a handle, a transaction that has changed it, or a row that waits to be folded.
//! Those of an index are freed when no handle is left that was prepared for it.

use std::collections::HashSet;
use std::sync::Arc;

use remanent_pmem::heap::layout::SUSPECT_COUNT;
use remanent_pmem::heap::{Block, Lane, SweepCursor};
use remanent_pmem::{Medium, WORD_LEN};

use super::foreign::{detach_all, require_unreferenced};
use super::ops::too_much;
use super::promise::{Author, PromiseKind};
use super::{CATALOG_LEN_MAX, Catalog, CatalogBlock, DroppedEntry, HEADER_CATALOG};
use crate::engine::{Engine, Schema};
use crate::index::Words;
use crate::replicate::SchemaChange;
use crate::schema::INDEXES_MAX;
use crate::table::layout::Kind;
use crate::transaction::list;
use crate::{Error, Result};

/// Suspects for the blocks by which a table of 64 indexes is known, the catalog's, and the
/// allocator's.
const SUSPECTS: usize = 128;
const _: () = assert!(SUSPECTS <= SUSPECT_COUNT as usize && INDEXES_MAX + 2 < SUSPECTS);

/// Tables and indexes whose blocks can be freed.
struct Dead {
    tables: HashSet<u32>,
    indexes: HashSet<u32>,
}

impl Dead {
    fn of(entries: &[DroppedEntry]) -> Self {
        let indexes = entries.iter().flat_map(|entry| &entry.indexes);
        Dead {
            tables: entries.iter().filter_map(|entry| Some(entry.table?.0)).collect(),
            indexes: indexes.map(|(number, _)| *number).collect(),
        }
    }

    /// Whether a block is of one of them, by what it says; and it is none that others know by its
    /// offset.
    fn has<M: Medium>(&self, medium: &M, block: Block) -> bool {
        let tag = medium.load(block.offset);
        match Kind::of_tag(tag) {
            Some((Kind::State | Kind::List, _)) => false,
            Some((_, table)) => self.tables.contains(&table),
            None => Words::owner_of(medium, block)
                .is_some_and(|index| self.indexes.contains(&index.get())),
        }
    }
}

impl<M: Medium> Schema<M> {
    /// The place of a table that is to be dropped, and to which no other one refers.
    fn to_be_dropped(&self, name: &str) -> Result<usize> {
        let entry = self.entry_of_name(name);
        let entry = entry.ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })?;
        require_unreferenced(&self.catalog, entry)?;
        let found = self.tables.iter().position(|table| table.number == entry.number);
        found.ok_or_else(|| Error::NoSuchTable { table: name.to_owned() })
    }
}

impl<M: Medium> Engine<M> {
    /// Drops a table: it is not there any more when this returns. Two fences, and those for giving
    /// back its blocks.
    pub(crate) fn drop_table(&self, name: &str) -> Result<()> {
        self.alter(|| self.drop_table_alone(name))
    }

    fn drop_table_alone(&self, name: &str) -> Result<()> {
        let mut altering = None;
        // Who has a foreign key exchanges the sets of indexes of the tables that it refers to.
        let told = loop {
            match self.drop_from_catalog(name, altering.is_some())? {
                Some(told) => break told,
                None => altering = Some(self.lock_altering()?),
            }
        };
        drop(altering);
        self.garbage.lock(self.medium()).retain(|row| !row.table.is_dropped());
        told.and(self.free_dropped())
    }

    /// Promises that a table is dropped once a transaction has committed. Two fences.
    pub(crate) fn drop_table_by(&self, author: Author, name: &str) -> Result<()> {
        let _altering = self.lock_altering()?;
        let mut schema = self.schema.lock(self.medium());
        schema.require_free(author)?;
        let at = schema.to_be_dropped(name)?;
        let mut catalog = schema.next_catalog();
        catalog.note(author, catalog.tables[at].number, PromiseKind::DropTable);
        self.begin_altering(author, &mut catalog);
        self.replace_catalog(&mut schema, catalog, &[])?;
        schema.tables[at].leave();
        Ok(())
    }

    /// Has the catalog not lead to a table any more. `None` if the caller has to keep others from
    /// changing sets of indexes, and does not: the table has foreign keys. Otherwise whether the
    /// gate has confirmed it.
    fn drop_from_catalog(&self, name: &str, is_altering: bool) -> Result<Option<Result<()>>> {
        let change;
        let tied = {
            let mut schema = self.schema.lock(self.medium());
            schema.require_free(Author::Alone)?;
            let at = schema.to_be_dropped(name)?;
            if !schema.catalog.tables[at].foreign_keys.is_empty() && !is_altering {
                return Ok(None);
            }
            let mut catalog = schema.next_catalog();
            let entry = catalog.tables.remove(at);
            catalog.dropped.push(DroppedEntry::of(&entry));
            let table = Arc::clone(&schema.tables[at]);
            let dropped;
            (change, dropped) = table.drop_at(|| {
                let mut change = self.begin_altering(Author::Alone, &mut catalog);
                let stamp = change.stamp();
                match self.replace_catalog(&mut schema, catalog, &[]) {
                    Ok(()) => (stamp, (change, Ok(()))),
                    Err(error) => {
                        let error = change.fail(error);
                        (0, (change, Err(error)))
                    }
                }
            });
            dropped?;
            schema.tables.remove(at);
            table.presence.end();
            schema.dropped.push(Arc::clone(&table));
            is_altering.then_some(table)
        };
        // Before sets of indexes are exchanged: after a fault of the medium, who has a set may wait
        // for this.
        let told = change.end(|| SchemaChange::DropTable { table: name.to_owned() });
        if let Some(table) = tied {
            detach_all(&table);
        }
        Ok(Some(told))
    }

    /// Frees the blocks of dropped tables and indexes that nobody has any more. The last of them
    /// are kept while a full pool has no room for a catalog without them.
    pub(crate) fn free_dropped(&self) -> Result<()> {
        let Some(_freeing) = self.freeing.try_lock() else { return Ok(()) };
        let dead = self.take_dead()?;
        if dead.is_empty() {
            return Ok(());
        }
        let of_dead = Dead::of(&dead);
        let mut next = Some(SweepCursor::default());
        while let Some(from) = next {
            // Who makes a table has its blocks in the catalog when the lock is free again.
            let schema = self.schema.lock(self.medium());
            let fixed = self.fixed_blocks(&schema.catalog);
            let is_dead =
                |block: Block| !fixed.contains(&block.offset) && of_dead.has(self.medium(), block);
            next = self.heap.sweep(from, is_dead)?;
        }
        for mut entry in dead {
            // Those of many dictionaries one after the other: a lane has so many suspects.
            while entry.indexes.len() > INDEXES_MAX {
                let rest = entry.indexes.split_off(entry.indexes.len() - INDEXES_MAX);
                let part = DroppedEntry { table: None, indexes: rest };
                if !self.forget_dropped(&part, |other| {
                    if other.table == entry.table && other.indexes.ends_with(&part.indexes) {
                        other.indexes.clone_from(&entry.indexes);
                    }
                    true
                })? {
                    return Ok(());
                }
            }
            if !self.forget_dropped(&entry, |other| *other != entry)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Frees the blocks by which something is known that was dropped. `keep` says which entries the
    /// catalog still has, and changes them. False if a full pool has no room for that catalog.
    fn forget_dropped(
        &self,
        gone: &DroppedEntry,
        keep: impl FnMut(&mut DroppedEntry) -> bool,
    ) -> Result<bool> {
        let mut schema = self.schema.lock(self.medium());
        let mut catalog = schema.next_catalog();
        catalog.dropped.retain_mut(keep);
        let blocks: Vec<u64> = gone.fixed_blocks().collect();
        match self.replace_catalog(&mut schema, catalog, &blocks) {
            Err(error) if error.is_full() => return Ok(false),
            replaced => replaced?,
        }
        for (number, _) in gone.indexes.iter().filter(|(_, header)| header.is_none()) {
            self.dram.remove(*number)?;
        }
        Ok(true)
    }

    /// Dropped tables and indexes that nobody has.
    fn take_dead(&self) -> Result<Vec<DroppedEntry>> {
        let mut schema = self.schema.lock(self.medium());
        // Nobody gets one from anywhere any more, and what those did who had it is seen.
        schema.dropped.retain_mut(|table| Arc::get_mut(table).is_none());
        let mut in_dram = Vec::new();
        schema.retired.retain_mut(|index| {
            let is_dead = index.is_unused();
            in_dram.extend((is_dead && index.rows().header().is_none()).then_some(index.number()));
            !is_dead
        });
        for number in in_dram {
            self.dram.remove(number)?;
        }
        let Schema { catalog, dropped, retired, .. } = &*schema;
        let is_dead = |entry: &&DroppedEntry| match entry.table {
            Some((number, _)) => dropped.iter().all(|table| table.number != number),
            None => retired.iter().all(|index| !entry.is_index(index.number())),
        };
        Ok(catalog.dropped.iter().filter(is_dead).cloned().collect())
    }

    /// Blocks that are known by their offsets.
    fn fixed_blocks(&self, catalog: &Catalog) -> HashSet<u64> {
        let at = self.medium().load(self.heap.header() + HEADER_CATALOG);
        let tables = catalog.tables.iter().map(DroppedEntry::of);
        let all = tables.chain(catalog.dropped.iter().cloned());
        let of_tables = all.flat_map(|table| table.fixed_blocks().collect::<Vec<_>>());
        let of_slots = list::all(&self.heap, self.slots.offset());
        of_tables.chain(of_slots).chain([at, self.slots.offset()]).collect()
    }

    /// Has the header lead to another catalog, to which `gone` blocks do not belong any more.
    pub(super) fn replace_catalog(
        &self,
        schema: &mut Schema<M>,
        catalog: Catalog,
        gone: &[u64],
    ) -> Result<()> {
        let content = CatalogBlock::of(&catalog);
        if catalog.promised.is_some() && content.len() > CATALOG_LEN_MAX {
            return Err(too_much("", "changes of one transaction"));
        }
        let replace = || -> Result<()> {
            let mut lane = self.heap.enter().prepare_for(SUSPECTS);
            let block = lane.allocate(content.len())?;
            content.write(self.medium(), block.offset);
            self.publish_catalog(&mut lane, block.offset, gone)
        };
        match replace() {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                replace()?;
            }
            replaced => replaced?,
        }
        self.show_schema(&catalog);
        schema.catalog = catalog;
        Ok(())
    }

    /// Has the header lead to a catalog that is written and flushed. Two fences.
    pub(super) fn publish_catalog(
        &self,
        lane: &mut Lane<'_, M>,
        new: u64,
        gone: &[u64],
    ) -> Result<()> {
        let (medium, at) = (self.medium(), self.heap.header() + HEADER_CATALOG);
        let old = medium.load(at);
        let suspects: Vec<_> =
            std::iter::once(&old).chain(gone).map(|offset| lane.suspect(*offset)).collect();
        // Fence: what the new catalog leads to, before the header leads to it; the suspects, before
        // nothing leads to them; what a sweep has freed, before nothing says that it was dead.
        lane.fence();
        medium.store(at, new);
        // Flush and fence: before anybody is told of the change, and before the old catalog's block
        // may be freed.
        medium.persist(at, WORD_LEN);
        suspects.into_iter().for_each(|suspect| lane.retire(suspect));
        Ok(self.heap.verify()?)
    }
}
