//! Compaction: emptying segments with little live data, while other threads go on.
//!
//! Live records are appended again. Once the copies are safe, the segment becomes void. A crash
//! before that still finds the old records: a record is given up only when its replacement is safe.
//!
//! A tombstone is needed as long as an older value of its key lies anywhere in the log. The index
//! counts those values. When the last one is gone, the tombstone is dropped.
//!
//! A damaged record is not moved, because its copy would get a checksum that fits. Its segment is
//! left as it is, and all other records in it stay readable.

use std::sync::atomic::Ordering;

use remanent_pmem::Medium;

use super::Core;
use super::layout::{HASH, Kind, RECORDS, end_mark};
use super::ops::Hashed;
use super::record::{Located, Record};
use super::space::Purpose;
use crate::background::lock_patiently;
use crate::segments::Slot;
use crate::{Error, Result};

/// A value in a segment that is being emptied.
struct Found {
    hash: u64,
    key: Box<[u8]>,
}

impl<M: Medium> Core<M> {
    /// How many times a segment was emptied.
    pub(super) fn relieved(&self) -> u64 {
        self.relieved.load(Ordering::Acquire)
    }

    /// Makes room in a full pool by emptying a segment with at least `dead_min` dead bytes, unless
    /// another thread has emptied one since the count was `relieved`. Returns whether there may be
    /// room now.
    pub(super) fn relieve(&self, relieved: u64, dead_min: u64) -> Result<bool> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        if self.relieved() != relieved {
            return Ok(true);
        }
        if self.log.segments.refill() {
            return Ok(true);
        }
        // Segments are at rest only when they are safe.
        self.log.sync()?;
        let Some(slot) = self.log.pick_emptiest(dead_min) else { return Ok(false) };
        self.log.set_relieving(true);
        let compacted = self.compact(&[slot]);
        self.log.set_relieving(false);
        match compacted {
            Err(error) if error.is_full() => Ok(false),
            // The next attempt picks another segment.
            Err(error) if error.is_damage() => Ok(true),
            compacted => compacted.map(|()| true),
        }
    }

    /// Moves live records out of segments at rest, and makes the segments void. The caller holds
    /// `compacting`.
    pub(super) fn compact(&self, slots: &[Slot]) -> Result<()> {
        let mut emptied = Vec::new();
        let mut result = Ok(());
        for &slot in slots {
            match self.empty(slot) {
                Ok(values) => emptied.push((slot, values)),
                Err(error) => {
                    if error.is_damage() {
                        self.log.segments.leave_damaged(slot);
                    }
                    result = Err(error);
                    break;
                }
            }
        }
        if !emptied.is_empty() {
            // The copies, and all records that replaced others, must be safe before the segments
            // become void.
            self.log.sync()?;
        }
        for (slot, values) in emptied {
            if let Err(error) = self.require_dead(slot) {
                self.log.segments.leave_damaged(slot);
                result = Err(error);
                continue;
            }
            values.iter().for_each(|found| self.count_value_out(found));
            self.log.segments.recycle(slot);
            // Release: after the segment became spare. Partner of the Acquire in `relieved`.
            self.relieved.fetch_add(1, Ordering::Release);
        }
        self.log.heap().verify()?;
        result
    }

    /// Moves live records out of a segment. Returns the values that lie there.
    fn empty(&self, slot: Slot) -> Result<Vec<Found>> {
        let mut values = Vec::new();
        let segments = &self.log.segments;
        let Some(segment) = segments.get(slot).filter(|_| !segments.is_void(slot)) else {
            return Ok(values);
        };
        let sequence = segments.salted(segments.sequence(slot));
        let mut at = RECORDS;
        while self.medium().load(segment.offset + at) != end_mark(sequence, at) {
            let record = segments.locate_at(slot, at);
            let record = record.ok_or_else(|| self.no_end(segment.offset + at))?;
            let hash = self.medium().load(record.start + HASH);
            let key = segments.with_bytes(&record, |key, value| {
                segments.compare_record(&record, key, value)?;
                self.move_live(&record, Hashed { hash, bytes: key }, value)?;
                Ok::<_, Error>(Box::from(key))
            })?;
            if record.head.kind == Kind::Value {
                values.push(Found { hash, key });
            }
            at += record.head.record_len();
        }
        Ok(values)
    }

    #[cold]
    fn no_end(&self, at: u64) -> Error {
        Error::corrupt(self.log.heap(), at, "neither a record nor the end of a segment is here")
    }

    /// An error if the segment still has live records: a damaged record hides those behind it, and
    /// the segment must not become void.
    fn require_dead(&self, slot: Slot) -> Result<()> {
        // Relaxed: the segment is at rest, so all of its live records were counted before.
        let live = self.log.segments.live.make(slot).load(Ordering::Relaxed);
        if live == 0 {
            return Ok(());
        }
        let what = format!("{live} bytes of live records were not found in this segment");
        Err(Error::corrupt(self.log.heap(), self.log.segments.directory.offset(slot), what))
    }

    /// Appends a record again if the index leads to it.
    fn move_live(&self, record: &Located, key: Hashed<'_>, value: &[u8]) -> Result<()> {
        let mut shard = self.shard(key.hash);
        let Ok(at) = self.find(&shard.table, key)? else { return Ok(()) };
        let entry = shard.table.get(at);
        if entry.place() != record.place {
            return Ok(());
        }
        if entry.is_tombstone() && entry.stale() == 0 {
            self.count_out(entry);
            shard.table.remove(at);
            return Ok(());
        }
        let (kind, hash) = (record.head.kind, key.hash);
        let moved = Record { kind, hash, key: key.bytes, value };
        let place = self.log.append(moved, Purpose::Relief)?;
        self.count_out(entry);
        shard.table.set(at, entry.replaced(place, entry.is_tombstone()));
        Ok(())
    }

    /// Counts a value that goes with its segment. Drops the tombstone of its key if no other value
    /// needs it.
    fn count_value_out(&self, found: &Found) {
        let mut shard = self.shard(found.hash);
        let key = Hashed { hash: found.hash, bytes: &found.key };
        // If the search meets damage, the tombstone stays.
        let Ok(Ok(at)) = self.find(&shard.table, key) else { return };
        let entry = shard.table.get(at).relieved();
        if entry.is_tombstone() && entry.stale() == 0 {
            self.count_out(entry);
            shard.table.remove(at);
        } else {
            shard.table.set(at, entry);
        }
    }
}
