//! Where a structure lies: in a heap of its own, or beside others in one that they share.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use remanent_pmem::Medium;
use remanent_pmem::heap::Heap;

/// Number of a structure among those of its heap.
///
/// Blocks of hash maps and of trees say to which structure they belong, so that recovery need not
/// ask each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u32);

impl MemberId {
    /// The structure that has a heap to itself.
    pub(crate) const ALONE: MemberId = MemberId(0);
    /// The greatest number, 16,777,215: blocks have 24 bits for it.
    pub const MAX: MemberId = MemberId((1 << 24) - 1);

    /// The number `number`; `None` for 0, which a structure has that is alone in its heap, and
    /// beyond [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u32) -> Option<Self> {
        if number != 0 && number <= Self::MAX.0 { Some(MemberId(number)) } else { None }
    }

    /// As it lies in a block: 0 for a structure that is alone.
    #[must_use]
    pub(crate) const fn from_block(number: u32) -> Option<Self> {
        if number <= Self::MAX.0 { Some(MemberId(number)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// What of the number an entry of a hash map has room for.
    pub(crate) const fn low_byte(self) -> u8 {
        self.0 as u8
    }
}

/// Heap, header and number of a structure.
///
/// It stands for its heap: methods of [`Heap`] can be called on it.
pub struct Site<M: Medium> {
    heap: Arc<Heap<M>>,
    header: u64,
    member: MemberId,
}

impl<M: Medium> Site<M> {
    /// A place in a heap that several structures share.
    ///
    /// `header` is the offset of a block, or of a part of one, that the heap's owner keeps for the
    /// structure. It is as long as [`header_len`](super::Shareable::header_len) says, and aligned
    /// to 64 bytes. No other structure of the heap may have the number `member`.
    ///
    /// # Panics
    ///
    /// When the header is not aligned.
    #[must_use]
    pub fn shared(heap: &Arc<Heap<M>>, header: u64, member: MemberId) -> Self {
        assert!(
            header.is_multiple_of(64),
            "the header of a structure begins a line, not at {header:#x}"
        );
        Site { heap: Arc::clone(heap), header, member }
    }

    /// A heap that the structure has to itself, with the header where the heap has room for one.
    pub(crate) fn alone(heap: Heap<M>) -> Self {
        let header = heap.header();
        Site { heap: Arc::new(heap), header, member: MemberId::ALONE }
    }

    /// Offset of the structure's header.
    #[inline(always)]
    pub fn header(&self) -> u64 {
        self.header
    }

    /// Number of the structure in its heap.
    #[inline(always)]
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Whether the heap has no other structure.
    pub(crate) fn is_alone(&self) -> bool {
        self.member == MemberId::ALONE
    }
}

impl<M: Medium> Deref for Site<M> {
    type Target = Heap<M>;

    #[inline(always)]
    fn deref(&self) -> &Heap<M> {
        &self.heap
    }
}

impl<M: Medium> Clone for Site<M> {
    fn clone(&self) -> Self {
        Site { heap: Arc::clone(&self.heap), ..*self }
    }
}

impl<M: Medium> fmt::Debug for Site<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, member) = (self.header, self.member.0);
        f.debug_struct("Site")
            .field("header", &header)
            .field("member", &member)
            .finish_non_exhaustive()
    }
}
