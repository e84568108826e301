//! How foreign keys are described.

use crate::schema::{Column, IndexSpec, NewForeignKey, Structure, named};
use crate::{Error, Result};

/// Foreign keys of a table at the most.
pub const FOREIGN_KEYS_MAX: usize = 64;

/// A foreign key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKeySpec {
    /// Its name. Foreign keys of one table have different names.
    pub name: String,
    /// The columns that refer to a row, as numbers of columns of the table.
    pub columns: Vec<usize>,
    /// Name of the table that they refer to.
    pub references: String,
    /// The columns that they refer to, as numbers of columns of that table: in the order of those
    /// that refer to them.
    pub referenced: Vec<usize>,
}

/// A foreign key as the catalog has it. It names no index, so that indexes are moved without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignKeyEntry {
    pub(crate) name: String,
    /// Numbers of the columns that refer.
    pub(crate) columns: Vec<usize>,
    /// Number of the table that is referred to.
    pub(crate) references: u32,
    /// Numbers of the columns that are referred to, in the order of those that refer.
    pub(crate) referenced: Vec<usize>,
}

/// A table to which a foreign key is added, or to which one refers.
#[derive(Clone, Copy)]
pub(crate) struct Described<'t> {
    pub(crate) name: &'t str,
    pub(crate) columns: &'t [Column],
    pub(crate) indexes: &'t [IndexSpec],
}

impl NewForeignKey {
    /// The refusal of it.
    #[cold]
    pub(crate) fn refused(&self, table: &str, reason: String) -> Error {
        let (table, foreign_key) = (table.to_owned(), self.name.clone());
        Error::ForeignKey { table, foreign_key, reason }
    }

    /// The foreign key by the numbers of its columns, in a table that has others of these names.
    /// `number` is that of the table that it refers to.
    pub(crate) fn resolve(
        &self,
        child: Described<'_>,
        (parent, number): (Described<'_>, u32),
        others: &[&str],
    ) -> Result<ForeignKeyEntry> {
        self.resolved(child, (parent, number), others)
            .map_err(|reason| self.refused(child.name, reason))
    }

    fn resolved(
        &self,
        child: Described<'_>,
        (parent, number): (Described<'_>, u32),
        others: &[&str],
    ) -> Result<ForeignKeyEntry, String> {
        named("foreign key", &self.name)?;
        if others.contains(&&self.name[..]) {
            return Err("the table has another one of this name".to_owned());
        }
        if others.len() >= FOREIGN_KEYS_MAX {
            return Err(format!(
                "the table has {FOREIGN_KEYS_MAX} foreign keys, which are all it can have"
            ));
        }
        if self.columns.is_empty() || self.columns.len() != self.referenced.len() {
            return Err(format!(
                "{} columns refer to {}; as many are needed, and one at least",
                self.columns.len(),
                self.referenced.len()
            ));
        }
        let columns = numbers_of(&self.columns, child)?;
        let referenced = numbers_of(&self.referenced, parent)?;
        for (&column, &other) in columns.iter().zip(&referenced) {
            let (column, other) = (&child.columns[column], &parent.columns[other]);
            if column.of_type != other.of_type {
                return Err(format!(
                    "column {:?} has {}, and {:?} of table {:?}, which it refers to, has {}; the \
                     same type is needed",
                    column.name, column.of_type, other.name, parent.name, other.of_type
                ));
            }
        }
        if !parent.indexes.iter().any(|index| is_of_parents(index, &referenced)) {
            return Err(format!(
                "table {:?} has no unique index of exactly the columns ({}), by which parents are \
                 found; make one (`TableSpec::unique`, `Database::create_index`)",
                parent.name,
                self.referenced.join(", ")
            ));
        }
        if !child.indexes.iter().any(|index| is_of_children(index, &columns)) {
            return Err(format!(
                "table {:?} has no index of the columns ({}), by which children are found; make a \
                 hash index of exactly these, or an ordered one that begins with them \
                 (`TableSpec::index`, `Database::create_index`)",
                child.name,
                self.columns.join(", ")
            ));
        }
        Ok(ForeignKeyEntry { name: self.name.clone(), columns, references: number, referenced })
    }
}

/// Whether parents are found by an index: it is a unique one of these columns, in any order.
pub(crate) fn is_of_parents(index: &IndexSpec, columns: &[usize]) -> bool {
    index.kind.is_unique() && is_of(&index.columns, columns)
}

/// Whether children are found by an index: it has these columns, in any order, and if it is
/// ordered, perhaps others behind them.
pub(crate) fn is_of_children(index: &IndexSpec, columns: &[usize]) -> bool {
    let of_index = match index.structure {
        Structure::Hash => Some(&index.columns[..]),
        Structure::Ordered => index.columns.get(..columns.len()),
    };
    of_index.is_some_and(|of_index| is_of(of_index, columns))
}

/// Whether two lists have the same columns, none of them twice.
fn is_of(of_index: &[usize], columns: &[usize]) -> bool {
    of_index.len() == columns.len() && of_index.iter().all(|column| columns.contains(column))
}

fn numbers_of(names: &[String], table: Described<'_>) -> Result<Vec<usize>, String> {
    let mut numbers: Vec<usize> = Vec::new();
    for name in names {
        let number = table.columns.iter().position(|column| column.name == *name);
        let number =
            number.ok_or_else(|| format!("table {:?} has no column {name:?}", table.name))?;
        if numbers.contains(&number) {
            return Err(format!("column {name:?} comes twice"));
        }
        numbers.push(number);
    }
    Ok(numbers)
}
