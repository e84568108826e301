//! Indexes in DRAM: opening finds them empty, and rows are put into them tile by tile. Until that
//! is done, a row that an index does not lead to is looked for in the tiles that are left.
//!
//! Whatever changes a row meanwhile puts it into the indexes by itself, under its new keys. So a
//! tile has to be looked at once. Words for rows that are gone by then do no harm.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::Table;
use super::layout::{Claim, Committed, KeyCells, State};
use super::ops::{Group, Head, RowPlace, key_cells};
use super::version::NEWEST;
use crate::index::{Candidates, Index, Key, Member};
use crate::{Error, Result};

/// Who has looked through so many tiles rebuilds one, which takes about three times as long.
const LOOKED_THROUGH_FOR_ONE: u64 = 10;

/// Which tiles of a table are in its indexes in DRAM.
#[derive(Debug)]
pub(crate) struct Rebuilding {
    /// Tiles that were there when the table was opened; 0 if it has no index in DRAM.
    tiles: u64,
    /// A bit for each tile that somebody has begun with, or that is done.
    taken: Box<[AtomicU64]>,
    done: Box<[AtomicU64]>,
    /// Tiles that are not done.
    left: AtomicU64,
    /// Those of them that are damaged: they stay so.
    damaged: AtomicU64,
    /// Somebody has put a part of a tile into the indexes, and no more.
    has_parts: AtomicBool,
    /// How often a tile was looked through because it was not done.
    wanted: AtomicU64,
    /// Stamp of the last commit before the table was opened.
    opened: AtomicU64,
}

impl Rebuilding {
    /// That of a table with so many tiles whose indexes in DRAM are empty.
    pub(super) fn of(tiles: u64) -> Self {
        let bits = || (0..tiles.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Rebuilding {
            tiles,
            taken: bits(),
            done: bits(),
            left: tiles.into(),
            damaged: AtomicU64::new(0),
            has_parts: AtomicBool::new(false),
            wanted: AtomicU64::new(0),
            opened: AtomicU64::new(0),
        }
    }

    /// Says which stamps were committed before the table was opened.
    pub(crate) fn set_opened(&self, last: u64) {
        // Relaxed: nobody else is there yet.
        self.opened.store(last, Ordering::Relaxed);
    }

    /// Whether the indexes lead to all rows.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        // Acquire: before indexes are read; partner of the subtraction in `finish`.
        self.left.load(Ordering::Acquire) == 0
    }

    /// Tiles that can be put into the indexes and are not, and all that there were.
    pub(crate) fn progress(&self) -> (u64, u64) {
        // Acquire: what was done is seen; partner of the subtraction in `finish`.
        let left = self.left.load(Ordering::Acquire);
        // Relaxed: a number.
        (left.saturating_sub(self.damaged.load(Ordering::Relaxed)), self.tiles)
    }

    /// How much the indexes are wanted.
    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a hint.
        self.wanted.load(Ordering::Relaxed)
    }

    /// Has the indexes rebuilt before those that are wanted less.
    pub(crate) fn want(&self) {
        // Relaxed: a hint.
        self.wanted.fetch_add(1, Ordering::Relaxed);
    }

    /// A tile that nobody has taken.
    pub(crate) fn take_any(&self) -> Option<TakenTile<'_>> {
        for (word, bits) in (0..).zip(&self.taken) {
            loop {
                // Relaxed: who changes the bit has the tile.
                let free = (!bits.load(Ordering::Relaxed)).trailing_zeros();
                let tile = word * 64 + u64::from(free);
                if free == 64 || tile >= self.tiles {
                    break;
                }
                let taken = self.take(tile);
                if taken.is_some() {
                    return taken;
                }
            }
        }
        None
    }

    /// A tile, if the caller is the one to put it into the indexes.
    fn take(&self, number: u64) -> Option<TakenTile<'_>> {
        let bit = 1 << (number % 64);
        // Acquire: partner of the exchange in `give_back`.
        let before = self.taken[(number / 64) as usize].fetch_or(bit, Ordering::Acquire);
        (before & bit == 0).then(|| TakenTile { rebuilding: self, number, is_kept: false })
    }

    fn give_back(&self, tile: u64) {
        // Relaxed: ordered by the exchange below.
        self.has_parts.store(true, Ordering::Relaxed);
        // Release: after the words that are there; partner of the exchange in `take`.
        self.taken[(tile / 64) as usize].fetch_and(!(1 << (tile % 64)), Ordering::Release);
    }

    fn finish(&self, tile: u64) {
        // Release: the words are there; partner of the load in `unfinished`.
        self.done[(tile / 64) as usize].fetch_or(1 << (tile % 64), Ordering::Release);
        // Release: likewise; partner of the load in `is_done`.
        self.left.fetch_sub(1, Ordering::Release);
    }

    /// Tiles that are not done when it comes to them.
    fn unfinished(&self) -> impl Iterator<Item = u64> {
        (0..self.tiles).filter(|tile| {
            // Acquire: before indexes are read again; partner of the store in `finish`.
            self.done[(tile / 64) as usize].load(Ordering::Acquire) >> (tile % 64) & 1 == 0
        })
    }
}

