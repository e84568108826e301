//! Columns that are added to a table that is there.

use crate::schema::{COLUMNS_MAX, Column, ROW_LEN_MAX, named};
use crate::table::cells::Cells;
use crate::value::{Type, Value};
use crate::{Error, Result};

/// Description of a column to be added to a table that is there, for
/// [`Database::add_column`](crate::Database::add_column), which has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NewColumn {
    column: Column,
    /// The default, encoded, or why it does not fit; `None` if none was given.
    default: Option<Result<Vec<u8>, String>>,
}

/// A column that was added to a table: what its catalog says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedColumn {
    pub(crate) column: Column,
    /// The default's bytes in a row: whether it is NULL, if the column is nullable, and the cell.
    pub(crate) default: Vec<u8>,
    /// The transaction that has added it has taken that back. Its place in rows stays empty.
    pub(crate) is_gone: bool,
}

impl NewColumn {
    /// A column that has a value in every row: the [default](NewColumn::default) in those rows that
    /// are given no other one.
    pub fn new(name: impl Into<String>, of_type: Type) -> Self {
        Self::of(Column { name: name.into(), of_type, is_nullable: false, dictionary: None })
    }

    /// A column that may have no value: NULL in those rows that are given no value, unless there is
    /// a [default](NewColumn::default).
    pub fn nullable(name: impl Into<String>, of_type: Type) -> Self {
        Self::of(Column { name: name.into(), of_type, is_nullable: true, dictionary: None })
    }

    fn of(column: Column) -> Self {
        NewColumn { column, default: None }
    }

    /// Says what the column has in rows that are there, and in those that are inserted without a
    /// value for it.
    #[must_use]
    pub fn default<'v>(mut self, value: impl Into<Value<'v>>) -> Self {
        // An impossible type is refused by itself.
        self.default = Some(match self.column.of_type.is_valid() {
            true => encode(&self.column, value.into()),
            false => Ok(Vec::new()),
        });
        self
    }

    pub(crate) fn column(&self) -> &Column {
        &self.column
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.column.name
    }

    /// A column that was added.
    pub(crate) fn of_added(added: &AddedColumn) -> Self {
        let AddedColumn { column, default, .. } = added.clone();
        NewColumn { column, default: Some(Ok(default)) }
    }

    /// What the catalog is to say of it, if it can be added to a table that has these columns.
    pub(crate) fn resolve(&self, table: &str, columns: &[Column]) -> Result<AddedColumn> {
        self.resolved(columns).map_err(|reason| Error::Column {
            table: table.to_owned(),
            column: self.column.name.clone(),
            reason,
        })
    }

    fn resolved(&self, columns: &[Column]) -> Result<AddedColumn, String> {
        let NewColumn { column, default } = self;
        named("column", &column.name)?;
        if columns.iter().any(|other| other.name == column.name) {
            return Err("a column of this name is there".to_owned());
        }
        if columns.len() >= COLUMNS_MAX {
            return Err(format!("the table has {COLUMNS_MAX} columns, which are all it can have"));
        }
        if !column.of_type.is_valid() {
            return Err(format!("it cannot have {}", column.of_type));
        }
        let all = columns.iter().chain([column]);
        let len: usize = all.map(Column::cell_len).sum();
        if len > ROW_LEN_MAX {
            return Err(format!("rows would have {len} bytes; {ROW_LEN_MAX} are possible"));
        }
        let default = match default {
            Some(Ok(default)) => default.clone(),
            Some(Err(reason)) => return Err(format!("its default: {reason}")),
            None if column.is_nullable => encode(column, Value::Null)?,
            None => {
                return Err("rows that are there need a value for it: give it a default \
                            (`NewColumn::default`), or make it nullable"
                    .to_owned());
            }
        };
        let added = AddedColumn { column: column.clone(), default, is_gone: false };
        match added.is_valid() && added.column.dictionary.is_none() {
            true => Ok(added),
            // It was not made by `NewColumn`'s methods.
            false => Err("its default is none of its type, or it is encoded".to_owned()),
        }
    }
}

