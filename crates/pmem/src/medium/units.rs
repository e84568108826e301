//! Units of length on a medium.

/// Bytes of a word, aligned: the largest unit that a crash does not tear.
pub const WORD_LEN: u64 = 8;
/// Bytes of a cache line, the unit of [`Medium::flush`](super::Medium::flush).
pub const LINE_LEN: u64 = 64;
/// Bytes of a page, the unit of `msync`.
pub const PAGE_LEN: u64 = 4096;

/// Bytes of a huge page.
pub(crate) const HUGE_LEN: u64 = 2 << 20;

/// The number of lines that `len` bytes at `offset` touch, and the first line's offset.
///
/// Empty ranges touch none.
#[inline]
pub fn lines(offset: u64, len: u64) -> (u64, u64) {
    let first = offset & !(LINE_LEN - 1);
    if len == 0 {
        return (first, 0);
    }
    let last = offset.saturating_add(len - 1) & !(LINE_LEN - 1);
    (first, (last - first) / LINE_LEN + 1)
}
