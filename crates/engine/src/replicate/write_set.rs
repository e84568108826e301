//! What a transaction has changed, in terms of tables, columns and primary keys alone.

use crate::new_column::NewColumn;
use crate::schema::{NewForeignKey, NewIndex, TableSpec};
use crate::value::Value;

/// What a transaction, or a change of the schema, has changed. Numbers of rows and places in the
/// pool are not in it: another database [applies](crate::Database::apply) it as well.
///
/// Of each row, it has what became of it in the end: removals of primary keys first, and then rows
/// with all of their values. So applying it twice makes no difference. With the feature `serde`,
/// any format that serde knows carries it.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WriteSet {
    /// Version of the schema by which the rows are to be read: that of the last [`SchemaChange`]
    /// before, or of this one.
    pub schema_version: u64,
    /// What was changed.
    pub changes: Vec<Change>,
}

/// A change of a row, or of the schema.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Change {
    /// No row has this primary key any more.
    Remove {
        /// Name of the table.
        table: String,
        /// Values of the columns of the primary key, in its order.
        key: Vec<OwnedValue>,
    },
    /// The row with this primary key has these values.
    Put {
        /// Name of the table.
        table: String,
        /// Values of all columns that the table had then, in their order.
        row: Vec<OwnedValue>,
    },
    /// The schema was changed: by itself, or by a transaction. Of that, what is gone and what is
    /// new comes before the rows; unique indexes and foreign keys that tables have got come behind
    /// them, since the rows make them possible.
    Schema(SchemaChange),
}

/// A change of the schema. Where indexes lie is each database's own matter, once they are made.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SchemaChange {
    /// A table was made.
    CreateTable(TableSpec),
    /// A table was dropped.
    DropTable {
        /// Its name.
        table: String,
    },
    /// A column was added.
    AddColumn {
        /// Name of the table.
        table: String,
        /// The column.
        column: NewColumn,
    },
    /// An index was made.
    CreateIndex {
        /// Name of the table.
        table: String,
        /// The index.
        index: NewIndex,
    },
    /// An index was dropped.
    DropIndex {
        /// Name of the table.
        table: String,
        /// Its name.
        index: String,
    },
    /// A foreign key was added.
    AddForeignKey {
        /// Name of the table whose rows refer to others.
        table: String,
        /// The foreign key.
        foreign_key: NewForeignKey,
    },
    /// A foreign key was dropped.
    DropForeignKey {
        /// Name of the table whose rows referred to others.
        table: String,
        /// Its name.
        foreign_key: String,
    },
}

/// What a transaction has made of the schema, as others are told.
#[derive(Debug, Default)]
pub(crate) struct Promised {
    /// The version of the schema that it makes; 0 if it has not changed it.
    pub(crate) version: u64,
    /// Before its rows: what is gone, and then what is new.
    pub(crate) before: Vec<SchemaChange>,
    /// What its rows have to fit: unique indexes and foreign keys.
    pub(crate) behind: Vec<SchemaChange>,
}

impl SchemaChange {
    /// Name of the table that is changed.
    pub(crate) fn table(&self) -> &str {
        match self {
            SchemaChange::CreateTable(spec) => spec.name(),
            SchemaChange::DropTable { table }
            | SchemaChange::AddColumn { table, .. }
            | SchemaChange::CreateIndex { table, .. }
            | SchemaChange::DropIndex { table, .. }
            | SchemaChange::AddForeignKey { table, .. }
            | SchemaChange::DropForeignKey { table, .. } => table,
        }
    }
}

/// A [`Value`] that has its bytes.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OwnedValue {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer, as columns without a sign have it.
    Uint(u64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => OwnedValue::Null,
            Value::Bool(value) => OwnedValue::Bool(value),
            Value::Int(value) => OwnedValue::Int(value),
            Value::Uint(value) => OwnedValue::Uint(value),
            Value::Float(value) => OwnedValue::Float(value),
            Value::Text(text) => OwnedValue::Text(text.to_owned()),
            Value::Bytes(bytes) => OwnedValue::Bytes(bytes.to_vec()),
        }
    }
}

impl<'v> From<&'v OwnedValue> for Value<'v> {
    fn from(value: &'v OwnedValue) -> Self {
        match value {
            OwnedValue::Null => Value::Null,
            OwnedValue::Bool(value) => Value::Bool(*value),
            OwnedValue::Int(value) => Value::Int(*value),
            OwnedValue::Uint(value) => Value::Uint(*value),
            OwnedValue::Float(value) => Value::Float(*value),
            OwnedValue::Text(text) => Value::Text(text),
            OwnedValue::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

impl WriteSet {
    /// One with a change of the schema.
    pub(crate) fn of_schema(schema_version: u64, change: SchemaChange) -> Self {
        WriteSet { schema_version, changes: vec![Change::Schema(change)] }
    }

    /// The same with what its transaction has made of the schema.
    pub(crate) fn with(self, promised: Promised) -> Self {
        let Promised { version, before, behind } = promised;
        if version == 0 {
            return self;
        }
        let [before, behind] = [before, behind].map(|of| of.into_iter().map(Change::Schema));
        WriteSet {
            schema_version: version,
            changes: before.chain(self.changes).chain(behind).collect(),
        }
    }
}
