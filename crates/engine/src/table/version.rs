//! Versions: what a row became after it was inserted.
//!
//! ```text
//! version   0  tag, number of the table             24  checksum of all but the state before it
//!           8  the state before it                  32  row (36 bits), number of the statement in
//!          16  stamp of the commit; until then,         its transaction (24), what it has (4)
//!              the transaction                      40  cells of the groups that it has
//! ```
//!
//! If the second group has cells of added columns, the number of their bytes is at 40, and all
//! cells come behind it.
//!
//! The head of a row leads to its newest version, and each to the one before it; the last state is
//! that in the tile. A group of cells that a version does not have is the one of the state before.
//! Once every snapshot sees a version, it is folded into the tile with those before it, and they
//! are freed. The one after them leads to the tile then.
//!
//! A transaction of several statements does not know its stamp when it writes versions. They name
//! it instead, and get the stamp when it has committed; meanwhile its slot tells it. Nothing else
//! of a version changes.
//!
//! Blocks begin at multiples of 32 bytes, so the first four words are in one line. The checksum is
//! stored last: if it has arrived, so has the state before it.

use remanent_pmem::heap::{Block, Lane};
use remanent_pmem::{Medium, WORD_LEN};
use remanent_structures::RowId;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::Table;
use super::layout::{Claim, Committed, Kind, Pending, State};
use super::ops::{Group, RowPlace};
use crate::Result;
use crate::transaction::layout::{Identity, TransactionId};
use crate::transaction::recover::Completed;
use crate::transaction::statuses::Fate;
use crate::transaction::unwritten::Made;
use crate::transaction::view::View;

const PREVIOUS: u64 = WORD_LEN;
const STAMP: u64 = 2 * WORD_LEN;
const CHECKSUM: u64 = 3 * WORD_LEN;
const ROW: u64 = 4 * WORD_LEN;
const CELLS: u64 = 5 * WORD_LEN;

const ROW_BITS: u32 = 36;
const STATEMENT_SHIFT: u32 = ROW_BITS;
const STATEMENT: u64 = (1 << (GROUPS_SHIFT - STATEMENT_SHIFT)) - 1;
/// A bit for each group that it has, above the row.
const GROUPS_SHIFT: u32 = 60;
/// The row was removed.
const REMOVAL: u64 = 1 << 62;
/// It has cells of added columns.
const HAS_ADDED: u64 = 1 << 63;

/// A version, but for its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) offset: u64,
    pub(crate) row: RowId,
    /// Stamp of its commit; [`UNCOMMITTED`] if there was none yet.
    pub(crate) stamp: u64,
    /// Number of its statement in the transaction.
    pub(crate) statement: u32,
    pub(crate) previous: Committed,
    pub(crate) has: [bool; 2],
    /// Bytes of added columns in the second group that it has.
    pub(crate) added_len: u64,
    pub(crate) is_removal: bool,
}

/// The stamp of versions that are not committed: greater than any.
pub(crate) const UNCOMMITTED: u64 = u64::MAX - 1;

/// A place in a row's chain of versions, which goes to ever smaller ones: stamp and statement.
pub(crate) type Order = (u64, u32);

/// Behind every version.
pub(crate) const NEWEST: Order = (u64::MAX, u32::MAX);

/// Where the cells of a row are, as a snapshot sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// In the tile.
    InTile,
    /// In this version, and those before it.
    In(Version),
    /// Not written yet, by the transaction that has this slot.
    Unwritten { slot: u32, row: RowId },
}

impl Version {
    fn row_word(self) -> u64 {
        let groups = u64::from(self.has[0]) | u64::from(self.has[1]) << 1;
        let statement = u64::from(self.statement) << STATEMENT_SHIFT;
        let removal = if self.is_removal { REMOVAL } else { 0 };
        let added = if self.added_len == 0 { 0 } else { HAS_ADDED };
        self.row.get() | statement | groups << GROUPS_SHIFT | removal | added
    }

    /// Where it stands among the versions of its row.
    pub(crate) fn order(self) -> Order {
        (self.stamp, self.statement)
    }
}

