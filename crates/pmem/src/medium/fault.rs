//! What loads and stores cannot report.

/// Something the medium could not do that a plain load or store cannot report.
///
/// Loads and stores have no error path of their own: they would pay for it on every access. A medium
/// that meets a fault answers zeros, remembers the first one, and the operation asks with
/// [`Medium::fault`](super::Medium::fault) before it acknowledges anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The page at this offset cannot be read: uncorrectable memory, or the file was truncated.
    Poisoned(u64),
    /// An offset beyond the pool was followed: a damaged link.
    OutOfRange(u64),
    /// Write-back of the page at this offset failed (`msync` answered with this errno).
    WriteBack(u64, i32),
}
