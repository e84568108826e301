//! Keys of rows in an index.

use remanent_pmem::Medium;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::Index;
use super::order::{self, OrderedBytes};
use crate::Result;
use crate::schema::{IndexSpec, Structure};
use crate::table::cells::Cell;
use crate::table::layout::{Format, KeyCells};
use crate::table::ops::{Group, key_cells};

/// The key of a row in an index: its cells one after the other. In an ordered index, the bytes that
/// have the order of the cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    bytes: OrderedBytes,
    pub(crate) hash: u64,
    /// Whether the row has no value in one of the columns, which only ordered indexes allow.
    pub(crate) has_null: bool,
}

/// A key, and the columns of a table that have it in a row.
#[derive(Clone, Copy)]
pub(crate) struct Keyed<'k> {
    pub(crate) spec: &'k IndexSpec,
    /// Whether some of them are of the second group of a row.
    pub(crate) needs_others: bool,
    pub(crate) key: &'k Key,
}

impl<'k> Keyed<'k> {
    /// A key of an index.
    #[inline]
    pub(crate) fn of<M: Medium>(index: &'k Index<M>, key: &'k Key) -> Self {
        Keyed { spec: &index.spec, needs_others: index.needs_others, key }
    }

    /// Whether a row has the key.
    #[inline]
    pub(crate) fn is_of(self, format: &Format, row: &[Group; 2]) -> bool {
        self.key.is_of(format, self.spec, key_cells(row))
    }
}

/// Where keys of a hash index lie in the first group of every row: cells beside each other that
/// always have a value, and have it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyPlace {
    start: usize,
    len: usize,
}

impl KeyPlace {
    /// `None` where keys have to be put together.
    pub(super) fn of(format: &Format, spec: &IndexSpec) -> Option<Self> {
        let cells = || spec.columns.iter().map(|&column| format.cells[column]);
        let is_plain = |cell: Cell| cell.group == 0 && cell.null.is_none() && !cell.is_encoded;
        let start = cells().next()?.offset;
        let end = cells().try_fold(start, |end, cell| {
            (is_plain(cell) && cell.offset == end).then_some(cell.range().end)
        })?;
        (spec.structure == Structure::Hash).then_some(KeyPlace { start, len: end - start })
    }

    /// The hash of a row's key: that of [`Key::of_row`]. The bytes may go on behind the row's
    /// group.
    #[inline(always)]
    pub(super) fn hash(self, bytes: &[u8]) -> u64 {
        let bytes = &bytes[self.start..];
        match bytes.first_chunk::<8>() {
            Some(word) if self.len <= 8 => {
                u64::from_le_bytes(*word) & u64::MAX >> (64 - 8 * self.len)
            }
            _ => hash_of(&bytes[..self.len]),
        }
    }
}

#[inline]
fn hash_of(bytes: &[u8]) -> u64 {
    match bytes.len() {
        // Indexes spread words themselves.
        len @ 0..=8 => {
            let mut word = [0; 8];
            word[..len].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        }
        _ => xxh3_64(bytes),
    }
}

impl Key {
    fn new(bytes: OrderedBytes, has_null: bool) -> Self {
        let hash = hash_of(&bytes);
        Key { bytes, hash, has_null }
    }

    /// The key of a value by itself, which is not NULL, in a hash index.
    pub(crate) fn of_value(cell: &[u8]) -> Self {
        Key::new(SmallVec::from_slice(cell), false)
    }

    /// The bytes of the key in an ordered index.
    pub(super) fn ordered(&self) -> &[u8] {
        &self.bytes
    }

    /// The key of a row in an index; `None` when the row is not in the index, because it has no
    /// value in one of the columns of a hash index, or a damaged one.
    #[inline]
    pub(crate) fn of_row(format: &Format, spec: &IndexSpec, row: KeyCells<'_>) -> Option<Self> {
        if spec.structure == Structure::Ordered {
            let (bytes, has_null) = order::of_row(format, &spec.columns, row);
            return Some(Key::new(bytes, has_null));
        }
        let mut cells = SmallVec::new();
        for &column in &spec.columns {
            let bytes = format.cells.bytes_of(column, row)?;
            if bytes.is_empty() {
                return None;
            }
            cells.extend_from_slice(bytes);
        }
        Some(Key::new(cells, false))
    }

