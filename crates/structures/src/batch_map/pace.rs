//! Compaction in step with writers: how large a log may grow.
//!
//! Segments take at most twice the bytes of the values that are live, and [`SLACK`] segments. Whoever takes a segment,
//! or has values die, compares the two; when there is too much, every writer compacts, or waits for one that does,
//! before its operation returns.
//!
//! That ends. Emptying a segment of which less than half is live, or of which a quarter is dead, gains room. Where
//! neither is left, at most a quarter of each segment is dead or a tombstone's, and the log is short enough: what
//! the last batches wrote is not emptied before it is safe, but is made safe by whoever finds nothing else. Values longer
//! than a quarter of a segment may leave room unused that no emptying gains; writers then go on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use remanent_pmem::Medium;

use super::Core;
use super::layout::{Head, Kind};
use super::log::Log;
use super::space::{DEAD_ENOUGH, SPARSE};
use crate::Result;
use crate::background::lock_patiently;

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
const TRIGGER: u64 = 10;
/// Segments beyond twice what is live up to which they compact then: several for one batch.
const TARGET: u64 = TRIGGER - 3;
/// Values die in so many steps a segment before anybody compares.
const STEPS: u64 = 4;

/// What is in the log, and what of it is live.
#[derive(Debug, Default)]
pub(super) struct Balance {
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
    pub(super) fn bury(&self, head: Head, segment_len: u64) -> bool {
        if head.kind != Kind::Value {
            return false;
        }
        let (len, step) = (head.record_len(), segment_len / STEPS);
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

    fn space(&self, segment_len: u64) -> Space {
        // Relaxed: each is right at some moment. What is dead first: it was appended before.
        let dead = self.dead.load(Ordering::Relaxed);
        let live = self.appended.load(Ordering::Relaxed).saturating_sub(dead);
        let segments = self.segments.load(Ordering::Relaxed);
        Space { live, segments, bound: 2 * live + SLACK * segment_len }
    }
}

impl<M: Medium> Log<M> {
    /// What the log takes, and for what.
    pub(super) fn space(&self) -> Space {
        self.balance.space(self.segment_len)
    }

    /// Whether more than this number of segments beyond twice what is live is in use.
    fn exceeds(&self, slack: u64) -> bool {
        let spare = self.balance.spare.load(Ordering::Relaxed);
        let Space { live, segments, .. } = self.space();
        segments.saturating_sub(spare) > 2 * live + slack * self.segment_len
    }

    /// Has writers compact, if the log is too long.
    pub(super) fn compare(&self) {
        if self.exceeds(TRIGGER) {
            // Relaxed: a writer that sees it late compacts later, by one operation.
            self.balance.is_behind.store(true, Ordering::Relaxed);
        }
    }
}

impl<M: Medium> Core<M> {
    /// Compacts when writers have to. Called at the end of an operation, without a lock.
    #[inline]
    pub(super) fn keep_pace(&self) -> Result<()> {
        // Relaxed: as in `compare`.
        if self.log.balance.is_behind.load(Ordering::Relaxed) { self.catch_up() } else { Ok(()) }
    }

    #[cold]
    fn catch_up(&self) -> Result<()> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let mut is_synced = false;
        let mut has_gained = false;
        if !self.log.exceeds(TRIGGER) {
            // Somebody else has done it.
            self.log.balance.is_behind.store(false, Ordering::Relaxed);
            return Ok(());
        }
        while self.log.exceeds(TARGET) {
            let picked = self.log.pick(DEAD_ENOUGH);
            if !picked.is_empty() {
                match self.compact(&picked) {
                    // Whoever needs the room will see it, and make some.
                    Err(error) if error.is_full() => break,
                    // As when the thread compacts: others can be emptied.
                    Err(error) if error.is_damage() => {}
                    compacted => compacted?,
                }
                (is_synced, has_gained) = (false, true);
            } else if is_synced {
                break;
            } else {
                // What is not safe yet is not emptied.
                self.log.sync()?;
                is_synced = true;
            }
        }
        self.log.balance.is_behind.store(false, Ordering::Relaxed);
        if has_gained {
            // Others may have gone on meanwhile, and found that somebody compacts.
            self.log.compare();
        }
        Ok(())
    }

    /// Compacts what is sparse; whether there was something.
    pub(super) fn compact_sparse(&self) -> Result<bool> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let picked = self.log.pick(SPARSE);
        if picked.is_empty() { Ok(false) } else { self.compact(&picked).map(|()| true) }
    }
}
