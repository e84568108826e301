//! On-media layout of transaction slots, and of the record that makes a statement count.
//!
//! ```text
//! slot, 256 bytes
//! byte     0  records with even numbers
//!         64  records with odd numbers
//!        128  7 outcomes of transactions before the last one, the newest over the oldest
//!        240  offsets of the lists of rows for each of the two records, or 0
//!
//! record   0  checksum of the content (32 bits), of the record (16), whether it has an entry (8),
//!             state of the slot (8)
//!          8  number: one more than that of the record before
//!         16  stamp of the slot's last commit
//!         24  the slot's last transaction: number (44 bits), opening in which it began (12); if
//!             the record is of none, its own opening
//!         32  entry: kind (4 bits), table (24), row (36); or that there is a list, of how many; or
//!             that all is taken back behind a statement, its number; or that the schema was
//!             changed
//!         40  offset of a version, if the entry is of one
//!         48  number of the statement (24 bits), time limit of the transaction in ms (32), 1 if it
//!             is serializable, 2 if its foreign keys are checked at its commit, and 4 if it is
//!             serializable, and may have read with an older snapshot (8)
//!         56  stamp of the transaction's snapshot
//!
//! outcome  0  number (44 bits), opening (12), 1 if committed and 2 if aborted, and 4 if somebody
//!             knew the transaction's name, or 8 if nobody did at a clean close (8)
//!          8  stamp of the commit (48 bits), checksum of the outcome, but for who knows it (16)
//! ```
//!
//! A statement writes what it changes where nothing leads to it, then its record, flushes both, and
//! fences once. After a crash the checksums tell whether all of it has arrived. If so, the
//! statement took effect, and opening completes it; if not, nothing leads to what it has left. A
//! record is a line, and its first word is stored last. So it is there as a whole or not at all.
//!
//! A statement of many rows has a list of entries beside its record, which has the checksum of the
//! list: all of them count, or none.
//!
//! The record before is kept, because what its statement has published is durable only with the
//! fence of the next. So each record says all that is to be known about its slot.

use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use remanent_structures::RowId;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a slot.
const SLOT_LEN: u64 = 256;
/// Slots of a database: statements and open transactions that there can be together.
pub(crate) const SLOT_COUNT: u32 = 256;
/// Bytes of all slots.
pub(crate) const SLOTS_LEN: u64 = SLOT_LEN * SLOT_COUNT as u64;
/// Outcomes that a slot keeps.
pub(crate) const OUTCOME_COUNT: usize = 7;

const NUMBER: u64 = WORD_LEN;
const STAMP: u64 = 2 * WORD_LEN;
const TRANSACTION: u64 = 3 * WORD_LEN;
const ENTRY: u64 = 4 * WORD_LEN;
const VERSION: u64 = 5 * WORD_LEN;
const STATEMENT: u64 = 6 * WORD_LEN;
const SNAPSHOT: u64 = 7 * WORD_LEN;
/// All words of a record but the first, in the order of `Record::words`.
const PLACES: [u64; 7] = [NUMBER, STAMP, TRANSACTION, ENTRY, VERSION, STATEMENT, SNAPSHOT];
const OUTCOMES: u64 = 2 * LINE_LEN;
const OUTCOME_LEN: u64 = 2 * WORD_LEN;
const LISTS: u64 = OUTCOMES + OUTCOME_COUNT as u64 * OUTCOME_LEN;
const _: () = assert!(LISTS + 2 * WORD_LEN == SLOT_LEN);

/// An entry for a row that was inserted.
const INSERTED: u64 = 1;
/// An entry for a row that has a new version.
const CHANGED: u64 = 2;
/// Instead of an entry: there is a list of them.
const LISTED: u64 = 3;
/// No entry: what a transaction has changed behind a statement is taken back.
const TAKEN_BACK: u64 = 4;
/// No entry: the catalog has what the statement has changed.
const SCHEMA: u64 = 5;
const KIND_SHIFT: u32 = 60;
const TABLE_SHIFT: u32 = 36;
const TABLE: u64 = (1 << (KIND_SHIFT - TABLE_SHIFT)) - 1;
const ROW: u64 = (1 << TABLE_SHIFT) - 1;
const LIMIT_SHIFT: u32 = 24;
const SERIALIZABLE: u64 = 1 << 56;
const CHECKS_AT_COMMIT: u64 = 1 << 57;
const HAS_OLDER: u64 = 1 << 58;

