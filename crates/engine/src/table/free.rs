//! Which rows are free: volatile, and found again tile by tile after opening.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

/// Threads with rows of their own.
const CURSORS: usize = 16;
/// Rows that a thread takes at once: their heads are four lines, so that two threads seldom write
/// to one.
const TAKEN: u64 = 16;
/// Tiles that are looked through for free rows before a table gets another one.
const EXAMINED_MAX: u64 = 4;

/// The free rows of a table.
#[derive(Debug)]
pub(super) struct FreeRows {
    tiles: AtomicU64,
    cursors: [Cursor; CURSORS],
    spare: PauseMutex<Spare>,
}

/// Rows that the threads of a cursor use next. In a line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Cursor(PauseMutex<Range<u64>>);

/// Free rows that no thread has taken.
#[derive(Debug, Default)]
struct Spare {
    ranges: Vec<Range<u64>>,
    /// Tiles before this one may have free rows that are not known.
    unexamined: u64,
}

impl FreeRows {
    /// Those of a table with so many tiles.
    pub(super) fn of(tiles: u64) -> Self {
        FreeRows {
            tiles: AtomicU64::new(tiles),
            cursors: std::array::from_fn(|_| Cursor::default()),
            spare: PauseMutex::new(Spare { ranges: Vec::new(), unexamined: tiles }),
        }
    }

    #[inline(always)]
    pub(super) fn tile_count(&self) -> u64 {
        // Acquire: partner of the store in `take`; the tiles are there.
        self.tiles.load(Ordering::Acquire)
    }

    /// A free row, which nobody else gets. `examine` says which rows of a tile are free, and `grow`
    /// makes another tile and returns its rows.
    #[inline]
    pub(super) fn take<M: Medium, E>(
        &self,
        medium: &M,
        examine: impl FnMut(u64) -> Result<Vec<Range<u64>>, E>,
        grow: impl FnOnce(u64) -> Result<Range<u64>, E>,
    ) -> Result<u64, E> {
        let mut cursor = self.cursors[medium.thread() as usize % CURSORS].0.lock(medium);
        if let Some(row) = cursor.next() {
            return Ok(row);
        }
        *cursor = self.refill(medium, examine, grow)?;
        Ok(cursor.next().expect("a range with rows"))
    }

    #[cold]
    fn refill<M: Medium, E>(
        &self,
        medium: &M,
        mut examine: impl FnMut(u64) -> Result<Vec<Range<u64>>, E>,
        grow: impl FnOnce(u64) -> Result<Range<u64>, E>,
    ) -> Result<Range<u64>, E> {
        let mut spare = self.spare.lock(medium);
        for _ in 0..EXAMINED_MAX {
            if !spare.ranges.is_empty() || spare.unexamined == 0 {
                break;
            }
            spare.unexamined -= 1;
            let tile = spare.unexamined;
            spare.ranges = examine(tile)?;
        }
        if spare.ranges.is_empty() {
            // Relaxed: only who has the lock changes it.
            let tile = self.tiles.load(Ordering::Relaxed);
            let rows = grow(tile)?;
            // Release: the tile is there. Partner of the load in `tile_count`.
            self.tiles.store(tile + 1, Ordering::Release);
            spare.ranges.push(rows);
        }
        let last = spare.ranges.last_mut().expect("one was found or made");
        // Up to a multiple, so that threads do not share lines.
        let end = (last.start + 1).next_multiple_of(TAKEN).min(last.end);
        let taken = last.start..end;
        last.start = end;
        if last.is_empty() {
            spare.ranges.pop();
        }
        Ok(taken)
    }

    /// Gives back a row that is free, of which `release` takes the claim away. One of a tile that
    /// was not examined yet is found there, once it is not claimed.
    #[cold]
    pub(super) fn give_back<M: Medium>(
        &self,
        medium: &M,
        row: u64,
        tile: u64,
        release: impl FnOnce(),
    ) {
        let mut spare = self.spare.lock(medium);
        if tile >= spare.unexamined {
            spare.ranges.push(row..row + 1);
        }
        release();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use remanent_pmem::{Mapped, Pool};

    use super::*;

    fn medium() -> Pool<Mapped> {
        Pool::options().create_in_memory().expect("a pool in memory")
    }

    #[test]
    fn every_free_row_is_handed_out_once() {
        let pool = medium();
        // Two tiles of 40 rows are there, of which all odd ones are free.
        let rows = FreeRows::of(2);
        let examine = |tile: u64| {
            let rows = tile * 64..tile * 64 + 40;
            Ok(rows.filter(|row| row % 2 != 0).map(|row| row..row + 1).collect())
        };
        let grow = |tile: u64| Ok::<_, ()>(tile * 64..tile * 64 + 40);
        let mut found = BTreeSet::new();
        for _ in 0..80 {
            assert!(found.insert(rows.take(pool.medium(), examine, grow).unwrap()));
        }
        assert_eq!(rows.tile_count(), 3);
        let odd = found.iter().filter(|&&row| row < 128).count();
        assert_eq!((odd, found.len()), (40, 80));
        rows.give_back(pool.medium(), 7, 0, || ());
        assert_eq!(rows.take(pool.medium(), examine, grow), Ok(7));
    }

    #[test]
    fn a_table_that_cannot_grow_says_so() {
        let (pool, rows) = (medium(), FreeRows::of(0));
        assert_eq!(rows.take(pool.medium(), |_| Ok(Vec::new()), |_| Err("full")), Err("full"));
        assert_eq!(rows.tile_count(), 0);
    }
}
