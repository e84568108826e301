//! On-media layout of a batched list.
//!
//! ```text
//! header (in the heap's 2 KiB)
//! byte  0  what is safe: a line transaction of 28 bytes
//!      64  the head: next, undo, epoch, as in an element of the log
//!     128  directory of the segments
//!
//! element                                   element of the log
//! byte  0  next                             byte  0  next
//!       8  key                                    8  undo: next as it was before `epoch`
//!      16  length of the value | ELEMENT         16  epoch in which next was changed last
//!      24  value, padded to 8                    24  key
//!                                                32  length of the value | ELEMENT
//! record of a changed link (table)               40  value, padded to 32
//! byte  0  whose link: a position, 0 for the head
//!       8  its new next
//!      16  RECORD                           safe: 7 bytes each
//!                                           byte  0  end of what is safe
//! filler (table)                                  7  last element
//! byte 16  PADDING to the page's end, or         14  log: epoch; table: end of what is applied
//!          SKIPPED to the next slot              21  number of elements
//! ```
//!
//! A link holds a *position*, `slot << 20 | offset in the segment`, or 0 for none. Positions are
//! used in ascending order, page by page. Only an element longer than a page crosses pages. An
//! element longer than an ordinary segment has a segment of its own, and the list continues in the
//! next slot. The first page of slot 0 is unused, so that no element has position 0.

use std::fmt;

use remanent_pmem::{LINE_LEN, PAGE_LEN};

use crate::segments::{DIRECTORY_LEN, SEGMENT_LEN, Slot};

/// Offset of the line transaction that says what is safe.
pub(crate) const SAFE: u64 = 0;
/// Offset of the link to the first element, in a line of its own.
pub(crate) const HEAD: u64 = LINE_LEN;
pub(crate) const DIRECTORY: u64 = 2 * LINE_LEN;
const _: () = assert!(DIRECTORY + DIRECTORY_LEN <= 2048, "the header has 2 KiB");

pub(crate) const NEXT: u64 = 0;
pub(crate) const UNDO: u64 = 8;
pub(crate) const EPOCH: u64 = 16;

/// Offsets of an element's fields, and its alignment.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub(crate) key: u64,
    pub(crate) len: u64,
    pub(crate) value: u64,
    align: u64,
}

impl Shape {
    pub(crate) const PLAIN: Shape = Shape { key: 8, len: 16, value: 24, align: 8 };
    /// The alignment keeps next, undo and epoch in one line.
    pub(crate) const LOGGED: Shape = Shape { key: 24, len: 32, value: 40, align: 32 };

    /// Bytes of an element whose value has `len` bytes.
    #[inline(always)]
    pub(crate) const fn size(self, len: u64) -> u64 {
        (self.value + len + (self.align - 1)) & !(self.align - 1)
    }

    /// Whether an element may begin at `position`.
    pub(crate) const fn is_aligned(self, position: Position) -> bool {
        position.0.is_multiple_of(self.align)
    }
}

/// Bits of a length word that hold the length.
pub(crate) const LEN_MASK: u64 = u32::MAX as u64;
/// Longest value.
pub(crate) const VALUE_LEN_MAX: u64 = LEN_MASK;

const KIND_SHIFT: u32 = 62;
pub(crate) const PADDING: u64 = 0;
pub(crate) const ELEMENT: u64 = 1 << KIND_SHIFT;
pub(crate) const RECORD: u64 = 2 << KIND_SHIFT;
pub(crate) const SKIPPED: u64 = 3 << KIND_SHIFT;
/// Bits of a length word that hold the kind of the item.
pub(crate) const KIND_MASK: u64 = 3 << KIND_SHIFT;

/// Offsets of a record's words.
pub(crate) const RECORD_OF: u64 = 0;
pub(crate) const RECORD_NEXT: u64 = 8;
/// Offset of the word with the kind, in every item of a table.
pub(crate) const ITEM_KIND: u64 = 16;
/// Bytes of a record, and of the shortest filler.
pub(crate) const RECORD_LEN: u64 = 24;

/// A position in the segments, which are filled in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(crate) u64);

impl Position {
    /// The end of a list.
    pub(crate) const NONE: Position = Position(0);
    /// Position of the first element.
    pub(crate) const FIRST: Position = Position(PAGE_LEN);

