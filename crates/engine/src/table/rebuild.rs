//! Indexes in DRAM: opening finds them empty, and rows are put into them. First the tiles are read,
//! a group of them by whoever takes it. Then what was read is [added](crate::index::backlog).
//!
//! Whatever changes a row meanwhile puts it into the indexes by itself, under its new keys. So a
//! tile has to be read once. Words for rows that are gone by then do no harm.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::Table;
use super::layout::{Claim, Committed, KeyCells, State};
use super::ops::{Group, Head, RowPlace, key_cells};
use super::version::NEWEST;
use crate::index::backlog::{Backlog, Gathered};
use crate::index::{Index, IndexSet, Member};
use crate::portions::{Portions, Taken};
use crate::{Error, Result};

/// Groups of a table's tiles, about: enough for threads to share them, and few enough that looking
/// into the run of each takes no longer than necessary.
const GROUPS: u64 = 32;
/// A step of rebuilding ends after some milliseconds.
const GROUP_TILES_MAX: u64 = 256;
/// More looks than there are before all is read.
const FIRST: u64 = 1 << 32;

/// Which tiles of a table were read for its indexes in DRAM.
#[derive(Debug)]
pub(crate) struct Rebuilding {
    /// Tiles that were there when the table was opened; 0 if it has no index in DRAM.
    tiles: u64,
    /// Tiles of a group.
    group_tiles: u64,
    groups: Portions,
    /// Tiles that are not read.
    left: AtomicU64,
    /// Those of them that are damaged: they stay so.
    damaged: AtomicU64,
    /// A bit for each of these.
    damaged_tiles: Box<[AtomicU64]>,
    /// How often somebody has looked for a row in tiles that were not read.
    wanted: AtomicU64,
    /// Stamp of the last commit before the table was opened.
    opened: AtomicU64,
}

impl Rebuilding {
    /// That of a table with so many tiles whose indexes in DRAM are empty.
    pub(super) fn of(tiles: u64) -> Self {
        let group_tiles = tiles.div_ceil(GROUPS).clamp(1, GROUP_TILES_MAX);
        Rebuilding {
            tiles,
            group_tiles,
            groups: Portions::of(tiles.div_ceil(group_tiles)),
            left: tiles.into(),
            damaged: AtomicU64::new(0),
            damaged_tiles: (0..tiles.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            wanted: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        }
    }

    /// Says which stamps were committed before the table was opened.
    pub(crate) fn set_opened(&self, last: u64) {
        // Relaxed: nobody else is there yet.
        self.opened.store(last, Ordering::Relaxed);
    }

    /// Whether all tiles were read.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        // Acquire: before indexes and what was read are; partner of the subtraction in `finish`.
        self.left.load(Ordering::Acquire) == 0
    }

    /// Whether all tiles were read that can be.
    pub(crate) fn is_over(&self) -> bool {
        self.progress().0 == 0
    }

    /// Tiles that can be read and were not, and all that there were.
    pub(crate) fn progress(&self) -> (u64, u64) {
        // Acquire: what was done is seen; partner of the subtraction in `finish`.
        let left = self.left.load(Ordering::Acquire);
        // Relaxed: it is counted before the group is done, which has given the number above.
        (left.saturating_sub(self.damaged.load(Ordering::Relaxed)), self.tiles)
    }

    /// How much the tiles are wanted.
    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a hint.
        self.wanted.load(Ordering::Relaxed)
    }

    /// Has the tiles read before those that are wanted less.
    pub(crate) fn want(&self) {
        // Relaxed: a hint.
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    /// Has the table rebuilt before all that are not, however much they are wanted.
    pub(crate) fn want_first(&self) {
        // Relaxed: a hint.
        self.wanted.fetch_add(FIRST, Ordering::Relaxed);
    }

    /// Whether it is rebuilt before others.
    pub(crate) fn is_first(&self) -> bool {
        self.wanted() >= FIRST
    }

    /// A group of tiles that nobody has taken.
    pub(crate) fn take_any(&self) -> Option<Taken<'_>> {
        self.groups.take_any()
    }

    /// The tiles of a group.
    fn tiles_of(&self, group: u64) -> std::ops::Range<u64> {
        let first = group * self.group_tiles;
        first..(first + self.group_tiles).min(self.tiles)
    }

    /// A group was read, but for these tiles, which are damaged.
    fn finish(&self, taken: Taken<'_>, damaged: &[u64]) {
        let tiles = self.tiles_of(taken.number());
        for tile in damaged {
            // Relaxed: before the group is done; partner of the load in `unread`.
            self.damaged_tiles[(tile / 64) as usize].fetch_or(1 << (tile % 64), Ordering::Relaxed);
            // Relaxed: before the subtraction below.
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
        taken.finish();
        let read = tiles.end - tiles.start - damaged.len() as u64;
        // Release: the words are there; partner of the load in `is_done`.
        self.left.fetch_sub(read, Ordering::Release);
    }

    /// Tiles that are not read when it comes to them.
    pub(super) fn unread(&self) -> impl Iterator<Item = u64> {
        let is_damaged = |tile: u64| {
            // Relaxed: after the group is done; partner of the store in `finish`.
            self.damaged_tiles[(tile / 64) as usize].load(Ordering::Relaxed) >> (tile % 64) & 1 != 0
        };
        (0..self.tiles)
            .filter(move |tile| !self.groups.is_done(tile / self.group_tiles) || is_damaged(*tile))
    }
}

