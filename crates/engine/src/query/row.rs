//! A row, as a statement sees it.

use remanent_pmem::{Mapped, Medium};
use remanent_structures::RowId;

use crate::table::Table;
use crate::table::cells::{Cell, KeyCells};
use crate::table::ops::{Group, key_cells};
use crate::value::{FromValue, Value};
use crate::{Error, Result};

/// A copy of a row's cells.
pub struct Row<'r, M: Medium = Mapped> {
    table: &'r Table<M>,
    id: RowId,
    groups: [Group; 2],
}

impl<'r, M: Medium> Row<'r, M> {
    #[inline]
    pub(crate) fn new(table: &'r Table<M>, id: RowId, groups: [Group; 2]) -> Self {
        Row { table, id, groups }
    }

    /// Number of the row in its table. It keeps it for life.
    pub fn id(&self) -> RowId {
        self.id
    }

    /// The value of a column, by its number ([`Table::column`](crate::Table::column)).
    ///
    /// # Errors
    ///
    /// When there is no such column, or its bytes are no value of its type.
    #[inline]
    pub fn value(&self, column: usize) -> Result<Value<'_>> {
        value_of(self.table, &self.groups, column)
    }

    /// The values of all columns, in the columns' order: in less time than one by one.
    ///
    /// ```
    /// # use remanent_engine::{Database, Result, TableSpec, Type, Value};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// # let database = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items")
    ///     .column("number", Type::U32)
    ///     .nullable("name", Type::Text { max: 20 })
    ///     .primary_key(["number"]);
    /// let items = database.create_table(&spec)?;
    /// items.insert(&[7.into(), "lamp".into()])?;
    ///
    /// let get = items.prepare_get("primary")?;
    /// get.run(&database.snapshot(), &[7.into()], |row| {
    ///     let values = row.values().collect::<Result<Vec<Value<'_>>>>()?;
    ///     assert_eq!(values, [Value::Uint(7), Value::Text("lamp")]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// In the place of a value, when the column's bytes are no value of its type.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = Result<Value<'_>>> {
        let groups = key_cells(&self.groups);
        let cells = self.table.format.cells.all();
        cells.enumerate().map(move |(column, cell)| value_in(self.table, groups, (column, cell)))
    }

    /// The value of a column as `T`: an integer of any type that it fits, text, bytes, `Option` of
    /// these.
    ///
    /// ```
    /// # use remanent_engine::{Database, Row, TableSpec, Type, Value};
    /// # use remanent_pmem::Pool;
    /// # let directory = tempfile::tempdir()?;
    /// # let pool = Pool::options().create(directory.path().join("example.pool"))?;
    /// # let database = Database::create(&pool, "shop")?;
    /// let spec = TableSpec::new("items")
    ///     .column("number", Type::U32)
    ///     .nullable("name", Type::Text { max: 20 })
    ///     .primary_key(["number"]);
    /// let items = database.create_table(&spec)?;
    /// items.insert(&[7.into(), "lamp".into()])?;
    /// items.insert(&[8.into(), Value::Null])?;
    ///
    /// let (get, name) = (items.prepare_get("primary")?, items.column("name")?);
    /// let now = database.snapshot();
    /// let len = get.run(&now, &[7.into()], |row| Ok(row.get::<&str>(name)?.len()))?;
    /// assert_eq!(len, Some(4));
    /// let has_name = |row: &Row<'_>| Ok(row.get::<Option<&str>>(name)?.is_some());
    /// assert_eq!(get.run(&now, &[8.into()], has_name)?, Some(false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`value`](Row::value), and when the value is no `T`.
    #[inline]
    pub fn get<'v, T: FromValue<'v>>(&'v self, column: usize) -> Result<T> {
        convert(self.table, column, self.value(column)?)
    }
}

/// The value of a column in the cells of a row.
#[inline]
pub(super) fn value_of<'g, M: Medium>(
    table: &'g Table<M>,
    groups: &'g [Group; 2],
    column: usize,
) -> Result<Value<'g>> {
    let Some(cell) = table.format.cells.get(column) else {
        return Err(no_column(table, column));
    };
    value_in(table, key_cells(groups), (column, cell))
}

/// The value of the column that has this cell.
#[inline(always)]
fn value_in<'g, M: Medium>(
    table: &'g Table<M>,
    row: KeyCells<'g>,
    (column, cell): (usize, &Cell),
) -> Result<Value<'g>> {
    let Some(bytes) = table.format.cells.bytes_in(column, cell, row) else {
        return Ok(Value::Null);
    };
    if cell.is_encoded && bytes.is_empty() {
        return Err(table.no_such_value(column));
    }
    cell.of_type
        .decode(bytes)
        .ok_or_else(|| table.refused(column, "its bytes are damaged".to_owned()))
}

/// The value of a column as `T`.
#[inline]
pub(super) fn convert<'v, M: Medium, T: FromValue<'v>>(
    table: &Table<M>,
    column: usize,
    value: Value<'v>,
) -> Result<T> {
    let asked = std::any::type_name::<T>;
    T::from_value(value).ok_or_else(|| no_value(table, column, value, asked()))
}

#[cold]
pub(super) fn no_column<M: Medium>(table: &Table<M>, column: usize) -> Error {
    Error::NoSuchColumn { table: table.name.clone(), column: column.to_string() }
}

#[cold]
fn no_value<M: Medium>(table: &Table<M>, column: usize, value: Value<'_>, asked: &str) -> Error {
    table.refused(column, format!("it is {value}, and was asked for as {asked}"))
}

impl<M: Medium> std::fmt::Debug for Row<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut row = f.debug_struct("Row");
        for (number, column) in self.table.columns.load().iter().enumerate() {
            row.field(&column.name, &self.value(number).ok());
        }
        row.finish()
    }
}
