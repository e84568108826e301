//! Foreign keys: rows of one table refer to rows of another one, or of the same one.
//!
//! The row that refers is the *child*, and the row that it refers to is its *parent*. Both are
//! found by indexes: the parent by a unique index of the columns that are referred to, the children
//! by an index whose first columns are those that refer. The set of indexes of a table has the
//! foreign keys, too, so that a statement knows all of them from its beginning to its end.

pub(crate) mod spec;

use std::sync::{Arc, Weak};

use remanent_pmem::Medium;
use smallvec::SmallVec;

use self::spec::{ForeignKeyEntry, ForeignKeySpec, is_of_children, is_of_parents};
use crate::index::{Index, IndexSet, Key};
use crate::presence::Presence;
use crate::schema::IndexSpec;
use crate::table::Table;
use crate::table::layout::{Format, KeyCells};
use crate::{Error, Result};

/// A foreign key.
pub(crate) struct ForeignKey<M: Medium> {
    pub(crate) name: String,
    pub(crate) child: Side<M>,
    pub(crate) parent: Side<M>,
    pub(crate) presence: Presence,
}

/// The children of a foreign key, or the parents.
pub(crate) struct Side<M: Medium> {
    /// Their table, which has the foreign key in its set of indexes.
    table: Weak<Table<M>>,
    /// Number of the table.
    number: u32,
    /// The columns, in the order in which the foreign key has them.
    pub(crate) columns: Vec<usize>,
    /// The [`id`](Index) of the index by which they are found.
    index: u32,
    /// That index without the columns behind those of the foreign key.
    pub(crate) spec: IndexSpec,
    /// For each column of `spec`, its place among `columns`.
    order: Vec<usize>,
}

/// The foreign keys of a table.
pub(crate) struct Foreign<M: Medium> {
    /// Those by which its rows refer to parents.
    pub(crate) to_parents: Vec<Arc<ForeignKey<M>>>,
    /// Those by which children refer to its rows.
    pub(crate) to_children: Vec<Arc<ForeignKey<M>>>,
}

impl<M: Medium> ForeignKey<M> {
    /// The foreign key of an entry, which the author of the schema may have made; `None` if a table
    /// has no index or other columns for it.
    pub(crate) fn of(
        entry: &ForeignKeyEntry,
        child: &Arc<Table<M>>,
        parent: &Arc<Table<M>>,
        is_promised: bool,
    ) -> Option<Self> {
        let pairs = entry.columns.iter().zip(&entry.referenced);
        let is_same = |(column, other): (&usize, &usize)| {
            let of_child = child.format.cells.get(*column).map(|cell| cell.of_type);
            let of_parent = parent.format.cells.get(*other).map(|cell| cell.of_type);
            of_child.is_some() && of_child == of_parent
        };
        if !{ pairs }.all(is_same) {
            return None;
        }
        let child = Side::of(child, &entry.columns, (is_of_children, is_promised))?;
        let parent = Side::of(parent, &entry.referenced, (is_of_parents, is_promised))?;
        Some(ForeignKey { name: entry.name.clone(), child, parent, presence: Presence::default() })
    }

    /// Whether rows of a table refer to rows of the same table.
    pub(crate) fn is_within_one_table(&self) -> bool {
        self.child.number == self.parent.number
    }

    /// Whether statements of a transaction have to check it; those of all others, if it is none.
    /// What a transaction promises, others check, too.
    pub(crate) fn counts_for(&self, is_author: bool) -> bool {
        let is_left_out = is_author && self.presence.is_leaving();
        !is_left_out && !self.presence.is_gone()
    }

    /// The key by which a child's parent is found; `None` if one of the columns is NULL.
    pub(crate) fn key_of_parent(
        &self,
        child: &Table<M>,
        parent: &Table<M>,
        row: KeyCells<'_>,
    ) -> Option<Key> {
        self.parent.key_for(&parent.format, (&self.child, &child.format), row)
    }

    /// The key by which a parent's children are found; `None` if one of the columns is NULL.
    pub(crate) fn key_of_children(
        &self,
        parent: &Table<M>,
        child: &Table<M>,
        row: KeyCells<'_>,
    ) -> Option<Key> {
        self.child.key_for(&child.format, (&self.parent, &parent.format), row)
    }

    /// The key that a parent has; `None` if one of the columns is NULL.
    pub(crate) fn own_key(&self, parent: &Table<M>, row: KeyCells<'_>) -> Option<Key> {
        let key = Key::of_row(&parent.format, &self.parent.spec, row)?;
        (!key.has_null).then_some(key)
    }

    /// The lock of a key of the parents. Who gives it to a row has it, too.
    pub(crate) fn lock_of(&self, key: &Key) -> (u32, u64) {
        (self.parent.index, key.hash)
    }

