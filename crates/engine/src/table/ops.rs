//! Rows: taking a free one, writing its cells, reading them, making room for more.

use std::ops::Range;

use remanent_pmem::heap::layout::SMALL_LEN_MAX;
use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::Table;
pub(crate) use super::cells::Group;
use super::layout::{
    CLAIM, Claim, Committed, HEAD_LEN, KeyCells, Kind, NUMBER, State, TILES_MAX, TilePlace, run_at,
    run_len,
};
use crate::{Error, Result};

/// The message for a head that is none.
pub(crate) const HEAD_DAMAGED: &str = "the head of a row says what it cannot say";

/// A copy of both groups. A clone would copy byte by byte.
#[inline]
pub(crate) fn copy_of(groups: &[Group; 2]) -> [Group; 2] {
    [Group::from_slice(&groups[0]), Group::from_slice(&groups[1])]
}

/// Both groups as [`KeyCells`].
pub(crate) fn key_cells(groups: &[Group; 2]) -> KeyCells<'_> {
    [&groups[0], &groups[1]]
}

/// Both words of a row's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) committed: Committed,
    pub(crate) claim: Claim,
}

/// Where a row lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowPlace {
    pub(crate) tile: u64,
    /// Its number in the tile.
    pub(crate) index: u64,
}

impl<M: Medium> Table<M> {
    /// Where a row lies, if its tile is there.
    #[inline]
    pub(crate) fn place(&self, row: RowId) -> Option<RowPlace> {
        let index = row.get() & ((1 << self.format.shift) - 1);
        let tile = self.find_tile(row.get() >> self.format.shift)?;
        (index < self.format.rows).then_some(RowPlace { tile, index })
    }

    #[inline(always)]
    pub(crate) fn head_at(&self, place: RowPlace) -> u64 {
        self.format.head_at(place.tile, place.index)
    }

    #[inline(always)]
    fn group_at(&self, place: RowPlace, group: usize) -> u64 {
        self.format.group_at(place.tile, place.index, group)
    }

    /// The newest committed state of a row.
    #[inline(always)]
    pub(crate) fn committed(&self, place: RowPlace) -> Committed {
        // Acquire: before the cells; partner of the store in `publish`.
        Committed(self.medium().load(self.head_at(place)))
    }

    /// Both words of a row's head. The claim is read first: who publishes a committed state takes
    /// the claim away last.
    pub(crate) fn head(&self, place: RowPlace) -> Head {
        let claim = self.claim(place);
        Head { committed: self.committed(place), claim }
    }

    /// The error for a row whose head is none.
    #[cold]
    pub(crate) fn head_damaged(&self, place: RowPlace) -> Error {
        self.damaged(self.head_at(place), HEAD_DAMAGED)
    }

    /// Who is changing a row.
    #[inline(always)]
    pub(crate) fn claim(&self, place: RowPlace) -> Claim {
        // Acquire: before the cells; partner of the store in `claim_row`.
        Claim(self.medium().load(self.head_at(place) + CLAIM))
    }

    /// Claims a row, unless it is claimed already; then the error is that claim.
    pub(crate) fn try_claim(&self, place: RowPlace, claim: Claim, opens: u64) -> Result<(), Claim> {
        let at = self.head_at(place) + CLAIM;
        let mut found = self.medium().load(at);
        loop {
            if Claim(found).is_held(opens) {
                return Err(Claim(found));
            }
            // That of a statement of an earlier opening counts for nothing.
            match self.medium().compare_exchange(at, found, claim.0) {
                Ok(_) => return Ok(()),
                Err(other) => found = other,
            }
        }
    }

    /// Says who is changing a row, whose cells are written. Returns the offset of its head, which
    /// is to be flushed if the claim outlives the opening.
    pub(crate) fn claim_row(&self, place: RowPlace, claim: Claim) -> u64 {
        let head = self.head_at(place);
        // Release: after the cells; partner of the load in `claim`.
        self.medium().store(head + CLAIM, claim.0);
        head
    }

    /// Unlocks a row that has exactly this claim. False if it has not: it is to be folded, too.
    pub(crate) fn unlock(&self, place: RowPlace, lock: Claim) -> bool {
        self.replace_claim(place, lock, Claim::NONE)
    }

    /// Has a row that is locked folded when it is unlocked. False if it has another claim by now.
    pub(crate) fn note_to_fold(&self, place: RowPlace, lock: Claim) -> bool {
        self.replace_claim(place, lock, lock.to_fold())
    }

    fn replace_claim(&self, place: RowPlace, claim: Claim, other: Claim) -> bool {
        let at = self.head_at(place) + CLAIM;
        self.medium().compare_exchange(at, claim.0, other.0).is_ok()
    }

