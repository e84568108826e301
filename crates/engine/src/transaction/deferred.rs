//! What a transaction has changed and not written, as its slot has it.

use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_structures::RowId;
use smallvec::SmallVec;

use super::unwritten::RowName;
use crate::index::Key;
use crate::table::Table;
use crate::table::layout::Pending;
use crate::table::ops::RowPlace;

/// What a transaction has changed and not written. The cells are in
/// [`Unwritten`](super::unwritten::Unwritten), where others see them, too.
pub(crate) struct Deferred<M: Medium> {
    /// All of it is written when the transaction commits.
    pub(super) is_at_commit: bool,
    /// Steps before each of the batches in progress, each of which is a part of the one before.
    pub(super) batches: Vec<usize>,
    /// The rows, in the order in which they were first changed.
    pub(super) rows: Vec<DeferredRow<M>>,
    /// What was done, so that it can be taken back.
    pub(super) steps: Vec<Step>,
}

/// A row that a transaction has changed and not written.
pub(super) struct DeferredRow<M: Medium> {
    pub(super) table: Arc<Table<M>>,
    pub(super) row: RowId,
    pub(super) place: RowPlace,
    /// What it has made of the row before, and written.
    pub(super) own: Option<Pending>,
    /// There was no such row before.
    pub(super) is_new: bool,
}

/// A change of a row.
pub(super) struct Step {
    /// Of this statement.
    pub(super) statement: u32,
    /// The row's place among the rows.
    pub(super) at: usize,
    /// Words that were added to indexes: each index's number, and the key. In an index to which one
    /// is moved, others may be there in their place, and needed.
    pub(super) words: SmallVec<[(u32, Key); 2]>,
}

impl<M: Medium> Deferred<M> {
    pub(crate) fn new(is_at_commit: bool) -> Self {
        Deferred { is_at_commit, batches: Vec::new(), rows: Vec::new(), steps: Vec::new() }
    }

    /// Whether statements are not written when they return.
    pub(super) fn is_on(&self) -> bool {
        self.is_at_commit || self.is_in_batch()
    }

    /// Steps of the statements until this one, with it.
    pub(super) fn steps_until(&self, statement: u32) -> usize {
        self.steps.iter().take_while(|step| step.statement <= statement).count()
    }

    /// The rows that are changed and not written.
    pub(super) fn changed(&self) -> impl Iterator<Item = (Arc<Table<M>>, RowId)> {
        self.rows.iter().map(|of| (Arc::clone(&of.table), of.row))
    }

    pub(super) fn is_in_batch(&self) -> bool {
        !self.batches.is_empty()
    }
}

impl<M: Medium> DeferredRow<M> {
    pub(super) fn name(&self) -> RowName {
        (self.table.number, self.row)
    }
}