impl<M: Medium> Table<M> {
    /// Bytes of a version with these groups, and so many bytes of added columns.
    fn version_len(&self, has: [bool; 2], added_len: u64) -> u64 {
        let groups = (0..2).filter(|&group| has[group]).map(|group| self.format.group_len[group]);
        let of_added = if added_len == 0 { 0 } else { WORD_LEN + added_len };
        CELLS + groups.sum::<u64>() + of_added
    }

    /// Bytes of a group of cells that a version has.
    fn cells_len(&self, version: Version, group: usize) -> u64 {
        let added_len = if group == 1 { version.added_len } else { 0 };
        self.format.group_len[group] + added_len
    }

    /// Where a group of cells begins that a version has.
    fn cells_at(&self, version: Version, group: usize) -> u64 {
        let len_of_added = if version.added_len == 0 { 0 } else { WORD_LEN };
        let before = if group == 1 && version.has[0] { self.format.group_len[0] } else { 0 };
        version.offset + CELLS + len_of_added + before
    }

    /// Bytes of added columns that a version with these groups has.
    pub(crate) fn added_len_of(&self, has: [bool; 2], groups: [&[u8]; 2]) -> u64 {
        match has[1] {
            true => groups[1].len() as u64 - self.format.group_len[1],
            false => 0,
        }
    }

    /// Allocates a version with these groups, and so many bytes of added columns.
    pub(crate) fn allocate_version(
        &self,
        lane: &mut Lane<'_, M>,
        has: [bool; 2],
        added_len: u64,
    ) -> Result<Block> {
        Ok(lane.allocate(self.version_len(has, added_len))?)
    }

    /// Writes and flushes a version. Returns its checksum.
    pub(crate) fn write_version(
        &self,
        version: Version,
        identity: Identity,
        groups: [&[u8]; 2],
    ) -> u32 {
        let (medium, at) = (self.medium(), version.offset);
        medium.store(at, Kind::Version.tag(self.number));
        medium.store(at + ROW, version.row_word());
        medium.store(at + STAMP, identity.stamp);
        medium.store(at + PREVIOUS, version.previous.0);
        if version.added_len != 0 {
            medium.store(at + CELLS, version.added_len);
        }
        for group in (0..2).filter(|&group| version.has[group]) {
            medium.write(self.cells_at(version, group), groups[group]);
        }
        let checksum = self.version_checksum(version, identity);
        // Release: after the state before it, in the line's order of stores. Partner of
        // `arrived_version`.
        medium.store(at + CHECKSUM, checksum);
        // Flush: fenced by the caller, together with the record that makes it count.
        medium.flush(at, self.version_len(version.has, version.added_len));
        checksum as u32
    }

    /// Without the state before it, which folding replaces.
    fn version_checksum(&self, version: Version, identity: Identity) -> u64 {
        let Identity { stamp, opening } = identity;
        let words = [u64::from(self.number), version.row_word(), stamp, u64::from(opening)];
        let mut bytes: SmallVec<[u8; 256]> =
            words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for group in (0..2).filter(|&group| version.has[group]) {
            bytes.extend_from_slice(&self.version_cells(version, group));
        }
        xxh3_64(&bytes)
    }

    fn version_cells(&self, version: Version, group: usize) -> Group {
        let mut cells = SmallVec::from_elem(0, self.cells_len(version, group) as usize);
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
            || !is_inside(CELLS + WORD_LEN)
            || medium.load(offset) != Kind::Version.tag(self.number)
        {
            return None;
        }
        let word = medium.load(offset + ROW);
        let has_added = word & HAS_ADDED != 0;
        let added_len = if has_added { medium.load(offset + CELLS) } else { 0 };
        if has_added && !self.format.cells.is_end_of_added(added_len) {
            return None;
        }
        let version = Version {
            offset,
            row: RowId::new(word & ((1 << ROW_BITS) - 1))?,
            stamp: self.version_stamp(offset),
            statement: (word >> STATEMENT_SHIFT & STATEMENT) as u32,
            previous: Committed(medium.load(offset + PREVIOUS)),
            has: [word >> GROUPS_SHIFT & 1 != 0, word >> (GROUPS_SHIFT + 1) & 1 != 0],
            added_len,
            is_removal: word & REMOVAL != 0,
        };
        let len = self.version_len(version.has, added_len);
        (version.row_word() == word && is_inside(len)).then_some(version)
    }