    /// The hash of a row's key in a hash index: that of [`of_row`](Key::of_row).
    #[inline]
    pub(super) fn hash_of_row(format: &Format, spec: &IndexSpec, row: KeyCells<'_>) -> Option<u64> {
        let (mut word, mut bits) = (0, 0);
        for &column in &spec.columns {
            let bytes = format.cells.bytes_of(column, row)?;
            if bits + 8 * bytes.len() > 64 {
                return Self::of_row(format, spec, row).map(|key| key.hash);
            }
            // Of usual lengths, without a call.
            word |= match *bytes {
                [] => return None,
                [one] => u64::from(one),
                [one, two] => u64::from(u16::from_le_bytes([one, two])),
                [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
                _ => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            } << (bits % 64);
            bits += 8 * bytes.len();
        }
        Some(word)
    }

    /// The key that has these cells, each of which `write` writes into zeros.
    #[inline]
    pub(crate) fn of_cells(
        format: &Format,
        spec: &IndexSpec,
        mut write: impl FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        if spec.structure == Structure::Ordered {
            let count = spec.columns.len();
            let bytes = order::of_cells(format, &spec.columns[..count], |index, cell| {
                write(index, cell).map(|()| true)
            })?;
            return Ok(Key::new(bytes, false));
        }
        let columns = &spec.columns;
        let len = columns.iter().map(|&column| format.cells[column].of_type.cell_len()).sum();
        let mut cells = SmallVec::from_elem(0, len);
        let mut at = 0;
        for (index, &column) in columns.iter().enumerate() {
            let end = at + format.cells[column].of_type.cell_len();
            write(index, &mut cells[at..end])?;
            at = end;
        }
        Ok(Key::new(cells, false))
    }

    /// The key as a person writes it.
    #[cold]
    pub(crate) fn tell(&self, format: &Format, spec: &IndexSpec) -> String {
        if spec.structure == Structure::Ordered {
            return order::tell(format, &spec.columns, &self.bytes);
        }
        let mut at = 0;
        let told: Vec<String> = spec
            .columns
            .iter()
            .map(|&column| {
                let of_type = format.cells[column].of_type;
                let end = at + of_type.cell_len();
                let value = of_type.decode(&self.bytes[at..end]);
                at = end;
                value.map_or_else(|| "?".to_owned(), |value| value.to_string())
            })
            .collect();
        told.join(", ")
    }

    /// Whether a row has this key.
    #[inline]
    pub(crate) fn is_of(&self, format: &Format, spec: &IndexSpec, row: KeyCells<'_>) -> bool {
        if spec.structure == Structure::Ordered {
            return order::is_of_row(&self.bytes, format, &spec.columns, row);
        }
        let mut at = 0;
        spec.columns.iter().all(|&column| {
            format.cells.bytes_of(column, row).filter(|of| !of.is_empty()).is_some_and(|bytes| {
                let end = at + bytes.len();
                let is_same = *bytes == self.bytes[at..end];
                at = end;
                is_same
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableSpec;
    use crate::value::Type;

    #[test]
    fn a_key_in_one_place_has_the_hash_of_its_cells() {
        let spec = TableSpec::new("t")
            .column("a", Type::U32)
            .column("b", Type::U8)
            .column("c", Type::Text { max: 15 })
            .nullable("n", Type::U16)
            .column("d", Type::I64)
            .column("other", Type::U32)
            .primary_key(["a"])
            .index("a_b", ["a", "b"])
            .index("b_a", ["b", "a"])
            .index("c", ["c"])
            .index("all", ["a", "b", "c"])
            .index("b_d", ["b", "d"])
            .index("n", ["n"])
            .index("d", ["d"])
            .ordered(["d"]);
        let specs = spec.resolve().unwrap();
        let format = Format::new(spec.columns(), &spec.key_columns(&specs), None);
        let len = format.group_len[0] as usize;
        let bytes: Vec<u8> = (1..).take(len + 8).map(|byte: u8| byte.wrapping_mul(37)).collect();
        let mut in_one_place = Vec::new();
        for of in &specs {
            let Some(place) = KeyPlace::of(&format, of) else { continue };
            in_one_place.push(&*of.name);
            let key = Key::of_row(&format, of, [&bytes[..len], &[]]).unwrap();
            // With bytes behind the group, and without.
            for bytes in [&bytes[..], &bytes[..len]] {
                assert_eq!(place.hash(bytes), key.hash, "{}", of.name);
            }
        }
        assert_eq!(in_one_place, ["primary", "a_b", "c", "all"]);
    }
}
