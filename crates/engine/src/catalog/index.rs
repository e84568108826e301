//! Making, dropping and moving an index while statements run.
//!
//! An index in the pool is built in these steps:
//!
//! 1. One catalog makes it known as a dropped one, with its header. If a crash comes before the
//!    last step, its blocks are freed like those of an index that was dropped.
//! 2. Statements keep it ([`Role::Kept`]): they add their words to it, and remove them. Nobody
//!    reads it. Once no statement runs that does not, all rows are put into it
//!    ([`Table::build`](crate::table::Table::build)).
//! 3. If it is unique, statements refuse keys that are there ([`Role::Enforced`]). Once no
//!    statement runs that does not, the rows that are there are compared with each other.
//! 4. One catalog has it among the indexes of the table, and then it has its name
//!    ([`Role::Live`]).
//!
//! An index in DRAM needs the last catalog alone.
//!
//! To move an index, another one is built beside it. One catalog exchanges them. Then statements
//! read the new one and keep both; and once none runs that reads the old one, they keep the new one
//! alone. Both have one number for the locks of keys, so that statements of both kinds find each
//! other. Whoever reads the old one by a handle looks afterwards whether it was in use still, and
//! if not, reads the new one.

use std::sync::Arc;

use remanent_pmem::Medium;

use super::foreign::require_unneeded;
use super::ops::{Made, too_much};
use super::promise::{Author, PromiseKind};
use super::retired::Retired;
use super::{CATALOG_LEN_MAX, Catalog, CatalogBlock, DroppedEntry, IndexEntry, TableEntry};
use crate::engine::{Engine, Schema};
use crate::index::{Index, Member, NOT_YET, Role, Rows};
use crate::replicate::SchemaChange;
use crate::replicate::schema::Altering;
use crate::schema::{INDEXES_MAX, IndexKind, IndexSpec, NewIndex, Placement, Structure};
use crate::table::Table;
use crate::transaction::view::View;
use crate::{Error, Result};

impl<M: Medium> Engine<M> {
    /// Makes an index of a table.
    pub(crate) fn create_index(&self, table: &Arc<Table<M>>, new: &NewIndex) -> Result<()> {
        self.alter(|| self.create_index_by((Author::Alone, View::NEWEST), table, new))
    }

    /// The same for an author, who sees its own rows by a view.
    pub(crate) fn create_index_by(
        &self,
        (author, view): (Author, View),
        table: &Arc<Table<M>>,
        new: &NewIndex,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        table.require_there(author.id())?;
        self.schema.lock(self.medium()).require_free(author)?;
        let is_author = self.statuses.is_author(author.id());
        let spec = {
            let set = table.indexes.load();
            let others = set.named(is_author).map(|index| &index.spec.name[..]);
            let (others, columns) = (others.collect::<Vec<_>>(), table.columns_for(author.id()));
            // Also those that the author has dropped: the catalog has them still.
            if set.live().count() >= INDEXES_MAX {
                let reason = format!(
                    "the table has {INDEXES_MAX} indexes, which are all it can have, with those \
                     that the transaction has dropped"
                );
                let index = new.name().to_owned();
                return Err(Error::Index { table: table.name.clone(), index, reason });
            }
            new.resolve(&table.name, &columns, &others)?
        };
        let index = self.begin_index(table, spec, None)?;
        let built = self.build_index(table, &index).and_then(|()| {
            if index.spec.kind.is_unique() {
                set_role(table, &index, Role::Enforced);
                self.require_distinct(table, &index, view)?;
                // Commits in progress may take a key from one of two rows that have it.
                index.set_unique_since(match author {
                    Author::Alone => self.stamps.last(),
                    // By the rows of its transaction.
                    Author::Transaction { .. } => NOT_YET,
                });
            }
            self.publish_index(author, table, &index, None)
        });
        match built {
            Ok(change) => {
                // Before sets of indexes are exchanged: after a fault of the medium, who has a set
                // may wait for this.
                let (name, of) = (table.name.clone(), new.clone());
                let told = change.end(|| SchemaChange::CreateIndex { table: name, index: of });
                set_role(table, &index, Role::Live);
                told
            }
            Err(error) => {
                self.abandon_index(table, index);
                Err(error)
            }
        }
    }

    /// Moves an index to the pool, or to DRAM.
    pub(crate) fn place_index(
        &self,
        table: &Arc<Table<M>>,
        name: &str,
        placement: Placement,
    ) -> Result<()> {
        self.alter(|| self.place_index_alone(table, name, placement))
    }

