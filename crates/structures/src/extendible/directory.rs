//! The volatile directory: which segment has the entries whose hashes begin with given bits.
//!
//! It is a copy of what the pool's nodes say, and filled as segments are touched, so that opening a
//! map takes no time. A reader that finds nothing compares the entry that it came by once more.

use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::layout::Hash;
use crate::Result;

/// One state of the directory. It is replaced when it grows, and when the map is cleared.
pub(super) struct Table {
    depth: u32,
    /// Offsets of segments; 0 for those that nobody has asked for.
    segments: Box<[AtomicU64]>,
}

impl Table {
    fn new(depth: u32) -> Self {
        Table { depth, segments: (0..1_u64 << depth).map(|_| AtomicU64::new(0)).collect() }
    }

    #[inline(always)]
    fn word(&self, hash: Hash) -> &AtomicU64 {
        &self.segments[hash.prefix(self.depth) as usize]
    }
}

/// Where the directory has led: to a segment, or to none yet.
#[derive(Clone, Copy)]
pub(super) struct Place<'d> {
    pub(super) table: &'d Table,
    /// Offset of the segment; 0 when it is not known.
    pub(super) segment: u64,
    /// Number of joins before.
    joins: u64,
}

/// The present table, and all that there were: readers may still be in those. They grow by the
/// factor 2, so that those of a growing map together take no more than the present one. Each
/// `clear` leaves one until the map is closed: 8 bytes for each segment that there was.
pub(super) struct Directory {
    present: AtomicPtr<Table>,
    /// Number of joins. After a split and a join a hash leads to the segment that it led to before,
    /// and whoever has looked there in between must notice.
    joins: AtomicU64,
    tables: Mutex<Vec<Arc<Table>>>,
}

impl Directory {
    pub(super) fn new() -> Self {
        let table = Arc::new(Table::new(0));
        let present = AtomicPtr::new(Arc::as_ptr(&table).cast_mut());
        Directory { present, joins: AtomicU64::new(0), tables: Mutex::new(vec![table]) }
    }

    #[inline(always)]
    pub(super) fn table(&self) -> &Table {
        // Acquire: partner of the Release in `replace`.
        let table = self.present.load(Ordering::Acquire);
        // SAFETY: `tables` keeps every table that `present` ever led to, each in a place of its
        // own, until the directory is dropped.
        unsafe { &*table }
    }

    #[inline(always)]
    pub(super) fn find(&self, hash: Hash) -> Place<'_> {
        // Acquire: before the load of the segment; partner of the addition in `join`.
        let joins = self.joins.load(Ordering::Acquire);
        let table = self.table();
        // Acquire: partner of the stores in `set` and `fill`; the segment was made ready before.
        Place { table, segment: table.word(hash).load(Ordering::Acquire), joins }
    }

    /// As `find`, where `touch` enters a segment that nobody has asked for.
    #[inline(always)]
    pub(super) fn place(
        &self,
        hash: Hash,
        touch: impl Fn(Hash) -> Result<()>,
    ) -> Result<Place<'_>> {
        loop {
            let place = self.find(hash);
            if place.segment != 0 {
                return Ok(place);
            }
            touch(hash)?;
        }
    }

    /// Whether the directory leads to the same place again, and has done so all the time.
    #[inline(always)]
    pub(super) fn leads_to(&self, place: Place<'_>, hash: Hash) -> bool {
        std::ptr::eq(self.table(), place.table)
            // Acquire: as in `find`, and before the load of the number.
            && place.table.word(hash).load(Ordering::Acquire) == place.segment
            && self.joins.load(Ordering::Acquire) == place.joins
    }

    /// Enters a segment where none is known, if the table has not changed.
    pub(super) fn fill(&self, place: Place<'_>, hash: Hash, segment: u64) {
        // AcqRel: as `set`. Lost: a split has entered what is true now.
        let word = place.table.word(hash);
        let _ = word.compare_exchange(0, segment, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Enters the segment of all hashes that share the first `depth` bits of `hash`. One thread at
    /// a time calls this or one of those below.
    pub(super) fn set(&self, hash: Hash, depth: u32, segment: u64) {
        self.grow_to(depth);
        let table = self.table();
        let below = table.depth - depth;
        let first = hash.prefix(depth) << below;
        for index in first..first + (1 << below) {
            // Release: partner of the loads in `find`.
            table.segments[index as usize].store(segment, Ordering::Release);
        }
    }

    /// As `set`, for a segment that has now what two had.
    pub(super) fn join(&self, hash: Hash, depth: u32, segment: u64) {
        // Release: before the stores of `set`, so that who sees one of those sees this; partner of
        // the loads in `find` and `leads_to`.
        self.joins.fetch_add(1, Ordering::Release);
        self.set(hash, depth, segment);
    }

    /// Makes the table so deep that segments of this depth have entries of their own.
    pub(super) fn grow_to(&self, depth: u32) {
        let table = self.table();
        if table.depth >= depth {
            return;
        }
        let larger = Table::new(depth);
        let below = depth - table.depth;
        for (index, word) in larger.segments.iter().enumerate() {
            // Relaxed: the table is published below. What is filled in meanwhile is filled in
            // again.
            let segment = table.segments[index >> below].load(Ordering::Acquire);
            word.store(segment, Ordering::Relaxed);
        }
        self.replace(larger);
    }

    /// Forgets everything: another directory is in the pool now. No writer may be in the map.
    pub(super) fn forget(&self) {
        self.replace(Table::new(0));
    }

    fn replace(&self, table: Table) {
        let table = Arc::new(table);
        // Not poisoned: nothing panics while it is locked.
        let mut tables = self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Release: partner of the load in `table`.
        self.present.store(Arc::as_ptr(&table).cast_mut(), Ordering::Release);
        tables.push(table);
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("depth", &self.table().depth).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: u64 = 1 << 16;
    const RIGHT: u64 = 2 << 16;

    /// Of the hash's own words in the table, a split and a join leave no trace.
    #[test]
    fn a_place_is_left_by_a_split_and_by_a_join() {
        let (directory, first, second) = (Directory::new(), Hash(0), Hash(1 << 63));
        directory.set(first, 0, LEFT);
        // Else the split is noticed by the larger table.
        directory.grow_to(1);
        let before = directory.find(second);
        assert!(directory.leads_to(before, second));
        directory.set(second, 1, RIGHT);
        assert!(!directory.leads_to(before, second));
        let split = directory.find(second);
        assert!(directory.leads_to(split, second));
        directory.join(first, 0, LEFT);
        assert_eq!(directory.find(second).segment, before.segment);
        assert!(!directory.leads_to(before, second) && !directory.leads_to(split, second));
        assert!(directory.leads_to(directory.find(second), second));
    }
}
