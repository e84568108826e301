//! Adding and dropping a foreign key while statements run.
//!
//! 1. Statements check the foreign key: those that give a child a parent, and those that take a
//!    parent away. Once no statement runs that does not, all children are looked at, in all states
//!    that count or may come back. So none is left without a parent afterwards.
//! 2. One catalog has it. A crash before leaves nothing of it.
//!
//! It is dropped the other way round. The catalog names tables and columns, and no index: an index
//! is moved without regard to foreign keys.

use std::sync::Arc;

use remanent_pmem::{Error as PoolError, Medium};

use super::ops::too_much;
use super::promise::{Author, PromiseKind};
use super::{CATALOG_LEN_MAX, Catalog, CatalogBlock, TableEntry};
use crate::engine::{Engine, Schema};
use crate::foreign::spec::{Described, ForeignKeyEntry};
use crate::foreign::{Foreign, ForeignKey};
use crate::index::Index;
use crate::replicate::SchemaChange;
use crate::replicate::schema::Altering;
use crate::schema::{Column, IndexSpec, NewForeignKey, RESERVED, TableSpec};
use crate::table::Table;
use crate::transaction::view::View;
use crate::{Error, Result};

impl<M: Medium> Engine<M> {
    /// Adds a foreign key to a table. Two fences.
    pub(crate) fn add_foreign_key(&self, child: &Arc<Table<M>>, new: &NewForeignKey) -> Result<()> {
        self.alter(|| self.add_foreign_key_by((Author::Alone, View::NEWEST), child, new))
    }

    /// The same for an author, who sees its own rows by a view.
    pub(crate) fn add_foreign_key_by(
        &self,
        (author, view): (Author, View),
        child: &Arc<Table<M>>,
        new: &NewForeignKey,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        let (id, is_author) = (author.id(), self.statuses.is_author(author.id()));
        child.require_there(id)?;
        self.schema.lock(self.medium()).require_free(author)?;
        let parent = Some(&new.references).filter(|name| !name.starts_with(RESERVED));
        let parent = parent.and_then(|name| self.table(name, id));
        let parent = parent.ok_or_else(|| no_such_parent(&child.name, new))?;
        let entry = {
            let of_child = child.indexes.load();
            // Also those that the author has dropped: the catalog knows them by their names.
            let others: Vec<&str> =
                of_child.foreign.to_parents.iter().map(|key| &key.name[..]).collect();
            let (columns, own) = (child.columns_for(id), specs_of(child, is_author));
            let parents_columns = parent.columns_for(id);
            let parents_indexes = specs_of(&parent, is_author);
            let described = |name, columns, indexes| Described { name, columns, indexes };
            let of_parent = described(&parent.name, &parents_columns, &parents_indexes);
            let of_child = described(&child.name, &columns, &own);
            new.resolve(of_child, (of_parent, parent.number), &others)?
        };
        let key = ForeignKey::of(&entry, child, &parent, author != Author::Alone);
        let key = Arc::new(key.expect("there are indexes for it, and nobody drops one meanwhile"));
        if author != Author::Alone {
            key.presence.promise();
        }
        attach(&key, child, &parent);
        let added = self
            .require_parents(child, &parent, &key, view)
            // A child may have been committed before its parent, both without the foreign key: no
            // snapshot from now on sees it alone.
            .inspect(|()| self.stamps.wait_until_visible(self.medium(), self.stamps.last()))
            .and_then(|()| self.publish_foreign_key(author, child, &parent, entry));
        match added {
            Ok(change) => {
                let (table, foreign_key) = (child.name.clone(), new.clone());
                change.end(|| SchemaChange::AddForeignKey { table, foreign_key })
            }
            Err(error) => {
                detach(&key, child, &parent);
                Err(error)
            }
        }
    }

    /// Drops a foreign key of a table. Two fences.
    pub(crate) fn drop_foreign_key(&self, child: &Arc<Table<M>>, name: &str) -> Result<()> {
        self.alter(|| self.drop_foreign_key_alone(child, name))
    }

