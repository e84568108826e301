//! On-media layout of a table: its state, its tiles, and the cells of a row.
//!
//! ```text
//! state    0  tag, number of the table               64  24 words: run k leads to 8 << k tiles
//!
//! run      0  tag, number of the table               64  offsets of tiles, or 0
//!          8  k
//!
//! tile     0  tag, number of the table               64  heads of rows: two words each
//!          8  number of the tile                      …  keys: cells that indexes need
//!         16  its extension, or 0                     …  cells of the other columns
//!
//! head     0  the newest committed state: 0, or its kind, and its stamp or the offset of a version
//!          8  who is changing the row, or 0
//! ```
//!
//! Row *r* is row *r* mod 2^s of tile *r* / 2^s. A tile has as many rows as a chunk of 64 KiB has
//! room for, so not every number below 2^s is that of a row. Rows never move, and a tile is never
//! taken away from its table.
//!
//! Cells of one row lie together in two groups. A search for a key reads the first group alone, and
//! an insert touches three or four lines: the head, the keys, the others. Each group begins with a
//! bit for every column that may be NULL, and has a multiple of 8 bytes, so that no two rows share
//! a word. Cells of columns that were added later lie in the tile's extension (`extension.rs`).

use remanent_pmem::{LINE_LEN, WORD_LEN};

use super::cells::{ADDED_MAX, Cell};
pub(crate) use super::cells::{Cells, KeyCells};
use crate::schema::{COLUMNS_MAX, Column};
use crate::transaction::layout::{SLOT_COUNT, STAMP_MAX, STATEMENTS_MAX, ShortId};
use crate::value::ID_LEN;

/// The kinds of blocks, by the upper half of their first word. The lower half has the number of the
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    State,
    Run,
    Tile,
    Extension,
    Version,
    /// The state of a dictionary of the table.
    Dictionary,
    /// Entries of one.
    Entries,
    /// Of rows that a statement has changed; of no table.
    List,
}

impl Kind {
    /// The first word of a block of this kind.
    pub(crate) const fn tag(self, table: u32) -> u64 {
        let letters: u64 = match self {
            Kind::State => 0x7374_6174,
            Kind::Run => 0x7275_6e73,
            Kind::Tile => 0x7469_6c65,
            Kind::Extension => 0x6578_7465,
            Kind::Version => 0x7665_7273,
            Kind::Dictionary => 0x6469_6374,
            Kind::Entries => 0x656e_7472,
            Kind::List => 0x6c69_7374,
        };
        letters << 32 | table as u64
    }

    /// What a block is by its first word, and the number of its table.
    pub(crate) fn of_tag(tag: u64) -> Option<(Self, u32)> {
        let table = tag as u32;
        use Kind::{Dictionary, Entries, Extension, List, Run, State, Tile, Version};
        let all = [State, Run, Tile, Extension, Version, Dictionary, Entries, List];
        all.into_iter().find(|kind| kind.tag(table) == tag).map(|kind| (kind, table))
    }
}

// State and runs.

/// Bytes of the state of a table.
pub(crate) const STATE_LEN: u64 = LINE_LEN + RUN_COUNT as u64 * WORD_LEN;
/// Runs of tiles.
pub(crate) const RUN_COUNT: u32 = 24;
const RUNS: u64 = LINE_LEN;
/// Tiles of the first run.
const RUN_TILES: u64 = 8;
/// The number of a run, in its block; of a tile, in its.
pub(crate) const NUMBER: u64 = 8;
const RUN_HEAD_LEN: u64 = LINE_LEN;
/// Tiles of a table at the most.
pub(crate) const TILES_MAX: u64 = RUN_TILES * ((1 << RUN_COUNT) - 1);

/// An offset beyond the end of every pool, to which the length of a tile can be added. Damaged
/// words are reduced to it.
pub(crate) const FAR: u64 = 1 << 56;

/// Where a table leads to a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TilePlace {
    pub(crate) run: u32,
    index: u64,
}

impl TilePlace {
    #[inline(always)]
    pub(crate) fn of(tile: u64) -> Self {
        let run = (tile / RUN_TILES + 1).ilog2();
        TilePlace { run, index: tile - RUN_TILES * ((1 << run) - 1) }
    }

    /// Offset of the tile's word in a run.
    #[inline(always)]
    pub(crate) fn at(self, run: u64) -> u64 {
        run + RUN_HEAD_LEN + self.index * WORD_LEN
    }
}

/// Offset of the word of a state that leads to a run.
#[inline(always)]
pub(crate) fn run_at(state: u64, run: u32) -> u64 {
    state + RUNS + u64::from(run) * WORD_LEN
}

