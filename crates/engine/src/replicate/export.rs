//! Handing out a whole database.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::Medium;

use super::apply::is_own;
use super::collect::all_values;
use super::write_set::{Change, OwnedValue, SchemaChange, WriteSet};
use crate::Error;
use crate::catalog::{Catalog, TableEntry};
use crate::database::{Database, Table};
use crate::engine::Engine;
use crate::foreign::spec::ForeignKeyEntry;
use crate::new_column::NewColumn;
use crate::query::Row;
use crate::schema::{Column, NewForeignKey, NewIndex, TableSpec};
use crate::table::Table as Core;
use crate::transaction::Snapshot;

/// Bytes of rows that a write set has at least, unless they are the last ones of a table.
const PART_LEN: usize = 64 << 10;

/// The tables of one moment.
struct Tables<'d, M: Medium> {
    snapshot: Snapshot<'d, M>,
    schema_version: u64,
    all: Vec<Described<M>>,
}

/// A table, and what makes one like it.
struct Described<M: Medium> {
    core: Arc<Core<M>>,
    columns: usize,
    /// Before it has rows.
    made_by: Vec<SchemaChange>,
    /// Once all tables have rows.
    foreign_keys: Vec<SchemaChange>,
}

impl<M: Medium> Database<M> {
    /// Hands out the whole database as it is at one moment: tables, rows, and then foreign keys, in
    /// write sets of some 64 KiB. Returns the stamp of the last commit that is in it.
    ///
    /// An empty database that [restores](Database::restore) each of them, in this order, is a copy.
    /// The copy sets its position by [applying](Database::apply) an empty write set at the stamp;
    /// then it applies commits behind it. Others read and change the database meanwhile. No fence.
    ///
    /// ```
    /// use remanent_engine::{Database, Error, TableSpec, Type, WriteSet};
    /// # use remanent_pmem::Pool;
    /// # let pool = || Pool::options().create_in_memory();
    /// # let (one, two) = (pool()?, pool()?);
    ///
    /// let shop = Database::create(&one, "shop")?;
    /// let spec = TableSpec::new("items").column("number", Type::U32).primary_key(["number"]);
    /// shop.create_table(&spec)?.insert(&[7.into()])?;
    ///
    /// let copy = Database::create(&two, "shop")?;
    /// let stamp = shop.export(|part| copy.restore(&part))?;
    /// copy.apply(stamp, &WriteSet::default())?;
    /// let get = copy.table("items")?.prepare_get("primary")?;
    /// assert!(get.run(&copy.snapshot(), &[7.into()], |_| Ok(()))?.is_some());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// That of `each`. [`Error::NoSuchTable`] when a table is dropped meanwhile, and
    /// [`Error::SnapshotTooOld`] when it takes too long. When a row is damaged, or the medium met a
    /// fault.
    pub fn export<E: From<Error>>(
        &self,
        mut each: impl FnMut(WriteSet) -> Result<(), E>,
    ) -> Result<u64, E> {
        let Tables { snapshot, schema_version, all } = self.engine().tables_now();
        let mut hand_out = |changes| each(WriteSet { schema_version, changes });
        for of in &all {
            hand_out(of.made_by.iter().cloned().map(Change::Schema).collect())?;
        }
        for of in &all {
            let table = Table::of(self.engine(), Arc::clone(&of.core));
            export_rows(&table, of.columns, &snapshot, &mut hand_out)?;
        }
        for of in all.into_iter().filter(|of| !of.foreign_keys.is_empty()) {
            hand_out(of.foreign_keys.into_iter().map(Change::Schema).collect())?;
        }
        Ok(snapshot.stamp())
    }
}

