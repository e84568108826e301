//! Findings of `check`.

/// A contradiction to the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Pool offset of the contradiction.
    pub offset: u64,
    /// What was found, and what was expected.
    pub what: String,
}

impl Violation {
    /// A contradiction at `offset`.
    pub fn new(offset: u64, what: impl Into<String>) -> Self {
        Violation { offset, what: what.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "offset {:#x}: {}", self.offset, self.what)
    }
}
