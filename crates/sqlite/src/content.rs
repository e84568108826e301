//! Operations of every file of SQLite.

use crate::Result;
use crate::slowdown::Slowdown;

/// Bytes from 0 to a size.
pub(crate) trait Content {
    /// The simulated slowdown of the pool.
    fn slowdown(&self) -> Slowdown;

    /// Reads, and returns the number of bytes read: fewer than requested at the end of the file.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize>;

    /// Writes. Writing beyond the end makes the file larger; a gap reads as zeros.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the size.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Makes all writes durable.
    fn sync(&mut self) -> Result<()>;

    /// Size in bytes.
    fn size(&mut self) -> Result<u64>;

    /// Guarantees for SQLite: bits `IOCAP_*`.
    fn characteristics(&self) -> i32;
}
