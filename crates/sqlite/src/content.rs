//! What every file of SQLite can do.

use crate::Result;
use crate::slowdown::Slowdown;

/// Bytes from 0 to a size.
pub(crate) trait Content {
    /// How much slower than it is the pool is to seem.
    fn slowdown(&self) -> Slowdown;

    /// Reads, and returns how many bytes there were: fewer than asked for at the end.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize>;

    /// Writes. What reaches beyond the end makes the file larger, and a gap reads as zeros.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Sets the size.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Makes all that was written durable.
    fn sync(&mut self) -> Result<()>;

    /// Bytes there are.
    fn size(&mut self) -> Result<u64>;

    /// What SQLite may rely on: bits `IOCAP_*`.
    fn characteristics(&self) -> i32;
}
