//! Extensions of tiles: room for the cells of columns that were added to a table.
//!
//! ```text
//! extension   0  tag, number of the table             64  for each row of the tile: its cells of
//!             8  number of the tile                       added columns, filled up with zeros to a
//!            16  bytes of a row's cells; in the           multiple of 8 bytes
//!                upper half, their complement
//! ```
//!
//! A tile has no extension until one of its rows is to have something else than the defaults. It is
//! made with the cells of all columns that there are then. When a row is to have a cell of a column
//! that was added later, another one takes its place: all cells are copied, the tile's word is
//! exchanged, and the old one is freed once no reader has it. What an extension has no room for is
//! the default.
//!
//! A statement makes room before it writes a version. So folding finds it.
//!
//! Who writes cells, and who exchanges the extension, holds the tile's lock. A lane is entered
//! before that, because entering may wait for others.

use remanent_pmem::heap::Lane;
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};
use smallvec::SmallVec;

use super::Table;
use super::cells::Group;
use super::layout::{EXTENSION, Kind, NUMBER};
use super::ops::RowPlace;
use crate::Result;

/// In an extension: bytes of a row's cells, and their complement.
const LEN: u64 = 2 * WORD_LEN;
const HEAD_LEN: u64 = LINE_LEN;

/// Locks of a table's tiles: several tiles share one.
const LOCKS: u64 = 16;

/// Held by who writes to the extension of a tile, or exchanges it.
pub(crate) struct TileLocks(Box<[TileLock]>);

/// In a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct TileLock(PauseMutex<()>);

impl TileLocks {
    pub(super) fn new() -> Self {
        TileLocks((0..LOCKS).map(|_| TileLock::default()).collect())
    }
}

/// The extension of a tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extension {
    pub(super) offset: u64,
    /// Bytes of a row's cells.
    pub(super) len: u64,
}

/// The word that says how many bytes a row's cells have. If it were believed as it is, one bit that
/// changes would shift the cells of all rows of a tile.
fn len_word(len: u64) -> u64 {
    u64::from(!(len as u32)) << 32 | len
}

impl Extension {
    /// Bytes from one row's cells to the next one's.
    fn stride(self) -> u64 {
        self.len.next_multiple_of(WORD_LEN)
    }

    fn cells_at(self, row: u64) -> u64 {
        self.offset + HEAD_LEN + row * self.stride()
    }
}