    /// The stamp of the version at `offset`, which may have to be asked from its transaction.
    #[inline]
    fn version_stamp(&self, offset: u64) -> u64 {
        let mut word = self.medium().load(offset + STAMP);
        while let Some(id) = TransactionId::of_stamp(word) {
            let fate = self.statuses.fate(id.short());
            // If its slot was used for others meanwhile, the version says it itself.
            let again = self.medium().load(offset + STAMP);
            if again == word {
                return match fate {
                    Some(Fate::Committed(stamp)) => stamp,
                    _ => UNCOMMITTED,
                };
            }
            word = again;
        }
        word
    }

    /// Has versions say their stamps whose transactions have committed: this one and those before
    /// it, up to one with another stamp than `only`. Calls `changed` with what is to be flushed.
    pub(crate) fn stamp_versions(
        &self,
        row: RowId,
        newest: u64,
        only: Option<u64>,
        mut changed: impl FnMut(u64),
    ) {
        let (mut next, mut below) = (State::Version(newest), NEWEST);
        while let State::Version(offset) = next
            && let Ok(version) = self.version_of(offset, row, below)
            && only.is_none_or(|stamp| stamp == version.stamp)
        {
            if version.stamp != UNCOMMITTED && self.is_unstamped(offset) {
                // Release: partner of the load in `version_stamp`.
                self.medium().store(offset + STAMP, version.stamp);
            }
            changed(offset + STAMP);
            (next, below) = (version.previous.state(), version.order());
        }
    }

    /// Whether a version names its transaction instead of a stamp.
    fn is_unstamped(&self, offset: u64) -> bool {
        TransactionId::of_stamp(self.medium().load(offset + STAMP)).is_some()
    }

    /// The version at `offset` if all of it has arrived, as its own checksum says and as a record
    /// says.
    pub(crate) fn arrived_version(
        &self,
        offset: u64,
        row: RowId,
        content: u32,
        identity: Identity,
    ) -> Option<Version> {
        let version = self.version(offset)?;
        let checksum = self.medium().load(offset + CHECKSUM);
        let is_whole = version.row == row
            && checksum as u32 == content
            && checksum == self.version_checksum(version, identity);
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
        let len = self.version_len(version.has, version.added_len);
        // Flush: fenced by the caller.
        // Redundant: but where a process was killed before, and the power fails later.
        self.medium().flush(version.offset, len);
    }