/// The greatest stamp: heads have 48 bits for one.
pub(crate) const STAMP_MAX: u64 = (1 << 48) - 1;
/// Statements of a transaction at the most.
pub(crate) const STATEMENTS_MAX: u32 = (1 << LIMIT_SHIFT) - 1;

/// Offset of the record of a slot that has this number.
pub(crate) fn record_at(slots: u64, slot: u32, number: u64) -> u64 {
    slots + u64::from(slot) * SLOT_LEN + number % 2 * LINE_LEN
}

/// Offset of the word that leads to the list of the record of a slot that has this number.
pub(crate) fn list_at(slots: u64, slot: u32, number: u64) -> u64 {
    slots + u64::from(slot) * SLOT_LEN + LISTS + number % 2 * WORD_LEN
}

/// Offset of an outcome of a slot.
pub(crate) fn outcome_at(slots: u64, slot: u32, index: usize) -> u64 {
    slots + u64::from(slot) * SLOT_LEN + OUTCOMES + index as u64 * OUTCOME_LEN
}

/// A transaction of several statements, among those of its slot. Those that began later have
/// greater numbers; one that a crash has left without a trace may have had the same, in an earlier
/// opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Serial {
    pub(crate) number: u64,
    /// How often the pool had been opened, but for multiples of 4,096.
    pub(crate) opening: u16,
}

impl Serial {
    const NUMBER_BITS: u32 = 44;
    pub(crate) const NUMBER_MAX: u64 = (1 << Self::NUMBER_BITS) - 1;
    pub(crate) const OPENINGS: u16 = 1 << 12;

    /// The opening of a pool that was opened so often.
    pub(crate) fn opening_of(opens: u64) -> u16 {
        (opens % u64::from(Self::OPENINGS)) as u16
    }

    /// Both in 56 bits.
    pub(crate) fn get(self) -> u64 {
        self.number | u64::from(self.opening) << Self::NUMBER_BITS
    }

    pub(crate) fn new(word: u64) -> Self {
        let opening = Self::opening_of(word >> Self::NUMBER_BITS);
        Serial { number: word & Self::NUMBER_MAX, opening }
    }
}

/// A transaction of several statements, as a version names who wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransactionId {
    pub(crate) slot: u32,
    pub(crate) number: u64,
}

/// A transaction among the last 512 of its slot, as a claim names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortId(u32);

impl TransactionId {
    const MARK: u64 = 1 << 63;
    const SLOT_SHIFT: u32 = Serial::NUMBER_BITS;

    /// Instead of a stamp, in versions of a transaction that is not committed.
    pub(crate) fn as_stamp(self) -> u64 {
        Self::MARK | u64::from(self.slot) << Self::SLOT_SHIFT | self.number
    }

    /// The transaction that a word names instead of a stamp.
    #[inline(always)]
    pub(crate) fn of_stamp(word: u64) -> Option<Self> {
        let slot = (word >> Self::SLOT_SHIFT) as u32 % SLOT_COUNT;
        let id = || TransactionId { slot, number: word & Serial::NUMBER_MAX };
        (word & Self::MARK != 0).then(id)
    }

    #[inline(always)]
    pub(crate) fn short(self) -> ShortId {
        ShortId::new(self.slot << ShortId::NUMBER_BITS | (self.number as u32 & ShortId::NUMBER))
    }
}

impl ShortId {
    const NUMBER_BITS: u32 = 9;
    const NUMBER: u32 = (1 << Self::NUMBER_BITS) - 1;

    #[inline(always)]
    pub(crate) fn new(bits: u32) -> Self {
        ShortId(bits % (SLOT_COUNT << Self::NUMBER_BITS))
    }

    /// Slot and number in 17 bits.
    #[inline(always)]
    pub(crate) fn get(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(crate) fn slot(self) -> u32 {
        self.0 >> Self::NUMBER_BITS
    }
}

/// What a record says of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No transaction of several statements is open; the record is of none.
    Alone,
    /// The transaction is open.
    Open,
    /// The transaction was committed, with the record's stamp.
    Committed,
    /// The transaction was given up.
    Aborted,
}

impl State {
    const ALL: [State; 4] = [State::Alone, State::Open, State::Committed, State::Aborted];

