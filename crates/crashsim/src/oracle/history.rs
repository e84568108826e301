//! The operations of a run: when each began, when it was acknowledged, and with what answer.

use crate::subject::Subject;

/// One operation of a run.
pub(crate) struct Call<S: Subject> {
    pub(crate) thread: usize,
    pub(crate) op: S::Op,
    /// When it began: in the order of all begins and ends, and in events of the trace.
    pub(crate) began: Moment,
    /// When it was acknowledged, and with what answer.
    pub(crate) ended: Option<(Moment, S::Ret)>,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Unique among the begins and ends of a run, ascending.
    pub(crate) stamp: u64,
    /// Events recorded before.
    pub(crate) position: usize,
}

impl<S: Subject> Call<S> {
    /// Whether a crash at this position meets the operation.
    pub(crate) fn has_begun(&self, position: usize) -> bool {
        self.began.position < position
    }

    /// When it was acknowledged, unless the crash at this position came first.
    pub(crate) fn acknowledged(&self, position: usize) -> Option<u64> {
        let (end, _) = self.ended.as_ref()?;
        (end.position <= position).then_some(end.stamp)
    }
}
