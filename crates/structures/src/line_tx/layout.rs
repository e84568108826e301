//! On-media layout of transactional objects.
//!
//! ```text
//! header (in the heap's 2 KiB)          line, for at most 31 bytes
//! byte  0  form: 1 line, 2 copies,      byte  0  half 0: 31 bytes, 1 unused
//!          3 checked                         32  half 1: 31 bytes
//!       8  number of objects                 63  selector: the half that is valid
//!      16  bytes from one to the next
//!      24  offset of the first          copies, for at most 1024 bytes
//!      64  the objects, when they fit   byte  0  selector: the copy that is valid
//!                                            64  copy 0, whole lines
//!                                             …  copy 1, whole lines
//!
//!                                       checked: two of these, in lines of their own
//!                                       byte  0  version; the copy is the version's lowest bit
//!                                             8  xxh3 of the bytes, seeded with the version
//!                                            16  the bytes
//! ```
//!
//! A *line* is the paper's layout (its Figure 3). *Checked* is for media with write disturbance.

use remanent_pmem::LINE_LEN;

use super::{DATA_MAX, LINE_DATA_MAX};

pub(super) const FORM: u64 = 0;
pub(super) const COUNT: u64 = 8;
pub(super) const STRIDE: u64 = 16;
pub(super) const FIRST: u64 = 24;
/// Offset of the objects in the header, when they fit there.
pub(super) const INSIDE: u64 = 64;
/// Bytes of the header.
pub(super) const HEADER_LEN: u64 = 2048;

/// Offset of the second half of a line.
pub(super) const HALF_LEN: u64 = 32;
/// The word of a line that holds the selector, in its highest byte.
pub(super) const SELECTOR_WORD: u64 = 56;
pub(super) const SELECTOR_SHIFT: u32 = 56;

/// Offset of the bytes in a checked copy, behind version and checksum.
pub(super) const CHECKED_DATA: u64 = 16;

/// How an object is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Form {
    /// Two halves of one line.
    Line = 1,
    /// Two copies, and a line with a selector that says which copy is valid.
    Copies = 2,
    /// Two copies with version and checksum.
    Checked = 3,
}

impl Form {
    /// The form for objects of `len` bytes.
    pub(super) fn choose(len: usize, write_disturbance: bool) -> Self {
        debug_assert!(len <= DATA_MAX, "refused by require_fits");
        match (write_disturbance, len <= LINE_DATA_MAX) {
            (true, _) => Form::Checked,
            (false, true) => Form::Line,
            (false, false) => Form::Copies,
        }
    }

    /// The form that the header names.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        [Form::Line, Form::Copies, Form::Checked].into_iter().find(|&form| form as u64 == word)
    }

    /// Distance between two objects in bytes: whole lines.
    pub(super) const fn stride(self, len: u64) -> u64 {
        match self {
            Form::Line => LINE_LEN,
            Form::Copies => LINE_LEN + 2 * self.copy_len(len),
            Form::Checked => 2 * self.copy_len(len),
        }
    }

    /// Bytes of one copy: whole lines.
    pub(super) const fn copy_len(self, len: u64) -> u64 {
        match self {
            Form::Line => HALF_LEN,
            Form::Copies => len.next_multiple_of(LINE_LEN),
            Form::Checked => (CHECKED_DATA + len).next_multiple_of(LINE_LEN),
        }
    }

    /// Whether the version `stored` on the medium may be the version `known`.
    pub(super) fn is_version(self, stored: u64, known: u64) -> bool {
        // The other forms store only the lowest bit.
        if self == Form::Checked { stored == known } else { stored == known & 1 }
    }

    /// Offset of the bytes of copy `version & 1` of the object at `base`.
    #[inline(always)]
    pub(crate) const fn data(self, base: u64, version: u64, len: u64) -> u64 {
        let before = (version & 1) * self.copy_len(len);
        match self {
            Form::Line => base + before,
            Form::Copies => base + LINE_LEN + before,
            Form::Checked => base + before + CHECKED_DATA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_take_whole_lines() {
        assert_eq!(Form::Line.stride(31), 64);
        assert_eq!(Form::Copies.stride(32), 192);
        assert_eq!(Form::Copies.stride(1024), 64 + 2048);
        // Version, checksum and 31 bytes fit into a line.
        assert_eq!(Form::Checked.stride(31), 128);
        assert_eq!(Form::Checked.stride(1024), 2 * (1024 + 64));
    }

    #[test]
    fn no_copy_shares_a_line_with_another_copy_but_in_the_form_that_is_a_line() {
        for form in [Form::Copies, Form::Checked] {
            for len in [1, 48, 49, 64, 65, 1024] {
                let (first, second) = (form.data(0, 0, len), form.data(0, 1, len));
                assert!((first + len - 1) / LINE_LEN < second / LINE_LEN, "{form:?} {len}");
                assert!(second + len <= form.stride(len));
            }
        }
    }

    #[test]
    fn the_form_follows_size_and_medium() {
        assert_eq!(Form::choose(31, false), Form::Line);
        assert_eq!(Form::choose(32, false), Form::Copies);
        assert_eq!(Form::choose(8, true), Form::Checked);
        assert_eq!(Form::from_word(2), Some(Form::Copies));
        assert_eq!(Form::from_word(0), None);
    }
}