fn export_rows<M: Medium, E: From<Error>>(
    table: &Table<M>,
    columns: usize,
    snapshot: &Snapshot<'_, M>,
    hand_out: &mut impl FnMut(Vec<Change>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut part, mut len) = (Vec::new(), 0);
    let mut put = |row: &Row<'_, M>| {
        let row = all_values(columns, row)?;
        len += row.iter().map(len_of).sum::<usize>();
        part.push(Change::Put { table: table.name().to_owned(), row });
        if len < PART_LEN {
            return Ok(());
        }
        len = 0;
        hand_out(std::mem::take(&mut part))
    };
    let failed = table.scan(snapshot, |row| match put(row) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    });
    failed?.map_or(Ok(()), Err)?;
    if part.is_empty() { Ok(()) } else { hand_out(part) }
}

/// About as many bytes as a value takes.
fn len_of(value: &OwnedValue) -> usize {
    let more = match value {
        OwnedValue::Text(text) => text.len(),
        OwnedValue::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    size_of::<u64>() + more
}

impl<M: Medium> Engine<M> {
    /// The tables of this moment, and a snapshot in which all changes of the schema count that have
    /// made them so, and none that comes.
    fn tables_now(&self) -> Tables<'_, M> {
        loop {
            let schema = self.schema.lock(self.medium());
            let stamp = schema.catalog.stamp;
            if stamp <= self.stamps.visible() {
                let tables = schema.tables.iter().zip(&schema.catalog.tables);
                let tables = tables.filter(|(table, _)| !is_own(&table.name));
                let all =
                    tables.map(|(table, entry)| describe(&schema.catalog, table, entry)).collect();
                let schema_version = schema.catalog.schema_version;
                return Tables { snapshot: Snapshot::of(self), schema_version, all };
            }
            // Commits before it may need the lock.
            drop(schema);
            self.stamps.wait_until_visible(self.medium(), stamp);
        }
    }
}

/// What makes a table like this one. Columns that were added come as such: so rows of commits that
/// did not know them yet are told from those that lack values.
fn describe<M: Medium>(
    catalog: &Catalog,
    table: &Arc<Core<M>>,
    entry: &TableEntry,
) -> Described<M> {
    // Not from the indexes that statements know: those come before the catalog counts them, and go
    // after it.
    let columns: Vec<Column> = entry.all_columns().cloned().collect();
    let (of_made, of_added): (Vec<_>, Vec<_>) = entry
        .indexes
        .iter()
        .map(|index| index.spec.clone())
        .partition(|spec| spec.columns.iter().all(|column| *column < entry.columns.len()));
    let spec = TableSpec::of_table(&table.name, &entry.columns, &of_made, entry.tile_rows);
    let name = || table.name.clone();
    let added = entry.added.iter().map(|added| {
        let column = NewColumn::of_added(added);
        SchemaChange::AddColumn { table: name(), column }
    });
    let indexes = of_added.iter().map(|spec| {
        let index = NewIndex::of(spec, &columns);
        SchemaChange::CreateIndex { table: name(), index }
    });
    let made_by = std::iter::once(SchemaChange::CreateTable(spec)).chain(added).chain(indexes);
    let keys = entry.foreign_keys.iter().filter_map(|key| {
        let foreign_key = described_key(&catalog.tables, &columns, key)?;
        Some(SchemaChange::AddForeignKey { table: name(), foreign_key })
    });
    let (made_by, foreign_keys) = (made_by.collect(), keys.collect());
    Described { core: Arc::clone(table), columns: columns.len(), made_by, foreign_keys }
}

/// A foreign key by the names of its columns.
fn described_key(
    tables: &[TableEntry],
    columns: &[Column],
    key: &ForeignKeyEntry,
) -> Option<NewForeignKey> {
    let parent = tables.iter().find(|table| table.number == key.references)?;
    let of_parent: Vec<Column> = parent.all_columns().cloned().collect();
    let name = |columns: &[Column], numbers: &[usize]| -> Option<Vec<String>> {
        numbers.iter().map(|number| Some(columns.get(*number)?.name.clone())).collect()
    };
    let (own, referenced) = (name(columns, &key.columns)?, name(&of_parent, &key.referenced)?);
    let [own, referenced] =
        [&own, &referenced].map(|names| names.iter().map(|name| &**name).collect::<Vec<_>>());
    Some(NewForeignKey::new(&*key.name, own, &*parent.name, referenced))
}
