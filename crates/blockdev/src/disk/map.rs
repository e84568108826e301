//! Where the leaves of the disk's own tree lie, in memory.
//!
//! So reading follows one entry and not the whole path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{Child, NODE_ENTRIES};

/// Leaves of a segment of [`Leaves`].
const SEGMENT_LEAVES: u64 = 4096;
/// Leaves of the largest disk.
const LEAVES_MAX: u64 = (1 << 32) / NODE_ENTRIES + 1;
/// Set in what is known of a leaf.
const KNOWN: u64 = 1 << 63;

/// Where the leaves of the disk's tree lie, as far as it is known; volatile.
#[derive(Debug)]
pub(crate) struct Leaves {
    segments: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Leaves {
    pub(crate) fn new() -> Self {
        let count = LEAVES_MAX.div_ceil(SEGMENT_LEAVES);
        Leaves { segments: (0..count).map(|_| OnceLock::new()).collect() }
    }

    /// The leaf, or none; `None` when it is not known.
    #[inline]
    pub(crate) fn get(&self, leaf: u64) -> Option<Child> {
        let segment = self.segments.get((leaf / SEGMENT_LEAVES) as usize)?.get()?;
        // Acquire: with `set`, so that the leaf's content is seen.
        let word = segment[(leaf % SEGMENT_LEAVES) as usize].load(Ordering::Acquire);
        (word & KNOWN != 0).then(|| Child::decode(word & !KNOWN))
    }

    pub(crate) fn set(&self, leaf: u64, child: Child) {
        let Some(segment) = self.segments.get((leaf / SEGMENT_LEAVES) as usize) else { return };
        let segment =
            segment.get_or_init(|| (0..SEGMENT_LEAVES).map(|_| AtomicU64::new(0)).collect());
        // Release: with `get`.
        segment[(leaf % SEGMENT_LEAVES) as usize].store(child.encode() | KNOWN, Ordering::Release);
    }
}
