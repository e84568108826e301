//! Which states may be observed after a crash.

pub(crate) mod history;
pub(crate) mod linearizer;

use serde::Serialize;

/// Which recovered states are right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// Every acknowledged operation survives; one in flight survives wholly or not at all.
    #[default]
    Durable,
    /// A prefix of the history survives, with everything that the last acknowledged
    /// [sync](crate::Subject::is_sync) covers.
    Buffered,
}