    /// Takes the claim of a row away.
    pub(crate) fn give_free(&self, place: RowPlace) {
        self.claim_row(place, Claim::NONE);
    }

    /// Makes a committed state the newest of a row. Returns the offset of its head, which is to be
    /// flushed.
    pub(crate) fn publish(&self, place: RowPlace, committed: Committed) -> u64 {
        let head = self.head_at(place);
        // Release: after the cells; partner of the load in `committed`.
        self.medium().store(head, committed.0);
        head
    }

    /// Has the lines of a row fetched.
    #[inline(always)]
    pub(crate) fn prefetch(&self, place: RowPlace) {
        self.medium().prefetch(self.head_at(place));
        for group in 0..2 {
            let (at, len) = (self.group_at(place, group), self.format.group_len[group]);
            for line in (at & !(LINE_LEN - 1)..at + len).step_by(LINE_LEN as usize) {
                self.medium().prefetch(line);
            }
        }
    }

    /// The cells of a group of a row, as it lies in its tile.
    #[inline]
    pub(crate) fn read_group(&self, place: RowPlace, group: usize) -> Result<Group> {
        let mut cells = SmallVec::from_elem(0, self.format.group_len[group] as usize);
        self.fill_cells(place, group, &mut cells)?;
        Ok(cells)
    }

    /// Reads the cells of a group of a row into room that is used again.
    #[inline]
    pub(crate) fn read_cells(
        &self,
        place: RowPlace,
        group: usize,
        cells: &mut Group,
    ) -> Result<()> {
        cells.resize(self.format.group_len[group] as usize, 0);
        self.fill_cells(place, group, cells)
    }

    /// Reads a group of a row into room of its length in a tile.
    #[inline(always)]
    fn fill_cells(&self, place: RowPlace, group: usize, cells: &mut Group) -> Result<()> {
        self.medium().read(self.group_at(place, group), cells);
        match group == 1 && self.format.cells.has_added() {
            true => self.read_added(place, cells),
            false => Ok(()),
        }
    }

    /// Writes and flushes the cells of a group, which no snapshot reads from the tile.
    pub(crate) fn write_group(&self, place: RowPlace, group: usize, cells: &[u8]) -> Result<()> {
        let (at, len) = (self.group_at(place, group), self.format.group_len[group]);
        self.medium().write(at, &cells[..len as usize]);
        // Flush: fenced by the caller, before the row's head says that they are the newest.
        self.medium().flush(at, len);
        if group == 1 && self.format.cells.has_added() {
            self.write_added(place, cells)?;
            self.flush_added(place);
        }
        Ok(())
    }

    /// Writes the cells of a row that nobody else has.
    pub(crate) fn write_groups(&self, place: RowPlace, groups: [&[u8]; 2]) -> Result<()> {
        for (group, cells) in groups.into_iter().enumerate() {
            let len = self.format.group_len[group] as usize;
            self.medium().write(self.group_at(place, group), &cells[..len]);
        }
        match self.format.cells.has_added() {
            true => self.write_added(place, groups[1]),
            false => Ok(()),
        }
    }

    /// Flushes the cells of a row.
    pub(crate) fn flush_groups(&self, place: RowPlace) {
        for group in 0..2 {
            let len = self.format.group_len[group];
            if len != 0 {
                // Flush: fenced by the caller, together with the record that makes them count.
                self.medium().flush(self.group_at(place, group), len);
            }
        }
        if self.format.cells.has_added() {
            self.flush_added(place);
        }
    }

    /// A free row, which is this thread's alone.
    pub(crate) fn take_row(&self) -> Result<(RowId, RowPlace)> {
        let opens = self.heap.pool().opens();
        let examine = |tile| self.free_rows_of(tile, opens);
        let row = self.free.take(self.medium(), examine, |tile| self.grow(tile))?;
        let row = RowId::new(row).ok_or_else(|| self.too_many_rows())?;
        let place = self.place(row).expect("the table has the row");
        Ok((row, place))
    }

    /// Gives back a row that is free, and takes its claim away.
    pub(crate) fn give_row_back(&self, row: RowId, place: RowPlace) {
        let tile = row.get() >> self.format.shift;
        let release = || self.give_free(place);
        self.free.give_back(self.medium(), row.get(), tile, release);
    }

    #[cold]
    fn too_many_rows(&self) -> Error {
        Error::TooManyRows { table: self.name.clone() }
    }

