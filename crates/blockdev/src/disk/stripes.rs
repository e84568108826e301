//! Locks for lines, by their offset.

use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium};
use smallvec::SmallVec;

/// Number of locks. Two operations seldom want the same one.
const STRIPES: usize = 1024;

/// Locks for lines. Each line has one lock; several lines may share it.
#[derive(Debug)]
pub(crate) struct Stripes(Box<[PauseMutex<()>]>);

/// Locks that are held.
pub(crate) type Held<'a> = SmallVec<[PauseGuard<'a, ()>; 12]>;

impl Stripes {
    pub(crate) fn new() -> Self {
        Stripes((0..STRIPES).map(|_| PauseMutex::new(())).collect())
    }

    #[inline]
    fn index(at: u64) -> usize {
        (at / LINE_LEN) as usize % STRIPES
    }

    /// Waits for the lock of the line at `at`.
    #[inline]
    pub(crate) fn hold_one<M: Medium>(&self, medium: &M, at: u64) -> PauseGuard<'_, ()> {
        self.0[Stripes::index(at)].lock(medium)
    }

    /// Waits for the locks of some lines, in ascending order.
    pub(crate) fn hold<M: Medium>(&self, medium: &M, lines: impl Iterator<Item = u64>) -> Held<'_> {
        let mut indices: SmallVec<[usize; 12]> = lines.map(Stripes::index).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| self.0[index].lock(medium)).collect()
    }
}