    /// Promises that a foreign key is dropped once a transaction has committed. Two fences.
    pub(crate) fn drop_foreign_key_by(
        &self,
        author: Author,
        child: &Arc<Table<M>>,
        name: &str,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        let mut schema = self.schema.lock(self.medium());
        schema.require_free(author)?;
        let key = self.foreign_key_of(author, child, name)?;
        let mut catalog = schema.next_catalog();
        catalog.note(author, child.number, PromiseKind::DropForeignKey(name.to_owned()));
        self.begin_altering(author, &mut catalog);
        self.replace_catalog(&mut schema, catalog, &[])?;
        key.presence.leave();
        Ok(())
    }

    /// The foreign key of this name that is there for an author.
    fn foreign_key_of(
        &self,
        author: Author,
        child: &Arc<Table<M>>,
        name: &str,
    ) -> Result<Arc<ForeignKey<M>>> {
        child.require_there(author.id())?;
        let is_author = self.statuses.is_author(author.id());
        let set = child.indexes.load();
        let is_it =
            |key: &&Arc<ForeignKey<M>>| key.name == name && key.presence.is_there(|| is_author);
        set.foreign.to_parents.iter().find(is_it).cloned().ok_or_else(|| {
            let (table, foreign_key) = (child.name.clone(), name.to_owned());
            Error::NoSuchForeignKey { table, foreign_key }
        })
    }

    fn drop_foreign_key_alone(&self, child: &Arc<Table<M>>, name: &str) -> Result<()> {
        let _altering = self.lock_altering()?;
        let key = self.foreign_key_of(Author::Alone, child, name)?;
        let mut change;
        {
            let mut schema = self.schema.lock(self.medium());
            schema.require_free(Author::Alone)?;
            let mut catalog = schema.next_catalog();
            entry_of(&mut catalog, child)?.foreign_keys.retain(|entry| entry.name != name);
            change = self.begin_altering(Author::Alone, &mut catalog);
            let replaced = self.replace_catalog(&mut schema, catalog, &[]);
            replaced.map_err(|error| change.fail(error))?;
        }
        // Before sets of indexes are exchanged: after a fault of the medium, who has a set may wait
        // for this.
        let (table, foreign_key) = (child.name.clone(), name.to_owned());
        let told = change.end(|| SchemaChange::DropForeignKey { table, foreign_key });
        detach_from(&key, child);
        told
    }

    /// Has the catalog count a foreign key among those of a table.
    fn publish_foreign_key(
        &self,
        author: Author,
        child: &Table<M>,
        parent: &Table<M>,
        entry: ForeignKeyEntry,
    ) -> Result<Altering<'_, M>> {
        let mut change;
        let mut schema = self.schema.lock(self.medium());
        let mut catalog = schema.next_catalog();
        // Either may have been dropped meanwhile.
        entry_of(&mut catalog, parent)?;
        catalog.note(author, child.number, PromiseKind::AddForeignKey(entry.name.clone()));
        entry_of(&mut catalog, child)?.foreign_keys.push(entry);
        if CatalogBlock::of(&catalog).len() > CATALOG_LEN_MAX {
            return Err(too_much(&child.name, "foreign keys"));
        }
        change = self.begin_altering(author, &mut catalog);
        let replaced = self.replace_catalog(&mut schema, catalog, &[]);
        replaced.map_err(|error| change.fail(error))?;
        Ok(change)
    }
}

