//! On-media layout of the header and of a catalog.
//!
//! ```text
//! header    0  catalog: offset of a block            8  offset of the transaction slots
//!
//! catalog   0  tag                                  16  checksum of the tables
//!           8  bytes of the tables                  24  what became of a transaction's changes
//!                                                   32  tables
//! ```
//!
//! A catalog never changes, but for the word at 24: 31 bits say behind which statement the changes
//! of a transaction ([`Promised`]) are taken back, and one that it has committed; the upper half is
//! the complement of the lower one. Tables are written as a sequence of numbers and texts: integers
//! of 8 bytes, and texts with their length before them.

use remanent_pmem::{Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64;

use super::promise::{Promise, PromiseKind, Promised, Settled};
use super::{Catalog, DictionaryEntry, DroppedEntry, IndexEntry, TableEntry};
use crate::foreign::spec::{FOREIGN_KEYS_MAX, ForeignKeyEntry};
use crate::new_column::AddedColumn;
use crate::schema::{COLUMNS_MAX, Column, INDEXES_MAX, IndexKind, IndexSpec, Placement, Structure};
use crate::transaction::layout::{SLOT_COUNT, Serial};
use crate::value::Type;

/// Version of the layout, part of the root's type.
pub(crate) const LAYOUT: u64 = 10;

/// Header: offset of the catalog.
pub(crate) const HEADER_CATALOG: u64 = 0;
/// Header: offset of the transaction slots.
pub(crate) const HEADER_SLOTS: u64 = 8;

/// Bytes of the tables of a catalog at the most.
pub(crate) const CATALOG_LEN_MAX: u64 = 64 << 20;

const TAG: u64 = 0x6361_7461_6c6f_6731;
const LEN: u64 = WORD_LEN;
const CHECKSUM: u64 = 2 * WORD_LEN;
/// What became of promises: a word of [`Settled`].
const SETTLED: u64 = 3 * WORD_LEN;
const TABLES: u64 = 4 * WORD_LEN;

/// The bytes of a catalog's block.
pub(crate) struct CatalogBlock(Vec<u8>);

impl CatalogBlock {
    pub(crate) fn of(catalog: &Catalog) -> Self {
        let mut bytes = vec![0; TABLES as usize];
        catalog.write(&mut Writer(&mut bytes));
        let (head, tables) = bytes.split_at_mut(TABLES as usize);
        let words = [TAG, tables.len() as u64, xxh3_64(tables), Settled::OPEN.word()];
        for (at, word) in head.chunks_exact_mut(WORD_LEN as usize).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        CatalogBlock(bytes)
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Writes and flushes it.
    pub(crate) fn write<M: Medium>(&self, medium: &M, at: u64) {
        medium.write(at, &self.0);
        // Flush: fenced by the caller, before the header leads to it.
        medium.flush(at, self.len());
    }

    /// The catalog at `at`. `Err` says what is wrong with it.
    pub(crate) fn read<M: Medium>(medium: &M, at: u64) -> Result<Catalog, &'static str> {
        let is_inside =
            |len: u64| at.checked_add(TABLES + len).is_some_and(|end| end <= medium.len());
        if !at.is_multiple_of(WORD_LEN) || !is_inside(0) || medium.load(at) != TAG {
            return Err("the header leads to no catalog");
        }
        let len = medium.load(at + LEN);
        if len > CATALOG_LEN_MAX || !is_inside(len) {
            return Err("the catalog reaches beyond the pool, or beyond what it can have");
        }
        // Flush: a catalog that a killed process has left in the caches; fenced by the caller.
        // Redundant: but where a process was killed before, and the power fails later.
        medium.flush(at, TABLES + len);
        let mut tables = vec![0; len as usize];
        medium.read(at + TABLES, &mut tables);
        if xxh3_64(&tables) != medium.load(at + CHECKSUM) {
            return Err("the catalog has changed since it was written");
        }
        let mut reader = Reader(&tables);
        let catalog = Catalog::read(&mut reader).filter(|_| reader.0.is_empty());
        let mut catalog = catalog.ok_or("the catalog describes no tables")?;
        catalog.settle(Self::settled(medium, at)?);
        Ok(catalog)
    }

    /// What is known of the promises of the catalog at `at`.
    fn settled<M: Medium>(medium: &M, at: u64) -> Result<Settled, &'static str> {
        let settled = Settled::of_word(medium.load(at + SETTLED));
        settled.ok_or("what the catalog says of a transaction has changed since it was written")
    }

    /// Notes durably what became of promises of the catalog at `at`. One fence.
    pub(crate) fn settle<M: Medium>(
        medium: &M,
        at: u64,
        settled: Settled,
    ) -> Result<(), &'static str> {
        let known = Self::settled(medium, at)?.and(settled);
        medium.store(at + SETTLED, known.word());
        // Flush and fence: before the slot of the transaction is used for another one, and before
        // the transaction makes another statement.
        medium.persist(at + SETTLED, WORD_LEN);
        Ok(())
    }
}

