//! The bound on the length of a log: its segments, compared with its live bytes.
//!
//! Segments take at most twice the bytes of live values, plus [`SLACK`] segments. The two are
//! compared when a segment is taken and when values die. When the log is too long, writers have to
//! compact (`pace.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::layout::{Head, Kind};

/// Bytes of a map's segments, and of the live values in them.
///
/// `segments` exceeds `bound` only during operations, by the records that these replace, or where
/// values longer than a quarter of a segment leave parts of segments unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the records of present values: key, value, 24 bytes, and padding to whole words.
    pub live: u64,
    /// Bytes of the log's segments, including empty ones in reserve.
    pub segments: u64,
    /// The bound: twice `live`, plus sixteen segments.
    pub bound: u64,
}

/// Segments that a map may have beyond twice its live bytes.
const SLACK: u64 = 16;
/// Writers compact when the log has more segments than this beyond twice its live bytes. Spare
/// segments do not count. The rest of [`SLACK`] is for the spares, and for segments that are taken
/// before writers compact: by operations under way, by the thread, and by compaction itself.
pub(super) const TRIGGER: u64 = 10;
/// Compaction by writers goes on until the log has no more segments than this beyond twice its live
/// bytes. Several segments share one batch that way.
pub(super) const TARGET: u64 = TRIGGER - 3;
/// The balance is compared each time that a segment's length divided by this has died.
const STEPS: u64 = 4;

/// The bytes in the log, and how many of them are live.
#[derive(Debug)]
pub(super) struct Balance {
    /// Bytes of an ordinary segment.
    segment_len: u64,
    /// Bytes of all segments, and of the spare ones.
    segments: AtomicU64,
    spare: AtomicU64,
    /// Bytes of values that were appended, and of those that have died since.
    appended: AtomicU64,
    dead: AtomicU64,
    /// Whether writers have to compact.
    is_behind: AtomicBool,
}

impl Balance {
    pub(super) fn new(segment_len: u64) -> Self {
        Balance {
            segment_len,
            segments: AtomicU64::new(0),
            spare: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
        }
    }

    /// Counts an appended record. The caller holds the log's tail, or opens the map.
    #[inline]
    pub(super) fn append(&self, head: Head) {
        if head.kind == Kind::Value {
            // Relaxed: the number is only compared, and has one writer at a time.
            let appended = self.appended.load(Ordering::Relaxed) + head.record_len();
            self.appended.store(appended, Ordering::Relaxed);
        }
    }

    /// Counts a value that died. Returns whether it is time to compare.
    #[inline]
    pub(super) fn bury(&self, head: Head) -> bool {
        if head.kind != Kind::Value {
            return false;
        }
        let (len, step) = (head.record_len(), self.segment_len / STEPS);
        // Relaxed: the number is only compared.
        let before = self.dead.fetch_add(len, Ordering::Relaxed);
        before / step != (before + len) / step
    }

    /// Counts all values as dead. Nobody may append meanwhile.
    pub(super) fn clear(&self) {
        // Relaxed: the numbers are only compared.
        self.dead.store(self.appended.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Counts a segment of `len` bytes that was taken.
    pub(super) fn take(&self, len: u64) {
        self.segments.fetch_add(len, Ordering::Relaxed);
    }

    /// Counts a segment of `len` bytes that was given back.
    pub(super) fn free(&self, len: u64) {
        self.segments.fetch_sub(len, Ordering::Relaxed);
    }

    /// Sets the number of spare bytes. The caller holds the lock of the spares.
    pub(super) fn set_spare(&self, len: u64) {
        self.spare.store(len, Ordering::Relaxed);
    }

    /// The space of the log, and how much of it is live.
    pub(super) fn space(&self) -> Space {
        // Relaxed: each number is right at some moment. `dead` is loaded first: its bytes were
        // appended before, so `appended` is not less.
        let dead = self.dead.load(Ordering::Relaxed);
        let live = self.appended.load(Ordering::Relaxed).saturating_sub(dead);
        let segments = self.segments.load(Ordering::Relaxed);
        Space { live, segments, bound: 2 * live + SLACK * self.segment_len }
    }

    /// Whether the log uses more than `slack` segments beyond twice its live bytes.
    pub(super) fn exceeds(&self, slack: u64) -> bool {
        let spare = self.spare.load(Ordering::Relaxed);
        let Space { live, segments, .. } = self.space();
        segments.saturating_sub(spare) > 2 * live + slack * self.segment_len
    }

    /// Makes writers compact, if the log is too long.
    pub(super) fn compare(&self) {
        if self.exceeds(TRIGGER) {
            // Relaxed: a writer that sees the flag late compacts one operation later.
            self.is_behind.store(true, Ordering::Relaxed);
        }
    }

    /// Whether writers have to compact.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        // Relaxed: as in `compare`.
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Ends the time in which writers have to compact.
    pub(super) fn catch_up(&self) {
        self.is_behind.store(false, Ordering::Relaxed);
    }
}