/// The words of a group of tiles, for the backlog of each index that has one.
type OfIndexes<'i, M> = SmallVec<[(&'i Index<M>, &'i Backlog, Gathered); 4]>;

/// The heads of a tile's rows and their first groups, as they were at one time or another.
#[derive(Default)]
pub(super) struct Copied {
    heads: Vec<Head>,
    keys: Vec<u8>,
}

impl Copied {
    /// Bytes behind the groups: words can be read of which a group has a part.
    const BEHIND: usize = 8;

    /// Copies those of a tile. The heads first: cells that a head leads to are there.
    pub(super) fn copy<M: Medium>(&mut self, table: &Table<M>, tile: u64) {
        let format = &table.format;
        self.heads.clear();
        self.heads.extend((0..format.rows).map(|index| table.head(RowPlace { tile, index })));
        let len = (format.rows * format.group_len[0]) as usize;
        self.keys.resize(len + Self::BEHIND, 0);
        table.medium().read(format.group_at(tile, 0, 0), &mut self.keys[..len]);
    }

    /// The heads, in the order of the rows.
    pub(super) fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// Rows that are there, or that a transaction is inserting: their heads, and first groups.
    pub(super) fn rows(
        &self,
        group_len: u64,
    ) -> impl Iterator<Item = (u64, Committed, Claim, &[u8])> {
        (0..).zip(&self.heads).filter_map(move |(index, &Head { committed, claim })| {
            let is_there = !matches!(committed.state(), State::Free(_));
            (is_there || claim.as_pending().is_some())
                .then(|| (index, committed, claim, self.keys(index, group_len)))
        })
    }

    fn keys(&self, row: u64, group_len: u64) -> &[u8] {
        let start = (row * group_len) as usize;
        &self.keys[start..start + group_len as usize]
    }

    /// The first group of a row, and what is behind it.
    fn keys_from(&self, row: u64, group_len: u64) -> &[u8] {
        &self.keys[(row * group_len) as usize..]
    }
}

/// Rows of a tile, by their numbers in it.
#[derive(Default)]
struct Sorted {
    /// Those that are as they were at the opening.
    old: Vec<u64>,
    /// Others that are there, or that a transaction is inserting.
    others: Vec<u64>,
}

impl Sorted {
    /// Sorts the rows of a tile, if the last commit before the opening had this stamp.
    fn sort(&mut self, heads: &[Head], opened: u64) {
        self.old.clear();
        self.others.clear();
        for (row, &Head { committed, claim }) in (0..).zip(heads) {
            let is_claimed = claim.as_pending().is_some();
            match committed.state() {
                State::Present(stamp) if stamp <= opened && !is_claimed => self.old.push(row),
                State::Free(_) if !is_claimed => {}
                _ => self.others.push(row),
            }
        }
    }
}

/// What reading a tile needs again for the next one.
#[derive(Default)]
struct Buffers {
    copied: Copied,
    sorted: Sorted,
}

/// The cells of a row from which keys are read.
pub(super) struct KeyState {
    cells: [Group; 2],
    /// Whether the row has, or had, these cells.
    is_certain: bool,
}

impl<M: Medium> Table<M> {
    /// Reads all tiles for the indexes in DRAM. Waits for others who do it, too.
    ///
    /// # Errors
    ///
    /// When a tile is damaged, there is no memory left, or the medium met a fault.
    pub(crate) fn read_rest(&self) -> Result<()> {
        while !self.rebuilding.is_done() {
            self.rebuilding.want();
            match self.rebuilding.take_any() {
                Some(taken) => {
                    self.read_tiles(taken)?;
                }
                // Only damaged tiles are left.
                None if self.rebuilding.is_over() => {
                    let mut buffers = Buffers::default();
                    let set = self.indexes.load();
                    let mut read = |tile| self.read_tile(tile, &set, &mut [], &mut buffers);
                    return self.rebuilding.unread().try_for_each(&mut read);
                }
                None => self.medium().pause(),
            }
        }
        Ok(())
    }

