//! Emptying segments of which little is live, while everybody goes on.
//!
//! What is live is appended again; once all that is safe, the segment is void. Nothing that a crash may fall
//! back to is lost by that: a record is only left behind when what replaced it is safe.
//!
//! A tombstone is needed as long as an older value of its key lies anywhere in the log. The index counts
//! those values; with the last of them the tombstone is dropped.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use remanent_pmem::{Error as PoolError, Medium};

use super::Core;
use super::layout::{HASH, Head, KEY, Kind, Place, RECORDS, SEQUENCE, end_mark};
use super::log::{Purpose, Record};
use super::ops::Hashed;
use crate::Result;
use crate::background::lock_patiently;
use crate::segments::Slot;

/// A record in a segment that is emptied.
struct Found {
    place: Place,
    start: u64,
    head: Head,
    hash: u64,
    key: Vec<u8>,
}

impl<M: Medium> Core<M> {
    /// How often room was made.
    pub(super) fn relieved(&self) -> u64 {
        self.relieved.load(Ordering::Acquire)
    }

    /// Makes room when the pool is full, unless somebody did since `relieved`: empties a segment with at least
    /// `dead_min` dead bytes. Whether there may be room now.
    pub(super) fn relieve(&self, relieved: u64, dead_min: u64) -> Result<bool> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        if self.relieved() != relieved {
            return Ok(true);
        }
        if self.log.refill() {
            return Ok(true);
        }
        // Segments are at rest once they are safe.
        self.log.sync()?;
        let Some(slot) = self.log.pick_emptiest(dead_min) else { return Ok(false) };
        self.log.set_relieving(true);
        let compacted = self.compact(&[slot]);
        self.log.set_relieving(false);
        match compacted {
            Err(error) if error.is_full() => Ok(false),
            compacted => compacted.map(|()| true),
        }
    }

    /// Moves what is live out of segments at rest, and makes them void. Only by who holds `compacting`.
    pub(super) fn compact(&self, slots: &[Slot]) -> Result<()> {
        let mut emptied = Vec::new();
        let mut moved = Ok(());
        for &slot in slots {
            match self.empty(slot) {
                Ok(values) => emptied.push((slot, values)),
                Err(error) => {
                    moved = Err(error);
                    break;
                }
            }
        }
        if !emptied.is_empty() {
            // What was moved, and whatever replaced the rest, is safe before the segments are void.
            self.log.sync()?;
        }
        for (slot, values) in emptied {
            self.require_dead(slot)?;
            values.iter().for_each(|found| self.count_value_out(found));
            self.log.recycle(slot);
            // Release: partner of the Acquire in `relieved`.
            self.relieved.fetch_add(1, Ordering::Release);
        }
        self.log.heap.verify()?;
        moved
    }

    /// Moves what is live out of a segment. Returns the values that lie there.
    fn empty(&self, slot: Slot) -> Result<Vec<Found>> {
        let mut values = Vec::new();
        if self.log.is_void(slot) {
            return Ok(values);
        }
        let mut moved = Ok(());
        self.visit_segment(slot, |found| {
            moved = self.move_live(&found);
            if found.head.kind == Kind::Value {
                values.push(found);
            }
            if moved.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        moved.map(|()| values)
    }

    /// Refuses to void a segment in which something live was not found: a damaged record hides those behind it.
    fn require_dead(&self, slot: Slot) -> Result<()> {
        // Relaxed: the segment is at rest, so what was live in it was counted before.
        let live = self.log.live.make(slot).load(Ordering::Relaxed);
        if live == 0 {
            return Ok(());
        }
        let what = format!("{live} bytes of live records were not found in this segment");
        Err(PoolError::corrupt(self.log.segments.offset(slot), what).into())
    }

    fn visit_segment(&self, slot: Slot, mut visit: impl FnMut(Found) -> ControlFlow<()>) {
        let Some(segment) = self.log.segments.get(slot) else { return };
        let medium = self.medium();
        let sequence = medium.load(segment.offset + SEQUENCE);
        let mut at = RECORDS;
        while at < segment.len {
            let start = segment.offset + at;
            let word = medium.load(start);
            if word == end_mark(sequence ^ self.log.salt, at) {
                return;
            }
            let Some(head) = Head::from_word(word) else { return };
            let mut key = vec![0; head.key_len as usize];
            medium.read(start + KEY, &mut key);
            let hash = medium.load(start + HASH);
            if visit(Found { place: Place::new(slot, at), start, head, hash, key }).is_break() {
                return;
            }
            at += head.record_len();
        }
    }

    /// Appends a record again if the index leads to it.
    fn move_live(&self, found: &Found) -> Result<()> {
        let key = Hashed { hash: found.hash, bytes: &found.key };
        let mut shard = self.shard(found.hash);
        let Ok(at) = self.find(&shard.table, key) else { return Ok(()) };
        let entry = shard.table.get(at);
        if entry.place() != found.place {
            return Ok(());
        }
        if entry.is_tombstone() && entry.stale() == 0 {
            self.count_out(entry);
            shard.table.remove(at);
            return Ok(());
        }
        let mut value = vec![0; found.head.value_len as usize];
        self.medium().read(found.start + found.head.value(), &mut value);
        let Found { head: Head { kind, .. }, hash, ref key, .. } = *found;
        let record = Record { kind, hash, key, value: &value };
        let place = self.log.append(record, Purpose::Relief)?;
        self.count_out(entry);
        shard.table.set(at, entry.replaced(place, entry.is_tombstone()));
        Ok(())
    }

    /// A value will be gone with its segment; the tombstone that was needed for its sake is not any more.
    fn count_value_out(&self, found: &Found) {
        let mut shard = self.shard(found.hash);
        let key = Hashed { hash: found.hash, bytes: &found.key };
        let Ok(at) = self.find(&shard.table, key) else { return };
        let entry = shard.table.get(at).relieved();
        if entry.is_tombstone() && entry.stale() == 0 {
            self.count_out(entry);
            shard.table.remove(at);
        } else {
            shard.table.set(at, entry);
        }
    }
}