/// Bytes of a run.
pub(crate) fn run_len(run: u32) -> u64 {
    RUN_HEAD_LEN + run_tiles(run) * WORD_LEN
}

/// Tiles of a run.
pub(crate) fn run_tiles(run: u32) -> u64 {
    RUN_TILES << run
}

/// Number of the first tile of a run.
pub(crate) fn run_first(run: u32) -> u64 {
    RUN_TILES * ((1 << run) - 1)
}

// Tiles.

/// In a tile: offset of its extension, or 0.
pub(crate) const EXTENSION: u64 = 16;
const HEADS: u64 = LINE_LEN;
/// Bytes of a row's head.
pub(crate) const HEAD_LEN: u64 = 2 * WORD_LEN;
/// In a head: the transaction that is changing the row.
pub(crate) const CLAIM: u64 = WORD_LEN;
/// Bytes that a tile has at least, but for rows of more than a few hundred bytes.
const TILE_LEN: u64 = 64 << 10;
/// Rows that a tile has at least.
const TILE_ROWS_MIN: u64 = 64;

const _: () = assert!(ADDED_MAX >= COLUMNS_MAX);

/// How the rows of a table lie in its tiles.
#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) cells: Cells,
    /// Bytes of a row in each group of a tile.
    pub(crate) group_len: [u64; 2],
    /// Rows of a tile.
    pub(crate) rows: u64,
    /// 2^this row numbers are those of a tile.
    pub(crate) shift: u32,
    /// First byte of each group in a tile.
    groups: [u64; 2],
    pub(crate) tile_len: u64,
}

impl Format {
    /// That of a table with these columns, some of which are in the first group: those that an
    /// index had when the table was made.
    pub(crate) fn new(columns: &[Column], are_keys: &[bool], tile_rows: Option<u32>) -> Self {
        let group_of = |column: usize| usize::from(!are_keys[column]);
        let mut nulls = [0; 2];
        let mut cells: Vec<Cell> = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            let group = group_of(number);
            let null = column.is_nullable.then_some(nulls[group]);
            nulls[group] += usize::from(column.is_nullable);
            cells.push(Cell::of(column.of_type, column.dictionary.is_some(), group, null));
        }
        let mut ends = nulls.map(|bits| bits.div_ceil(8));
        for cell in &mut cells {
            if cell.is_encoded {
                // In one word: who reads a row while it is written gets no number of two halves.
                ends[cell.group] = ends[cell.group].next_multiple_of(ID_LEN);
            }
            cell.offset = ends[cell.group];
            ends[cell.group] = cell.range().end;
        }
        let group_len = ends.map(|end| (end as u64).next_multiple_of(WORD_LEN));
        let row_len = HEAD_LEN + group_len[0] + group_len[1];
        // The groups begin with lines.
        let overhead = HEADS + 2 * LINE_LEN;
        let chunks = (overhead + row_len * TILE_ROWS_MIN).div_ceil(TILE_LEN);
        let rows = (chunks * TILE_LEN - overhead) / row_len;
        let rows = tile_rows.map_or(rows, |asked| u64::from(asked).clamp(1, rows));
        let keys = (HEADS + rows * HEAD_LEN).next_multiple_of(LINE_LEN);
        let others = (keys + rows * group_len[0]).next_multiple_of(LINE_LEN);
        Format {
            cells: Cells::of(cells, group_len[1] as usize),
            group_len,
            rows,
            shift: rows.next_power_of_two().trailing_zeros(),
            groups: [keys, others],
            tile_len: others + rows * group_len[1],
        }
    }

    /// Offset of the head of a row of the tile at `tile`.
    #[inline(always)]
    pub(crate) fn head_at(&self, tile: u64, row: u64) -> u64 {
        tile + HEADS + row * HEAD_LEN
    }

    /// Offset of a group of a row's cells.
    #[inline(always)]
    pub(crate) fn group_at(&self, tile: u64, row: u64, group: usize) -> u64 {
        tile + self.groups[group] + row * self.group_len[group]
    }
}

// Heads.

/// The first word of a head: the newest committed state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Committed(pub(crate) u64);

/// What a committed state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// There is no row. The stamp of its removal; 0 if there never was one.
    Free(u64),
    /// The row as it lies in the tile, and the stamp of its commit.
    Present(u64),
    /// What the version at this offset says.
    Version(u64),
    Damaged,
}

impl Committed {
    const KIND_SHIFT: u32 = 48;
    const VALUE: u64 = STAMP_MAX;
    // Kinds differ in many bits, so that one that changes makes no other kind.
    const REMOVED: u64 = 0x3c5a;
    const PRESENT: u64 = 0x5aa5;
    const VERSION: u64 = 0xa53c;