struct Writer<'b>(&'b mut Vec<u8>);

impl Writer<'_> {
    fn number(&mut self, number: impl Into<u64>) {
        self.0.extend(number.into().to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let len = self.number()?.try_into().ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    /// At most `limit` of something.
    fn all<T>(&mut self, limit: usize, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count: usize = self.number()?.try_into().ok()?;
        if count > limit {
            return None;
        }
        (0..count).map(|_| read(self)).collect()
    }
}

impl Catalog {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.number(self.version);
        writer.number(self.schema_version);
        writer.number(self.stamp);
        writer.number(self.last_number);
        writer.number(self.tables.len() as u64);
        self.tables.iter().for_each(|table| table.write(writer));
        writer.number(self.dropped.len() as u64);
        self.dropped.iter().for_each(|table| table.write(writer));
        match &self.promised {
            Some(promised) => promised.write(writer),
            None => writer.number(0u8),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (version, schema_version) = (reader.number()?, reader.number()?);
        let (stamp, last_number) = (reader.number()?, reader.small()?);
        let tables = reader.all(usize::MAX, TableEntry::read)?;
        let dropped = reader.all(usize::MAX, DroppedEntry::read)?;
        let promised = Promised::read(reader)?;
        Some(Catalog { version, schema_version, stamp, last_number, tables, dropped, promised })
    }
}

impl Promised {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.number(self.changes.len() as u64);
        writer.number(self.slot);
        writer.number(self.serial.get());
        for Promise { statement, table, kind } in &self.changes {
            writer.number(*statement);
            writer.number(*table);
            let (code, number, name) = match kind {
                PromiseKind::CreateTable => (1u8, 0, ""),
                PromiseKind::DropTable => (2, 0, ""),
                PromiseKind::AddColumn => (3, 0, ""),
                PromiseKind::CreateIndex(number) => (4, *number, ""),
                PromiseKind::DropIndex(number) => (5, *number, ""),
                PromiseKind::AddForeignKey(name) => (6, 0, &name[..]),
                PromiseKind::DropForeignKey(name) => (7, 0, &name[..]),
            };
            writer.number(code);
            writer.number(number);
            writer.text(name);
        }
    }

    /// `Some(None)` if there are none.
    fn read(reader: &mut Reader<'_>) -> Option<Option<Self>> {
        let count: usize = reader.number()?.try_into().ok()?;
        if count == 0 {
            return Some(None);
        }
        let slot = reader.small().filter(|slot| *slot < SLOT_COUNT)?;
        let serial = Serial::new(reader.number()?);
        let mut changes = Vec::new();
        for _ in 0..count {
            let (statement, table) = (reader.small()?, reader.small()?);
            let (code, number, name) = (reader.number()?, reader.small()?, reader.text()?);
            let kind = match code {
                1 => PromiseKind::CreateTable,
                2 => PromiseKind::DropTable,
                3 => PromiseKind::AddColumn,
                4 => PromiseKind::CreateIndex(number),
                5 => PromiseKind::DropIndex(number),
                6 => PromiseKind::AddForeignKey(name),
                7 => PromiseKind::DropForeignKey(name),
                _ => return None,
            };
            changes.push(Promise { statement, table, kind });
        }
        Some(Some(Promised { slot, serial, changes }))
    }
}

impl DroppedEntry {
    fn write(&self, writer: &mut Writer<'_>) {
        // Neither a number nor an offset is 0.
        let (number, state) = self.table.unwrap_or_default();
        writer.number(number);
        writer.number(state);
        writer.number(self.indexes.len() as u64);
        for (number, header) in &self.indexes {
            writer.number(*number);
            writer.number(header.unwrap_or(0));
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (number, state) = (reader.small()?, reader.number()?);
        let indexes = reader.all(INDEXES_MAX + COLUMNS_MAX, |reader| {
            let (number, header) = (reader.small()?, reader.number()?);
            Some((number, (header != 0).then_some(header)))
        })?;
        Some(DroppedEntry { table: (number != 0).then_some((number, state)), indexes })
    }
}

impl Column {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(&self.name);
        writer.number(self.of_type.code());
        writer.number(u8::from(self.is_nullable));
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let name = reader.text()?;
        let of_type = Type::from_code(reader.small()?)?;
        // Dictionaries come with their table.
        Some(Column { name, of_type, is_nullable: reader.number()? != 0, dictionary: None })
    }
}

