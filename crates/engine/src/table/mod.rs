//! Tables: rows in tiles, and the indexes that lead to them.

mod build;
pub(crate) mod cells;
mod check;
mod extension;
mod free;
pub(crate) mod layout;
pub(crate) mod ops;
pub(crate) mod rebuild;
mod recover;
mod sample;
mod search;
mod since;
pub(crate) mod version;

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwap;
use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, Medium};
use remanent_structures::RowId;
use smallvec::SmallVec;

use self::extension::TileLocks;
use self::free::FreeRows;
use self::layout::{FAR, Format, KeyCells, Kind, NUMBER, TILES_MAX, TilePlace, run_at};
use self::ops::Group;
use self::rebuild::Rebuilding;
use self::since::Since;
use crate::dictionary::Dictionary;
use crate::foreign::Foreign;
use crate::index::{Index, IndexSet, Key, Member};
use crate::new_column::AddedColumn;
use crate::presence::Presence;
use crate::schema::{Column, Placement};
use crate::transaction::layout::TransactionId;
use crate::transaction::statuses::Statuses;
use crate::value::Value;
use crate::{Error, Result};

/// A table, as all handles of a process share it.
pub(crate) struct Table<M: Medium> {
    pub(crate) heap: Arc<Heap<M>>,
    pub(crate) name: String,
    /// Its number, which no other table of the database has, or had.
    pub(crate) number: u32,
    /// Columns are added behind the others, while handles have those that they know.
    pub(crate) columns: ArcSwap<Columns>,
    pub(crate) format: Format,
    /// Those of the columns that the table was made with.
    pub(crate) dictionaries: Box<[Option<Dictionary<M>>]>,
    /// Statements that begin take the set that is there then.
    pub(crate) indexes: ArcSwap<IndexSet<M>>,
    /// Offset of its state.
    pub(crate) state: u64,
    /// What became of the transactions that rows name.
    pub(crate) statuses: Arc<Statuses>,
    pub(crate) presence: Presence,
    since: Since,
    free: FreeRows,
    tile_locks: TileLocks,
    pub(crate) rebuilding: Rebuilding,
}

/// The columns of a table.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    all: Arc<Vec<Column>>,
    /// How many at the end are there for a transaction alone, which has added them.
    promised: usize,
}

impl Columns {
    pub(crate) fn of(all: Vec<Column>) -> Self {
        Columns { all: Arc::new(all), promised: 0 }
    }
}

impl Deref for Columns {
    type Target = [Column];

    fn deref(&self) -> &[Column] {
        &self.all
    }
}

impl<M: Medium> Table<M> {
    #[inline(always)]
    pub(crate) fn medium(&self) -> &M {
        self.heap.medium()
    }