/// A tile that the caller is to put into the indexes. Dropping it gives it back.
pub(crate) struct TakenTile<'r> {
    rebuilding: &'r Rebuilding,
    number: u64,
    is_kept: bool,
}

impl TakenTile<'_> {
    /// The tile is done.
    fn finish(mut self) {
        self.is_kept = true;
        self.rebuilding.finish(self.number);
    }

    /// The tile is damaged. Nobody takes it again.
    fn leave_damaged(mut self) {
        self.is_kept = true;
        // Relaxed: a number.
        self.rebuilding.damaged.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for TakenTile<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.rebuilding.give_back(self.number);
        }
    }
}

/// The heads of a tile's rows and their first groups, as they were at one time or another.
#[derive(Default)]
pub(super) struct Copied {
    heads: Vec<Head>,
    keys: Vec<u8>,
}

impl Copied {
    /// Copies those of a tile. The heads first: cells that a head leads to are there.
    pub(super) fn copy<M: Medium>(&mut self, table: &Table<M>, tile: u64, number: u64) {
        let format = &table.format;
        self.heads.clear();
        self.heads.extend(table.heads_of(number).map(|(.., head)| head));
        self.keys.resize((format.rows * format.group_len[0]) as usize, 0);
        table.medium().read(format.group_at(tile, 0, 0), &mut self.keys);
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
            let start = (index * group_len) as usize;
            (is_there || claim.as_pending().is_some())
                .then(|| (index, committed, claim, &self.keys[start..start + group_len as usize]))
        })
    }
}

impl<M: Medium> Table<M> {
    /// Whether an index has all rows.
    #[inline(always)]
    pub(crate) fn has_all_rows(&self, index: &Index<M>) -> bool {
        !index.is_rebuilt || self.rebuilding.is_done()
    }