    // They differ in four bits each.
    fn code(self) -> u64 {
        match self {
            State::Alone => 0x0f,
            State::Open => 0x33,
            State::Committed => 0x55,
            State::Aborted => 0x69,
        }
    }

    fn of_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }
}

/// What a statement has made of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: u32,
    pub(crate) row: RowId,
    /// Offset of the version that the row has got; 0 if it was inserted.
    pub(crate) version: u64,
    /// Checksum of the row's cells, or of its version.
    pub(crate) content: u32,
}

impl Entry {
    pub(super) fn word(self) -> u64 {
        let kind = if self.version == 0 { INSERTED } else { CHANGED };
        kind << KIND_SHIFT | u64::from(self.table) << TABLE_SHIFT | self.row.get()
    }

    pub(super) fn of_words(word: u64, version: u64, content: u32) -> Option<Self> {
        let (table, row) = ((word >> TABLE_SHIFT & TABLE) as u32, RowId::new(word & ROW)?);
        let entry = Entry { table, row, version, content };
        (entry.word() == word).then_some(entry)
    }
}

/// What a statement of many rows has made of them: how many entries its list has, and what their
/// checksum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) count: u32,
    pub(crate) checksum: u32,
}

/// What the statement of a record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing: when a transaction ends by itself, or opening has found that a statement did not
    /// take effect.
    Nothing,
    Row(Entry),
    Rows(Listed),
    /// All that the transaction has changed behind this statement is to be taken back.
    TakenBack(u32),
    /// The schema: the catalog says how.
    Schema,
}

impl Content {
    /// Checksum, entry, and version, as a record has them.
    fn words(self) -> (u32, u64, u64) {
        match self {
            Content::Nothing => (0, 0, 0),
            Content::Row(entry) => (entry.content, entry.word(), entry.version),
            Content::Rows(Listed { count, checksum }) => {
                (checksum, LISTED << KIND_SHIFT | u64::from(count), 0)
            }
            Content::TakenBack(to) => (0, TAKEN_BACK << KIND_SHIFT | u64::from(to), 0),
            Content::Schema => (0, SCHEMA << KIND_SHIFT, 0),
        }
    }

    fn of_words(checksum: u32, entry: u64, version: u64) -> Option<Self> {
        match entry >> KIND_SHIFT {
            LISTED => Some(Content::Rows(Listed { count: entry as u32, checksum })),
            TAKEN_BACK => Some(Content::TakenBack(entry as u32)),
            SCHEMA => Some(Content::Schema),
            _ => Entry::of_words(entry, version, checksum).map(Content::Row),
        }
    }
}

/// What is known of a slot, and the statement that made it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) state: State,
    /// Stamp of the slot's last commit.
    pub(crate) stamp: u64,
    /// The last transaction of several statements.
    pub(crate) serial: Serial,
    /// Its last statement.
    pub(crate) statement: u32,
    pub(crate) limit_ms: u32,
    pub(crate) is_serializable: bool,
    /// It is serializable, and may have read with an older snapshot, too.
    pub(crate) has_older: bool,
    /// Its foreign keys are checked at its commit.
    pub(crate) checks_at_commit: bool,
    /// Stamp of its snapshot.
    pub(crate) snapshot: u64,
    pub(crate) content: Content,
}

impl Record {
    /// What is known of a slot that was never used.
    pub(crate) const NONE: Record = Record {
        number: 0,
        state: State::Alone,
        stamp: 0,
        serial: Serial { number: 0, opening: 0 },
        statement: 0,
        limit_ms: 0,
        is_serializable: false,
        has_older: false,
        checks_at_commit: false,
        snapshot: 0,
        content: Content::Nothing,
    };

    fn words(self) -> [u64; 7] {
        let (_, entry, version) = self.content.words();
        let bits = [
            (self.is_serializable, SERIALIZABLE),
            (self.checks_at_commit, CHECKS_AT_COMMIT),
            (self.has_older, HAS_OLDER),
        ];
        let bits = bits.into_iter().filter(|(is_set, _)| *is_set);
        let statement = u64::from(self.statement) | u64::from(self.limit_ms) << LIMIT_SHIFT;
        [
            self.number,
            self.stamp,
            self.serial.get(),
            entry,
            version,
            bits.fold(statement, |word, (_, bit)| word | bit),
            self.snapshot,
        ]
    }

