//! What a statement or a reader sees of the database.

use super::layout::{STAMP_MAX, TransactionId};

/// What a statement or a reader sees of the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// What was committed with this stamp, or before.
    pub(crate) stamp: u64,
    /// And what this transaction has changed.
    pub(crate) own: Option<TransactionId>,
}

impl View {
    /// All that was committed.
    pub(crate) const NEWEST: View = View { stamp: STAMP_MAX, own: None };
}
