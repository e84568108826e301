//! Versions: what a row became after it was inserted.
//!
//! ```text
//! version   0  tag, number of the table             24  checksum of all but the state before it
//!           8  the committed state before it        32  row (36 bits), what it has (4 bits)
//!          16  stamp of the commit                  40  cells of the groups that it has
//! ```
//!
//! The head of a row leads to its newest version, and each to the one before it; the last state is
//! that in the tile. A group of cells that a version does not have is the one of the state before.
//! Once every snapshot sees a version, it is folded into the tile with those before it, and they
//! are freed. The one after them leads to the tile then. Nothing else of a version changes.
//!
//! Blocks begin at multiples of 32 bytes, so the first four words are in one line. The checksum is
//! stored last: if it has arrived, so has the state before it.

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Medium, WORD_LEN};
use remanent_structures::RowId;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::Table;
use super::layout::{Committed, Kind, State};
use super::ops::{Group, RowPlace};
use crate::Result;
use crate::transaction::recover::Completed;

const PREVIOUS: u64 = WORD_LEN;
const STAMP: u64 = 2 * WORD_LEN;
const CHECKSUM: u64 = 3 * WORD_LEN;
const ROW: u64 = 4 * WORD_LEN;
const CELLS: u64 = 5 * WORD_LEN;

const ROW_BITS: u32 = 36;
/// A bit for each group that it has, above the row.
const GROUPS_SHIFT: u32 = 60;
/// The row was removed.
const REMOVAL: u64 = 1 << 62;

/// A version, but for its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) offset: u64,
    pub(crate) row: RowId,
    pub(crate) stamp: u64,
    pub(crate) previous: Committed,
    pub(crate) has: [bool; 2],
    pub(crate) is_removal: bool,
}

/// Where the cells of a row are, as a snapshot sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// In the tile.
    InTile,
    /// In this version, and those before it.
    In(Version),
}

impl Version {
    fn row_word(self) -> u64 {
        let groups = u64::from(self.has[0]) | u64::from(self.has[1]) << 1;
        self.row.get() | groups << GROUPS_SHIFT | if self.is_removal { REMOVAL } else { 0 }
    }
}

impl<M: Medium> Table<M> {
    /// Bytes of a version with these groups.
    fn version_len(&self, has: [bool; 2]) -> u64 {
        CELLS
            + (0..2)
                .filter(|&group| has[group])
                .map(|group| self.format.group_len[group])
                .sum::<u64>()
    }

    /// Where a group of cells begins that a version has.
    fn cells_at(&self, version: Version, group: usize) -> u64 {
        let before = if group == 1 && version.has[0] { self.format.group_len[0] } else { 0 };
        version.offset + CELLS + before
    }

    /// Allocates a version with these groups.
    pub(crate) fn allocate_version(&self, lane: &mut Lane<'_, M>, has: [bool; 2]) -> Result<Block> {
        Ok(lane.allocate(self.version_len(has))?)
    }

    /// Writes and flushes a version. Returns its checksum.
    pub(crate) fn write_version(&self, version: Version, groups: [&[u8]; 2]) -> u32 {
        let (medium, at) = (self.medium(), version.offset);
        medium.store(at, Kind::Version.tag(self.number));
        medium.store(at + ROW, version.row_word());
        medium.store(at + STAMP, version.stamp);
        medium.store(at + PREVIOUS, version.previous.0);
        for group in (0..2).filter(|&group| version.has[group]) {
            medium.write(self.cells_at(version, group), groups[group]);
        }
        let checksum = self.version_checksum(version);
        // Release: after the state before it, in the line's order of stores. Partner of
        // `arrived_version`.
        medium.store(at + CHECKSUM, checksum);
        // Flush: fenced by the caller, together with the record that makes it count.
        medium.flush(at, self.version_len(version.has));
        checksum as u32
    }

    fn version_checksum(&self, version: Version) -> u64 {
        // Without the state before it, which folding replaces.
        let words = [u64::from(self.number), version.row_word(), version.stamp];
        let mut bytes: SmallVec<[u8; 256]> =
            words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for group in (0..2).filter(|&group| version.has[group]) {
            bytes.extend_from_slice(&self.version_cells(version, group));
        }
        xxh3_64(&bytes)
    }

    fn version_cells(&self, version: Version, group: usize) -> Group {
        let mut cells = SmallVec::from_elem(0, self.format.group_len[group] as usize);
        self.medium().read(self.cells_at(version, group), &mut cells);
        cells
    }

    /// The cells of a group that a version has; `None` if it has not.
    pub(crate) fn own_group(&self, version: Version, group: usize) -> Option<Group> {
        version.has[group].then(|| self.version_cells(version, group))
    }

