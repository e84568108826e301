//! The number of entries.

use std::sync::atomic::{AtomicI64, Ordering};

use remanent_pmem::heap::layout::LANE_COUNT;

/// The number of entries when the structure was opened, and the changes that each lane made since.
#[derive(Debug)]
pub(crate) struct Count {
    /// [`UNKNOWN`] after a crash, until the first count.
    base: AtomicI64,
    deltas: Box<[Delta]>,
}

const UNKNOWN: i64 = i64::MIN;

/// Aligned to two lines: the adjacent-line prefetcher fetches pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Delta(AtomicI64);

impl Count {
    pub(crate) fn unknown() -> Self {
        let deltas = (0..LANE_COUNT).map(|_| Delta::default()).collect();
        Count { base: AtomicI64::new(UNKNOWN), deltas }
    }

    /// Adds `entries` to the count. The caller holds the lane.
    #[inline(always)]
    pub(crate) fn add(&self, lane: usize, entries: i64) {
        let delta = &self.deltas[lane].0;
        // Relaxed: one writer at a time, handed over with the lane; readers need only a recent sum.
        delta.store(delta.load(Ordering::Relaxed) + entries, Ordering::Relaxed);
    }

    /// Sets the present number of entries. Nobody may change it meanwhile.
    pub(crate) fn set(&self, entries: u64) {
        // Relaxed: as in `add`.
        self.base.store(entries as i64 - self.delta(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<u64> {
        // Relaxed: as in `add`.
        let base = self.base.load(Ordering::Relaxed);
        (base != UNKNOWN).then(|| (base + self.delta()).max(0) as u64)
    }

    fn delta(&self) -> i64 {
        // Relaxed: as in `add`.
        self.deltas.iter().map(|delta| delta.0.load(Ordering::Relaxed)).sum()
    }
}
