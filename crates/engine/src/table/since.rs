//! From which commits on a table has columns that were added, or is not there any more: for who
//! tells of commits in their order.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

use super::Table;

/// The table is being dropped, or the column gets its stamp.
const TAKING: u64 = u64::MAX;
/// The transaction that has added the column is open.
const PROMISED: u64 = u64::MAX - 1;
/// As [`TAKING`], by a commit whose stamp is in the lower bits.
const TAKING_FROM: u64 = 1 << 62;

/// Whether who has a stamp has to wait until it is known what becomes of a table or a column, as
/// its word says.
fn is_waiting(word: u64, stamp: u64) -> bool {
    match word {
        TAKING => true,
        PROMISED => false,
        word => word >= TAKING_FROM && stamp >= word - TAKING_FROM,
    }
}

/// Stamps of changes of a table that were told in this opening.
#[derive(Debug, Default)]
pub(super) struct Since {
    /// Numbers of columns, and from which stamp on they are there.
    added: PauseMutex<Vec<(usize, u64)>>,
    /// From which stamp on the table is not there; 0 if nobody was told of that.
    dropped: AtomicU64,
}

impl<M: Medium> Table<M> {
    /// Notes that a column has values from this stamp on; 0 if nobody is told.
    pub(super) fn note_added(&self, column: usize, stamp: u64) {
        if stamp != 0 {
            self.since.added.lock(self.medium()).push((column, stamp));
        }
    }

    /// Notes that a column is there for its transaction alone.
    pub(super) fn note_promised(&self, column: usize) {
        self.note_added(column, PROMISED);
    }

    /// Notes that a column that was promised has values from this stamp on.
    pub(super) fn note_kept(&self, column: usize, stamp: u64) {
        let mut added = self.since.added.lock(self.medium());
        if let Some(of) = added.iter_mut().find(|(of, _)| *of == column) {
            of.1 = stamp;
        }
    }

    /// Forgets the column that was promised last.
    pub(super) fn forget_promised(&self) {
        let mut added = self.since.added.lock(self.medium());
        if added.last().is_some_and(|(_, since)| *since >= TAKING_FROM) {
            added.pop();
        }
    }

    /// Forgets all columns that were promised.
    pub(super) fn forget_all_promised(&self) {
        self.since.added.lock(self.medium()).retain(|(_, since)| *since < TAKING_FROM);
    }

    /// Has who has a later stamp wait for [`keep_column`](Table::keep_column), for each column that
    /// is promised; or not any more, if they stay so.
    pub(crate) fn hold_columns(&self, is_held: bool) {
        let mut added = self.since.added.lock(self.medium());
        for (_, since) in added.iter_mut().filter(|(_, since)| *since >= TAKING_FROM) {
            *since = if is_held { TAKING } else { PROMISED };
        }
    }

    /// Says which stamp the commit has for which others wait.
    pub(crate) fn hold_from(&self, stamp: u64) {
        let word = TAKING_FROM + stamp;
        let mut added = self.since.added.lock(self.medium());
        for (_, since) in added.iter_mut().filter(|(_, since)| *since == TAKING) {
            *since = word;
        }
        drop(added);
        // AcqRel: nobody else changes it meanwhile; partner of the load in `is_dropped_at`.
        let _ =
            self.since.dropped.compare_exchange(TAKING, word, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// How many columns the commit with a stamp knows.
    pub(crate) fn columns_at(&self, stamp: u64) -> usize {
        loop {
            let count = self.columns.load().len();
            let added = self.since.added.lock(self.medium());
            let later = added.iter().find(|(_, since)| *since > stamp);
            match later {
                Some((_, since)) if is_waiting(*since, stamp) => {}
                Some((column, _)) => return count.min(*column),
                None => return count,
            }
            drop(added);
            self.medium().pause();
        }
    }

    /// Has who has a later stamp wait until it is known whether the table is dropped.
    pub(crate) fn hold_dropped(&self) {
        // Release: before the stamp is taken; partner of the load in `is_dropped_at` by who has a
        // later one.
        self.since.dropped.store(TAKING, Ordering::Release);
    }

    /// Says from which stamp on commits leave the table out: 0 if it is there still, or nobody is
    /// told.
    pub(crate) fn set_dropped_at(&self, stamp: u64) {
        // Release: partner of the load in `is_dropped_at`.
        self.since.dropped.store(stamp, Ordering::Release);
    }

    /// Has `drop` drop the table, and say from which stamp on commits leave it out: 0 if it is
    /// there still, or nobody is told. Who has a later stamp waits until that is known.
    pub(crate) fn drop_at<R>(&self, drop: impl FnOnce() -> (u64, R)) -> R {
        self.hold_dropped();
        let (stamp, dropped) = drop();
        self.set_dropped_at(stamp);
        dropped
    }

    /// Whether the table was dropped before the commit with a stamp, or by it.
    pub(crate) fn is_dropped_at(&self, stamp: u64) -> bool {
        loop {
            // Acquire: partner of the stores in `drop_at`.
            match self.since.dropped.load(Ordering::Acquire) {
                0 => return self.is_dropped(),
                taking if is_waiting(taking, stamp) => self.medium().pause(),
                dropped => return dropped <= stamp,
            }
        }
    }
}