    /// What it is, if its tables are there.
    pub(crate) fn describe(&self) -> Option<ForeignKeySpec> {
        let parent = self.parent.table()?;
        Some(ForeignKeySpec {
            name: self.name.clone(),
            columns: self.child.columns.clone(),
            references: parent.name.clone(),
            referenced: self.parent.columns.clone(),
        })
    }
}

impl<M: Medium> Side<M> {
    fn of(
        table: &Arc<Table<M>>,
        columns: &[usize],
        (is_right, is_promised): (impl Fn(&IndexSpec, &[usize]) -> bool, bool),
    ) -> Option<Self> {
        let set = table.indexes.load();
        let right = || set.live().filter(|index| is_right(&index.spec, columns));
        // One that stays as long as the foreign key does.
        let is_lasting = |index: &&Arc<Index<M>>| {
            !index.presence.is_leaving() && index.presence.is_there(|| is_promised)
        };
        let index = right().find(is_lasting).or_else(|| right().next())?;
        let mut spec = index.spec.clone();
        spec.columns.truncate(columns.len());
        let place = |column: &usize| columns.iter().position(|other| other == column);
        let order = spec.columns.iter().map(place).collect::<Option<Vec<usize>>>()?;
        Some(Side {
            table: Arc::downgrade(table),
            number: table.number,
            columns: columns.to_vec(),
            index: index.id,
            spec,
            order,
        })
    }

    /// The table; `None` if it was dropped.
    pub(crate) fn table(&self) -> Option<Arc<Table<M>>> {
        self.table_or_dropped().filter(|table| !table.is_dropped())
    }

    /// The table, also if it was dropped; `None` if nobody has it any more.
    pub(crate) fn table_or_dropped(&self) -> Option<Arc<Table<M>>> {
        self.table.upgrade()
    }

    /// Whether it needs an index.
    pub(crate) fn needs(&self, index: &Index<M>) -> bool {
        self.index == index.id
    }

    /// The index by which its rows are found, wherever it was moved to. It is not dropped as long
    /// as a set has the foreign key.
    pub(crate) fn index_in<'s>(
        &self,
        table: &Table<M>,
        set: &'s IndexSet<M>,
    ) -> Result<&'s Arc<Index<M>>> {
        let found = set.live().find(|index| self.needs(index));
        found.ok_or_else(|| Error::IndexDropped {
            table: table.name.clone(),
            index: self.spec.name.clone(),
        })
    }

    /// The key that has the values of a row of the other side. Cells that name no value have none:
    /// the caller has refused them.
    fn key_for(
        &self,
        format: &Format,
        (other, of_other): (&Side<M>, &Format),
        row: KeyCells<'_>,
    ) -> Option<Key> {
        let value = |column: &usize| of_other.cells.bytes_of(*column, row);
        let bytes_of = |column| value(column).filter(|bytes| !bytes.is_empty());
        let bytes: SmallVec<[&[u8]; 4]> =
            other.columns.iter().map(bytes_of).collect::<Option<_>>()?;
        let key = Key::of_cells(format, &self.spec, |at, to| {
            // Both columns have one type, whose cells are the same bytes.
            to.copy_from_slice(bytes[self.order[at]]);
            Ok(())
        });
        key.ok()
    }
}

impl<M: Medium> Foreign<M> {
    /// Whether there are none.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.to_parents.is_empty() && self.to_children.is_empty()
    }

    /// Adds a foreign key, which has this table on one side or both.
    pub(crate) fn add(&mut self, key: &Arc<ForeignKey<M>>, table: &Table<M>) {
        if key.child.number == table.number {
            self.to_parents.push(Arc::clone(key));
        }
        if key.parent.number == table.number {
            self.to_children.push(Arc::clone(key));
        }
    }

    /// Removes a foreign key.
    pub(crate) fn remove(&mut self, key: &Arc<ForeignKey<M>>) {
        for keys in [&mut self.to_parents, &mut self.to_children] {
            keys.retain(|other| !Arc::ptr_eq(other, key));
        }
    }

    /// One that needs an index of the table, for the author of the schema or for all others.
    pub(crate) fn that_needs(
        &self,
        index: &Index<M>,
        is_author: bool,
    ) -> Option<&Arc<ForeignKey<M>>> {
        let [mut of_child, mut of_parent] = [&self.to_parents, &self.to_children]
            .map(|keys| keys.iter().filter(|key| key.counts_for(is_author)));
        let of_child = of_child.find(|key| key.child.needs(index));
        of_child.or_else(|| of_parent.find(|key| key.parent.needs(index)))
    }
}

impl<M: Medium> Default for Foreign<M> {
    fn default() -> Self {
        Foreign { to_parents: Vec::new(), to_children: Vec::new() }
    }
}

impl<M: Medium> Clone for Foreign<M> {
    fn clone(&self) -> Self {
        Foreign { to_parents: self.to_parents.clone(), to_children: self.to_children.clone() }
    }
}
