//! History of a run: when each operation began, when it was acknowledged, and its answer.

use crate::subject::Subject;

/// One operation of a run.
pub(crate) struct Call<S: Subject> {
    pub(crate) thread: usize,
    pub(crate) op: S::Op,
    /// When it began.
    pub(crate) began: Moment,
    /// When it was acknowledged, and its answer.
    pub(crate) ended: Option<(Moment, S::Ret)>,
}

/// A moment of a run, in two orders: that of all begins and ends, and that of the trace's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Number among the begins and ends of a run, ascending and unique.
    pub(crate) stamp: u64,
    /// Number of events recorded before.
    pub(crate) position: usize,
}

impl<S: Subject> Call<S> {
    /// Whether the operation had begun before a crash at this position.
    pub(crate) fn has_begun(&self, position: usize) -> bool {
        self.began.position < position
    }

    /// Stamp of the acknowledgement, if it came before a crash at this position.
    pub(crate) fn acknowledged(&self, position: usize) -> Option<u64> {
        let (end, _) = self.ended.as_ref()?;
        (end.position <= position).then_some(end.stamp)
    }
}