    /// Whether the catalog does not lead to it any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.presence.is_gone()
    }

    /// Whether the table is there for a transaction; for all others, if it is none.
    #[inline]
    pub(crate) fn is_there(&self, own: Option<TransactionId>) -> bool {
        self.presence.is_there(|| self.statuses.is_author(own))
    }

    /// Refuses a statement on a table that is not there.
    #[inline]
    pub(crate) fn require_there(&self, own: Option<TransactionId>) -> Result<()> {
        match self.is_there(own) {
            true => Ok(()),
            false => Err(Error::NoSuchTable { table: self.name.clone() }),
        }
    }

    /// Refuses what goes through all rows of a table that was dropped.
    pub(crate) fn require_not_dropped(&self) -> Result<()> {
        match self.is_dropped() {
            true => Err(Error::NoSuchTable { table: self.name.clone() }),
            false => Ok(()),
        }
    }

    /// The index of this name that is there for a transaction.
    pub(crate) fn index(&self, name: &str, own: Option<TransactionId>) -> Result<Arc<Index<M>>> {
        let (set, is_author) = (self.indexes.load(), self.statuses.is_author(own));
        let found = set.named(is_author).find(|index| index.spec.name == name);
        found.cloned().ok_or_else(|| self.no_index(name))
    }

    /// The columns that are there for a transaction.
    pub(crate) fn columns_for(&self, own: Option<TransactionId>) -> Arc<Vec<Column>> {
        let columns = self.columns.load();
        match columns.promised == 0 || self.statuses.is_author(own) {
            true => Arc::clone(&columns.all),
            false => Arc::new(columns.all[..columns.all.len() - columns.promised].to_vec()),
        }
    }

    /// Says that the first column that its transaction alone has is there for everybody, from
    /// commits with this stamp on. One caller at a time.
    pub(crate) fn keep_column(&self, stamp: u64) {
        let Columns { all, promised } = self.columns.load().as_ref().clone();
        self.note_kept(all.len() - promised, stamp);
        self.columns.store(Arc::new(Columns { all, promised: promised.saturating_sub(1) }));
    }

    /// Removes the last of these columns, but for its [cells](cells::Cells::remove_last). One
    /// caller at a time.
    pub(crate) fn remove_column(&self) {
        let Columns { all, promised } = self.columns.load().as_ref().clone();
        let all = Arc::new(all[..all.len() - 1].to_vec());
        self.columns.store(Arc::new(Columns { all, promised: promised.saturating_sub(1) }));
        self.forget_promised();
    }

    /// Says that so many columns at the end are there for their transaction alone. Opening does.
    pub(crate) fn set_promised_columns(&self, promised: usize) {
        let all = Arc::clone(&self.columns.load().all);
        self.forget_all_promised();
        for column in all.len() - promised..all.len() {
            self.note_promised(column);
        }
        self.columns.store(Arc::new(Columns { all, promised }));
    }

    #[cold]
    pub(crate) fn no_index(&self, name: &str) -> Error {
        Error::NoSuchIndex { table: self.name.clone(), index: name.to_owned() }
    }

    /// Two rows had one key of an index at a moment at which it was not unique yet.
    #[cold]
    pub(crate) fn ambiguous(&self, index: &Index<M>, key: &Key, rows: [RowId; 2]) -> Error {
        let key = key.tell(&self.format, &index.spec);
        Error::Ambiguous { table: self.name.clone(), index: index.spec.name.clone(), key, rows }
    }

    /// The index to which one was moved that is not in use any more; `None` if it was dropped.
    pub(crate) fn moved_to(&self, index: &Index<M>) -> Option<Arc<Index<M>>> {
        self.live_index(index.id)
    }

    /// The index that has an [`id`](Index) and is in use; `None` if it was dropped. One that a
    /// transaction has dropped or taken back may still be in the set.
    pub(crate) fn live_index(&self, id: u32) -> Option<Arc<Index<M>>> {
        let set = self.indexes.load();
        set.live().find(|index| index.id == id && index.is_in_use()).cloned()
    }

    /// Removes a word from the index with a number, if that is not moved or dropped.
    pub(crate) fn remove_word(&self, number: u32, key: &Key, row: RowId) -> Result<()> {
        let set = self.indexes.load();
        set.with_number(number).map_or(Ok(()), |index| index.rows.remove(key, row))
    }

    /// Refuses an index that was dropped, or that was moved before it was.
    #[inline]
    pub(crate) fn require_index(&self, index: &Index<M>) -> Result<()> {
        match index.is_in_use() {
            true => Ok(()),
            false => self.require_moved_to(index).map(drop),
        }
    }

    /// As [`moved_to`](Table::moved_to).
    #[cold]
    pub(crate) fn require_moved_to(&self, index: &Index<M>) -> Result<Arc<Index<M>>> {
        self.moved_to(index).ok_or_else(|| Error::IndexDropped {
            table: self.name.clone(),
            index: index.spec.name.clone(),
        })
    }

    /// Has statements that begin from now on use other indexes, and waits for those that use the
    /// indexes before. One caller at a time. No statement waits for another one with a set.
    pub(crate) fn exchange_indexes(&self, change: impl FnOnce(&mut Vec<Member<M>>)) {
        let (mut members, foreign) = self.members_and_foreign();
        change(&mut members);
        self.exchange_set(IndexSet::of(members, foreign));
    }

    /// The same with other foreign keys.
    pub(crate) fn exchange_foreign(&self, change: impl FnOnce(&mut Foreign<M>)) {
        let (members, mut foreign) = self.members_and_foreign();
        change(&mut foreign);
        self.exchange_set(IndexSet::of(members, foreign));
    }

    fn members_and_foreign(&self) -> (Vec<Member<M>>, Foreign<M>) {
        let set = self.indexes.load();
        (set.all().to_vec(), set.foreign.clone())
    }

    fn exchange_set(&self, next: IndexSet<M>) {
        let mut before = self.indexes.swap(Arc::new(next));
        while Arc::get_mut(&mut before).is_none() {
            self.medium().pause();
        }
    }

    /// Number of tiles.
    #[inline(always)]
    pub(crate) fn tile_count(&self) -> u64 {
        self.free.tile_count()
    }

    /// Offset of a tile that is there.
    #[inline(always)]
    pub(crate) fn tile(&self, tile: u64) -> u64 {
        let place = TilePlace::of(tile);
        let run = self.medium().load(run_at(self.state, place.run)).min(FAR);
        self.medium().load(place.at(run)).min(FAR)
    }

    /// Whether there is what a word that leads to a tile promises.
    pub(crate) fn is_tile(&self, at: u64, number: u64) -> bool {
        let medium = self.medium();
        at.checked_add(self.format.tile_len).is_some_and(|end| end <= medium.len())
            && medium.load(at) == Kind::Tile.tag(self.number)
            && medium.load(at + NUMBER) == number
    }

    #[cold]
    pub(crate) fn damaged(&self, offset: u64, what: &str) -> Error {
        PoolError::corrupt(offset, format!("table {:?}: {what}", self.name)).into()
    }

    /// Offset of a tile; `None` when it is not there.
    pub(crate) fn find_tile(&self, tile: u64) -> Option<u64> {
        (tile < self.tile_count().min(TILES_MAX)).then(|| self.tile(tile))
    }

    /// Adds a column, which the catalog has, for commits behind this stamp; or if there is none,
    /// for a transaction that has added it. One caller at a time.
    pub(crate) fn add_column(&self, added: &AddedColumn, stamp: Option<u64>) {
        let Columns { all, promised } = self.columns.load().as_ref().clone();
        match stamp {
            Some(stamp) => self.note_added(all.len(), stamp),
            None => self.note_promised(all.len()),
        }
        // Before a handle knows it.
        added.add_to(&self.format.cells);
        let mut all = all.to_vec();
        all.push(added.column.clone());
        let promised = promised + usize::from(stamp.is_none());
        self.columns.store(Arc::new(Columns { all: Arc::new(all), promised }));
    }

    /// Name of a column. One that is being added has none yet, but a number.
    #[cold]
    pub(crate) fn column_name(&self, column: usize) -> String {
        let columns = self.columns.load();
        columns.get(column).map_or_else(|| column.to_string(), |column| column.name.clone())
    }

    /// Writes a value into a cell of zeros.
    #[inline]
    pub(crate) fn encode(&self, column: usize, value: &Value<'_>, cell: &mut [u8]) -> Result<()> {
        let of_type = self.format.cells[column].of_type;
        of_type.encode(value, cell).map_err(|reason| self.refused(column, reason))
    }

    /// Writes a value into the cells of a row. The caller leaves out defaults at their end then
    /// ([`Cells::trim`](cells::Cells::trim)).
    #[inline]
    pub(crate) fn set(&self, row: &mut [Group; 2], column: usize, value: &Value<'_>) -> Result<()> {
        let cell = self.format.cells[column];
        let group = &mut row[cell.group];
        if group.len() < cell.range().end {
            self.format.cells.extend(group, cell.range().end);
        }
        if let Some(bit) = cell.null {
            group[bit / 8] &= !(1 << (bit % 8));
        }
        group[cell.range()].fill(0);
        match (value, cell.null) {
            (Value::Null, Some(bit)) => group[bit / 8] |= 1 << (bit % 8),
            (Value::Null, None) => {
                return Err(self.refused(column, "NULL is not possible".to_owned()));
            }
            (value, _) if cell.is_encoded => {
                let id = self.id_of(column, value)?;
                group[cell.range()].copy_from_slice(&id.to_le_bytes());
            }
            (value, _) => {
                let encoded = cell.of_type.encode(value, &mut group[cell.range()]);
                encoded.map_err(|reason| self.refused(column, reason))?;
            }
        }
        Ok(())
    }

    /// The number of a value in the dictionary of a column, which adds it if it is new.
    fn id_of(&self, column: usize, value: &Value<'_>) -> Result<u32> {
        let len = self.format.cells[column].of_type.cell_len();
        let mut bytes: SmallVec<[u8; 256]> = SmallVec::from_elem(0, len);
        self.encode(column, value, &mut bytes)?;
        let dictionary = self.dictionaries.get(column).and_then(Option::as_ref);
        let Some(dictionary) = dictionary else {
            return Err(self.damaged(self.state, "an encoded column has no dictionary"));
        };
        dictionary.id_of(&bytes)?.ok_or_else(|| Error::TooManyValues {
            table: self.name.clone(),
            column: self.column_name(column),
        })
    }

    /// The dictionary of a column, and the number of the column.
    pub(crate) fn dictionary_of(&self, column: &str) -> Result<(usize, &Dictionary<M>)> {
        let (table, columns) = (&self.name, self.columns.load());
        let found = columns.iter().position(|other| other.name == column);
        let number = found.ok_or_else(|| Error::NoSuchColumn {
            table: table.clone(),
            column: column.to_owned(),
        })?;
        let dictionary = self.dictionaries.get(number).and_then(Option::as_ref);
        let dictionary = dictionary
            .ok_or_else(|| Error::NotEncoded { table: table.clone(), column: column.to_owned() })?;
        Ok((number, dictionary))
    }

    /// Has new handles know where the index of a dictionary lies. One caller at a time.
    pub(crate) fn set_dictionary_placement(&self, column: usize, placement: Placement) {
        let Columns { all, promised } = self.columns.load().as_ref().clone();
        let mut all = all.to_vec();
        all[column].dictionary = Some(placement);
        self.columns.store(Arc::new(Columns { all: Arc::new(all), promised }));
    }

    /// The dictionaries whose indexes are being rebuilt.
    pub(crate) fn unindexed(&self) -> impl Iterator<Item = &Dictionary<M>> {
        self.dictionaries.iter().flatten().filter(|dictionary| !dictionary.is_indexed())
    }

    /// Refuses the cells of a row if one of these columns names no value of its dictionary.
    #[inline(always)]
    pub(crate) fn require_values(&self, columns: &[usize], row: KeyCells<'_>) -> Result<()> {
        match self.dictionaries.is_empty() {
            true => Ok(()),
            false => columns.iter().try_for_each(|column| self.require_value(*column, row)),
        }
    }

    #[cold]
    fn require_value(&self, column: usize, row: KeyCells<'_>) -> Result<()> {
        match self.format.cells.bytes_of(column, row) {
            Some([]) => Err(self.no_such_value(column)),
            _ => Ok(()),
        }
    }

    /// The error for a row that names no value of a dictionary.
    #[cold]
    pub(crate) fn no_such_value(&self, column: usize) -> Error {
        // A faulty medium reads as zeros: as if the entry were damaged.
        if let Err(error) = self.heap.verify() {
            return error.into();
        }
        let dictionary = self.dictionaries.get(column).and_then(Option::as_ref);
        let at = dictionary.map_or(self.state, Dictionary::offset);
        let column = self.column_name(column);
        self.damaged(at, &format!("a row names no value of the dictionary of column {column:?}"))
    }

    #[cold]
    pub(crate) fn refused(&self, column: usize, reason: String) -> Error {
        let column = self.column_name(column);
        Error::Value { table: self.name.clone(), column, reason }
    }

    #[cold]
    pub(crate) fn wrong_count(&self, expected: usize, got: usize) -> Error {
        Error::Values { table: self.name.clone(), expected, got }
    }
}
