//! Tables of which a commit decides what becomes: who comes behind it waits until that is known.

use std::sync::Arc;

use remanent_pmem::Medium;

use crate::table::Table;

/// While it is there, who has a later stamp than the commit that is about to begin waits until it
/// is known what the commit makes of these tables.
pub(super) struct Held<M: Medium>(Vec<Arc<Table<M>>>);

impl<M: Medium> Held<M> {
    pub(super) fn of(tables: Vec<Arc<Table<M>>>) -> Self {
        Held(tables)
    }

    /// Says that the commit has this stamp: who has an earlier one does not wait.
    pub(super) fn hold_from(&self, stamp: u64) {
        for table in &self.0 {
            table.hold_from(stamp);
        }
    }

    /// Of a transaction that has not changed the schema.
    pub(super) fn nothing() -> Self {
        Held(Vec::new())
    }
}

impl<M: Medium> Drop for Held<M> {
    fn drop(&mut self) {
        for table in &self.0 {
            table.hold_columns(false);
            if !table.is_dropped() {
                table.set_dropped_at(0);
            }
        }
    }
}
