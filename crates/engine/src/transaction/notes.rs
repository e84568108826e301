//! What a serializable transaction has read, so that its commit can read it again.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;
use remanent_structures::RowId;

use super::snapshots::Held;
use crate::index::Key;
use crate::index::order::{Order, Span};
use crate::table::Table;

/// Reads that are noted one by one. A transaction that makes more of them counts as having read all
/// rows of their tables.
const NOTES_MAX: usize = 4096;

/// What a serializable transaction has read.
pub(crate) struct Notes<M: Medium> {
    noted: PauseMutex<Noted<M>>,
    /// An earlier process has read what nobody knows, as of this stamp or before. So all rows count
    /// as read.
    pub(super) lost_since: Option<u64>,
    /// The oldest snapshot that something was read with, if the transaction sees a later one now.
    /// It keeps what the commit has to compare.
    oldest: Option<Held>,
    /// The transaction cannot be committed.
    pub(super) is_refused: bool,
}

/// Reads, and tables of which all rows count as read.
pub(super) struct Noted<M: Medium> {
    pub(super) single: Vec<Note<M>>,
    pub(super) whole: Vec<(Arc<Table<M>>, u64)>,
}

/// A read.
pub(crate) struct Note<M: Medium> {
    pub(crate) table: Arc<Table<M>>,
    pub(crate) read: Read,
    /// Stamp of the snapshot that it was made with.
    pub(crate) since: u64,
}

/// Which rows of a table a read was of. Indexes are named by their [`id`](crate::index::Index).
pub(crate) enum Read {
    /// All that have a key.
    Key { index: u32, key: Key },
    /// All that have a key in a range.
    Range { index: u32, span: Span },
    /// This one.
    Row(RowId),
}

/// The read of a range that is in progress. It is noted when this is dropped.
pub(crate) struct NotingRange<'n, M: Medium> {
    pub(crate) notes: &'n Notes<M>,
    pub(crate) medium: &'n M,
    pub(crate) table: &'n Arc<Table<M>>,
    pub(crate) index: u32,
    pub(crate) span: Span,
    pub(crate) since: u64,
}

impl<M: Medium> Notes<M> {
    /// Those of a transaction that has read nothing.
    pub(super) fn new() -> Self {
        let noted = PauseMutex::new(Noted { single: Vec::new(), whole: Vec::new() });
        Notes { noted, lost_since: None, oldest: None, is_refused: false }
    }

    /// Those of a transaction that an earlier process has begun, and whose last record names this
    /// snapshot, or says that there was an older one.
    pub(super) fn lost(since: u64, has_older: bool) -> Self {
        let since = if has_older { 0 } else { since };
        Notes { lost_since: Some(since), ..Self::new() }
    }

    /// Whether something may have been read before this snapshot, and is not known to be the same.
    pub(super) fn has_older(&self, snapshot: u64) -> bool {
        let oldest = self.oldest.as_ref().map(|held| held.stamp);
        oldest.into_iter().chain(self.lost_since).any(|since| since < snapshot)
    }

    /// Notes a read.
    #[cold]
    pub(crate) fn add(&self, medium: &M, note: Note<M>) {
        self.noted.lock(medium).add(note);
    }

    /// How many reads are noted one by one.
    pub(super) fn count(&self, medium: &M) -> usize {
        self.noted.lock(medium).single.len()
    }

    /// Forgets the reads behind the first ones.
    pub(super) fn truncate(&self, medium: &M, count: usize) {
        self.noted.lock(medium).single.truncate(count);
    }

    /// Notes a read of all rows of a table.
    #[cold]
    pub(crate) fn add_all(&self, medium: &M, table: &Arc<Table<M>>, since: u64) {
        self.noted.lock(medium).add_all(Arc::clone(table), since);
    }

    /// All that is noted.
    pub(super) fn with_all<R>(&self, medium: &M, read: impl FnOnce(&Noted<M>) -> R) -> R {
        read(&self.noted.lock(medium))
    }

    /// Keeps a snapshot that the transaction does not see any more, if it is the oldest one.
    /// Returns one that is not needed.
    pub(super) fn keep(&mut self, held: Held) -> Option<Held> {
        match &mut self.oldest {
            Some(oldest) if oldest.stamp <= held.stamp => Some(held),
            oldest => oldest.replace(held),
        }
    }

    /// The snapshot that is kept, which the caller gives back.
    pub(super) fn take_oldest(&mut self) -> Option<Held> {
        self.oldest.take()
    }
}

impl<M: Medium> Noted<M> {
    fn add(&mut self, note: Note<M>) {
        if self.whole.iter().any(|(table, _)| Arc::ptr_eq(table, &note.table)) {
            return;
        }
        self.single.push(note);
        if self.single.len() > NOTES_MAX {
            for Note { table, since, .. } in std::mem::take(&mut self.single) {
                self.add_all(table, since);
            }
        }
    }

    fn add_all(&mut self, table: Arc<Table<M>>, since: u64) {
        match self.whole.iter_mut().find(|(other, _)| Arc::ptr_eq(other, &table)) {
            Some((_, first)) => *first = since.min(*first),
            None => self.whole.push((table, since)),
        }
    }
}

impl<M: Medium> NotingRange<'_, M> {
    /// Has the range end with an entry, behind which nothing was read.
    pub(crate) fn end_at(&mut self, entry: &[u8], order: Order) {
        self.span.end_at(entry, order);
    }
}

impl<M: Medium> Drop for NotingRange<'_, M> {
    fn drop(&mut self) {
        let read = Read::Range { index: self.index, span: self.span.clone() };
        let note = Note { table: Arc::clone(self.table), read, since: self.since };
        self.notes.add(self.medium, note);
    }
}