impl<M: Medium> Schema<M> {
    /// The foreign keys of a table that is made with these indexes, and will have this number.
    pub(super) fn foreign_keys_of(
        &self,
        spec: &TableSpec,
        indexes: &[IndexSpec],
        number: u32,
    ) -> Result<Vec<ForeignKeyEntry>> {
        let own = Described { name: &spec.name, columns: &spec.columns, indexes };
        let mut entries: Vec<ForeignKeyEntry> = Vec::new();
        for new in &spec.foreign_keys {
            let others: Vec<&str> = entries.iter().map(|entry| &entry.name[..]).collect();
            let entry = if new.references == spec.name {
                new.resolve(own, (own, number), &others)?
            } else {
                let found = self.entry_of_name(&new.references);
                let found = found.filter(|table| !table.name.starts_with(RESERVED));
                let table = found.ok_or_else(|| no_such_parent(&spec.name, new))?;
                let indexes = table.indexes.iter();
                let indexes = indexes
                    .filter(|index| !self.catalog.is_index_leaving(table.number, index.number));
                let indexes: Vec<IndexSpec> = indexes.map(|index| index.spec.clone()).collect();
                let columns: Vec<Column> = table.all_columns().cloned().collect();
                let (name, columns) = (&table.name, &columns);
                let parent = Described { name, columns, indexes: &indexes };
                new.resolve(own, (parent, table.number), &others)?
            };
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Has statements check the foreign keys of a table that nobody has changed yet.
    ///
    /// # Errors
    ///
    /// When an entry names what is not there. Opening alone finds that, in a damaged catalog.
    pub(super) fn attach_foreign_keys(
        &self,
        entry: &TableEntry,
        child: &Arc<Table<M>>,
    ) -> Result<(), PoolError> {
        for of_entry in &entry.foreign_keys {
            let is_promised = self.catalog.is_key_promised(child.number, &of_entry.name);
            let mut all = self.tables.iter().chain(std::iter::once(child));
            let parent = all.find(|table| table.number == of_entry.references);
            let found = parent.and_then(|parent| {
                Some((Arc::new(ForeignKey::of(of_entry, child, parent, is_promised)?), parent))
            });
            let Some((key, parent)) = found else {
                let what = format!(
                    "table {:?}: foreign key {:?} names no table, or columns without an index",
                    entry.name, of_entry.name
                );
                return Err(PoolError::corrupt(child.state, what));
            };
            attach(&key, child, parent);
        }
        Ok(())
    }
}

/// Has statements check a foreign key, all of them when this returns.
fn attach<M: Medium>(key: &Arc<ForeignKey<M>>, child: &Arc<Table<M>>, parent: &Arc<Table<M>>) {
    child.exchange_foreign(|foreign| foreign.add(key, child));
    if !Arc::ptr_eq(child, parent) {
        parent.exchange_foreign(|foreign| foreign.add(key, parent));
    }
}

/// Has statements not check a foreign key any more. None has it when this returns.
fn detach<M: Medium>(key: &Arc<ForeignKey<M>>, child: &Arc<Table<M>>, parent: &Arc<Table<M>>) {
    child.exchange_foreign(|foreign| foreign.remove(key));
    if !Arc::ptr_eq(child, parent) {
        parent.exchange_foreign(|foreign| foreign.remove(key));
    }
}

/// The same for one of a child, whose parents may have been dropped meanwhile: what a set refers to
/// is not freed.
pub(crate) fn detach_from<M: Medium>(key: &Arc<ForeignKey<M>>, child: &Table<M>) {
    child.exchange_foreign(|foreign| foreign.remove(key));
    if let Some(parent) = key.parent.table_or_dropped() {
        parent.exchange_foreign(|foreign| foreign.remove(key));
    }
}

/// The same for all foreign keys of a table that was dropped, to which no other one refers.
pub(crate) fn detach_all<M: Medium>(table: &Table<M>) {
    let keys = table.indexes.load().foreign.to_parents.clone();
    table.exchange_foreign(|foreign| *foreign = Foreign::default());
    for key in keys {
        // Also if it was dropped meanwhile: what a set refers to is not freed.
        if let Some(parent) = key.parent.table_or_dropped() {
            parent.exchange_foreign(|foreign| foreign.remove(&key));
        }
    }
}

/// Refuses to drop an index that a foreign key needs.
pub(super) fn require_unneeded<M: Medium>(
    table: &Table<M>,
    index: &Index<M>,
    is_author: bool,
) -> Result<()> {
    let set = table.indexes.load();
    let Some(key) = set.foreign.that_needs(index, is_author) else { return Ok(()) };
    Err(Error::IndexNeeded {
        table: table.name.clone(),
        index: index.spec.name.clone(),
        foreign_key: key.name.clone(),
        of: key.child.table().map_or_else(String::new, |child| child.name.clone()),
    })
}

/// Refuses to drop a table to which others refer.
pub(super) fn require_unreferenced(catalog: &Catalog, table: &TableEntry) -> Result<()> {
    let is_other =
        |other: &&TableEntry| other.number != table.number && !catalog.is_leaving(other.number);
    for other in catalog.tables.iter().filter(is_other) {
        let refers = |key: &&ForeignKeyEntry| {
            key.references == table.number && !catalog.is_key_leaving(other.number, &key.name)
        };
        if let Some(key) = other.foreign_keys.iter().find(refers) {
            return Err(Error::Referenced {
                table: table.name.clone(),
                by: other.name.clone(),
                foreign_key: key.name.clone(),
            });
        }
    }
    Ok(())
}

fn entry_of<'c, M: Medium>(
    catalog: &'c mut Catalog,
    table: &Table<M>,
) -> Result<&'c mut TableEntry> {
    let found = catalog.tables.iter_mut().find(|entry| entry.number == table.number);
    found.ok_or_else(|| Error::NoSuchTable { table: table.name.clone() })
}

