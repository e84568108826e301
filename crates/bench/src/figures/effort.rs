//! How much a bench measures.

use crate::setup::Setup;

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    Full,
    Quick,
    /// For a test run; the numbers mean nothing.
    Tiny,
}

impl Effort {
    /// What the command line asks for.
    pub(super) fn of(setup: &Setup) -> Self {
        match setup {
            Setup { tiny: true, .. } => Effort::Tiny,
            Setup { quick: true, .. } => Effort::Quick,
            _ => Effort::Full,
        }
    }

    /// The value for this effort.
    pub(super) fn pick<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Effort::Full => full,
            Effort::Quick => quick,
            Effort::Tiny => tiny,
        }
    }
}