    /// Offset of a tile that is one.
    pub(super) fn whole_tile(&self, number: u64) -> Result<u64> {
        let tile = self.tile(number);
        match self.is_tile(tile, number) {
            true => Ok(tile),
            false => Err(self.damaged(tile, "it leads to a tile, and there is none")),
        }
    }

    /// Reads a group of tiles for the indexes in DRAM: their rows are found afterwards. Returns how
    /// many words were gathered.
    ///
    /// # Errors
    ///
    /// When there is no memory left, or the medium met a fault. A damaged tile stays as it is: who
    /// looks for a row that an index does not lead to is told.
    pub(crate) fn read_tiles(&self, taken: Taken<'_>) -> Result<u64> {
        let set = self.indexes.load();
        let tiles = self.rebuilding.tiles_of(taken.number());
        let rows = ((tiles.end - tiles.start) * self.format.rows) as usize;
        let with_backlog = set.all().iter().filter_map(|index| {
            index.backlog.as_ref().map(|backlog| (&**index, backlog, backlog.gather(rows)))
        });
        let mut of_indexes: OfIndexes<'_, M> = with_backlog.collect();
        let (mut buffers, mut damaged) = (Buffers::default(), Vec::new());
        for tile in tiles {
            match self.read_tile(tile, &set, &mut of_indexes, &mut buffers) {
                Err(error) if error.is_damage() => damaged.push(tile),
                read => read?,
            }
        }
        let words = of_indexes.iter().map(|(.., gathered)| gathered.len()).sum();
        for (_, backlog, gathered) in of_indexes {
            backlog.publish(gathered);
        }
        self.rebuilding.finish(taken, &damaged);
        Ok(words)
    }

    /// Gathers the words of those rows of a tile that are as they were at the opening, and puts the
    /// others into the indexes.
    fn read_tile(
        &self,
        number: u64,
        set: &IndexSet<M>,
        of_indexes: &mut [(&Index<M>, &Backlog, Gathered)],
        Buffers { copied, sorted }: &mut Buffers,
    ) -> Result<()> {
        let tile = self.whole_tile(number)?;
        copied.copy(self, tile);
        // Relaxed: it does not change.
        sorted.sort(copied.heads(), self.rebuilding.opened.load(Ordering::Relaxed));
        let (format, first) = (&self.format, number << self.format.shift);
        let group_len = format.group_len[0];
        for (index, backlog, gathered) in of_indexes {
            let old = sorted.old.iter().filter_map(|row| {
                Some((RowId::new(first + row)?, copied.keys_from(*row, group_len)))
            });
            index.gather_rows(format, old, backlog.bits(), gathered);
        }
        let rebuilt = || set.all().iter().filter(|index| index.is_rebuilt);
        for index in rebuilt().filter(|index| index.backlog.is_none() && !index.needs_others) {
            let old = sorted.old.iter().filter_map(|row| {
                let cells = [copied.keys(*row, group_len), &[][..]];
                Some((RowId::new(first + row)?, cells))
            });
            // Entries of a tree, which may be there already.
            index.insert_rows(format, old)?;
        }
        let mut damage = None;
        let mut ensure = |row: u64, is_left: &dyn Fn(&Member<M>) -> bool| {
            let Some(id) = RowId::new(first + row) else { return Ok(()) };
            let place = RowPlace { tile, index: row };
            // Somebody may have put it there already.
            match self.ensure_all_keys(rebuilt().filter(|index| is_left(index)), id, place) {
                Err(error) if error.is_damage() => {
                    damage.get_or_insert(error);
                    Ok(())
                }
                done => done,
            }
        };
        sorted.others.iter().try_for_each(|row| ensure(*row, &|_| true))?;
        let needs_others = rebuilt().any(|index| index.needs_others);
        if needs_others || !self.dictionaries.is_empty() {
            for &row in &sorted.old {
                // Cells that name no value may have been copied while the row was folded: look
                // again.
                let keys = [copied.keys(row, group_len), &[]];
                let names_none = rebuilt()
                    .filter(|index| !index.needs_others)
                    .any(|index| self.require_values(&index.spec.columns, keys).is_err());
                if needs_others || names_none {
                    ensure(row, &|index| index.needs_others || names_none)?;
                }
            }
        }
        // A faulty medium reads as zeros: as if there were no rows.
        self.heap.verify()?;
        damage.map_or(Ok(()), Err)
    }

