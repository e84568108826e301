//! Indexes: from the cells of a key to rows, each of which is looked at, because the index has no
//! keys.

mod locks;
mod rows;

use std::ops::ControlFlow;

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) use self::locks::{HeldKeys, KeyLocks};
pub(crate) use self::rows::{Dram, Rows};

use crate::Result;
use crate::schema::IndexSpec;
use crate::table::layout::Format;

/// An index of a table.
pub(crate) struct Index<M: Medium> {
    pub(crate) spec: IndexSpec,
    /// Its number among the members of the heap.
    pub(crate) number: u32,
    pub(crate) rows: Rows<M>,
}

/// Numbers of rows.
pub(crate) type Candidates = SmallVec<[RowId; 8]>;

/// The cells of a key, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    cells: SmallVec<[u8; 32]>,
    pub(crate) hash: u64,
}

impl Key {
    fn new(cells: SmallVec<[u8; 32]>) -> Self {
        let hash = match cells.len() {
            // Indexes spread words themselves.
            len @ 0..=8 => {
                let mut word = [0; 8];
                word[..len].copy_from_slice(&cells);
                u64::from_le_bytes(word)
            }
            _ => xxh3_64(&cells),
        };
        Key { cells, hash }
    }

    /// The key of a row in an index of these columns, by the row's first group; `None` when the row
    /// has no value in one of them.
    #[inline]
    pub(crate) fn of_row(format: &Format, columns: &[usize], keys: &[u8]) -> Option<Self> {
        let mut cells = SmallVec::new();
        for &column in columns {
            let cell = format.cells[column];
            if cell.is_null(keys) {
                return None;
            }
            cells.extend_from_slice(&keys[cell.range()]);
        }
        Some(Key::new(cells))
    }

    /// The hash of a row's key: that of [`of_row`](Key::of_row).
    #[inline]
    pub(crate) fn hash_of_row(format: &Format, columns: &[usize], keys: &[u8]) -> Option<u64> {
        let mut word = [0; 8];
        let mut at = 0;
        for &column in columns {
            let cell = format.cells[column];
            if cell.is_null(keys) {
                return None;
            }
            let bytes = &keys[cell.range()];
            let Some(room) = word.get_mut(at..at + bytes.len()) else {
                return Self::of_row(format, columns, keys).map(|key| key.hash);
            };
            room.copy_from_slice(bytes);
            at += bytes.len();
        }
        Some(u64::from_le_bytes(word))
    }

    /// The key that has these cells, written by `write` one after the other.
    #[inline]
    pub(crate) fn of_cells(
        format: &Format,
        columns: &[usize],
        mut write: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let len = columns.iter().map(|&column| format.cells[column].of_type.cell_len()).sum();
        let mut cells = SmallVec::from_elem(0, len);
        let mut at = 0;
        for (index, &column) in columns.iter().enumerate() {
            let end = at + format.cells[column].of_type.cell_len();
            write(index, &mut cells[at..end])?;
            at = end;
        }
        Ok(Key::new(cells))
    }

    /// The key as a person writes it.
    #[cold]
    pub(crate) fn tell(&self, format: &Format, columns: &[usize]) -> String {
        let mut at = 0;
        let told: Vec<String> = columns
            .iter()
            .map(|&column| {
                let of_type = format.cells[column].of_type;
                let end = at + of_type.cell_len();
                let value = of_type.decode(&self.cells[at..end]);
                at = end;
                value.map_or_else(|| "?".to_owned(), |value| value.to_string())
            })
            .collect();
        told.join(", ")
    }

    /// Whether a row has this key.
    #[inline]
    pub(crate) fn is_of(&self, format: &Format, columns: &[usize], keys: &[u8]) -> bool {
        let mut at = 0;
        columns.iter().all(|&column| {
            let cell = format.cells[column];
            let end = at + cell.of_type.cell_len();
            let is_same = !cell.is_null(keys) && keys[cell.range()] == self.cells[at..end];
            at = end;
            is_same
        })
    }
}

impl<M: Medium> Index<M> {
    /// Numbers of the rows that may have a key: those that have it, and perhaps others, some of
    /// them twice. If the index is not rebuilt yet, some may be missing: see
    /// [`Table::search`](crate::table::Table::search).
    #[inline]
    pub(crate) fn candidates(&self, key: &Key) -> Result<Candidates> {
        let mut rows = Candidates::new();
        self.rows.find(key.hash, |row| {
            rows.push(row);
            ControlFlow::<()>::Continue(())
        })?;
        Ok(rows)
    }
}