fn specs_of<M: Medium>(table: &Table<M>, is_author: bool) -> Vec<IndexSpec> {
    table.indexes.load().named(is_author).map(|index| index.spec.clone()).collect()
}

#[cold]
fn no_such_parent(child: &str, new: &NewForeignKey) -> Error {
    let reason = format!("there is no table {:?}, to which it refers", new.references);
    new.refused(child, reason)
}

#[cfg(test)]
mod tests {
    use remanent_pmem::{Mapped, Pool};

    use super::*;
    use crate::{Database, Type};

    /// A database whose catalog has this foreign key in the place of a right one.
    fn damaged(change: impl Fn(&mut ForeignKeyEntry)) -> Result<Database> {
        let pool = Pool::options().create_in_memory()?;
        let heap = pool.create_root::<crate::root::Root<Mapped>>("db")?;
        let spec = |name| {
            TableSpec::new(name)
                .column("a", Type::U32)
                .column("b", Type::U32)
                .column("c", Type::U16)
                .primary_key(["a"])
                .unique("by_c", ["c"])
                .index("by_b", ["b"])
        };
        heap.create_table(&spec("parents"))?;
        heap.create_table(&spec("children").foreign_key("f", ["b"], "parents", ["a"]))?;
        {
            let mut schema = heap.schema.lock(heap.medium());
            let mut catalog = schema.next_catalog();
            change(&mut catalog.tables[1].foreign_keys[0]);
            heap.replace_catalog(&mut schema, catalog, &[])?;
        }
        drop(heap);
        Database::open(&pool, "db")
    }

    #[test]
    fn an_entry_that_names_what_is_not_there_does_not_open() {
        assert!(damaged(|_| {}).is_ok());
        let changes: [fn(&mut ForeignKeyEntry); 8] = [
            |key| key.references = 99,
            |key| key.references = 0,
            |key| key.columns = vec![2],
            |key| (key.columns, key.referenced) = (vec![1, 1], vec![0, 0]),
            |key| key.referenced = vec![1],
            |key| key.referenced = vec![2],
            |key| key.referenced = vec![7],
            |key| (key.columns, key.referenced) = (Vec::new(), Vec::new()),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let error = damaged(change).unwrap_err();
            assert!(error.to_string().contains("foreign key \"f\""), "{at}: {error}");
        }
    }
}