    /// Puts a row into indexes under the keys of all its states, as far as damage lets them be
    /// read, and says that there was damage.
    fn ensure_all_keys<'i>(
        &self,
        indexes: impl Iterator<Item = &'i Member<M>>,
        row: RowId,
        place: RowPlace,
    ) -> Result<()> {
        let indexes: SmallVec<[&Index<M>; 4]> = indexes.map(|member| &**member).collect();
        let needs_others = indexes.iter().any(|index| index.needs_others);
        let (all, mut damage) = self.all_keys(row, place, needs_others);
        for state in &all {
            for index in &indexes {
                match self.ensure_state(index, row, state) {
                    Err(error) if error.is_damage() => {
                        damage.get_or_insert(error);
                    }
                    ensured => ensured?,
                }
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// Puts a row into an index, unless it is there. An error if its key names no value.
    pub(super) fn ensure_key(
        &self,
        index: &Index<M>,
        row: RowId,
        cells: KeyCells<'_>,
    ) -> Result<()> {
        self.require_values(&index.spec.columns, cells)?;
        match index.key_of(&self.format, cells) {
            Some(key) => index.rows.ensure(&key, row),
            None => Ok(()),
        }
    }

    /// The same for a state of the row. Cells that may be no state of it may name no value.
    pub(super) fn ensure_state(&self, index: &Index<M>, row: RowId, of: &KeyState) -> Result<()> {
        let cells = key_cells(&of.cells);
        match self.require_values(&index.spec.columns, cells) {
            Err(_) if !of.is_certain => Ok(()),
            _ => self.ensure_key(index, row, cells),
        }
    }

    /// The cells for keys of all states of a row that can be read, and what is damaged.
    pub(super) fn all_keys(
        &self,
        row: RowId,
        place: RowPlace,
        needs_others: bool,
    ) -> (SmallVec<[KeyState; 4]>, Option<Error>) {
        // Nothing is freed that the row leads to.
        let _pin = self.heap.pin();
        // The claim first: who commits takes it away when the committed state is there.
        let claim = self.claim(place).as_pending();
        let pending = claim.as_ref().map_or(0, |pending| pending.version);
        // Before the cells in the tile are read. Others may be writing them, or a crash may have
        // kept who did from completing them. Their statement adds the words of what they become.
        let (committed, is_in_tile, mut damage) = match self.committed(place).state() {
            State::Version(offset) => (offset, false, None),
            State::Damaged => (0, false, Some(self.head_damaged(place))),
            State::Free(_) => (0, claim.is_some(), None),
            State::Present(_) => (0, true, None),
        };
        let mut all: SmallVec<[KeyState; 4]> = SmallVec::new();
        for newest in [pending, committed].into_iter().filter(|offset| *offset != 0) {
            let (mut next, mut below) = (State::Version(newest), NEWEST);
            while let State::Version(offset) = next {
                let found = self.version_of(offset, row, below).and_then(|version| {
                    let states = self.keys_of_versions(place, &[version], needs_others)?;
                    let states = states.into_iter();
                    all.extend(states.map(|cells| KeyState { cells, is_certain: true }));
                    Ok(version)
                });
                match found {
                    Ok(version) => {
                        (next, below) = (version.previous.state(), version.order());
                    }
                    Err(error) => {
                        damage.get_or_insert(error);
                        break;
                    }
                }
            }
        }
        match self.key_groups_in_tile(place, needs_others) {
            Ok(cells) => all.push(KeyState { cells, is_certain: is_in_tile }),
            Err(error) => {
                damage.get_or_insert(error);
            }
        }
        (all, damage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_unread_until_their_group_is_done_and_if_they_are_damaged() {
        let rebuilding = Rebuilding::of(70);
        assert_eq!(rebuilding.group_tiles, 3);
        let all: Vec<Taken<'_>> = std::iter::from_fn(|| rebuilding.take_any()).collect();
        assert_eq!((all.len(), rebuilding.unread().count()), (24, 70));
        for taken in all {
            match taken.number() {
                // As if its thread had panicked.
                2 => drop(taken),
                23 => rebuilding.finish(taken, &[69]),
                _ => rebuilding.finish(taken, &[]),
            }
        }
        assert_eq!(rebuilding.unread().collect::<Vec<_>>(), [6, 7, 8, 69]);
        assert_eq!((rebuilding.progress(), rebuilding.is_over()), ((3, 70), false));
        rebuilding.finish(rebuilding.take_any().expect("it was given back"), &[]);
        assert_eq!((rebuilding.is_over(), rebuilding.is_done()), (true, false));
        assert_eq!(rebuilding.unread().collect::<Vec<_>>(), [69]);
    }
}
