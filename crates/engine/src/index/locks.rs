//! Locks of keys: two statements do not both find that a key is not there.

use remanent_pmem::Medium;
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use smallvec::SmallVec;

/// Locks, each for the keys with some hashes.
#[derive(Debug)]
pub(crate) struct KeyLocks(Box<[PauseMutex<()>]>);

/// The locks of a statement's keys.
pub(crate) type HeldKeys<'l> = SmallVec<[PauseGuard<'l, ()>; 4]>;

impl KeyLocks {
    const COUNT: u64 = 4096;

    pub(crate) fn new() -> Self {
        KeyLocks((0..Self::COUNT).map(|_| PauseMutex::default()).collect())
    }

    /// Locks the keys with these hashes, each in the index with this id.
    #[inline]
    pub(crate) fn lock<M: Medium>(
        &self,
        medium: &M,
        keys: impl Iterator<Item = (u32, u64)>,
    ) -> HeldKeys<'_> {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let place = |(index, hash): (u32, u64)| {
            ((hash ^ u64::from(index)).wrapping_mul(FACTOR) >> 32) % Self::COUNT
        };
        let mut places: SmallVec<[u64; 4]> = keys.map(place).collect();
        // In one order, so that two statements never wait for each other.
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| self.0[place as usize].lock(medium)).collect()
    }
}