    /// The version at `offset`; `None` when there is none of this table.
    pub(crate) fn version(&self, offset: u64) -> Option<Version> {
        let medium = self.medium();
        let is_inside = |len: u64| offset.checked_add(len).is_some_and(|end| end <= medium.len());
        if !offset.is_multiple_of(WORD_LEN)
            || !is_inside(CELLS)
            || medium.load(offset) != Kind::Version.tag(self.number)
        {
            return None;
        }
        let word = medium.load(offset + ROW);
        let version = Version {
            offset,
            row: RowId::new(word & ((1 << ROW_BITS) - 1))?,
            stamp: medium.load(offset + STAMP),
            previous: Committed(medium.load(offset + PREVIOUS)),
            has: [word >> GROUPS_SHIFT & 1 != 0, word >> (GROUPS_SHIFT + 1) & 1 != 0],
            is_removal: word & REMOVAL != 0,
        };
        (version.row_word() == word && is_inside(self.version_len(version.has))).then_some(version)
    }

    /// The version at `offset` if all of it has arrived, as its own checksum says and as a record
    /// says.
    pub(crate) fn arrived_version(&self, offset: u64, row: RowId, content: u32) -> Option<Version> {
        let version = self.version(offset)?;
        let checksum = self.medium().load(offset + CHECKSUM);
        let is_whole = version.row == row
            && checksum as u32 == content
            && checksum == self.version_checksum(version);
        is_whole.then_some(version)
    }

    /// Has a version lead to the tile, where all states before it are folded. Returns the offset of
    /// what is to be flushed.
    pub(crate) fn end_chain_at(&self, version: Version, committed: Committed) -> u64 {
        let at = version.offset + PREVIOUS;
        self.medium().store(at, committed.0);
        at
    }

    /// Flushes a version that a killed process may have left in the caches.
    pub(crate) fn flush_version(&self, version: Version) {
        // Flush: fenced by the caller.
        // Redundant: but where a process was killed before, and the power fails later.
        self.medium().flush(version.offset, self.version_len(version.has));
    }

    /// The version that a committed state leads to, which has to be older than `below`.
    pub(crate) fn version_of(&self, offset: u64, row: RowId, below: u64) -> Result<Version> {
        match self.version(offset) {
            Some(version) if version.row == row && version.stamp < below => Ok(version),
            _ => Err(self.damaged(offset, "a row leads to no version of it")),
        }
    }

    /// The stamp of a committed state.
    pub(crate) fn stamp_of(&self, committed: Committed) -> u64 {
        match committed.state() {
            State::Free(stamp) | State::Present(stamp) => stamp,
            State::Version(offset) => self.version(offset).map_or(0, |version| version.stamp),
            State::Damaged => 0,
        }
    }

    /// What a snapshot with this stamp sees of a row; `None` when it sees none. The caller has a
    /// pin, or the row's claim.
    #[inline]
    pub(crate) fn seen(&self, row: RowId, place: RowPlace, stamp: u64) -> Result<Option<Seen>> {
        let mut committed = self.committed(place);
        let mut below = u64::MAX;
        loop {
            match committed.state() {
                State::Present(of) => return Ok((of <= stamp).then_some(Seen::InTile)),
                State::Free(_) => return Ok(None),
                State::Version(offset) => {
                    let version = self.version_of(offset, row, below)?;
                    if version.stamp <= stamp {
                        return Ok((!version.is_removal).then_some(Seen::In(version)));
                    }
                    (committed, below) = (version.previous, version.stamp);
                }
                State::Damaged => return Err(self.head_damaged(place)),
            }
        }
    }

    /// The cells of a group, of a row that is seen there.
    #[inline]
    pub(crate) fn group_of(&self, place: RowPlace, seen: Seen, group: usize) -> Result<Group> {
        let Seen::In(mut version) = seen else { return Ok(self.read_group(place, group)) };
        loop {
            if version.has[group] {
                return Ok(self.version_cells(version, group));
            }
            match version.previous.state() {
                State::Present(_) => return Ok(self.read_group(place, group)),
                State::Version(offset) => {
                    version = self.version_of(offset, version.row, version.stamp)?;
                }
                State::Free(_) | State::Damaged => return Err(self.head_damaged(place)),
            }
        }
    }

    /// A version, and all before it, from the newest to the oldest.
    pub(crate) fn chain(&self, newest: Version) -> Result<SmallVec<[Version; 4]>> {
        let mut chain = SmallVec::from_elem(newest, 1);
        let mut last = newest;
        while let State::Version(offset) = last.previous.state() {
            last = self.version_of(offset, last.row, last.stamp)?;
            chain.push(last);
        }
        Ok(chain)
    }

    /// Whether a row leads to a block that says that it is a version of this table, once statements
    /// are completed.
    pub(crate) fn leads_to_version(&self, offset: u64, completed: &Completed) -> Result<bool> {
        let Some(version) = self.version(offset) else { return Ok(false) };
        let Some(place) = self.place(version.row) else { return Ok(false) };
        // Redundant: but where a process was killed before, and the power fails later.
        self.flush_head(place);
        let committed = completed.state(self.number, version.row);
        let committed = committed.unwrap_or_else(|| self.committed(place));
        let State::Version(newest) = committed.state() else { return Ok(false) };
        let chain = self.chain(self.version_of(newest, version.row, u64::MAX)?)?;
        for version in &chain {
            // Folding may have cut the chain.
            self.flush_version(*version);
        }
        Ok(chain.iter().any(|of_row| of_row.offset == offset))
    }
}
