//! Ranges that may be looked at in place.

/// A range of pool memory that was published and will not change while it is viewed.
///
/// [`Medium::view`](super::Medium::view) hands out slices into such ranges, so making one is a promise.
#[derive(Clone, Copy, Debug)]
pub struct Frozen {
    offset: u64,
    len: u64,
}

impl Frozen {
    /// Promises that `len` bytes at `offset` are initialised and are not written for as long as
    /// any view made from this value lives.
    ///
    /// # Safety
    ///
    /// No store to the range, by any thread, may happen between this call and the end of the last
    /// view: the range is published and immutable, and its memory is not reclaimed meanwhile.
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

    /// Whether the range holds no byte.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }
}