    fn first_word(self) -> u64 {
        let (checksum, ..) = self.content.words();
        let has_content = u64::from(self.content != Content::Nothing);
        let head = u64::from(checksum) | has_content << 48 | self.state.code() << 56;
        let mut bytes = [0; LINE_LEN as usize];
        let words = std::iter::once(head).chain(self.words());
        for (place, word) in bytes.chunks_exact_mut(WORD_LEN as usize).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        head | (xxh3_64(&bytes) & 0xffff) << 32
    }

    /// Writes the record at `at`.
    pub(crate) fn write<M: Medium>(self, medium: &M, at: u64) {
        for (place, word) in PLACES.into_iter().zip(self.words()) {
            medium.store(at + place, word);
        }
        // Release: last in the line's order of stores, so that a crash leaves the complete record,
        // or one whose checksum does not match. Partner of `read`.
        medium.store(at, self.first_word());
    }

    /// The record at `at`; `None` when there is none.
    pub(crate) fn read<M: Medium>(medium: &M, at: u64) -> Option<Self> {
        let first = medium.load(at);
        let words = PLACES.map(|place| medium.load(at + place));
        let [number, stamp, serial, entry, version, statement, snapshot] = words;
        let content = match first >> 48 & 1 {
            0 => Content::Nothing,
            _ => Content::of_words(first as u32, entry, version)?,
        };
        let record = Record {
            number,
            state: State::of_code(first >> 56)?,
            stamp,
            serial: Serial::new(serial),
            statement: statement as u32 & STATEMENTS_MAX,
            limit_ms: (statement >> LIMIT_SHIFT) as u32,
            is_serializable: statement & SERIALIZABLE != 0,
            has_older: statement & HAS_OLDER != 0,
            checks_at_commit: statement & CHECKS_AT_COMMIT != 0,
            snapshot,
            content,
        };
        let is_one = first == record.first_word()
            && words == record.words()
            && record.stamp <= STAMP_MAX
            && record.snapshot <= STAMP_MAX
            && record.number < u64::MAX;
        is_one.then_some(record)
    }

    /// The transaction of several statements, if the record is of one.
    pub(crate) fn id(self, slot: u32) -> Option<TransactionId> {
        let number = self.serial.number;
        (self.state != State::Alone).then_some(TransactionId { slot, number })
    }

    /// By what versions of the record's statement know it. Those that were written with the commit
    /// know its stamp.
    pub(crate) fn identity(self, slot: u32) -> Identity {
        let id = self.id(slot).filter(|_| !self.is_written_at_commit());
        let stamp = id.map_or(self.stamp, TransactionId::as_stamp);
        Identity { stamp, opening: self.serial.opening }
    }

    fn is_written_at_commit(self) -> bool {
        self.state == State::Committed && matches!(self.content, Content::Rows(_))
    }
}

/// By what a version knows its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its stamp, or its transaction instead.
    pub(crate) stamp: u64,
    /// The opening in which it, or its transaction, began: after a crash, there may be another one
    /// with the same stamp.
    pub(crate) opening: u16,
}

/// The checksum of a row's cells.
pub(crate) fn content_of(groups: [&[u8]; 2]) -> u32 {
    let keys = xxh3_64(groups[0]);
    (xxh3_64(groups[1]) ^ keys.rotate_left(17)) as u32
}

/// How a transaction of several statements ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) serial: Serial,
    /// The stamp of its commit; `None` if it was given up.
    pub(crate) committed: Option<u64>,
    pub(crate) asked: Asked,
}

/// Whether somebody may ask for an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Nobody has asked for the name of the transaction, and still may.
    NotYet,
    /// Somebody knows its name: the next outcome does not take its place.
    BySomebody,
    /// Nobody knows its name, and nobody learns it any more.
    ByNobody,
}

impl Outcome {
    const SHIFT: u32 = 56;
    const CHECKSUM_SHIFT: u32 = 48;
    const COMMITTED: u64 = 1;
    const ABORTED: u64 = 2;
    const NAMED: u64 = 4;
    const NAMELESS: u64 = 8;