    /// The beginning of a slot.
    #[inline]
    pub(crate) const fn in_slot(slot: Slot) -> Self {
        Position((slot.0 as u64) << SEGMENT_LEN.ilog2())
    }

    #[inline]
    pub(crate) const fn slot(self) -> Slot {
        Slot((self.0 >> SEGMENT_LEN.ilog2()) as u32)
    }

    /// The slot behind that of this position.
    #[inline]
    pub(crate) const fn next_slot(self) -> Slot {
        Slot(self.slot().0 + 1)
    }

    /// Offset in the segment.
    #[inline]
    pub(crate) const fn within(self) -> u64 {
        self.0 & (SEGMENT_LEN - 1)
    }

    #[inline]
    pub(crate) const fn plus(self, bytes: u64) -> Self {
        Position(self.0 + bytes)
    }

    /// The end of the page that has the byte before this position.
    #[inline]
    pub(crate) const fn page_end(self) -> Self {
        Position(self.0.next_multiple_of(PAGE_LEN))
    }

    /// Bytes from here to the end of the page.
    #[inline]
    pub(crate) const fn left_in_page(self) -> u64 {
        self.page_end().0 - self.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:#x}", self.slot().0, self.within())
    }
}

/// The committed state, which a crash cannot undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safe {
    /// Everything before this is durable.
    pub(crate) end: Position,
    /// The last element of the list, if it has one.
    pub(crate) tail: Position,
    /// For `Log`: the last epoch whose changes of links count. For `Table`: records before this
    /// position are applied.
    pub(crate) mark: u64,
    /// Elements of the list.
    pub(crate) count: u64,
}

/// [`Safe`] as it is stored. Half of a line has 31 bytes, and none of the numbers needs more than
/// 56 bits.
pub(crate) type SafeBytes = [u8; 4 * FIELD_LEN];
const FIELD_LEN: usize = 7;

impl Safe {
    /// The state of an empty list, whose header is zeros.
    pub(crate) const EMPTY: Safe =
        Safe { end: Position::FIRST, tail: Position::NONE, mark: 0, count: 0 };

    pub(crate) fn to_bytes(self) -> SafeBytes {
        let mut bytes = SafeBytes::default();
        let fields = [self.end.0, self.tail.0, self.mark, self.count];
        for (field, stored) in fields.iter().zip(bytes.chunks_exact_mut(FIELD_LEN)) {
            debug_assert!(field >> (8 * FIELD_LEN) == 0, "a number of more than 56 bits");
            stored.copy_from_slice(&field.to_le_bytes()[..FIELD_LEN]);
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &SafeBytes) -> Self {
        let [end, tail, mark, count] = std::array::from_fn(|index| {
            let mut field = [0; 8];
            field[..FIELD_LEN].copy_from_slice(&bytes[index * FIELD_LEN..][..FIELD_LEN]);
            u64::from_le_bytes(field)
        });
        if end == 0 {
            return Self::EMPTY;
        }
        Safe { end: Position(end), tail: Position(tail), mark, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_safe_survives_its_bytes() {
        let safe = Safe { end: Position(u64::MAX >> 8), tail: Position(4096), mark: 7, count: 1 };
        assert_eq!(Safe::from_bytes(&safe.to_bytes()), safe);
        assert_eq!(Safe::from_bytes(&SafeBytes::default()), Safe::EMPTY);
        let end = Position::in_slot(Slot(u32::MAX));
        assert_eq!(end.0 >> 56, 0, "every position has at most 56 bits");
    }

    #[test]
    fn an_element_of_the_log_has_its_link_in_one_line() {
        for at in (0..LINE_LEN).step_by(8).filter(|&at| Shape::LOGGED.is_aligned(Position(at))) {
            assert!(at % LINE_LEN + EPOCH + 8 <= LINE_LEN, "{at}");
        }
        assert_eq!(Shape::LOGGED.size(0), 64);
        assert_eq!(Shape::PLAIN.size(100), 128);
    }

    #[test]
    fn positions_name_pages() {
        assert_eq!(Position(1 << 20).left_in_page(), 0);
        assert_eq!(Position((1 << 20) + 24).left_in_page(), PAGE_LEN - 24);
        assert_eq!(Position((3 << 20) + 24).slot(), Slot(3));
    }
}
