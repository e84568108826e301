//! When memory that was retired is freed.

/// When a heap frees the blocks that are retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclamation {
    /// Retired blocks of a lane that are worth a batch; it costs two fences, however many they are.
    pub batch: usize,
    /// Retired blocks between two attempts to free a batch; an attempt may interrupt every thread.
    pub attempt: usize,
}

impl Default for Reclamation {
    /// A batch costs 1/32 fence a block.
    fn default() -> Self {
        Reclamation { batch: 64, attempt: 16 }
    }
}

impl Reclamation {
    /// Retired blocks between two attempts to move the epoch on, so that half of a batch can be freed when it is due.
    pub(super) fn half_batch(self) -> usize {
        (self.batch / 2).max(1)
    }
}