    fn place_index_alone(
        &self,
        table: &Arc<Table<M>>,
        name: &str,
        placement: Placement,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        table.require_there(None)?;
        self.schema.lock(self.medium()).require_free(Author::Alone)?;
        let old = table.index(name, None)?;
        if old.spec.placement == placement {
            return Ok(());
        }
        let spec = IndexSpec { placement, ..old.spec.clone() };
        let index = self.begin_index(table, spec, Some(&old))?;
        index.set_unique_since(old.unique_since());
        let built = self.build_index(table, &index);
        let built =
            built.and_then(|()| self.publish_index(Author::Alone, table, &index, Some(&old)));
        if let Err(error) = built.map(drop) {
            self.abandon_index(table, index);
            return Err(error);
        }
        table.exchange_indexes(|members| {
            for member in members {
                if Arc::ptr_eq(&member.index, &index) {
                    member.role = Role::Live;
                } else if Arc::ptr_eq(&member.index, &old) {
                    member.role = Role::Kept;
                }
            }
        });
        old.retire();
        remove_from(table, &old);
        drop(old);
        self.free_dropped()
    }

    /// Drops an index: it is not there any more when this returns.
    pub(crate) fn drop_index(&self, table: &Arc<Table<M>>, name: &str) -> Result<()> {
        self.alter(|| self.drop_index_alone(table, name))
    }

    /// Promises that an index is dropped once a transaction has committed. Two fences.
    pub(crate) fn drop_index_by(
        &self,
        author: Author,
        table: &Arc<Table<M>>,
        name: &str,
    ) -> Result<()> {
        let _altering = self.lock_altering()?;
        let mut schema = self.schema.lock(self.medium());
        schema.require_free(author)?;
        let index = self.to_be_dropped(author, table, name)?;
        let mut catalog = schema.next_catalog();
        catalog.note(author, table.number, PromiseKind::DropIndex(index.number));
        self.begin_altering(author, &mut catalog);
        self.replace_catalog(&mut schema, catalog, &[])?;
        index.presence.leave();
        Ok(())
    }

    /// The index of this name, if an author may drop it.
    fn to_be_dropped(
        &self,
        author: Author,
        table: &Arc<Table<M>>,
        name: &str,
    ) -> Result<Arc<Index<M>>> {
        table.require_there(author.id())?;
        let index = table.index(name, author.id())?;
        if index.spec.kind == IndexKind::Primary {
            return Err(Error::PrimaryKey { table: table.name.clone() });
        }
        require_unneeded(table, &index, self.statuses.is_author(author.id()))?;
        Ok(index)
    }

    fn drop_index_alone(&self, table: &Arc<Table<M>>, name: &str) -> Result<()> {
        let _altering = self.lock_altering()?;
        let index = self.to_be_dropped(Author::Alone, table, name)?;
        let mut change;
        {
            let mut schema = self.schema.lock(self.medium());
            schema.require_free(Author::Alone)?;
            let mut catalog = schema.next_catalog();
            let entries = &mut entry_of(&mut catalog, table)?.indexes;
            entries.retain(|entry| entry.number != index.number);
            let dropped = index.rows.header();
            let dropped = dropped.map(|header| DroppedEntry::of_index(index.number, header));
            catalog.dropped.extend(dropped);
            change = self.begin_altering(Author::Alone, &mut catalog);
            let replaced = self.replace_catalog(&mut schema, catalog, &[]);
            replaced.map_err(|error| change.fail(error))?;
            schema.retired.push(Retired::OfRows(Arc::clone(&index)));
        }
        // Before sets of indexes are exchanged: after a fault of the medium, who has a set may wait
        // for this.
        let (of, dropped) = (table.name.clone(), name.to_owned());
        let told = change.end(|| SchemaChange::DropIndex { table: of, index: dropped });
        index.retire();
        remove_from(table, &index);
        drop(index);
        told.and(self.free_dropped())
    }

    /// An empty index that nobody knows, of which a crash leaves nothing. Two fences if it is in
    /// the pool.
    fn begin_index(
        &self,
        table: &Table<M>,
        spec: IndexSpec,
        moved: Option<&Index<M>>,
    ) -> Result<Arc<Index<M>>> {
        let mut schema = self.schema.lock(self.medium());
        let how = (spec.structure, spec.placement);
        let (number, rows) = self.make_dropped(&mut schema, &table.name, how)?;
        let mut index = Index::new(&table.format, spec, number, rows);
        if let Some(moved) = moved {
            (index.id, index.uses) = (moved.id, Arc::clone(&moved.uses));
        }
        let index = Arc::new(index);
        schema.retired.push(Retired::OfRows(Arc::clone(&index)));
        Ok(index)
    }

