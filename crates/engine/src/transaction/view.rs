//! What a statement or a reader sees of the database.

use super::layout::{STAMP_MAX, TransactionId};
use super::snapshots::Held;

/// What a statement or a reader sees of the database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// What was committed with this stamp, or before.
    pub(crate) stamp: u64,
    /// And what this transaction has changed.
    pub(crate) own: Option<TransactionId>,
    /// Where its snapshot says that this is kept; `None` if it needs nothing to be kept.
    pub(crate) place: Option<usize>,
}

impl View {
    /// What a snapshot sees, and what a transaction has changed.
    #[inline]
    pub(crate) fn of(held: &Held, own: Option<TransactionId>) -> Self {
        View { stamp: held.stamp, own, place: Some(held.place) }
    }

    /// All that was committed.
    pub(crate) const NEWEST: View = View { stamp: STAMP_MAX, own: None, place: None };
}
