//! What programs use to change the columns of a table that is there.

use std::sync::Arc;

use remanent_pmem::Medium;

use crate::Result;
use crate::database::{Database, Table};
use crate::new_column::NewColumn;

impl<M: Medium> Database<M> {
    /// Adds a column to a table, while others read and change it: one durable step. No row is
    /// looked at. Rows that are there have the default, as have those that are inserted later
    /// without a value for the column. Returns a handle that knows the column.
    ///
    /// Other handles, and statements that were prepared by them, go on with the columns that they
    /// know: they insert as many values as before, and the rest are defaults. Only who names a
    /// column by its number reaches a newer one with them. Columns cannot be renamed or dropped.
    ///
    /// The cells of added columns lie beside the tiles of about a thousand rows that have the
    /// others. A tile takes room for them when one of its rows is first given something else than
    /// the defaults, and more room when that happens to a column that was added later: its cells
    /// are copied then; statements that write such cells of the tile wait meanwhile. Until then,
    /// added columns take no space. A row with cells of added columns costs up to three lines more
    /// to read, and one or two to write, but no fence.
    ///
    /// Two fences, and those for blocks. Waits for who makes or moves an index, or changes the
    /// schema in another way. Statements do not wait.
    ///
    /// ```
    /// use remanent_engine::{Database, NewColumn, TableSpec, Type};
    /// # use remanent_pmem::Pool;
    /// # let pool = Pool::options().create_in_memory()?;
    /// let shop = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
    /// let old = shop.create_table(&spec)?;
    /// old.insert(&[1.into()])?;
    ///
    /// let items = shop.add_column(&old, &NewColumn::new("stock", Type::U16).default(10))?;
    /// items.insert(&[2.into(), 3.into()])?;
    /// old.insert(&[3.into()])?; // knows one column
    /// let stock = items.prepare_scan(["stock"])?.sum::<u32>(&shop.snapshot(), 0)?;
    /// assert_eq!(stock, Some(10 + 3 + 10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Column`](crate::Error::Column) when the name is taken, the default does not fit or
    /// is missing, the table has [`COLUMNS_MAX`](crate::COLUMNS_MAX) columns, or its rows would be
    /// longer than [`ROW_LEN_MAX`](crate::ROW_LEN_MAX).
    /// [`Error::SchemaBusy`](crate::Error::SchemaBusy) while an open transaction has changed the
    /// schema. When the pool is full, or the table was dropped. Nothing was changed then. When the
    /// medium met a fault: the column may be there.
    pub fn add_column(&self, table: &Table<M>, column: &NewColumn) -> Result<Table<M>> {
        let core = self.own(table)?;
        self.engine.add_column(core, column)?;
        Ok(Table::of(&self.engine, Arc::clone(core)))
    }
}
