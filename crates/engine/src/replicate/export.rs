//! Handing out a whole database.

use std::ops::ControlFlow;
use std::sync::Arc;

use remanent_pmem::Medium;

use super::apply::is_own;
use super::collect::all_values;
use super::write_set::{Change, OwnedValue, Promised, SchemaChange, WriteSet};
use crate::Error;
use crate::catalog::promise::Settled;
use crate::catalog::{Catalog, IndexEntry, TableEntry};
use crate::database::{Database, Table};
use crate::engine::Engine;
use crate::foreign::spec::ForeignKeyEntry;
use crate::new_column::{AddedColumn, NewColumn};
use crate::query::Row;
use crate::schema::{Column, NewForeignKey, NewIndex, TableSpec};
use crate::table::Table as Core;
use crate::transaction::Snapshot;
use crate::transaction::slots::HeldSlot;

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
            let stamp = schema.catalog.stamp.max(schema.kept_stamp);
            if stamp <= self.stamps.visible() {
                // Nobody else sees what an open transaction has made of it.
                let mut catalog = schema.catalog.clone();
                catalog.settle(Settled { taken_back_to: 0, ..Settled::OPEN });
                let of_entry = |entry: &TableEntry| {
                    let table = schema.tables.iter().find(|table| table.number == entry.number)?;
                    (!is_own(&table.name)).then(|| describe(&catalog, table, entry))
                };
                let all = catalog.tables.iter().filter_map(of_entry).collect();
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
    let added = entry.added.iter().filter(|added| !added.is_gone).map(|added| {
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

impl<M: Medium> Engine<M> {
    /// What the transaction of a slot has made of the schema, in the end.
    pub(crate) fn promised_changes(&self, slot: &HeldSlot<'_, M>) -> Promised {
        if !self.statuses.is_author(slot.id()) {
            return Promised::default();
        }
        let schema = self.schema.lock(self.medium());
        let promised = schema.catalog.promised.as_ref();
        if promised.is_none_or(|of| Some(of.id()) != slot.id()) {
            return Promised::default();
        }
        let [mut before, mut after] = [(); 2].map(|()| schema.catalog.clone());
        before.settle(Settled { taken_back_to: 0, ..Settled::OPEN });
        after.settle(Settled { is_kept: true, ..Settled::OPEN });
        let mut told = Promised { version: after.schema_version, ..Promised::default() };
        told.add_gone(&before, &after);
        for entry in after.tables.iter().filter(|entry| !is_own(&entry.name)) {
            match before.tables.iter().find(|table| table.number == entry.number) {
                Some(old) => told.add_new(&after, old, entry),
                None => {
                    let Some(core) = schema.table_of(entry.number) else { continue };
                    let Described { made_by, foreign_keys, .. } = describe(&after, core, entry);
                    told.before.extend(made_by);
                    told.behind.extend(foreign_keys);
                }
            }
        }
        told
    }
}

impl Promised {
    /// What is not there any more: foreign keys before the tables that they refer to.
    fn add_gone(&mut self, before: &Catalog, after: &Catalog) {
        let is_told = |table: &&TableEntry| !is_own(&table.name);
        let (mut indexes, mut tables) = (Vec::new(), Vec::new());
        for old in before.tables.iter().filter(is_told) {
            let table = || old.name.clone();
            let now = after.tables.iter().find(|entry| entry.number == old.number);
            let has_key = |name: &str| {
                now.is_some_and(|now| now.foreign_keys.iter().any(|key| key.name == name))
            };
            for key in old.foreign_keys.iter().filter(|key| !has_key(&key.name)) {
                let foreign_key = key.name.clone();
                self.before.push(SchemaChange::DropForeignKey { table: table(), foreign_key });
            }
            let Some(now) = now else {
                tables.push(SchemaChange::DropTable { table: table() });
                continue;
            };
            let has_index = |number| now.indexes.iter().any(|index| index.number == number);
            for index in old.indexes.iter().filter(|index| !has_index(index.number)) {
                let index = index.spec.name.clone();
                indexes.push(SchemaChange::DropIndex { table: table(), index });
            }
        }
        self.before.extend(indexes.into_iter().chain(tables));
    }

    /// What a table has got that was there before.
    fn add_new(&mut self, catalog: &Catalog, old: &TableEntry, now: &TableEntry) {
        let (table, columns) =
            (|| now.name.clone(), now.all_columns().cloned().collect::<Vec<_>>());
        let is_there = |added: &&AddedColumn| !added.is_gone;
        let count = old.added.iter().filter(is_there).count();
        for added in now.added.iter().filter(is_there).skip(count) {
            let column = NewColumn::of_added(added);
            self.before.push(SchemaChange::AddColumn { table: table(), column });
        }
        let had_index = |number| old.indexes.iter().any(|index| index.number == number);
        for IndexEntry { spec, .. } in now.indexes.iter().filter(|of| !had_index(of.number)) {
            let change =
                SchemaChange::CreateIndex { table: table(), index: NewIndex::of(spec, &columns) };
            match spec.kind.is_unique() {
                true => self.behind.push(change),
                false => self.before.push(change),
            }
        }
        let had_key = |name: &str| old.foreign_keys.iter().any(|key| key.name == name);
        for key in now.foreign_keys.iter().filter(|key| !had_key(&key.name)) {
            let foreign_key = described_key(&catalog.tables, &columns, key);
            self.behind.extend(
                foreign_key
                    .map(|foreign_key| SchemaChange::AddForeignKey { table: table(), foreign_key }),
            );
        }
    }
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
