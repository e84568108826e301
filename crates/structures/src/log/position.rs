//! Places in a log.

use std::fmt;

/// The place of a record in a log, or the log's end. Truncating does not change it.
///
/// Positions ascend in the order of the records. A position can be kept outside of the log as a
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) u64);

impl Position {
    /// The position as a number: the bytes of all records before it.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The position with that number.
    pub const fn from_u64(number: u64) -> Self {
        Position(number)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