    /// Calls `visit` with the rows that may have a key in an index until it returns something:
    /// those that the index leads to, and if it is not rebuilt yet, others. Some are visited twice.
    /// If the index was moved, the other one is read; none, if it was dropped.
    #[inline]
    pub(crate) fn search<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let found = self.search_in(index, key, &mut visit)?;
        // Who was found has the key, whatever index has led there.
        if found.is_some() || index.is_in_use() {
            return Ok(found);
        }
        self.search_moved(index, key, visit)
    }

    #[cold]
    fn search_moved<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let mut next = self.moved_to(index);
        while let Some(index) = next {
            let found = self.search_in(&index, key, &mut visit)?;
            if found.is_some() || index.is_in_use() {
                return Ok(found);
            }
            next = self.moved_to(&index);
        }
        Ok(None)
    }

    #[inline]
    fn search_in<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        // Before the index is read: what is done afterwards is not in it yet.
        let is_done = self.has_all_rows(index);
        for row in index.candidates(key)? {
            let result = visit(row)?;
            if result.is_some() {
                return Ok(result);
            }
        }
        if is_done { Ok(None) } else { self.search_rest(index, key, visit) }
    }

    #[cold]
    fn search_rest<R>(
        &self,
        index: &Index<M>,
        key: &Key,
        mut visit: impl FnMut(RowId) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        self.rebuilding.want();
        let mut copied = Copied::default();
        let mut looked_through = 0;
        let mut found = None;
        'tiles: for number in self.rebuilding.unfinished() {
            looked_through += 1;
            for row in self.rows_of_tile(number, index, key, &mut copied)? {
                found = visit(row)?;
                if found.is_some() {
                    // What had to be looked for is found more quickly the next time.
                    if let Some(taken) = self.rebuilding.take(number) {
                        self.rebuild_tile(taken)?;
                    }
                    break 'tiles;
                }
            }
        }
        self.help_to_rebuild(looked_through)?;
        if found.is_some() {
            return Ok(found);
        }
        // Tiles that were done meanwhile, and what was changed meanwhile.
        for row in index.candidates(key)? {
            let result = visit(row)?;
            if result.is_some() {
                return Ok(result);
            }
        }
        Ok(None)
    }

    /// Who looks through many tiles puts some of them into the indexes. Otherwise, looking through
    /// tiles could take most of the time in which they would be rebuilt.
    fn help_to_rebuild(&self, looked_through: u64) -> Result<()> {
        for _ in 0..looked_through / LOOKED_THROUGH_FOR_ONE {
            let Some(taken) = self.rebuilding.take_any() else { break };
            self.rebuild_tile(taken)?;
        }
        Ok(())
    }

    /// Puts all rows into the indexes in DRAM. Waits for others who do it, too.
    ///
    /// # Errors
    ///
    /// When a tile is damaged, there is no memory left, or the medium met a fault.
    pub(crate) fn rebuild_rest(&self) -> Result<()> {
        while !self.rebuilding.is_done() {
            self.rebuilding.want();
            match self.rebuilding.take_any() {
                Some(tile) => self.rebuild_tile(tile)?,
                // Only damaged tiles are left.
                None if self.rebuilding.progress().0 == 0 => {
                    return self
                        .rebuilding
                        .unfinished()
                        .try_for_each(|number| self.try_rebuild_tile(number));
                }
                None => self.medium().pause(),
            }
        }
        Ok(())
    }

    /// Rows of a tile that may have a key.
    fn rows_of_tile(
        &self,
        number: u64,
        index: &Index<M>,
        key: &Key,
        copied: &mut Copied,
    ) -> Result<Candidates> {
        let tile = self.whole_tile(number)?;
        copied.copy(self, tile, number);
        let (format, spec) = (&self.format, &index.spec);
        let rows = copied.rows(format.group_len[0]).filter(|(_, committed, claim, keys)| {
            let is_in_tile = matches!(committed.state(), State::Present(_));
            let has_key = || index.needs_others || key.is_of(format, spec, [keys, &[]]);
            !is_in_tile || claim.as_pending().is_some() || has_key()
        });
        let first = number << format.shift;
        Ok(rows.filter_map(|(index, ..)| RowId::new(first + index)).collect())
    }

    /// Offset of a tile that is one.
    pub(super) fn whole_tile(&self, number: u64) -> Result<u64> {
        let tile = self.tile(number);
        match self.is_tile(tile, number) {
            true => Ok(tile),
            false => Err(self.damaged(tile, "it leads to a tile, and there is none")),
        }
    }

    /// Puts the rows of a tile into the indexes in DRAM.
    ///
    /// # Errors
    ///
    /// When there is no memory left, or the medium met a fault. A damaged tile stays as it is: who
    /// looks for a row that an index does not lead to is told.
    pub(crate) fn rebuild_tile(&self, taken: TakenTile<'_>) -> Result<()> {
        match self.try_rebuild_tile(taken.number) {
            Ok(()) => taken.finish(),
            Err(error) if error.is_damage() => taken.leave_damaged(),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn try_rebuild_tile(&self, number: u64) -> Result<()> {
        let tile = self.whole_tile(number)?;
        let mut copied = Copied::default();
        copied.copy(self, tile, number);
        // Relaxed: it does not change.
        let opened = self.rebuilding.opened.load(Ordering::Relaxed);
        // Relaxed: who has given this tile back has done so before it was taken.
        let has_parts = self.rebuilding.has_parts.load(Ordering::Relaxed);
        let is_as_opened = |committed: Committed, claim: Claim| {
            let is_old = matches!(committed.state(), State::Present(stamp) if stamp <= opened);
            is_old && claim.as_pending().is_none() && !has_parts
        };
        let (format, first) = (&self.format, number << self.format.shift);
        let set = self.indexes.load();
        for index in set.all().iter().filter(|index| index.is_rebuilt && !index.needs_others) {
            let rows = copied.rows(format.group_len[0]);
            let old = rows.filter(|(_, committed, claim, _)| is_as_opened(*committed, *claim));
            let of_index =
                old.filter_map(|(row, .., keys)| Some((RowId::new(first + row)?, [keys, &[][..]])));
            index.insert_rows(format, of_index)?;
        }
        let needs_others = set.all().iter().any(|index| index.is_rebuilt && index.needs_others);
        let mut damage = None;
        for (row, committed, claim, _) in copied.rows(format.group_len[0]) {
            let is_as_opened = is_as_opened(committed, claim);
            if is_as_opened && !needs_others {
                continue;
            }
            // Somebody may have put it there already.
            let Some(id) = RowId::new(first + row) else { continue };
            let place = RowPlace { tile, index: row };
            let is_left =
                |index: &&Member<M>| index.is_rebuilt && (index.needs_others || !is_as_opened);
            match self.ensure_all_keys(set.all().iter().filter(is_left), id, place) {
                Err(error) if error.is_damage() => {
                    damage.get_or_insert(error);
                }
                done => done?,
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
        let (all, damage) = self.all_keys(row, place, needs_others);
        for cells in &all {
            for index in &indexes {
                self.ensure_key(index, row, key_cells(cells))?;
            }
        }
        damage.map_or(Ok(()), Err)
    }

    /// Puts a row into an index, unless it is there.
    pub(super) fn ensure_key(
        &self,
        index: &Index<M>,
        row: RowId,
        cells: KeyCells<'_>,
    ) -> Result<()> {
        match index.key_of(&self.format, cells) {
            Some(key) => index.rows.ensure(&key, row),
            None => Ok(()),
        }
    }

    /// The cells for keys of all states of a row that can be read, and what is damaged.
    pub(super) fn all_keys(
        &self,
        row: RowId,
        place: RowPlace,
        needs_others: bool,
    ) -> (SmallVec<[[Group; 2]; 4]>, Option<Error>) {
        // Nothing is freed that the row leads to.
        let _pin = self.heap.pin();
        // The claim first: who commits takes it away when the committed state is there.
        let pending = self.claim(place).as_pending().map_or(0, |pending| pending.version);
        let (committed, mut damage) = match self.committed(place).state() {
            State::Version(offset) => (offset, None),
            State::Damaged => (0, Some(self.head_damaged(place))),
            State::Free(_) | State::Present(_) => (0, None),
        };
        let mut all: SmallVec<[[Group; 2]; 4]> = SmallVec::new();
        for newest in [pending, committed].into_iter().filter(|offset| *offset != 0) {
            let (mut next, mut below) = (State::Version(newest), NEWEST);
            while let State::Version(offset) = next {
                let found = self.version_of(offset, row, below).and_then(|version| {
                    all.extend(self.keys_of_versions(place, &[version], needs_others)?);
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
            Ok(keys) => all.push(keys),
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
    fn each_tile_is_taken_once_and_those_that_were_given_back_again() {
        let rebuilding = Rebuilding::of(130);
        let all: Vec<TakenTile<'_>> = std::iter::from_fn(|| rebuilding.take_any()).collect();
        let numbers: Vec<u64> = all.iter().map(|taken| taken.number).collect();
        assert_eq!(numbers, (0..130).collect::<Vec<_>>());
        for taken in all {
            assert!(!rebuilding.is_done());
            match taken.number {
                // As if its thread had panicked.
                129 => drop(taken),
                _ => taken.finish(),
            }
        }
        assert_eq!(rebuilding.unfinished().collect::<Vec<_>>(), [129]);
        assert_eq!(rebuilding.progress(), (1, 130));
        rebuilding.take_any().expect("it was given back").finish();
        assert!(rebuilding.is_done() && rebuilding.take_any().is_none());
    }
}
