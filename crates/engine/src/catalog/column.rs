//! Adding a column while statements run.
//!
//! No row is touched: what a row has in an added column is the column's default until it is given
//! something else. One catalog has the column, and then statements can name it. Until then no row
//! has anything there, so that a crash or a full pool before leaves nothing.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::index::entry_of;
use super::ops::too_much;
use super::{CATALOG_LEN_MAX, CatalogBlock};
use crate::Result;
use crate::engine::Engine;
use crate::new_column::NewColumn;
use crate::replicate::SchemaChange;
use crate::table::Table;

impl<M: Medium> Engine<M> {
    /// Adds a column to a table. Two fences.
    pub(crate) fn add_column(&self, table: &Arc<Table<M>>, new: &NewColumn) -> Result<()> {
        let _altering = self.altering.lock(self.medium());
        table.require_there()?;
        let added = new.resolve(&table.name, &table.columns.load())?;
        let mut change;
        let mut schema = self.schema.lock(self.medium());
        let mut catalog = schema.next_catalog();
        entry_of(&mut catalog, table)?.added.push(added.clone());
        if CatalogBlock::of(&catalog).len() > CATALOG_LEN_MAX {
            return Err(too_much(&table.name, "columns"));
        }
        change = self.begin_altering(&mut catalog);
        let replaced = self.replace_catalog(&mut schema, catalog, &[]);
        replaced.map_err(|error| change.fail(error))?;
        table.add_column(&added, change.stamp());
        drop(schema);
        let (table, column) = (table.name.clone(), new.clone());
        change.end(|| SchemaChange::AddColumn { table, column })
    }
}