impl TableEntry {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(&self.name);
        writer.number(self.number);
        writer.number(self.state);
        writer.number(self.tile_rows.unwrap_or(0));
        writer.number(self.columns.len() as u64);
        for (column, is_key) in self.columns.iter().zip(&self.are_keys) {
            column.write(writer);
            writer.number(u8::from(*is_key));
        }
        writer.number(self.added.len() as u64);
        for AddedColumn { column, default, is_gone } in &self.added {
            column.write(writer);
            writer.bytes(default);
            writer.number(u8::from(*is_gone));
        }
        writer.number(self.indexes.len() as u64);
        for index in &self.indexes {
            index.write(writer);
        }
        writer.number(self.dictionaries.len() as u64);
        for DictionaryEntry { column, state, number, header } in &self.dictionaries {
            writer.number(*column as u64);
            writer.number(*state);
            writer.number(*number);
            writer.number(header.unwrap_or(0));
        }
        writer.number(self.foreign_keys.len() as u64);
        for key in &self.foreign_keys {
            key.write(writer);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (name, number, state) = (reader.text()?, reader.small()?, reader.number()?);
        let tile_rows = Some(reader.small()?).filter(|&rows| rows != 0);
        let columns = reader.all(COLUMNS_MAX, |reader| {
            let column = Column::read(reader)?;
            Some((column, reader.number()? != 0))
        })?;
        let (mut columns, are_keys): (Vec<Column>, _) = columns.into_iter().unzip();
        let added = reader.all(COLUMNS_MAX - columns.len(), |reader| {
            let (column, default) = (Column::read(reader)?, reader.bytes()?);
            let is_gone = reader.number()? != 0;
            Some(AddedColumn { column, default, is_gone }).filter(AddedColumn::is_valid)
        })?;
        let count = columns.len() + added.iter().filter(|added| !added.is_gone).count();
        let indexes = reader.all(INDEXES_MAX, |reader| IndexEntry::read(reader, count))?;
        let dictionaries = reader.all(columns.len(), DictionaryEntry::read)?;
        for entry in &dictionaries {
            columns.get_mut(entry.column)?.dictionary = Some(entry.placement());
        }
        let foreign_keys =
            reader.all(FOREIGN_KEYS_MAX, |reader| ForeignKeyEntry::read(reader, count))?;
        Some(TableEntry {
            name,
            number,
            columns,
            are_keys,
            added,
            indexes,
            dictionaries,
            foreign_keys,
            state,
            tile_rows,
        })
    }
}

impl DictionaryEntry {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (column, state) = (reader.number()?.try_into().ok()?, reader.number()?);
        let (number, header) = (reader.small()?, reader.number()?);
        Some(DictionaryEntry { column, state, number, header: (header != 0).then_some(header) })
    }
}

impl ForeignKeyEntry {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(&self.name);
        writer.number(self.references);
        writer.number(self.columns.len() as u64);
        for (&column, &referenced) in self.columns.iter().zip(&self.referenced) {
            writer.number(column as u64);
            writer.number(referenced as u64);
        }
    }

    /// Whether the table that is referred to has the columns is found when that is there.
    fn read(reader: &mut Reader<'_>, columns: usize) -> Option<Self> {
        let (name, references) = (reader.text()?, reader.small()?);
        let pairs = reader.all(columns, |reader| {
            let column: usize = reader.number()?.try_into().ok()?;
            let referenced: usize = reader.number()?.try_into().ok()?;
            (column < columns).then_some((column, referenced))
        })?;
        let (columns, referenced) = pairs.into_iter().unzip();
        Some(ForeignKeyEntry { name, columns, references, referenced })
    }
}

