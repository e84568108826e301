//! Ranges that may be viewed in place.

/// A range of pool memory that is published and does not change while it is viewed.
///
/// [`Medium::view`](super::Medium::view) hands out slices of such ranges, so creating one is a
/// promise.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    offset: u64,
    len: u64,
}

impl Frozen {
    /// Promises that `len` bytes at `offset` are initialised, and are not written while any view of
    /// this value lives.
    ///
    /// # Safety
    ///
    /// No thread stores to the range between this call and the end of the last view: the range is
    /// published and immutable, and its memory is not reclaimed meanwhile.
    pub const unsafe fn new(offset: u64, len: u64) -> Self {
        Frozen { offset, len }
    }

    /// Pool offset of the first byte.
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether the range is empty.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}
