//! From which commits on a table has columns that were added, or is not there any more: for who
//! tells of commits in their order.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use super::Table;

/// The table is being dropped.
const TAKING: u64 = u64::MAX;

/// Stamps of changes of a table that were told in this opening.
#[derive(Debug, Default)]
pub(super) struct Since {
    /// Numbers of columns, and from which stamp on they are there.
    added: PauseMutex<Vec<(usize, u64)>>,
    /// From which stamp on the table is not there; 0 if nobody was told of that.
    dropped: AtomicU64,
}

impl<M: Medium> Table<M> {
    /// Notes that the next column to be added has values from this stamp on.
    pub(super) fn note_added(&self, stamp: u64) {
        if stamp != 0 {
            let column = self.columns.load().len();
            self.since.added.lock(self.medium()).push((column, stamp));
        }
    }

    /// How many columns the commit with a stamp knows.
    pub(crate) fn columns_at(&self, stamp: u64) -> usize {
        let count = self.columns.load().len();
        let added = self.since.added.lock(self.medium());
        let later = added.iter().find(|(_, since)| *since > stamp);
        later.map_or(count, |(column, _)| count.min(*column))
    }

    /// Has `drop` drop the table, and say from which stamp on commits leave it out: 0 if it is
    /// there still, or nobody is told. Who has a later stamp waits until that is known.
    pub(crate) fn drop_at<R>(&self, drop: impl FnOnce() -> (u64, R)) -> R {
        // Release: before the stamp is taken; partner of the load in `is_dropped_at` by who has a
        // later one.
        self.since.dropped.store(TAKING, Ordering::Release);
        let (stamp, dropped) = drop();
        // Release: likewise.
        self.since.dropped.store(stamp, Ordering::Release);
        dropped
    }

    /// Whether the table was dropped before the commit with a stamp.
    pub(crate) fn is_dropped_at(&self, stamp: u64) -> bool {
        loop {
            // Acquire: partner of the stores in `drop_at`.
            match self.since.dropped.load(Ordering::Acquire) {
                0 => return self.is_dropped(),
                TAKING => self.medium().pause(),
                dropped => return dropped < stamp,
            }
        }
    }
}