    /// The version that a state leads to, which has to stand before `below`.
    pub(crate) fn version_of(&self, offset: u64, row: RowId, below: Order) -> Result<Version> {
        match self.version(offset) {
            Some(version) if version.row == row && version.order() < below => Ok(version),
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

    /// What a transaction or a snapshot sees of a row; `None` when it sees none. The caller has a
    /// pin, or the row's claim.
    #[inline]
    pub(crate) fn seen(&self, row: RowId, place: RowPlace, view: View) -> Result<Option<Seen>> {
        if let Some(own) = view.own
            && let Some(seen) = self.seen_unwritten(row, own.slot)
        {
            return Ok(seen);
        }
        // The claim first: who commits takes it away when the committed state is there.
        if let Some(pending) = self.claim(place).as_pending()
            && let Some(seen) = self.seen_pending(row, place, pending, view)?
        {
            return Ok(seen);
        }
        let mut committed = self.committed(place);
        let mut below = NEWEST;
        loop {
            match committed.state() {
                State::Present(of) => return Ok((of <= view.stamp).then_some(Seen::InTile)),
                State::Free(_) => return Ok(None),
                State::Version(offset) => {
                    let version = self.version_of(offset, row, below)?;
                    if version.stamp <= view.stamp {
                        return Ok((!version.is_removal).then_some(Seen::In(version)));
                    }
                    (committed, below) = (version.previous, version.order());
                }
                State::Damaged => return Err(self.head_damaged(place)),
            }
        }
    }

    /// What the transaction of a slot sees of a row that it has changed and not written; `None` if
    /// it has not.
    #[inline]
    fn seen_unwritten(&self, row: RowId, slot: u32) -> Option<Option<Seen>> {
        let (unwritten, name) = (&self.statuses.unwritten, (self.number, row));
        let is_there = unwritten.get(self.medium(), slot, name, |made| made.newest().is_some())?;
        Some(is_there.then_some(Seen::Unwritten { slot, row }))
    }

    /// The cells of a group of a row that the transaction of a slot has changed and not written.
    #[cold]
    fn unwritten_group(&self, slot: u32, row: RowId, group: usize) -> Group {
        let cells = |made: &Made| made.newest().as_ref().map(|cells| cells[group].clone());
        let (unwritten, name) = (&self.statuses.unwritten, (self.number, row));
        let found = unwritten.get(self.medium(), slot, name, cells);
        found.flatten().expect("its transaction alone sees it, and takes nothing back meanwhile")
    }

    /// What is seen of a row that a transaction has changed; `None` if that is not seen.
    #[cold]
    fn seen_pending(
        &self,
        row: RowId,
        place: RowPlace,
        pending: Pending,
        view: View,
    ) -> Result<Option<Option<Seen>>> {
        let fate = self.statuses.fate(pending.by);
        if self.claim(place) != Claim::pending(pending) {
            // It has ended meanwhile: the committed state says so, and its slot may be another's.
            return Ok(None);
        }
        let is_seen = match fate {
            Some(Fate::Open) => view.own.is_some_and(|id| id.short() == pending.by),
            Some(Fate::Committed(stamp)) => stamp <= view.stamp,
            Some(Fate::Aborted) | None => false,
        };
        if !is_seen {
            return Ok(None);
        }
        if pending.version == 0 {
            return Ok(Some(Some(Seen::InTile)));
        }
        let version = self.version_of(pending.version, row, NEWEST)?;
        Ok(Some((!version.is_removal).then_some(Seen::In(version))))
    }

    /// The cells of a group, of a row that is seen there.
    #[inline]
    pub(crate) fn group_of(&self, place: RowPlace, seen: Seen, group: usize) -> Result<Group> {
        let mut version = match seen {
            Seen::In(version) => version,
            Seen::InTile => return self.read_group(place, group),
            Seen::Unwritten { slot, row } => return Ok(self.unwritten_group(slot, row, group)),
        };
        loop {
            if version.has[group] {
                return Ok(self.version_cells(version, group));
            }
            match version.previous.state() {
                State::Present(_) => return self.read_group(place, group),
                State::Version(offset) => {
                    version = self.version_of(offset, version.row, version.order())?;
                }
                State::Free(_) | State::Damaged => return Err(self.head_damaged(place)),
            }
        }
    }

    /// The cells from which keys are read, of a row that is seen there: the first group, and the
    /// second one if it is needed.
    #[inline]
    pub(crate) fn key_groups(
        &self,
        place: RowPlace,
        seen: Seen,
        needs_others: bool,
    ) -> Result<[Group; 2]> {
        let others = match needs_others {
            true => self.group_of(place, seen, 1)?,
            false => Group::new(),
        };
        Ok([self.group_of(place, seen, 0)?, others])
    }

    /// The same, of a row as it lies in its tile.
    pub(crate) fn key_groups_in_tile(
        &self,
        place: RowPlace,
        needs_others: bool,
    ) -> Result<[Group; 2]> {
        let others = if needs_others { self.read_group(place, 1)? } else { Group::new() };
        Ok([self.read_group(place, 0)?, others])
    }

    /// The cells from which keys are read, of states that these versions of one row have. Without
    /// the second group, those that have the keys of another one are left out.
    pub(crate) fn keys_of_versions(
        &self,
        place: RowPlace,
        versions: &[Version],
        needs_others: bool,
    ) -> Result<SmallVec<[[Group; 2]; 2]>> {
        if needs_others {
            let of_version = |of: &Version| self.key_groups(place, Seen::In(*of), true);
            return versions.iter().map(of_version).collect();
        }
        let keys = versions.iter().filter_map(|of| self.own_group(*of, 0));
        Ok(keys.map(|keys| [keys, Group::new()]).collect())
    }

    /// Reads the cells of a group, of a row that is seen there, into room that is used again.
    pub(crate) fn read_seen(
        &self,
        place: RowPlace,
        seen: Seen,
        group: usize,
        cells: &mut Group,
    ) -> Result<()> {
        let mut version = match seen {
            Seen::In(version) => version,
            Seen::InTile => return self.read_cells(place, group, cells),
            Seen::Unwritten { slot, row } => {
                *cells = self.unwritten_group(slot, row, group);
                return Ok(());
            }
        };
        while !version.has[group] {
            match version.previous.state() {
                State::Present(_) => return self.read_cells(place, group, cells),
                State::Version(offset) => {
                    version = self.version_of(offset, version.row, version.order())?;
                }
                State::Free(_) | State::Damaged => return Err(self.head_damaged(place)),
            }
        }
        cells.resize(self.cells_len(version, group) as usize, 0);
        self.medium().read(self.cells_at(version, group), cells);
        Ok(())
    }

    /// A version, and all before it, from the newest to the oldest.
    pub(crate) fn chain(&self, newest: Version) -> Result<SmallVec<[Version; 4]>> {
        let mut chain = SmallVec::from_elem(newest, 1);
        let mut last = newest;
        while let State::Version(offset) = last.previous.state() {
            last = self.version_of(offset, last.row, last.order())?;
            chain.push(last);
        }
        Ok(chain)
    }

    /// The versions of a row that its open transaction has written, from the newest to the oldest,
    /// and the statement by which the transaction has inserted the row, if it has.
    pub(crate) fn pending_versions(
        &self,
        row: RowId,
        pending: Pending,
    ) -> Result<(SmallVec<[Version; 4]>, Option<u32>)> {
        let mut versions = SmallVec::new();
        if pending.version == 0 {
            return Ok((versions, Some(pending.inserted_by)));
        }
        let mut last = self.version_of(pending.version, row, NEWEST)?;
        loop {
            let is_own = |version: Version| {
                let word = self.medium().load(version.offset + STAMP);
                TransactionId::of_stamp(word).is_some_and(|id| id.short() == pending.by)
            };
            versions.push(last);
            match last.previous.state() {
                State::Version(offset) => {
                    let before = self.version_of(offset, row, last.order())?;
                    if !is_own(before) {
                        return Ok((versions, None));
                    }
                    last = before;
                }
                _ => return Ok((versions, last.previous.inserted_by())),
            }
        }
    }

    /// Whether a row leads to a block that says that it is a version of this table, once statements
    /// are completed.
    pub(crate) fn leads_to_version(&self, offset: u64, completed: &Completed) -> Result<bool> {
        let Some(version) = self.version(offset) else { return Ok(false) };
        let Some(place) = self.place(version.row) else { return Ok(false) };
        // Read first: a processor may take a flushed line out of its caches.
        let head = completed.head(self, version.row, place);
        // Redundant: but where a process was killed before, and the power fails later.
        self.flush_head(place);
        let mut newest: SmallVec<[u64; 2]> = SmallVec::new();
        if let State::Version(of_row) = head.committed.state() {
            newest.push(of_row);
        }
        newest.extend(head.claim.as_pending().map(|pending| pending.version).filter(|at| *at != 0));
        let mut is_found = false;
        for of_row in newest {
            for version in self.chain(self.version_of(of_row, version.row, NEWEST)?)? {
                // Folding may have cut the chain.
                self.flush_version(version);
                is_found |= version.offset == offset;
            }
        }
        Ok(is_found)
    }
}
