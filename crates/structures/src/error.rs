//! What operations on structures report.

use remanent_pmem::heap::Violation;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that an operation on a structure reports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool, its allocator or its medium.
    #[error(transparent)]
    Pool(#[from] remanent_pmem::Error),
    /// A key or value is longer than an entry can hold.
    #[error(
        "{what} has {len} bytes, more than the {limit} an entry can hold; \
         split it over several entries"
    )]
    TooLong {
        /// `key` or `value`.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The thread that makes batches safe could not be started, or has ended.
    #[error(
        "no thread makes batches safe any more: {what}; what was not synced by then may be lost to a \
         crash, so close the structure, and open it again once the cause is gone"
    )]
    Persister {
        /// What happened to it.
        what: String,
    },
    /// The structure contradicts itself.
    #[error("structure {root:?} is damaged: {}", list(violations))]
    Damaged {
        /// Name or number of the root.
        root: String,
        /// Each contradiction, with its offset.
        violations: Vec<Violation>,
    },
}

impl Error {
    /// Whether the pool had no room: nothing was changed, and removing entries helps.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Pool(error) if error.is_full())
    }
}

fn list(violations: &[Violation]) -> String {
    let told: Vec<String> = violations.iter().take(5).map(Violation::to_string).collect();
    match violations.len().saturating_sub(told.len()) {
        0 => told.join("; "),
        more => format!("{}; and {more} more", told.join("; ")),
    }
}