impl IndexEntry {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.text(&self.spec.name);
        writer.number(self.number);
        writer.number(self.header.unwrap_or(0));
        writer.number(match self.spec.kind {
            IndexKind::Primary => 1u8,
            IndexKind::Unique => 2,
            IndexKind::Secondary => 3,
        });
        writer.number(match self.spec.structure {
            Structure::Hash => 1u8,
            Structure::Ordered => 2,
        });
        writer.number(self.spec.columns.len() as u64);
        for &column in &self.spec.columns {
            writer.number(column as u64);
        }
    }

    fn read(reader: &mut Reader<'_>, columns: usize) -> Option<Self> {
        let (name, number, header) = (reader.text()?, reader.small()?, reader.number()?);
        let header = (header != 0).then_some(header);
        let placement = if header.is_some() { Placement::Pmem } else { Placement::Dram };
        let kind = match reader.number()? {
            1 => IndexKind::Primary,
            2 => IndexKind::Unique,
            3 => IndexKind::Secondary,
            _ => return None,
        };
        let structure = match reader.number()? {
            1 => Structure::Hash,
            2 => Structure::Ordered,
            _ => return None,
        };
        let of_index = reader.all(columns, |reader| {
            let column: usize = reader.number()?.try_into().ok()?;
            (column < columns).then_some(column)
        })?;
        let spec = IndexSpec { name, kind, columns: of_index, structure, placement };
        Some(IndexEntry { spec, number, header })
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Pool;

    use super::*;

    fn catalog() -> Catalog {
        let column = |name: &str, of_type, is_nullable| Column {
            name: name.to_owned(),
            of_type,
            is_nullable,
            dictionary: None,
        };
        let index = |number, header: Option<u64>| {
            let spec = IndexSpec {
                name: format!("index {number}"),
                kind: IndexKind::Unique,
                columns: vec![0],
                structure: if number == 5 { Structure::Ordered } else { Structure::Hash },
                placement: header.map_or(Placement::Dram, |_| Placement::Pmem),
            };
            IndexEntry { spec, number, header }
        };
        let table = TableEntry {
            name: "subscribers".to_owned(),
            number: 3,
            columns: vec![
                column("id", Type::U32, false),
                Column {
                    dictionary: Some(Placement::Dram),
                    ..column("name", Type::Text { max: 15 }, true)
                },
            ],
            are_keys: vec![true, false],
            added: vec![AddedColumn {
                column: column("age", Type::U8, true),
                default: vec![0, 9],
                is_gone: false,
            }],
            indexes: vec![index(4, Some(0x1_0000)), index(5, None)],
            dictionaries: vec![DictionaryEntry {
                column: 1,
                state: 0x4_0000,
                number: 8,
                header: None,
            }],
            foreign_keys: vec![ForeignKeyEntry {
                name: "to itself".to_owned(),
                columns: vec![1, 0],
                references: 3,
                referenced: vec![0, 7],
            }],
            state: 0x2_0000,
            tile_rows: Some(4),
        };
        let dropped = vec![DroppedEntry::of(&table), DroppedEntry::of_index(6, 0x3_0000)];
        Catalog {
            version: 7,
            schema_version: 8,
            stamp: 9,
            last_number: 4,
            tables: vec![table.clone(), table],
            dropped,
            promised: Some(promised()),
        }
    }

    fn promised() -> Promised {
        let kinds = [
            PromiseKind::CreateTable,
            PromiseKind::DropTable,
            PromiseKind::AddColumn,
            PromiseKind::CreateIndex(4),
            PromiseKind::DropIndex(5),
            PromiseKind::AddForeignKey("one".to_owned()),
            PromiseKind::DropForeignKey("to itself".to_owned()),
        ];
        // Of a table that is not there.
        let promise = |(statement, kind)| Promise { statement, table: 99, kind };
        let changes = (1..).zip(kinds).map(promise).collect();
        Promised { slot: 7, serial: Serial { number: 8, opening: 9 }, changes }
    }

    #[test]
    fn a_catalog_is_read_as_it_was_written_and_not_if_it_has_changed() {
        let pool = Pool::options().create_in_memory().unwrap();
        let (medium, at) = (pool.medium(), pool.medium().len() / 2);
        let block = CatalogBlock::of(&catalog());
        block.write(medium, at);
        assert_eq!(CatalogBlock::read(medium, at), Ok(catalog()));
        for word in (at..at + block.len()).step_by(8) {
            let before = medium.load(word);
            // Its first byte: the last word may be cut off.
            medium.store(word, before ^ 1 << 1);
            assert!(CatalogBlock::read(medium, at).is_err(), "{:#x}", word - at);
            medium.store(word, before);
        }
        assert!(CatalogBlock::read(medium, at + 8).is_err());
        assert!(CatalogBlock::read(medium, u64::MAX - 7).is_err());
    }

    #[test]
    fn a_text_that_is_cut_off_describes_nothing() {
        let mut bytes = Vec::new();
        catalog().write(&mut Writer(&mut bytes));
        for len in 0..bytes.len() {
            let mut reader = Reader(&bytes[..len]);
            assert!(Catalog::read(&mut reader).is_none(), "{len}");
        }
    }
}