    /// The free rows of a tile that nobody has used since the pool was opened.
    fn free_rows_of(&self, number: u64, opens: u64) -> Result<Vec<Range<u64>>> {
        let tile = self.tile(number);
        if !self.is_tile(tile, number) {
            return Err(self.damaged(tile, "it leads to a tile, and there is none"));
        }
        let first = number << self.format.shift;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for index in 0..self.format.rows {
            let place = RowPlace { tile, index };
            // The head first: who removes a row takes its claim away last, and gives it back. And
            // last: who settles an inserted row takes its claim away, too.
            let is_free = || matches!(self.committed(place).state(), State::Free(_));
            if !is_free() || self.claim(place).is_held(opens) || !is_free() {
                continue;
            }
            let row = first + index;
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            }
        }
        // They are taken from the end.
        ranges.reverse();
        Ok(ranges)
    }

    /// Makes the tile of this number, and returns its rows. Two fences, and those of the allocator.
    #[cold]
    fn grow(&self, number: u64) -> Result<Range<u64>> {
        let first = number << self.format.shift;
        if number >= TILES_MAX || RowId::new(first + self.format.rows).is_none() {
            return Err(self.too_many_rows());
        }
        match self.try_grow(number) {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.try_grow(number)?;
            }
            result => result?,
        }
        Ok(first..first + self.format.rows)
    }

    fn try_grow(&self, number: u64) -> Result<()> {
        let medium = self.medium();
        let place = TilePlace::of(number);
        let run_at = run_at(self.state, place.run);
        let mut lane = self.heap.enter().prepare_to_write();
        let made = match medium.load(run_at) {
            0 => Some(self.make_block(
                &mut lane,
                Kind::Run,
                u64::from(place.run),
                run_len(place.run),
            )?),
            _ => None,
        };
        let tile = match self.make_block(&mut lane, Kind::Tile, number, self.format.tile_len) {
            Ok(tile) => tile,
            Err(error) => {
                if let Some(run) = made {
                    lane.give_back(run);
                }
                return Err(error);
            }
        };
        // Fence: the blocks, before anything leads to them.
        // Redundant flush: what folding has noted is flushed before its blocks are freed, too.
        lane.fence();
        let run = made.map_or_else(|| medium.load(run_at), |run| run.offset);
        medium.store(place.at(run), tile.offset);
        // Flush: fenced below.
        medium.flush(place.at(run), WORD_LEN);
        medium.store(run_at, run);
        // Flush and fence: before another thread's row in the tile is acknowledged.
        // Redundant fence: for this thread alone, whose statement will fence.
        medium.persist(run_at, WORD_LEN);
        self.heap.verify()?;
        Ok(())
    }

    /// Allocates a block with this head and zeros behind it, and flushes it.
    fn make_block(
        &self,
        lane: &mut Lane<'_, M>,
        kind: Kind,
        number: u64,
        len: u64,
    ) -> Result<Block> {
        let medium = self.medium();
        let block = if len <= SMALL_LEN_MAX {
            let block = lane.allocate(len)?;
            medium.write_zeros(block.offset, len);
            // Flush: fenced by the caller.
            // Redundant: but where the block was used before; short runs use none again.
            medium.flush(block.offset, len);
            block
        } else {
            lane.allocate_zeroed(len)?
        };
        medium.store(block.offset, kind.tag(self.number));
        medium.store(block.offset + NUMBER, number);
        // Flush: fenced by the caller.
        medium.flush(block.offset, 2 * WORD_LEN);
        Ok(block)
    }

    /// Every row of a tile, with its head.
    pub(crate) fn heads_of(&self, number: u64) -> impl Iterator<Item = (RowId, RowPlace, Head)> {
        let (tile, first) = (self.tile(number), number << self.format.shift);
        (0..self.format.rows).filter_map(move |index| {
            let place = RowPlace { tile, index };
            Some((RowId::new(first + index)?, place, self.head(place)))
        })
    }

    /// Calls `visit` with every row that is not free, or that somebody may have inserted, until it
    /// returns false.
    pub(crate) fn for_each_row(
        &self,
        mut visit: impl FnMut(RowId, RowPlace, Committed) -> Result<bool>,
    ) -> Result<()> {
        for number in 0..self.tile_count() {
            let (tile, first) = (self.tile(number), number << self.format.shift);
            for index in 0..self.format.rows {
                let place = RowPlace { tile, index };
                let is_claimed = self.claim(place) != Claim::NONE;
                let committed = self.committed(place);
                if matches!(committed.state(), State::Free(_)) && !is_claimed {
                    continue;
                }
                // A faulty medium reads as zeros: not a row of those is shown.
                self.heap.verify()?;
                let Some(row) = RowId::new(first + index) else { return Ok(()) };
                if !visit(row, place, committed)? {
                    return Ok(self.heap.verify()?);
                }
            }
        }
        Ok(self.heap.verify()?)
    }

    /// Bytes of a row's head, for who flushes it.
    pub(crate) fn flush_head(&self, place: RowPlace) {
        // Flush: fenced by the caller.
        self.medium().flush(self.head_at(place), HEAD_LEN);
    }
}