    fn new(kind: u64, value: u64) -> Self {
        Committed(kind << Self::KIND_SHIFT | value)
    }

    /// A row that was removed by the transaction with this stamp.
    pub(crate) fn removed(stamp: u64) -> Self {
        Self::new(Self::REMOVED, stamp)
    }

    /// A row that is in the tile as the transaction with this stamp has made it.
    pub(crate) fn present(stamp: u64) -> Self {
        Self::new(Self::PRESENT, stamp)
    }

    /// A row that is what a version says.
    pub(crate) fn version(offset: u64) -> Self {
        Self::new(Self::VERSION, offset)
    }

    /// Before a version: the row as this statement of the same transaction has inserted it.
    pub(crate) fn own_insert(statement: u32) -> Self {
        // No transaction ever commits with such a stamp.
        Self::present(STAMP_MAX - u64::from(statement))
    }

    /// The statement of the same transaction that has inserted the row, before a version.
    pub(crate) fn inserted_by(self) -> Option<u32> {
        match self.state() {
            State::Present(stamp) => {
                let statement = STAMP_MAX - stamp;
                (statement <= u64::from(STATEMENTS_MAX)).then_some(statement as u32)
            }
            _ => None,
        }
    }

    #[inline(always)]
    pub(crate) fn state(self) -> State {
        let value = self.0 & Self::VALUE;
        match self.0 >> Self::KIND_SHIFT {
            0 if value == 0 => State::Free(0),
            Self::REMOVED => State::Free(value),
            Self::PRESENT => State::Present(value),
            Self::VERSION => State::Version(value),
            _ => State::Damaged,
        }
    }
}

/// Instead of the number of a slot, in the claim of who folds versions.
const COLLECTOR: u32 = 0xffff;
// In the claim of a statement, or a lock, the bits of the slot's number are those below `LOCK`.
const _: () = assert!(SLOT_COUNT as u64 <= Claim::LOCK);

/// The second word of a head: who is changing the row.
///
/// ```text
/// bits 60..64  kind
/// of a statement that is in progress, or of who folds versions
///      16..48  opening of the pool, in which alone it counts
///       0..16  slot
/// of an open transaction that has locked the row: the same, and
///       9      whether somebody was to fold the row, and could not
///       8      1
///       0..8   slot
/// of an open transaction that has changed the row
///      52..60  slot
///      43..52  the last bits of the transaction's number
///       0..43  offset of its newest version of the row, in units of 32 bytes
/// of one that has inserted the row: the same, but
///       0..43  number of the statement
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(pub(crate) u64);

/// What a transaction has made of a row, and not committed as far as the row knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) by: ShortId,
    /// Offset of the newest version; 0 if the row was inserted, and lies in its tile.
    pub(crate) version: u64,
    /// The statement that has inserted the row, if it lies in its tile.
    pub(crate) inserted_by: u32,
}

impl Pending {
    pub(crate) fn inserted(by: ShortId, statement: u32) -> Self {
        Pending { by, version: 0, inserted_by: statement }
    }

    pub(crate) fn changed(by: ShortId, version: u64) -> Self {
        Pending { by, version, inserted_by: 0 }
    }

    /// What a statement has made of a row: this version, or the row itself.
    pub(crate) fn of(by: ShortId, version: u64, statement: u32) -> Self {
        match version {
            0 => Self::inserted(by, statement),
            offset => Self::changed(by, offset),
        }
    }

    /// What a version that comes next leads to.
    pub(crate) fn as_previous(self) -> Committed {
        match self.version {
            0 => Committed::own_insert(self.inserted_by),
            offset => Committed::version(offset),
        }
    }
}

impl Claim {
    pub(crate) const NONE: Claim = Claim(0);
    const KIND_SHIFT: u32 = 60;
    const IN_PROGRESS: u64 = 0x9;
    const CHANGED: u64 = 0x6;
    const INSERTED: u64 = 0x7;
    const OPENS_SHIFT: u32 = 16;
    const OPENS: u64 = u32::MAX as u64;
    const ID_SHIFT: u32 = 43;
    const UNIT: u64 = 32;
    const LOCK: u64 = 1 << 8;
    const IS_TO_FOLD: u64 = 1 << 9;

    /// The claim of a statement that has a slot, in this opening of the pool.
    pub(crate) fn of(opens: u64, slot: u32) -> Self {
        let opens = (opens & Self::OPENS) << Self::OPENS_SHIFT;
        Claim(Self::IN_PROGRESS << Self::KIND_SHIFT | opens | u64::from(slot))
    }