impl<M: Medium> Table<M> {
    fn lock_tile(&self, tile: u64) -> PauseGuard<'_, ()> {
        // Tiles begin with chunks.
        let TileLocks(locks) = &self.tile_locks;
        locks[((tile >> 16) % LOCKS) as usize].0.lock(self.medium())
    }

    /// The extension of a tile, if it has one. The caller has a pin, or the tile's lock.
    ///
    /// # Errors
    ///
    /// When the tile leads to something else.
    pub(super) fn extension(&self, tile: u64) -> Result<Option<Extension>> {
        let medium = self.medium();
        // Acquire: before the cells; partner of the store in `extend_tile`.
        let offset = medium.load(tile + EXTENSION);
        if offset == 0 {
            return Ok(None);
        }
        let is_inside = |len| offset.checked_add(len).is_some_and(|end| end <= medium.len());
        if offset.is_multiple_of(WORD_LEN)
            && is_inside(HEAD_LEN)
            && medium.load(offset) == Kind::Extension.tag(self.number)
            && medium.load(offset + NUMBER) == medium.load(tile + NUMBER)
        {
            let word = medium.load(offset + LEN);
            let extension = Extension { offset, len: u64::from(word as u32) };
            if word == len_word(extension.len)
                && (1..=self.added_len()).contains(&extension.len)
                && is_inside(HEAD_LEN + self.format.rows * extension.stride())
            {
                return Ok(Some(extension));
            }
        }
        Err(self.damaged(tile + EXTENSION, "a tile leads to no extension of it"))
    }

    /// Whether a tile has an extension. One that it gets meanwhile has the defaults in a row that
    /// needs no room.
    fn has_extension(&self, tile: u64) -> bool {
        self.medium().load(tile + EXTENSION) != 0
    }

    /// Bytes of the cells of all added columns.
    fn added_len(&self) -> u64 {
        (self.format.cells.others_end() - self.format.cells.others_len()) as u64
    }

    /// Appends the cells of added columns to the second group of a row, as far as they are no
    /// defaults. The caller has a pin or a lane, so that the extension is not freed; or nobody else
    /// is there. Not a pin of its own: where there are many threads, each pin is a lane, and who
    /// waits for a second one may wait for ever.
    #[cold]
    pub(super) fn read_added(&self, place: RowPlace, others: &mut Group) -> Result<()> {
        let Some(extension) = self.extension(place.tile)? else { return Ok(()) };
        let made = others.len();
        others.resize(made + extension.len as usize, 0);
        self.medium().read(extension.cells_at(place.index), &mut others[made..]);
        self.format.cells.trim(others);
        Ok(())
    }

    /// Has room for the second group of a row in the extension of its tile, durably. The caller has
    /// neither a lane nor a pin. No fence, unless the extension has to be made: then two, and those
    /// for blocks.
    ///
    /// # Errors
    ///
    /// When the pool is full, or the tile leads to something that is no extension.
    #[inline]
    pub(crate) fn make_room(&self, place: RowPlace, others: &[u8]) -> Result<()> {
        match self.format.cells.has_added() {
            true => self.require_extension(place.tile, others.len()),
            false => Ok(()),
        }
    }

    #[cold]
    fn require_extension(&self, tile: u64, others_len: usize) -> Result<()> {
        let len = others_len.saturating_sub(self.format.cells.others_len()) as u64;
        if len == 0 {
            return Ok(());
        }
        let found = {
            // With the lock: the word that leads to it is durable.
            let _lock = self.lock_tile(tile);
            self.extension(tile)?
        };
        if found.is_some_and(|extension| extension.len >= len) {
            return Ok(());
        }
        match self.extend_tile(tile, len) {
            // Lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                self.extend_tile(tile, len)
            }
            extended => extended,
        }
    }

    /// Gives a tile an extension with room for this many bytes, unless it has one.
    fn extend_tile(&self, tile: u64, len: u64) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        let _lock = self.lock_tile(tile);
        let old = self.extension(tile)?;
        if old.is_some_and(|old| old.len >= len) {
            return Ok(());
        }
        let new = self.write_extension(&mut lane, tile, old)?;
        let suspect = old.map(|old| lane.suspect(old.offset));
        // Fence: the extension, before the tile leads to it; the old one as a suspect, before
        // nothing leads to it.
        // Redundant flush: but where the lane has taken other chunks since the old one was made;
        // opening asks about all blocks of the last one.
        lane.fence();
        if let Err(fault) = self.heap.verify() {
            // What could not be read was copied as zeros.
            suspect.into_iter().for_each(|suspect| lane.cancel(suspect));
            return Err(fault.into());
        }
        let medium = self.medium();
        // Release: after the cells; partner of the load in `extension`.
        medium.store(tile + EXTENSION, new);
        // Flush and fence: before another thread's row that needs it is acknowledged, and before
        // the old one may be freed: the statement may be refused, and have no fence.
        medium.persist(tile + EXTENSION, WORD_LEN);
        suspect.into_iter().for_each(|suspect| lane.retire(suspect));
        Ok(self.heap.verify()?)
    }

    /// Writes and flushes an extension that has all cells of the one before, and the defaults
    /// otherwise. Returns its offset.
    fn write_extension(
        &self,
        lane: &mut Lane<'_, M>,
        tile: u64,
        old: Option<Extension>,
    ) -> Result<u64> {
        let (medium, format) = (self.medium(), &self.format);
        let (made, end) = (format.cells.others_len(), format.cells.others_end());
        let mut new = Extension { offset: 0, len: (end - made) as u64 };
        let mut bytes = vec![0; new.cells_at(format.rows) as usize];
        let head =
            [Kind::Extension.tag(self.number), medium.load(tile + NUMBER), len_word(new.len)];
        for (at, word) in bytes.chunks_exact_mut(WORD_LEN as usize).zip(head) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        for row in 0..format.rows {
            let mut others: Group = SmallVec::from_elem(0, made);
            if let Some(old) = old {
                others.resize(made + old.len as usize, 0);
                medium.read(old.cells_at(row), &mut others[made..]);
            }
            format.cells.extend(&mut others, end);
            let at = new.cells_at(row) as usize;
            bytes[at..at + (end - made)].copy_from_slice(&others[made..]);
        }
        new.offset = lane.allocate(bytes.len() as u64)?.offset;
        medium.write(new.offset, &bytes);
        // Flush: fenced by the caller.
        medium.flush(new.offset, bytes.len() as u64);
        Ok(new.offset)
    }

    /// Writes the cells of added columns of a row that nobody else has, if its tile has an
    /// extension: a row that was there before may have left others.
    #[cold]
    pub(super) fn write_added(&self, place: RowPlace, others: &[u8]) -> Result<()> {
        let made = self.format.cells.others_len();
        if others.len() <= made && !self.has_extension(place.tile) {
            return Ok(());
        }
        let _lock = self.lock_tile(place.tile);
        let extension = self.extension(place.tile)?;
        let has_room = made + extension.map_or(0, |extension| extension.len as usize);
        if others.len() > has_room {
            let what = "a row has cells for which its tile has no room";
            return Err(self.damaged(place.tile + EXTENSION, what));
        }
        let Some(extension) = extension else { return Ok(()) };
        let mut cells = Group::from_slice(others);
        self.format.cells.extend(&mut cells, has_room);
        cells.resize(made + extension.stride() as usize, 0);
        self.medium().write(extension.cells_at(place.index), &cells[made..]);
        Ok(())
    }

    /// Flushes the cells of added columns of a row, if its tile has an extension.
    #[cold]
    pub(super) fn flush_added(&self, place: RowPlace) {
        if !self.has_extension(place.tile) {
            return;
        }
        let _lock = self.lock_tile(place.tile);
        // Who has written or read them was told of damage.
        if let Ok(Some(extension)) = self.extension(place.tile) {
            // Flush: fenced by the caller, together with the record that makes them count, or
            // before the row's head says that they are the newest.
            self.medium().flush(extension.cells_at(place.index), extension.len);
        }
    }

    /// Bytes of a row's cells of added columns for which a tile has room.
    pub(super) fn room_of_added(&self, tile: u64) -> Result<u64> {
        let _pin = self.heap.pin();
        Ok(self.extension(tile)?.map_or(0, |extension| extension.len))
    }

    /// Refuses a tile that leads to something that is no extension.
    pub(crate) fn check_extension(&self, tile: u64) -> Result<()> {
        self.extension_to_check(tile).map(drop)
    }

    /// The extension of a tile, if it has one: it ends behind some column.
    pub(super) fn extension_to_check(&self, tile: u64) -> Result<Option<Extension>> {
        let _pin = self.heap.pin();
        let Some(extension) = self.extension(tile)? else { return Ok(None) };
        match self.format.cells.is_end_of_added(extension.len) {
            true => Ok(Some(extension)),
            false => {
                let what = "an extension of a tile ends within a cell";
                Err(self.damaged(extension.offset + LEN, what))
            }
        }
    }
}
