//! Oracles: which states may be observed after a crash.

pub(crate) mod history;
pub(crate) mod linearizer;

use serde::Serialize;

/// Which recovered states are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// Durable linearizability: every acknowledged operation survives, and an operation in flight
    /// survives wholly or not at all.
    #[default]
    Durable,
    /// A prefix of the history survives. It includes everything that the last acknowledged
    /// [sync](crate::Subject::is_sync) covers.
    Buffered,
}
