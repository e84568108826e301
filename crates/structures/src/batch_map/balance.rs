//! How large a log may grow: what is in it, and what of that is live.
//!
//! Segments take at most twice the bytes of the values that are live, and [`SLACK`] segments. Whoever takes a segment,
//! or has values die, compares the two; when there is too much, writers have to compact (`pace.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::layout::{Head, Kind};

/// Bytes of a map's segments, and of what they are there for.
///
/// `segments` exceeds `bound` only while operations are under way, by what these replace; or where values longer than a
/// quarter of a segment leave the rest of segments unused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Records of values that are in the map: key, value, 24 bytes, and what fills them up to words.
    pub live: u64,
    /// Segments of the log, empty ones that are kept in reserve included.
    pub segments: u64,
    /// Twice what is live, and sixteen segments.
    pub bound: u64,
}

/// Segments that a map may have beyond twice what is live.
const SLACK: u64 = 16;
/// Segments beyond twice what is live at which writers compact, those not counted that wait to be used again. The rest of
/// [`SLACK`] is for these, and for what is taken until they compact: by those that have begun to write, by the
/// thread, and by compaction itself.
pub(super) const TRIGGER: u64 = 10;
/// Segments beyond twice what is live up to which they compact then: several for one batch.
pub(super) const TARGET: u64 = TRIGGER - 3;
/// Values die in so many steps a segment before anybody compares.
const STEPS: u64 = 4;

/// What is in the log, and what of it is live.
#[derive(Debug)]
pub(super) struct Balance {
    /// Bytes of an ordinary segment.
    segment_len: u64,
    /// Bytes of all segments, and of those that wait to be used again.
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

    /// Counts a record that is appended. Only by whoever holds the log's tail, or opens the map.
    #[inline]
    pub(super) fn append(&self, head: Head) {
        if head.kind == Kind::Value {
            // Relaxed: only compared.
            let appended = self.appended.load(Ordering::Relaxed) + head.record_len();
            self.appended.store(appended, Ordering::Relaxed);
        }
    }

    /// Counts a value that died. Whether it is time to compare.
    #[inline]
    pub(super) fn bury(&self, head: Head) -> bool {
        if head.kind != Kind::Value {
            return false;
        }
        let (len, step) = (head.record_len(), self.segment_len / STEPS);
        // Relaxed: only compared.
        let before = self.dead.fetch_add(len, Ordering::Relaxed);
        before / step != (before + len) / step
    }

    /// Counts all values as dead. Nobody appends meanwhile.
    pub(super) fn clear(&self) {
        // Relaxed: only compared.
        self.dead.store(self.appended.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Counts segments that were taken.
    pub(super) fn take(&self, len: u64) {
        self.segments.fetch_add(len, Ordering::Relaxed);
    }

    /// Counts a segment that was given back.
    pub(super) fn free(&self, len: u64) {
        self.segments.fetch_sub(len, Ordering::Relaxed);
    }

    /// Notes how many bytes wait to be used again. Only by whoever holds the spares.
    pub(super) fn set_spare(&self, len: u64) {
        self.spare.store(len, Ordering::Relaxed);
    }

    /// What the log takes, and for what.
    pub(super) fn space(&self) -> Space {
        // Relaxed: each is right at some moment. What is dead first: it was appended before.
        let dead = self.dead.load(Ordering::Relaxed);
        let live = self.appended.load(Ordering::Relaxed).saturating_sub(dead);
        let segments = self.segments.load(Ordering::Relaxed);
        Space { live, segments, bound: 2 * live + SLACK * self.segment_len }
    }

    /// Whether more than this number of segments beyond twice what is live is in use.
    pub(super) fn exceeds(&self, slack: u64) -> bool {
        let spare = self.spare.load(Ordering::Relaxed);
        let Space { live, segments, .. } = self.space();
        segments.saturating_sub(spare) > 2 * live + slack * self.segment_len
    }

    /// Has writers compact, if the log is too long.
    pub(super) fn compare(&self) {
        if self.exceeds(TRIGGER) {
            // Relaxed: a writer that sees it late compacts later, by one operation.
            self.is_behind.store(true, Ordering::Relaxed);
        }
    }

    /// Whether writers have to compact.
    #[inline]
    pub(super) fn is_behind(&self) -> bool {
        // Relaxed: as in `compare`.
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Has writers compact no more.
    pub(super) fn catch_up(&self) {
        self.is_behind.store(false, Ordering::Relaxed);
    }
}
