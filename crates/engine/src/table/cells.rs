//! The cells of a row, and where each column has its own.
//!
//! A row has two groups of cells. Columns that a table is made with have fixed places there.
//! Columns that are added later are a tail of the second group:
//!
//! ```text
//! second group   cells of the columns that the table was made with, a multiple of 8 bytes
//!                of each added column: 1 if the row has no value there, else 0 (if it is nullable)
//!                                      its cell
//! ```
//!
//! The tail may end before any added column. Cells that are not there are the columns' defaults.
//! In memory, in versions and under checksums, a group always ends behind the last cell that is not
//! a default. So the bytes of a row do not change when a column is added, and equal rows have equal
//! bytes.

use std::cmp;
use std::ops::{Index, Range};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use crate::dictionary::values::Values;
use crate::value::{ID_LEN, Type};

/// The cells of one group of a row.
pub(crate) type Group = SmallVec<[u8; 64]>;

/// The cells from which keys are read: both groups of a row. The second one may be empty if no
/// index that is asked for has columns there ([`Index::needs_others`](crate::index::Index)).
pub(crate) type KeyCells<'c> = [&'c [u8]; 2];

/// Where a column's cell lies in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The type of its values.
    pub(crate) of_type: Type,
    /// Whether it has the number of a value in a dictionary, instead of the value.
    pub(crate) is_encoded: bool,
    /// 0: keys; 1: others.
    pub(crate) group: usize,
    /// First byte in the group.
    pub(crate) offset: usize,
    /// Number of its bytes.
    len: usize,
    /// The bit in the group that is set where the row has no value.
    pub(crate) null: Option<usize>,
}

impl Cell {
    /// The cell of a column, at the beginning of its group.
    pub(super) fn of(of_type: Type, is_encoded: bool, group: usize, null: Option<usize>) -> Self {
        let len = if is_encoded { ID_LEN } else { of_type.cell_len() };
        Cell { of_type, is_encoded, group, offset: 0, len, null }
    }

    /// The bytes of the cell in its group of a row.
    #[inline(always)]
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// Whether the row with this group, which has the cell, has no value.
    #[inline(always)]
    fn is_null(&self, group: &[u8]) -> bool {
        self.null.is_some_and(|bit| group[bit / 8] >> (bit % 8) & 1 != 0)
    }
}

/// Cells of added columns in the first shelf. Each further shelf has twice as many.
const SHELF_LEN: usize = 8;
const SHELVES: usize = 7;
/// Columns that can be added.
pub(super) const ADDED_MAX: usize = SHELF_LEN * ((1 << SHELVES) - 1);

/// The cells of all columns of a table. Columns are added while others read.
#[derive(Debug)]
pub(crate) struct Cells {
    made: Vec<Cell>,
    /// For each of these: the values of its dictionary, if it has one. Empty if nobody reads them.
    values: Box<[Option<Arc<Values>>]>,
    /// Bytes of the second group without added columns.
    others_len: usize,
    added: [OnceLock<Box<[OnceLock<AddedCell>]>>; SHELVES],
    added_count: AtomicUsize,
    /// How many of them are gone: their places stay empty, and the columns behind them have the
    /// numbers that follow.
    gone_count: AtomicUsize,
}

/// The cell of an added column.
#[derive(Debug)]
struct AddedCell {
    cell: Cell,
    /// Its first byte in the group, which says whether there is a value if the column is nullable.
    start: usize,
    /// What rows have there that were given nothing else.
    default: Box<[u8]>,
    is_gone: AtomicBool,
}

impl AddedCell {
    fn end(&self) -> usize {
        self.start + self.default.len()
    }

    fn is_gone(&self) -> bool {
        // Acquire: partner of the store in `remove_last`.
        self.is_gone.load(Ordering::Acquire)
    }

    /// The default's bytes; `None` if that is NULL.
    fn default_value(&self) -> Option<&[u8]> {
        let flag_len = self.cell.offset - self.start;
        let is_null = flag_len != 0 && self.default[0] != 0;
        (!is_null).then(|| &self.default[flag_len..])
    }
}

impl Index<usize> for Cells {
    type Output = Cell;

    #[inline(always)]
    fn index(&self, column: usize) -> &Cell {
        // Who has an index, or a handle, of a transaction that has taken columns back may ask for
        // one of those for a moment.
        let gone = || self.added().next_back().map(|added| &added.cell);
        self.get(column).or_else(gone).expect("a column of the table")
    }
}

impl Cells {
    /// Those of the columns that a table is made with, and the length of its second group.
    pub(super) fn of(made: Vec<Cell>, others_len: usize) -> Self {
        let added = [const { OnceLock::new() }; SHELVES];
        let values = Box::default();
        let [added_count, gone_count] = [const { AtomicUsize::new(0) }; 2];
        Cells { made, values, others_len, added, added_count, gone_count }
    }

    /// Has the values of encoded columns read from dictionaries.
    pub(super) fn set_values(&mut self, values: Box<[Option<Arc<Values>>]>) {
        self.values = values;
    }

