//! What rebuilding indexes has taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Rebuilding a row in an index if nothing was rebuilt in this opening: what is aimed at.
const REBUILD_NS: f64 = 60.0;
/// The same for a value in the index of a dictionary, whose entry is read and whose word is added
/// by itself.
const REBUILD_VALUE_NS: f64 = 150.0;

/// Time that rebuilding has taken in this opening, and what was rebuilt.
#[derive(Debug, Default)]
pub(crate) struct RebuildCost {
    read: Measured,
    added: Measured,
    values: Measured,
}

/// Nanoseconds for so many words.
#[derive(Debug, Default)]
struct Measured {
    ns: AtomicU64,
    words: AtomicU64,
}

impl Measured {
    fn note(&self, begin: Instant, words: u64) {
        // Relaxed: numbers.
        self.ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.words.fetch_add(words, Ordering::Relaxed);
    }

    /// Nanoseconds for a word; `None` if there were not enough of them.
    fn for_one(&self) -> Option<f64> {
        const ENOUGH: u64 = 10_000;
        // Relaxed: numbers.
        let words = self.words.load(Ordering::Relaxed);
        (words >= ENOUGH).then(|| self.ns.load(Ordering::Relaxed) as f64 / words as f64)
    }
}

impl RebuildCost {
    /// So many words were read from the rows.
    pub(crate) fn note_read(&self, begin: Instant, words: u64) {
        self.read.note(begin, words);
    }

    /// So many words were added to an index.
    pub(crate) fn note_added(&self, begin: Instant, words: u64) {
        self.added.note(begin, words);
    }

    /// So many values were added to the index of a dictionary.
    pub(crate) fn note_values(&self, begin: Instant, values: u64) {
        self.values.note(begin, values);
    }

    /// Nanoseconds for one value of a dictionary: as measured in this opening, or else as is usual.
    pub(crate) fn for_one_value(&self) -> f64 {
        self.values.for_one().unwrap_or(REBUILD_VALUE_NS)
    }

    /// Nanoseconds for one row of one index: as measured in this opening, or else as is usual.
    pub(crate) fn for_one(&self) -> f64 {
        let sum = self.read.for_one().and_then(|read| Some(read + self.added.for_one()?));
        sum.unwrap_or(REBUILD_NS)
    }
}
