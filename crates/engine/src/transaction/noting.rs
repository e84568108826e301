//! How transactions note what they read, and keep the snapshots that their commits compare.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;

use super::notes::{Note, Read};
use super::slots::Open;
use super::snapshots::Held;
use crate::engine::Engine;
use crate::index::{Index, Key};
use crate::table::Table;

impl<M: Medium> Open<M> {
    /// Notes that the transaction has read all rows with a key.
    pub(super) fn note_key(&self, medium: &M, table: &Arc<Table<M>>, index: &Index<M>, key: &Key) {
        if let Some(notes) = &self.notes {
            let read = Read::Key { index: index.id, key: key.clone() };
            let since = self.snapshot.stamp;
            notes.add(medium, Note { table: Arc::clone(table), read, since });
        }
    }

    /// Notes that the transaction has read a row. To be called while it still has the row's claim:
    /// nobody has changed the row since it was read.
    pub(super) fn note_row(&self, medium: &M, table: &Arc<Table<M>>, row: RowId) {
        if let Some(notes) = &self.notes {
            let (read, since) = (Read::Row(row), self.snapshot.stamp);
            notes.add(medium, Note { table: Arc::clone(table), read, since });
        }
    }

    /// Whether it is serializable, and may have read with an older snapshot than it sees now.
    pub(super) fn has_older_reads(&self) -> bool {
        let now = self.snapshot.stamp;
        let before = self.snapshot_before.as_ref().is_some_and(|before| before.stamp < now);
        self.notes.as_ref().is_some_and(|notes| before || notes.has_older(now))
    }

    /// Notes that the transaction has read all rows of a table.
    pub(super) fn note_all(&self, medium: &M, table: &Arc<Table<M>>) {
        if let Some(notes) = &self.notes {
            notes.add_all(medium, table, self.snapshot.stamp);
        }
    }
}

impl<M: Medium> Engine<M> {
    /// Gives the snapshot back that a transaction had before, unless its commit needs it.
    pub(super) fn leave_snapshot(&self, open: &mut Open<M>, before: Held) {
        let unneeded = match &mut open.notes {
            Some(notes) => notes.keep(before),
            None => Some(before),
        };
        if let Some(unneeded) = unneeded {
            self.snapshots.give_back(&unneeded);
        }
    }

    /// The same for the one that the last record but one names.
    pub(super) fn leave_snapshot_before(&self, open: &mut Open<M>) {
        if let Some(before) = open.snapshot_before.take() {
            self.leave_snapshot(open, before);
        }
    }
}
