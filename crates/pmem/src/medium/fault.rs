//! Faults that loads and stores cannot report.

/// A fault of the medium that a plain load or store cannot report.
///
/// Loads and stores have no error path, which would cost time in every access. A medium that meets
/// a fault answers zeros and remembers the first one. An operation asks for it with
/// [`Medium::fault`](super::Medium::fault) before it acknowledges anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The page at this offset cannot be read: uncorrectable memory, or the file was truncated.
    Poisoned(u64),
    /// An access beyond the pool: a damaged link.
    OutOfRange(u64),
    /// Write-back of the page at this offset failed (`msync` answered with this errno).
    WriteBack(u64, i32),
}