    /// The claim of who folds versions.
    pub(crate) fn of_collector(opens: u64) -> Self {
        Claim::of(opens, COLLECTOR)
    }

    /// The claim of an open transaction that has locked the row, and not changed it. Like that of a
    /// statement, it counts in this opening of the pool alone.
    pub(crate) fn of_lock(opens: u64, slot: u32) -> Self {
        Claim(Claim::of(opens, slot).0 | Self::LOCK)
    }

    /// The same lock, of a row that is to be folded when it is unlocked.
    pub(crate) fn to_fold(self) -> Self {
        Claim(self.0 | Self::IS_TO_FOLD)
    }

    /// The slot of the transaction that has locked the row, if the claim is [held](Claim::is_held).
    #[inline(always)]
    pub(crate) fn locked_by(self) -> Option<u32> {
        let is_lock = self.is_in_progress() && self.0 & Self::LOCK != 0 && !self.is_collectors();
        is_lock.then_some((self.0 % Self::LOCK) as u32)
    }

    /// The claim of an open transaction.
    pub(crate) fn pending(pending: Pending) -> Self {
        debug_assert!(pending.version.is_multiple_of(Self::UNIT), "blocks begin there");
        let id = u64::from(pending.by.get()) << Self::ID_SHIFT;
        let (kind, value) = match pending.version {
            0 => (Self::INSERTED, pending.inserted_by.into()),
            offset => (Self::CHANGED, offset / Self::UNIT),
        };
        Claim(kind << Self::KIND_SHIFT | id | value)
    }

    fn is_in_progress(self) -> bool {
        self.0 >> Self::KIND_SHIFT == Self::IN_PROGRESS
    }

    /// Whether it is that of who folds versions.
    #[inline(always)]
    pub(crate) fn is_collectors(self) -> bool {
        self.is_in_progress() && self.0 as u16 == COLLECTOR as u16
    }

    /// Whether it keeps others from changing the row, in this opening.
    #[inline(always)]
    pub(crate) fn is_held(self, opens: u64) -> bool {
        match self.0 >> Self::KIND_SHIFT {
            Self::IN_PROGRESS => self.0 >> Self::OPENS_SHIFT & Self::OPENS == opens & Self::OPENS,
            Self::CHANGED | Self::INSERTED => true,
            _ => false,
        }
    }

    /// The slot of who has the row, if it is not only folded.
    pub(crate) fn holder(self) -> Option<u32> {
        match self.0 >> Self::KIND_SHIFT {
            Self::IN_PROGRESS if !self.is_collectors() => Some((self.0 % Self::LOCK) as u32),
            Self::CHANGED | Self::INSERTED => self.as_pending().map(|pending| pending.by.slot()),
            _ => None,
        }
    }

