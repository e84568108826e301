//! On-media layout of transaction slots, and of the record that makes a statement count.
//!
//! ```text
//! slot, 256 bytes
//! byte     0  records with even numbers             128  not used yet
//!         64  records with odd numbers
//!
//! record   0  checksum of the content (32 bits), of the record (16), entries (8), state (8)
//!          8  number: one more than that of the record before
//!         16  stamp of the commit
//!         24  not used yet
//!         32  entry: kind (4 bits), table (24), row (36)
//!         40  offset of a version, if the entry is of one
//! ```
//!
//! A statement writes what it changes where nothing leads to it, then its record, flushes both, and
//! fences once. After a crash the checksums tell whether all of it has arrived. If so, the
//! statement took effect, and opening completes it; if not, nothing leads to what it has left. A
//! record is a line, and its first word is stored last. So it is there as a whole or not at all.
//!
//! The record before is kept, because what its statement has published is durable only with the
//! fence of the next.

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use remanent_structures::RowId;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a slot.
const SLOT_LEN: u64 = 256;
/// Slots of a database: statements that can be in progress together.
pub(crate) const SLOT_COUNT: u32 = 256;
/// Bytes of all slots.
pub(crate) const SLOTS_LEN: u64 = SLOT_LEN * SLOT_COUNT as u64;

const NUMBER: u64 = WORD_LEN;
const STAMP: u64 = 2 * WORD_LEN;
const ENTRY: u64 = 4 * WORD_LEN;
const VERSION: u64 = 5 * WORD_LEN;

/// The state of a record whose statement was committed.
const COMMITTED: u64 = 1;
/// The state of a record whose statement did not take effect.
const VOID: u64 = 2;
/// An entry for a row that was inserted.
const INSERTED: u64 = 1;
/// An entry for a row that has a new version.
const CHANGED: u64 = 2;
const KIND_SHIFT: u32 = 60;
const TABLE_SHIFT: u32 = 36;
const TABLE: u64 = (1 << (KIND_SHIFT - TABLE_SHIFT)) - 1;
const ROW: u64 = (1 << TABLE_SHIFT) - 1;

/// The greatest stamp: heads have 48 bits for one.
pub(crate) const STAMP_MAX: u64 = (1 << 48) - 1;

/// Offset of the record of a slot that has this number.
pub(crate) fn record_at(slots: u64, slot: u32, number: u64) -> u64 {
    slots + u64::from(slot) * SLOT_LEN + number % 2 * LINE_LEN
}

/// A statement that has changed a row and committed that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) stamp: u64,
    pub(crate) table: u32,
    pub(crate) row: RowId,
    /// Offset of the version that the row has got; 0 if it was inserted.
    pub(crate) version: u64,
    /// Checksum of the row's cells, or of its version.
    pub(crate) content: u32,
    /// Whether opening has found that the statement did not take effect. Then number and stamp are
    /// all that counts.
    pub(crate) is_void: bool,
}

impl Record {
    fn entry(self) -> u64 {
        let kind = if self.version == 0 { INSERTED } else { CHANGED };
        kind << KIND_SHIFT | u64::from(self.table) << TABLE_SHIFT | self.row.get()
    }

    fn first_word(self) -> u64 {
        let state = if self.is_void { VOID } else { COMMITTED };
        let content = u64::from(self.content);
        let others = [state, self.number, self.stamp, self.entry(), self.version, content];
        let mut bytes = [0; 6 * WORD_LEN as usize];
        for (place, word) in bytes.chunks_exact_mut(WORD_LEN as usize).zip(others) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let own = xxh3_64(&bytes) & 0xffff;
        u64::from(self.content) | own << 32 | 1 << 48 | state << 56
    }

    /// Writes the record at `at`.
    pub(crate) fn write<M: Medium>(self, medium: &M, at: u64) {
        medium.store(at + NUMBER, self.number);
        medium.store(at + STAMP, self.stamp);
        medium.store(at + ENTRY, self.entry());
        medium.store(at + VERSION, self.version);
        // Release: last in the line's order of stores, so that a crash leaves the complete record,
        // or one whose checksum does not match. Partner of `read`.
        medium.store(at, self.first_word());
    }

    /// The record at `at`; `None` when there is none.
    pub(crate) fn read<M: Medium>(medium: &M, at: u64) -> Option<Self> {
        let (first, entry) = (medium.load(at), medium.load(at + ENTRY));
        let record = Record {
            number: medium.load(at + NUMBER),
            stamp: medium.load(at + STAMP),
            table: (entry >> TABLE_SHIFT & TABLE) as u32,
            row: RowId::new(entry & ROW)?,
            version: medium.load(at + VERSION),
            content: first as u32,
            is_void: first >> 56 == VOID,
        };
        let is_one = first == record.first_word()
            && entry == record.entry()
            && record.stamp <= STAMP_MAX
            && record.number < u64::MAX;
        is_one.then_some(record)
    }
}

/// The checksum of a row's cells.
pub(crate) fn content_of(groups: [&[u8]; 2]) -> u32 {
    let keys = xxh3_64(groups[0]);
    (xxh3_64(groups[1]) ^ keys.rotate_left(17)) as u32
}
