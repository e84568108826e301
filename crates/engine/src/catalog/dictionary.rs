//! Moving the index of a dictionary while statements run.
//!
//! It is built as an index of a table is (`index.rs`), from the values of the dictionary: one
//! catalog makes it known as a dropped one if it is in the pool, and one catalog exchanges it for
//! the old one. Who adds values meanwhile adds them to both, until statements find values by the
//! new one ([`Dictionary::build`](crate::dictionary::Dictionary::build)).

use std::sync::Arc;

use remanent_pmem::Medium;

use super::index::entry_of;
use super::ops::too_much;
use super::promise::Author;
use super::retired::Retired;
use super::{CATALOG_LEN_MAX, CatalogBlock, DroppedEntry};
use crate::Result;
use crate::dictionary::index::ValueIndex;
use crate::engine::Engine;
use crate::schema::{Placement, Structure};
use crate::table::Table;

impl<M: Medium> Engine<M> {
    /// Moves the index of a column's dictionary to the pool, or to DRAM.
    pub(crate) fn place_dictionary(
        &self,
        table: &Arc<Table<M>>,
        column: &str,
        placement: Placement,
    ) -> Result<()> {
        self.alter(|| self.place_dictionary_alone(table, column, placement))
    }

    fn place_dictionary_alone(
        &self,
        table: &Arc<Table<M>>,
        column: &str,
        placement: Placement,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        table.require_there(None)?;
        self.schema.lock(self.medium()).require_free(Author::Alone)?;
        let (number, dictionary) = table.dictionary_of(column)?;
        let old = dictionary.index();
        if old.placement() == placement {
            return Ok(());
        }
        let next = self.begin_values(table, placement)?;
        let built = dictionary.build(&next, || table.require_not_dropped());
        let built = built.and_then(|()| self.publish_values(table, number, &next, &old));
        if let Err(error) = built {
            dictionary.stop_moving();
            drop(next);
            // What cannot be freed now is freed later. An error tells of the medium, and who meets
            // it next is told.
            let _ = self.free_dropped();
            return Err(error);
        }
        dictionary.exchange_index(&next);
        table.set_dictionary_placement(number, placement);
        // Whoever looks for a value in it is soon done: two have it besides, this thread and those
        // that are retired.
        while Arc::strong_count(&old) > 2 {
            self.medium().pause();
        }
        drop(old);
        self.free_dropped()
    }

    /// An empty index that nobody knows, of which a crash leaves nothing. Two fences if it is in
    /// the pool.
    fn begin_values(&self, table: &Table<M>, placement: Placement) -> Result<Arc<ValueIndex<M>>> {
        let mut schema = self.schema.lock(self.medium());
        let how = (Structure::Hash, placement);
        let (number, rows) = self.make_dropped(&mut schema, &table.name, how)?;
        let index = Arc::new(ValueIndex::new(number, rows, false));
        schema.retired.push(Retired::OfValues(Arc::clone(&index)));
        Ok(index)
    }

    /// Has the catalog name another index of a column's dictionary. Two fences.
    fn publish_values(
        &self,
        table: &Table<M>,
        column: usize,
        next: &Arc<ValueIndex<M>>,
        old: &Arc<ValueIndex<M>>,
    ) -> Result<()> {
        let mut schema = self.schema.lock(self.medium());
        let mut catalog = schema.next_catalog();
        catalog.dropped.retain(|dropped| !dropped.is_index(next.number));
        entry_of(&mut catalog, table)?.place_dictionary(column, (next.number, next.rows.header()));
        let gone = old.rows.header().map(|header| DroppedEntry::of_index(old.number, header));
        catalog.dropped.extend(gone);
        if CatalogBlock::of(&catalog).len() > CATALOG_LEN_MAX {
            return Err(too_much(&table.name, "columns"));
        }
        // Nobody is told where an index lies. Among its fences is that of the words that were added
        // for the values.
        if let Err(error) = self.replace_catalog(&mut schema, catalog, &[]) {
            if !error.is_full() {
                let both = [next, old].map(|index| Retired::OfValues(Arc::clone(index)));
                schema.undecided.extend(both);
            }
            return Err(error);
        }
        schema.retired.retain(|retired| retired.number() != next.number);
        schema.retired.push(Retired::OfValues(Arc::clone(old)));
        Ok(())
    }
}
