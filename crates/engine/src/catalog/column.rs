//! Adding a column while statements run.
//!
//! No row is touched: what a row has in an added column is the column's default until it is given
//! something else. One catalog has the column, and then statements can name it. Until then no row
//! has anything there, so that a crash or a full pool before leaves nothing.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::index::entry_of;
use super::ops::too_much;
use super::promise::{Author, PromiseKind};
use super::{CATALOG_LEN_MAX, CatalogBlock, TableEntry};
use crate::Result;
use crate::engine::Engine;
use crate::new_column::NewColumn;
use crate::replicate::SchemaChange;
use crate::schema::Column;
use crate::table::Table;

impl<M: Medium> Engine<M> {
    /// Adds a column to a table. Two fences.
    pub(crate) fn add_column(&self, table: &Arc<Table<M>>, new: &NewColumn) -> Result<()> {
        self.alter(|| self.add_column_by(Author::Alone, table, new))
    }

    /// The same for an author.
    pub(crate) fn add_column_by(
        &self,
        author: Author,
        table: &Arc<Table<M>>,
        new: &NewColumn,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        table.require_there(author.id())?;
        let mut change;
        let mut schema = self.schema.lock(self.medium());
        schema.require_free(author)?;
        let mut catalog = schema.next_catalog();
        let entry = entry_of(&mut catalog, table)?;
        let added = new.resolve(&table.name, &all_places(entry))?;
        entry.added.push(added.clone());
        catalog.note(author, table.number, PromiseKind::AddColumn);
        if CatalogBlock::of(&catalog).len() > CATALOG_LEN_MAX {
            return Err(too_much(&table.name, "columns"));
        }
        change = self.begin_altering(author, &mut catalog);
        let replaced = self.replace_catalog(&mut schema, catalog, &[]);
        replaced.map_err(|error| change.fail(error))?;
        table.add_column(&added, (author == Author::Alone).then_some(change.stamp()));
        drop(schema);
        let (table, column) = (table.name.clone(), new.clone());
        change.end(|| SchemaChange::AddColumn { table, column })
    }
}

/// The columns of a table, and without a name those of which the places alone are left: no other
/// column gets these.
fn all_places(entry: &TableEntry) -> Vec<Column> {
    let added = entry.added.iter().map(|added| match added.is_gone {
        true => Column { name: String::new(), ..added.column.clone() },
        false => added.column.clone(),
    });
    entry.columns.iter().cloned().chain(added).collect()
}