    /// What a transaction has made of the row.
    #[inline(always)]
    pub(crate) fn as_pending(self) -> Option<Pending> {
        // Both kinds differ in one bit.
        if self.0 >> (Self::KIND_SHIFT + 1) != Self::CHANGED >> 1 {
            return None;
        }
        let by = ShortId::new((self.0 >> Self::ID_SHIFT) as u32);
        let value = self.0 & ((1 << Self::ID_SHIFT) - 1);
        Some(match self.0 >> Self::KIND_SHIFT {
            Self::CHANGED => Pending::changed(by, value * Self::UNIT),
            _ => Pending::inserted(by, value as u32 & STATEMENTS_MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableSpec;
    use crate::transaction::layout::TransactionId;
    use crate::value::Type;

    fn format(spec: &TableSpec) -> Format {
        Format::new(spec.columns(), &spec.key_columns(&spec.resolve().unwrap()), None)
    }

    #[test]
    fn every_tile_has_its_place() {
        let mut expected = TilePlace { run: 0, index: 0 };
        for tile in 0..100_000 {
            assert_eq!(TilePlace::of(tile), expected, "{tile}");
            assert_eq!(run_first(expected.run) + expected.index, tile);
            expected.index += 1;
            if expected.index == run_tiles(expected.run) {
                expected = TilePlace { run: expected.run + 1, index: 0 };
            }
        }
        assert!(TilePlace::of(TILES_MAX - 1).run < RUN_COUNT);
        assert_eq!(TilePlace::of(TILES_MAX).run, RUN_COUNT);
    }

    #[test]
    fn rows_do_not_overlap() {
        let spec = TableSpec::new("t")
            .column("a", Type::U32)
            .nullable("b", Type::Text { max: 5 })
            .nullable("c", Type::U16)
            .column("d", Type::F64)
            .primary_key(["a"])
            .unique("u", ["b"]);
        let format = format(&spec);
        assert_eq!(format.group_len, [16, 16]); // a bit, 4 and 6 bytes; a bit, 2 and 8
        let mut ranges: Vec<(u64, u64)> = vec![(0, HEADS)];
        for row in [0, 1, format.rows - 1] {
            ranges.push((format.head_at(0, row), HEAD_LEN));
            for group in 0..2 {
                ranges.push((format.group_at(0, row, group), format.group_len[group]));
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{ranges:?}");
        let (last, len) = *ranges.last().unwrap();
        assert_eq!(last + len, format.tile_len);
        assert!(format.tile_len <= TILE_LEN && TILE_LEN - format.tile_len < 256);
    }

    #[test]
    fn tiles_have_rows_of_any_length() {
        for columns in [1, 10, 120] {
            let of_text =
                |spec: TableSpec, at| spec.column(format!("c{at}"), Type::Text { max: 255 });
            let format = format(&(0..columns).fold(TableSpec::new("t"), of_text));
            assert!(format.rows >= TILE_ROWS_MIN && format.rows <= 1 << format.shift);
            // A tile fills its chunks, but for less than a row and the ends of its parts.
            let row_len = HEAD_LEN + format.group_len.iter().sum::<u64>();
            let unused = format.tile_len.next_multiple_of(TILE_LEN) - format.tile_len;
            assert!(unused < row_len + 3 * LINE_LEN, "{unused} of {}", format.tile_len);
        }
        let narrow = format(&TableSpec::new("t").column("a", Type::U8));
        assert_eq!((narrow.group_len, narrow.rows), ([0, 8], 2722));
    }

    #[test]
    fn heads_tell_what_they_are() {
        for stamp in [0, 7, STAMP_MAX] {
            assert_eq!(Committed::present(stamp).state(), State::Present(stamp));
            assert_eq!(Committed::removed(stamp).state(), State::Free(stamp));
            assert_eq!(Committed::version(stamp).state(), State::Version(stamp));
        }
        assert_eq!(Committed(0).state(), State::Free(0));
        for statement in [1, 7, STATEMENTS_MAX] {
            assert_eq!(Committed::own_insert(statement).inserted_by(), Some(statement));
        }
        assert_eq!(Committed::present(1 << 40).inserted_by(), None);
        for bit in 48..64 {
            for whole in [Committed(0), Committed::removed(9), Committed::present(9)] {
                let changed = Committed(whole.0 ^ 1 << bit);
                assert_eq!(changed.state(), State::Damaged, "{changed:?}");
            }
        }
        assert!(
            Claim::of(3, 0).is_held(3) && !Claim::of(3, 9).is_held(4) && !Claim::NONE.is_held(0)
        );
        assert!(Claim::of_collector(3).is_collectors() && !Claim::of(3, 255).is_collectors());
        let by = TransactionId { slot: 255, number: 511 }.short();
        let changed = [32, (1 << 48) - 32].map(|version| Pending::changed(by, version));
        let inserted = [1, STATEMENTS_MAX].map(|statement| Pending::inserted(by, statement));
        for pending in changed.into_iter().chain(inserted) {
            let claim = Claim::pending(pending);
            assert!(claim.is_held(9) && !claim.is_collectors());
            assert_eq!(claim.as_pending(), Some(pending));
        }
        assert_eq!(Claim::of(u64::MAX, 255).as_pending(), None);
    }

    #[test]
    fn a_lock_is_told_from_other_claims() {
        for slot in [0, 1, SLOT_COUNT - 1] {
            let lock = Claim::of_lock(7, slot);
            for claim in [lock, lock.to_fold(), lock.to_fold().to_fold()] {
                assert_eq!((claim.locked_by(), claim.holder()), (Some(slot), Some(slot)));
                assert!(claim.is_held(7) && !claim.is_held(8) && !claim.is_collectors());
                assert_eq!(claim.as_pending(), None);
            }
            assert_ne!(lock, lock.to_fold());
            let statement = Claim::of(7, slot);
            assert_eq!((statement.locked_by(), statement.holder()), (None, Some(slot)));
            let by = TransactionId { slot, number: 511 }.short();
            let pending = Claim::pending(Pending::changed(by, 0x300 * 32));
            assert_eq!((pending.locked_by(), pending.holder()), (None, Some(slot)));
        }
        let collector = Claim::of_collector(7);
        assert_eq!((collector.locked_by(), collector.holder()), (None, None));
    }
}
