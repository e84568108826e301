//! The part of a log that all its handles in a process share, and reading.
//!
//! A log can lie at any offset of any heap, so its methods take the heap as an argument.

use std::sync::atomic::{AtomicU64, Ordering};

use remanent_pmem::heap::{Block, Heap};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Medium, WORD_LEN};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::arrivals::Arrivals;
use super::layout::{CONTENT, Head, STATE, SUM, left, slot};
use crate::pair::Pair;
use crate::segments::Segments;
use crate::{Error, Result};

/// Content up to this length is read without an allocation.
const SHORT_LEN: usize = 512;

/// A log without the heap that it lies in.
pub(crate) struct Core {
    pub(super) header: u64,
    pub(super) seed: u64,
    pub(super) segments: Segments,
    /// How often the log was opened.
    pub(super) term: u64,
    /// Held while records are written that no reader can see yet. Who holds it does not wait for
    /// `committed`.
    pub(super) reserving: PauseMutex<()>,
    /// End of the written records, committed or not.
    pub(super) written: AtomicU64,
    /// Held by the thread that commits, for itself and for the threads that wait meanwhile.
    pub(super) committed: PauseMutex<Committed>,
    /// End of the durable records, which is the end that readers see.
    pub(super) end: AtomicU64,
    /// Position of the first record that is not truncated.
    pub(super) first: AtomicU64,
    pub(super) arrivals: Arrivals,
}

/// What was committed last.
pub(super) struct Committed {
    /// Number of the state's record.
    pub(super) number: u64,
    /// The position in that record up to which everything is durable.
    pub(super) noted: u64,
    /// End of what is durable.
    pub(super) end: u64,
    /// Whether both records of the state are complete.
    pub(super) is_sealed: bool,
}

impl Core {
    pub(super) fn pair(&self) -> Pair {
        Pair::new(self.header + STATE, self.seed)
    }

    /// End of the last record, where the next one will begin.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        // SeqCst: partner of the store in `commit_written`, so that the records are visible; and
        // `Arrivals` needs the order.
        self.end.load(Ordering::SeqCst)
    }

    /// Where the first record begins.
    #[inline]
    pub(crate) fn first(&self) -> u64 {
        // Acquire: partner of the Release in `truncate_front`.
        self.first.load(Ordering::Acquire)
    }

    /// Whether `block` belongs to the log.
    pub(crate) fn is_linked<M: Medium>(segments: &Segments, medium: &M, block: Block) -> bool {
        segments.is_linked(medium, block)
    }

    /// Offsets of all blocks that belong to the log.
    pub(crate) fn blocks<M: Medium>(&self, medium: &M) -> Vec<u64> {
        self.segments.blocks(medium)
    }

    /// Pool offset of a position. `None` if the position has no segment.
    #[inline]
    pub(super) fn offset(&self, position: u64) -> Option<u64> {
        let segment = self.segments.offset(slot(position));
        (segment != 0).then(|| segment + crate::segments::SEGMENT_LEN - left(position))
    }

    #[inline]
    pub(super) fn word<M: Medium>(&self, medium: &M, position: u64) -> Option<u64> {
        self.offset(position).map(|offset| medium.load(offset))
    }

    /// Splits a range of positions into pieces of one segment each, and passes offset and length of
    /// each to `use_piece`. False if a segment is missing.
    #[must_use]
    pub(super) fn pieces(
        &self,
        mut from: u64,
        to: u64,
        mut use_piece: impl FnMut(u64, u64),
    ) -> bool {
        while from < to {
            let Some(offset) = self.offset(from) else { return false };
            let len = left(from).min(to - from);
            use_piece(offset, len);
            from += len;
        }
        true
    }

    /// The checksum of a record.
    pub(super) fn sum(&self, position: u64, head: Head, content: &[u8]) -> u64 {
        let words = [position, head.to_word()].map(u64::to_le_bytes);
        xxh3_64_with_seed(content, xxh3_64_with_seed(words.as_flattened(), self.seed))
    }

    /// Passes head and content of the record at a position to `use_record`, if an intact record
    /// lies there and ends at `limit` or before.
    pub(super) fn with_record<M: Medium, R>(
        &self,
        medium: &M,
        at: u64,
        limit: u64,
        use_record: impl FnOnce(Head, &[u8]) -> R,
    ) -> Option<R> {
        let room = limit.checked_sub(at)?;
        if !at.is_multiple_of(WORD_LEN) || room < CONTENT + WORD_LEN {
            return None;
        }
        let head = Head::from_word(self.word(medium, at)?);
        let len = head.record_len();
        if len > room || self.word(medium, at + len - WORD_LEN)? != len {
            return None;
        }
        let sum = self.word(medium, at + SUM)?;
        let (mut short, mut long);
        let content = if head.len <= SHORT_LEN as u64 {
            short = [0; SHORT_LEN];
            &mut short[..head.len as usize]
        } else {
            long = vec![0; head.len as usize];
            &mut long[..]
        };
        let mut read = 0;
        let from = at + CONTENT;
        let is_there = self.pieces(from, from + head.len, |offset, len| {
            let end = read + len as usize;
            medium.read(offset, &mut content[read..end]);
            read = end;
        });
        (is_there && self.sum(at, head, content) == sum).then(|| use_record(head, content))
    }

    /// Passes the content of the record at a position to `use_record`, with the position of the
    /// next record. `None` if the position was truncated, or lies at the end of the log or beyond.
    ///
    /// # Errors
    ///
    /// When no intact record begins there, or the medium met a fault.
    pub(crate) fn read<M: Medium, R>(
        &self,
        heap: &Heap<M>,
        at: u64,
        use_record: impl FnOnce(&[u8], u64) -> R,
    ) -> Result<Option<R>> {
        let end = self.end();
        if at < self.first() || at >= end {
            return Ok(None);
        }
        let use_record = |head: Head, content: &[u8]| use_record(content, at + head.record_len());
        let found = self.with_record(heap.medium(), at, end, use_record);
        heap.verify()?;
        match found {
            Some(found) => Ok(Some(found)),
            // The record was truncated while it was read.
            None if at < self.first() => Ok(None),
            None => Err(self.no_record(heap, at)),
        }
    }

    /// Where the record begins that ends at a position. `None` at the first record and before it,
    /// and beyond the end.
    ///
    /// # Errors
    ///
    /// When no intact record ends there, or the medium met a fault.
    pub(crate) fn before<M: Medium>(&self, heap: &Heap<M>, at: u64) -> Result<Option<u64>> {
        if at <= self.first() || at > self.end() {
            return Ok(None);
        }
        let is_aligned = at.is_multiple_of(WORD_LEN);
        let len = at
            .checked_sub(WORD_LEN)
            .filter(|_| is_aligned)
            .and_then(|word| self.word(heap.medium(), word));
        heap.verify()?;
        let first = self.first();
        match len.and_then(|len| at.checked_sub(len)) {
            _ if at <= first => Ok(None),
            Some(begin) if begin < at && begin >= first => Ok(Some(begin)),
            _ => Err(self.no_record(heap, at.saturating_sub(WORD_LEN))),
        }
    }

    #[cold]
    pub(super) fn no_record<M: Medium>(&self, heap: &Heap<M>, at: u64) -> Error {
        let what = format!(
            "no whole record lies at position {at} of the log, if that is a position that was \
             returned for one"
        );
        Error::corrupt(heap, self.offset(at).unwrap_or(self.header), what)
    }
}