    /// Makes an index of a new number, and if it is in the pool, a catalog that has it among those
    /// that were dropped.
    pub(super) fn make_dropped(
        &self,
        schema: &mut Schema<M>,
        table: &str,
        how: (Structure, Placement),
    ) -> Result<(u32, Rows<M>)> {
        match self.try_to_make_dropped(schema, table, how) {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.try_to_make_dropped(schema, table, how)
            }
            made => made,
        }
    }

    /// Does so in one lane, so that a crash leaves no block that nobody asks about.
    fn try_to_make_dropped(
        &self,
        schema: &mut Schema<M>,
        table: &str,
        how: (Structure, Placement),
    ) -> Result<(u32, Rows<M>)> {
        let mut catalog = schema.next_catalog();
        catalog.last_number += 1;
        let number = catalog.last_number;
        let mut lane = self.heap.enter().prepare_to_write();
        let mut made = Made::nothing();
        let mut make = || -> Result<()> {
            let rows = self.make_rows(&mut lane, &mut made.blocks, number, how)?;
            let rows = rows.ok_or_else(|| too_much(table, "indexes"))?;
            let header = rows.header();
            made.rows = Some(rows);
            let Some(header) = header else { return Ok(()) };
            catalog.dropped.push(DroppedEntry::of_index(number, header));
            let content = CatalogBlock::of(&catalog);
            if content.len() > CATALOG_LEN_MAX {
                return Err(too_much(table, "indexes"));
            }
            let block = lane.allocate(content.len())?;
            made.blocks.push(block);
            content.write(self.medium(), block.offset);
            Ok(())
        };
        if let Err(error) = make() {
            made.give_back(&mut lane)?;
            return Err(error);
        }
        let rows = made.rows.expect("it was made");
        if rows.header().is_some() {
            let new = made.blocks.last().expect("the catalog's block is the last").offset;
            self.publish_catalog(&mut lane, new, &[])?;
            schema.catalog = catalog;
        }
        schema.last_number = number;
        Ok((number, rows))
    }

    /// Has statements keep an index, and puts all rows into it.
    fn build_index(&self, table: &Table<M>, index: &Arc<Index<M>>) -> Result<()> {
        table.exchange_indexes(|members| {
            members.push(Member { index: Arc::clone(index), role: Role::Kept });
        });
        table.build(index)
    }

    /// Has the catalog count an index among those of a table, in the place of another one if it is
    /// moved. Two fences.
    fn publish_index(
        &self,
        author: Author,
        table: &Table<M>,
        index: &Arc<Index<M>>,
        moved: Option<&Arc<Index<M>>>,
    ) -> Result<Altering<'_, M>> {
        let mut change;
        let mut schema = self.schema.lock(self.medium());
        let mut catalog = schema.next_catalog();
        catalog.dropped.retain(|dropped| !dropped.is_index(index.number));
        let entries = &mut entry_of(&mut catalog, table)?.indexes;
        let new = IndexEntry::of(index);
        let is_moved =
            |entry: &&mut IndexEntry| moved.is_some_and(|moved| moved.number == entry.number);
        match entries.iter_mut().find(is_moved) {
            Some(entry) => *entry = new,
            None => entries.push(new),
        }
        if let Some(moved) = moved
            && let Some(header) = moved.rows.header()
        {
            catalog.dropped.push(DroppedEntry::of_index(moved.number, header));
        }
        // Nobody is told where an index lies.
        change = match moved {
            Some(_) => Altering::untold(),
            None => {
                catalog.note(author, table.number, PromiseKind::CreateIndex(index.number));
                if author != Author::Alone {
                    index.presence.promise();
                }
                self.begin_altering(author, &mut catalog)
            }
        };
        if CatalogBlock::of(&catalog).len() > CATALOG_LEN_MAX {
            return Err(change.fail(too_much(&table.name, "columns")));
        }
        // Among its fences is that of the words that were added for the rows.
        if let Err(error) = self.replace_catalog(&mut schema, catalog, &[]) {
            if !error.is_full() {
                let both = [index, moved.unwrap_or(index)].map(Arc::clone);
                schema.undecided.extend(both.map(Retired::OfRows));
            }
            return Err(change.fail(error));
        }
        schema.retired.retain(|retired| retired.number() != index.number);
        schema.retired.extend(moved.cloned().map(Retired::OfRows));
        Ok(change)
    }

    /// Gives an index back that the catalog does not have among those of a table.
    fn abandon_index(&self, table: &Table<M>, index: Arc<Index<M>>) {
        index.retire();
        remove_from(table, &index);
        drop(index);
        // What cannot be freed now is freed later. An error tells of the medium, and who meets it
        // next is told.
        let _ = self.free_dropped();
    }
}

/// The entry of a table.
pub(super) fn entry_of<'c, M: Medium>(
    catalog: &'c mut Catalog,
    table: &Table<M>,
) -> Result<&'c mut TableEntry> {
    let found = catalog.tables.iter_mut().find(|entry| entry.number == table.number);
    found.ok_or_else(|| Error::NoSuchTable { table: table.name.clone() })
}

fn set_role<M: Medium>(table: &Table<M>, index: &Arc<Index<M>>, role: Role) {
    table.exchange_indexes(|members| {
        let found = members.iter_mut().find(|member| Arc::ptr_eq(&member.index, index));
        found.expect("an index of the table").role = role;
    });
}

pub(crate) fn remove_from<M: Medium>(table: &Table<M>, index: &Arc<Index<M>>) {
    table.exchange_indexes(|members| members.retain(|member| !Arc::ptr_eq(&member.index, index)));
}
