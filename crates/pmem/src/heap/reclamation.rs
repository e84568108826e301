//! When retired memory is freed.

/// When a heap frees retired blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reclamation {
    /// Number of retired blocks of a lane that make a batch. A batch costs two fences, whatever its
    /// size.
    pub batch: usize,
    /// Number of retired blocks between two attempts to free a batch. An attempt may interrupt
    /// every thread.
    pub attempt: usize,
}

impl Default for Reclamation {
    /// A batch costs about 1/21 fence for each block: of 64, 42 are old enough to be freed.
    fn default() -> Self {
        Reclamation { batch: 64, attempt: 16 }
    }
}

impl Reclamation {
    /// Number of retired blocks between two attempts to advance the epoch, so that a third of a
    /// batch can be freed when it is due, or more.
    pub(super) fn third_of_batch(self) -> usize {
        (self.batch / 3).max(1)
    }
}