/// The bytes of a value in a row.
fn encode(column: &Column, value: Value<'_>) -> Result<Vec<u8>, String> {
    let flag_len = usize::from(column.is_nullable);
    let mut bytes = vec![0; flag_len + column.of_type.cell_len()];
    match (value, column.is_nullable) {
        (Value::Null, true) => bytes[0] = 1,
        (Value::Null, false) => return Err("NULL is not possible".to_owned()),
        (value, _) => column.of_type.encode(&value, &mut bytes[flag_len..])?,
    }
    Ok(bytes)
}

impl AddedColumn {
    /// Adds it to the cells of a table.
    pub(crate) fn add_to(&self, cells: &Cells) {
        cells.add(self.column.of_type, self.column.is_nullable, &self.default);
        if self.is_gone {
            cells.remove_last();
        }
    }

    /// Whether its default is one that [`NewColumn`] can have.
    pub(crate) fn is_valid(&self) -> bool {
        let AddedColumn { column: Column { of_type, is_nullable, .. }, default, .. } = self;
        let flag_len = usize::from(*is_nullable);
        if default.len() != flag_len + of_type.cell_len() {
            return false;
        }
        let (flag, cell) = default.split_at(flag_len);
        match flag {
            [] | [0] => of_type.decode(cell).is_some(),
            [1] => cell.iter().all(|byte| *byte == 0),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_descriptions_are_refused_with_their_reason() {
        let column = |name: &str, of_type| Column {
            name: name.to_owned(),
            of_type,
            is_nullable: false,
            dictionary: None,
        };
        let few = [column("a", Type::U8)];
        let many: Vec<Column> =
            (0..COLUMNS_MAX).map(|at| column(&format!("c{at}"), Type::U8)).collect();
        let long: Vec<Column> =
            (0..128).map(|at| column(&format!("c{at}"), Type::Text { max: 255 })).collect();
        let one = |of_type| NewColumn::new("b", of_type);
        for (new, columns, told) in [
            (NewColumn::nullable("a", Type::U8), &few[..], "a column of this name is there"),
            (NewColumn::nullable("", Type::U8), &few, "name has 0 bytes"),
            (one(Type::U8), &few, "give it a default"),
            (one(Type::U8).default(256), &few, "its default: 256 does not fit UINT of 1 bytes"),
            (one(Type::U8).default("x"), &few, "its default: \"x\" is no UINT"),
            (one(Type::U8).default(Value::Null), &few, "its default: NULL is not possible"),
            (one(Type::Int { len: 9 }).default(1), &few, "it cannot have INT of 9 bytes"),
            (one(Type::U8).default(1), &many, "has 1000 columns, which are all"),
            (one(Type::U8).default(1), &long, "rows would have 32769 bytes; 32768 are possible"),
        ] {
            let error = new.resolve("t", columns).unwrap_err();
            assert!(matches!(&error, Error::Column { table, .. } if table == "t"));
            assert!(error.to_string().contains(told), "{error}");
        }
    }

    #[test]
    fn defaults_are_those_that_were_given() {
        let default = |new: NewColumn| new.resolve("t", &[]).unwrap();
        let text = Type::Text { max: 3 };
        for (new, bytes) in [
            (NewColumn::new("a", Type::U16).default(513), &[1, 2][..]),
            (NewColumn::nullable("a", Type::U16), &[1, 0, 0]),
            (NewColumn::nullable("a", Type::U16).default(Value::Null), &[1, 0, 0]),
            (NewColumn::nullable("a", Type::U16).default(513), &[0, 1, 2]),
            (NewColumn::new("a", text).default("ab"), &[2, b'a', b'b', 0]),
        ] {
            let added = default(new);
            assert_eq!(added.default, bytes);
            assert!(added.is_valid());
            let len = bytes.len();
            let with = |at: usize, byte: u8| {
                let mut other = added.clone();
                other.default[at] = byte;
                other
            };
            assert!(
                !AddedColumn { default: bytes[..len - 1].to_vec(), ..added.clone() }.is_valid()
            );
            assert!(!added.column.is_nullable || !with(0, 2).is_valid());
            assert!(bytes[0] != 1 || len == 2 || !with(len - 1, 7).is_valid());
            assert!(added.column.of_type != text || !with(0, 4).is_valid());
        }
    }
}
