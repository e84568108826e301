//! On-media layout of a vector.
//!
//! ```text
//! header, 1312 bytes; at its begin in a heap of the vector's own
//! byte    0  length: a pair of lines (`pair.rs`); words of a record:
//!              0  elements
//!              1  the first of them that the checksum covers; it covers those up to the last
//!              2  checksum of their bytes
//!       128  changes: two of 256 bytes, written in turn
//!       640  directory of the runs (`segments.rs`)
//!
//! change
//! byte    0  number of the change; odd ones lie in the second place
//!         8  number of the length's record when it was made
//!        16  index of the element
//!        24  checksum of the words before and the value
//!        32  value
//!
//! run k      C << min(k, 6) elements, one after the other, in a segment of their own
//! ```
//!
//! C is the least power of two with which run 0 has 64 KiB or more, so that shifts alone turn an
//! index into the place of its element. From run 6 on, all runs have the same length: 4 MiB, if the
//! elements are words.

use remanent_pmem::Persistent;
use remanent_pmem::pool::layout::CHUNK_LEN;

use crate::pair::PAIR_LEN;
use crate::segments::{DIRECTORY_LEN, Slot};

pub(super) const LENGTH: u64 = 0;
pub(super) const CHANGES: u64 = LENGTH + PAIR_LEN;
pub(super) const DIRECTORY: u64 = CHANGES + 2 * CHANGE_LEN;
/// Bytes of a header.
pub(crate) const HEADER_LEN: u64 = DIRECTORY + DIRECTORY_LEN;
const _: () = assert!(HEADER_LEN <= 2048, "the header has 2 KiB");

/// Bytes of a change.
pub(super) const CHANGE_LEN: u64 = 256;
pub(super) const CHANGE_RECORD: u64 = 8;
pub(super) const CHANGE_INDEX: u64 = 16;
pub(super) const CHANGE_SUM: u64 = 24;
pub(super) const CHANGE_VALUE: u64 = 32;

/// Bytes of the longest element that [`Vector::set`](super::Vector::set) takes.
pub(super) const CHANGED_MAX: u64 = CHANGE_LEN - CHANGE_VALUE;
/// Bytes of the longest element.
const ELEMENT_MAX: usize = 1 << 20;
/// The last run that is twice as long as the one before it.
const LAST_DOUBLED: u32 = 6;

/// Words of the length's record.
pub(super) const LEN: usize = 0;
pub(super) const FROM: usize = 1;
pub(super) const SUM: usize = 2;

/// The place of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) run: Slot,
    /// Bytes from the begin of the run.
    pub(super) within: u64,
    /// Elements from this one to the end of the run.
    pub(super) left: u64,
}

/// How elements of a type lie in runs.
pub(super) struct Shape<T>(std::marker::PhantomData<T>);

impl<T: Persistent> Shape<T> {
    pub(super) const SIZE: u64 = {
        let len = size_of::<T>();
        assert!(
            len > 0 && len.is_multiple_of(8) && len <= ELEMENT_MAX,
            "an element of a vector has a multiple of 8 bytes, and 1 MiB at most: pack shorter \
             ones into a word, or fill a record with a field such as `_pad: [u8; 4]`"
        );
        assert!(align_of::<T>() <= 64, "an element of a vector is aligned to a line at most");
        len as u64
    };
    /// Binary logarithm of the elements of run 0.
    const BITS: u32 = CHUNK_LEN.div_ceil(Self::SIZE).next_power_of_two().ilog2();
    /// Elements before the first run that is as long as the one before it.
    const DOUBLED: u64 = ((2 << LAST_DOUBLED) - 1) << Self::BITS;

    #[inline(always)]
    pub(super) fn place(index: u64) -> Place {
        let (run, at, bits) = if index < Self::DOUBLED {
            let run = ((index >> Self::BITS) + 1).ilog2();
            (run, index - (((1 << run) - 1) << Self::BITS), Self::BITS + run)
        } else {
            let bits = Self::BITS + LAST_DOUBLED;
            let index = index - Self::DOUBLED;
            let run = (index >> bits).saturating_add(1 + u64::from(LAST_DOUBLED));
            (u32::try_from(run).unwrap_or(u32::MAX), index & ((1 << bits) - 1), bits)
        };
        Place { run: Slot(run), within: at * Self::SIZE, left: (1 << bits) - at }
    }

    /// Bytes of a run.
    pub(super) fn run_len(run: Slot) -> u64 {
        Self::SIZE << (Self::BITS + run.0.min(LAST_DOUBLED))
    }

    /// Number of runs that `len` elements take.
    pub(super) fn runs(len: u64) -> u32 {
        len.checked_sub(1).map_or(0, |last| Self::place(last).run.0.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow_each_other<T: Persistent>(first: u64) {
        let mut expected = (Slot(0), 0);
        for index in 0..first << 9 {
            let Place { run, within, left } = Shape::<T>::place(index);
            assert_eq!((run, within), expected, "{index}");
            assert_eq!(within + left * Shape::<T>::SIZE, Shape::<T>::run_len(run), "{index}");
            expected =
                if left > 1 { (run, within + Shape::<T>::SIZE) } else { (Slot(run.0 + 1), 0) };
        }
    }

    #[test]
    fn elements_follow_each_other() {
        follow_each_other::<[u64; 512]>(16);
        follow_each_other::<[u64; 3]>(4096);
        follow_each_other::<[u64; 10_000]>(1);
    }

    #[test]
    fn runs_grow_to_4_mib() {
        let lens: Vec<u64> = (0..9).map(|run| Shape::<u64>::run_len(Slot(run)) >> 10).collect();
        assert_eq!(lens, [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096]);
        assert_eq!([0, 1, 8192, 8193].map(Shape::<u64>::runs), [0, 1, 1, 2]);
        assert_eq!(Shape::<u64>::place(u64::MAX).run, Slot(u32::MAX));
    }
}