    /// Numbers of the columns that are encoded.
    pub(crate) fn encoded(&self) -> impl Iterator<Item = usize> {
        (0..self.values.len()).filter(|column| self.values[*column].is_some())
    }

    /// Columns that the table was made with.
    pub(crate) fn made_count(&self) -> usize {
        self.made.len()
    }

    /// The cell of a column, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, column: usize) -> Option<&Cell> {
        match self.made.get(column) {
            Some(cell) => Some(cell),
            None => self.added_column(column - self.made.len()).map(|added| &added.cell),
        }
    }

    /// The cells of all columns, in the columns' order.
    #[inline]
    pub(crate) fn all(&self) -> impl Iterator<Item = &Cell> {
        let added = self.added().filter(|added| !added.is_gone()).map(|added| &added.cell);
        self.made.iter().chain(added)
    }

    /// Whether columns were added.
    #[inline(always)]
    pub(crate) fn has_added(&self) -> bool {
        self.added_count() != 0
    }

    #[inline(always)]
    fn added_count(&self) -> usize {
        // Acquire: the cells are there; partner of the store in `add`.
        self.added_count.load(Ordering::Acquire)
    }

    #[cold]
    fn added_at(&self, number: usize) -> Option<&AddedCell> {
        if number >= self.added_count() {
            return None;
        }
        let shelf = (number / SHELF_LEN + 1).ilog2() as usize;
        let cells = self.added.get(shelf)?.get()?;
        cells.get(number - SHELF_LEN * ((1 << shelf) - 1))?.get()
    }

    /// The cell of an added column, by the column's number among them.
    #[cold]
    fn added_column(&self, number: usize) -> Option<&AddedCell> {
        // Acquire: partner of the store in `remove_last`.
        match self.gone_count.load(Ordering::Acquire) {
            0 => self.added_at(number),
            _ => self.added().filter(|added| !added.is_gone()).nth(number),
        }
    }

    /// Removes the column that was added last. One caller at a time, and nobody reads the column.
    pub(crate) fn remove_last(&self) {
        let Some(last) = self.added().rev().find(|added| !added.is_gone()) else { return };
        // Release: before the count; partner of the load in `is_gone`.
        last.is_gone.store(true, Ordering::Release);
        // Release: partner of the load in `added_column`.
        self.gone_count.fetch_add(1, Ordering::Release);
    }

    fn added(&self) -> impl DoubleEndedIterator<Item = &AddedCell> {
        (0..self.added_count()).filter_map(|number| self.added_at(number))
    }

    /// Adds a column with the bytes of its default. One caller at a time, and at most [`ADDED_MAX`]
    /// times.
    pub(crate) fn add(&self, of_type: Type, is_nullable: bool, default: &[u8]) {
        let (number, start) = (self.added_count(), self.others_end());
        let null = is_nullable.then_some(start * 8);
        let offset = start + usize::from(is_nullable);
        let len = of_type.cell_len();
        let cell = Cell { of_type, is_encoded: false, group: 1, offset, len, null };
        let shelf = (number / SHELF_LEN + 1).ilog2() as usize;
        let empty = || (0..SHELF_LEN << shelf).map(|_| OnceLock::new()).collect();
        let cells = self.added[shelf].get_or_init(empty);
        let place = &cells[number - SHELF_LEN * ((1 << shelf) - 1)];
        let default = default.into();
        let is_gone = AtomicBool::new(false);
        place
            .set(AddedCell { cell, start, default, is_gone })
            .expect("columns are added one by one");
        // Release: the cell is there; partner of the load in `added_count`.
        self.added_count.store(number + 1, Ordering::Release);
    }

    /// Bytes of the second group without added columns.
    #[inline(always)]
    pub(crate) fn others_len(&self) -> usize {
        self.others_len
    }

    /// Bytes of the second group that has all columns.
    pub(crate) fn others_end(&self) -> usize {
        self.added().next_back().map_or(self.others_len, AddedCell::end)
    }

    /// Whether the cells of added columns may have so many bytes: if they end behind some column.
    pub(super) fn is_end_of_added(&self, len: u64) -> bool {
        // Ends are in order, and looked for in each version.
        let (mut first, mut behind) = (0_usize, self.added_count());
        while first < behind {
            let middle = first.midpoint(behind);
            let Some(added) = self.added_at(middle) else { return false };
            match ((added.end() - self.others_len) as u64).cmp(&len) {
                cmp::Ordering::Equal => return true,
                cmp::Ordering::Less => first = middle + 1,
                cmp::Ordering::Greater => behind = middle,
            }
        }
        false
    }

    /// Appends the defaults of added columns to a second group that ends before `end`.
    pub(crate) fn extend(&self, others: &mut Group, end: usize) {
        for added in self.added() {
            if added.end() > others.len() && added.start < end {
                // Damage may have cut a cell off.
                others.truncate(added.start);
                others.extend_from_slice(&added.default);
            }
        }
    }

    /// Leaves out defaults of added columns at the end of a second group.
    #[inline]
    pub(crate) fn trim(&self, others: &mut Group) {
        if others.len() > self.others_len {
            self.trim_added(others);
        }
    }

    fn trim_added(&self, others: &mut Group) {
        for added in self.added().rev() {
            // Damage may have cut a cell off.
            let is_default = match others.get(added.start..added.end()) {
                Some(cell) => *cell == *added.default,
                None => true,
            };
            if !is_default {
                others.truncate(added.end());
                return;
            }
            others.truncate(added.start);
        }
        others.truncate(self.others_len);
    }

    /// The bytes of a column's value in the cells of a row: those that a plain cell has. `None` if
    /// the row has no value there; none at all if damage has made the cell name no value.
    #[inline(always)]
    pub(crate) fn bytes_of<'c>(&'c self, column: usize, row: KeyCells<'c>) -> Option<&'c [u8]> {
        self.bytes_in(column, &self[column], row)
    }

    /// The same, of the column that has this cell.
    #[inline(always)]
    pub(crate) fn bytes_in<'c>(
        &'c self,
        column: usize,
        cell: &Cell,
        row: KeyCells<'c>,
    ) -> Option<&'c [u8]> {
        let group = row[cell.group];
        match group.get(cell.range()) {
            Some(_) if cell.is_null(group) => None,
            Some(id) if cell.is_encoded => Some(self.value_of(column, id)),
            Some(bytes) => Some(bytes),
            None => self.default_of(column),
        }
    }

    /// The value that has the number in a cell.
    fn value_of(&self, column: usize, id: &[u8]) -> &[u8] {
        let values = self.values.get(column).and_then(Option::as_ref);
        let id = id.try_into().map(u32::from_le_bytes).ok();
        values.zip(id).and_then(|(values, id)| values.get(id)).unwrap_or_default()
    }

    #[cold]
    fn default_of(&self, column: usize) -> Option<&[u8]> {
        let added = self.added_column(column.checked_sub(self.made.len())?);
        added.and_then(AddedCell::default_value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::new_column::NewColumn;
    use crate::schema::{COLUMNS_MAX, Column};
    use crate::value::Value;

    fn add(cells: &Cells, new: &NewColumn) {
        let columns: Vec<Column> = Vec::new();
        new.resolve("t", &columns).unwrap().add_to(cells);
    }

    fn cells() -> Cells {
        Cells::of(vec![Cell::of(Type::U32, false, 1, None)], 8)
    }

    #[test]
    fn groups_end_behind_the_last_cell_that_is_no_default() {
        let cells = cells();
        let short: Group = SmallVec::from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        let value =
            |column, group: &Group| cells.bytes_of(column, [&[], group]).map(<[u8]>::to_vec);
        add(&cells, &NewColumn::new("a", Type::U16).default(0x0102));
        add(&cells, &NewColumn::nullable("b", Type::U8));
        add(&cells, &NewColumn::nullable("c", Type::U8).default(9));
        assert_eq!(cells.others_end(), 14);
        let values = |group: &Group| [0, 1, 2, 3].map(|column| value(column, group));
        let defaults = [Some(vec![7, 0, 0, 0]), Some(vec![2, 1]), None, Some(vec![9])];
        assert_eq!(values(&short), defaults);

        let mut group = short.clone();
        cells.extend(&mut group, 14);
        assert_eq!(group[8..], [2, 1, 1, 0, 0, 9]);
        assert_eq!(values(&group), defaults);
        let whole = group.clone();
        cells.trim(&mut group);
        assert_eq!(group, short);

        group = whole;
        (group[10], group[11]) = (0, 5);
        cells.trim(&mut group);
        assert_eq!((group.len(), value(2, &group)), (12, Some(vec![5])));
        // What is cut off within a cell has the default there.
        group.truncate(9);
        assert_eq!(values(&group), defaults);
        cells.extend(&mut group, 9);
        assert_eq!(group[8..], [2, 1]);
        group.extend_from_slice(&[0; 40]);
        cells.trim(&mut group);
        assert_eq!(group.len(), 14);
    }

    #[test]
    fn as_many_columns_are_added_as_a_table_can_have() {
        let cells = cells();
        for number in 1..COLUMNS_MAX {
            let default = Value::Uint(number as u64);
            add(&cells, &NewColumn::new(format!("c{number}"), Type::U16).default(default));
        }
        for number in 1..COLUMNS_MAX {
            let bytes = (number as u16).to_le_bytes();
            assert_eq!(cells.bytes_of(number, [&[], &[0; 8]]), Some(&bytes[..]));
            let len = 2 * number as u64;
            assert!(cells.is_end_of_added(len) && !cells.is_end_of_added(len - 1));
        }
        assert!(!cells.is_end_of_added(0) && !cells.is_end_of_added(2 * COLUMNS_MAX as u64));
        assert_eq!(cells.get(COLUMNS_MAX), None);
    }
}