    fn words(self) -> [u64; 2] {
        let kind = if self.committed.is_some() { Self::COMMITTED } else { Self::ABORTED };
        let asked = match self.asked {
            Asked::NotYet => 0,
            Asked::BySomebody => Self::NAMED,
            Asked::ByNobody => Self::NAMELESS,
        };
        let first = self.serial.get() | kind << Self::SHIFT;
        let stamp = self.committed.unwrap_or(0);
        let mut bytes = [0; 2 * WORD_LEN as usize];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&stamp.to_le_bytes());
        // Not of who has asked: that changes later, by one word that a crash cannot tear.
        let checksum = xxh3_64(&bytes);
        [first | asked << Self::SHIFT, stamp | checksum << Self::CHECKSUM_SHIFT]
    }

    /// Writes it at `at`, over one of a transaction that is durable in its rows.
    pub(crate) fn write<M: Medium>(self, medium: &M, at: u64) {
        for (place, word) in (0..).zip(self.words()) {
            medium.store(at + place * WORD_LEN, word);
        }
    }

    /// The outcome at `at`; `None` if there is none, or a crash has torn it.
    pub(crate) fn read<M: Medium>(medium: &M, at: u64) -> Option<Self> {
        let words = [medium.load(at), medium.load(at + WORD_LEN)];
        let stamp = words[1] & STAMP_MAX;
        let kind = words[0] >> Self::SHIFT;
        let committed = (kind & Self::COMMITTED != 0).then_some(stamp);
        let asked = match kind & (Self::NAMED | Self::NAMELESS) {
            0 => Asked::NotYet,
            Self::NAMED => Asked::BySomebody,
            _ => Asked::ByNobody,
        };
        let outcome = Outcome { serial: Serial::new(words[0]), committed, asked };
        (outcome.words() == words).then_some(outcome)
    }

    /// Whether nothing was ever written at `at`.
    pub(crate) fn is_unused<M: Medium>(medium: &M, at: u64) -> bool {
        medium.load(at) == 0
    }
}

#[cfg(test)]
mod tests {
    use remanent_pmem::Pool;

    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let pool = Pool::options().create_in_memory().unwrap();
        let (medium, at) = (pool.medium(), pool.medium().len() - LINE_LEN);
        let entry = Entry { table: 7, row: RowId::new(ROW - 1).unwrap(), version: 64, content: 9 };
        for state in State::ALL {
            let (listed, inserted) =
                (Listed { count: u32::MAX, checksum: 7 }, Entry { version: 0, ..entry });
            for content in [
                Content::Nothing,
                Content::Row(entry),
                Content::Row(inserted),
                Content::Rows(listed),
            ] {
                let record = Record {
                    number: 12,
                    state,
                    stamp: STAMP_MAX,
                    serial: Serial { number: Serial::NUMBER_MAX, opening: 4_095 },
                    statement: STATEMENTS_MAX,
                    limit_ms: u32::MAX,
                    is_serializable: state == State::Open,
                    has_older: state == State::Open,
                    checks_at_commit: state == State::Committed,
                    snapshot: STAMP_MAX,
                    content,
                };
                record.write(medium, at);
                assert_eq!(Record::read(medium, at), Some(record));
                for word in 0..8 {
                    let of = medium.load(at + word * WORD_LEN);
                    medium.store(at + word * WORD_LEN, of ^ 1 << 40);
                    assert_eq!(Record::read(medium, at), None, "word {word}");
                    medium.store(at + word * WORD_LEN, of);
                }
            }
        }
    }

    #[test]
    fn transactions_are_named_in_few_bits() {
        let id = TransactionId { slot: 255, number: Serial::NUMBER_MAX };
        assert_eq!(TransactionId::of_stamp(id.as_stamp()), Some(id));
        assert_eq!(TransactionId::of_stamp(STAMP_MAX), None);
        assert_eq!(id.short().slot(), 255);
        assert_eq!(ShortId::new(id.short().get()), id.short());
        let pool = Pool::options().create_in_memory().unwrap();
        let (medium, at) = (pool.medium(), pool.medium().len() - LINE_LEN);
        let serial = Serial { number: 9, opening: 77 };
        for committed in [Some(STAMP_MAX), None] {
            for asked in [Asked::NotYet, Asked::BySomebody, Asked::ByNobody] {
                let outcome = Outcome { serial, committed, asked };
                outcome.write(medium, at);
                assert_eq!(Outcome::read(medium, at), Some(outcome));
            }
        }
    }
}
