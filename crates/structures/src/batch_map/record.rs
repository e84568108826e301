//! Records in segments: locating them within bounds, and comparing them with their checksums.

use remanent_pmem::{Frozen, Medium};

use super::Core;
use super::index::Entry;
use super::layout::{CHECKSUM, END_LEN, HASH, Head, KEY, Kind, Place, SEGMENT_LEN_MAX, checksum};
use super::space::LogSegments;
use crate::segments::Slot;
use crate::{Error, Result};

/// The contents of a record that is to be written.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) hash: u64,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Record<'_> {
    pub(super) fn head(&self) -> Head {
        let (key_len, value_len) = (self.key.len() as u64, self.value.len() as u64);
        Head { kind: self.kind, key_len, value_len }
    }
}

/// A record that lies within its segment, if its first word can be believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// Pool offset of the record's first byte.
    pub(super) start: u64,
    pub(super) place: Place,
    pub(super) head: Head,
}

impl<M: Medium> LogSegments<M> {
    /// The record at a place; `None` when no record can begin there.
    #[inline]
    pub(super) fn locate(&self, place: Place) -> Option<Located> {
        let segment = self.get(place.slot())?;
        let start = segment.offset + place.at();
        if place.at() + KEY + END_LEN > segment.len {
            return None;
        }
        let head = Head::from_word(self.medium().load(start))?;
        let is_inside = place.at() + head.record_len() + END_LEN <= segment.len;
        is_inside.then_some(Located { start, place, head })
    }

    /// As [`locate`](LogSegments::locate), for the record at offset `at` in a segment.
    pub(super) fn locate_at(&self, slot: Slot, at: u64) -> Option<Located> {
        // Every record begins within the first MiB of its segment.
        if at < SEGMENT_LEN_MAX { self.locate(Place::new(slot, at)) } else { None }
    }

    /// Passes key and value of a record to `read`, damaged or not.
    ///
    /// The record must be complete, and its segment must not be used again meanwhile: the caller
    /// holds the record's shard, or `compacting`, or is opening the map.
    #[inline]
    pub(super) fn with_bytes<R>(
        &self,
        record: &Located,
        read: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> R {
        let Located { start, head, .. } = *record;
        // SAFETY: nothing stores to a complete record, and it stays in place while the caller keeps
        // to the rule above.
        let key = unsafe { Frozen::new(start + KEY, head.key_len) };
        // SAFETY: as above.
        let value = unsafe { Frozen::new(start + head.value(), head.value_len) };
        read(&self.medium().view(key), &self.medium().view(value))
    }

    /// Compares the key and value of a record with its checksum.
    ///
    /// # Errors
    ///
    /// [`Error::Checksum`] when the record has changed since it was written.
    #[inline]
    pub(super) fn compare_record(&self, record: &Located, key: &[u8], value: &[u8]) -> Result<()> {
        let Located { start, place, head } = *record;
        let (medium, sequence) = (self.medium(), self.sequence(place.slot()));
        let hash = medium.load(start + HASH);
        let computed = checksum(self.salted(sequence), place.at(), head, hash, key, value);
        let stored = medium.load(start + CHECKSUM);
        if stored == computed { Ok(()) } else { Err(self.changed(start, stored, computed)) }
    }

    #[cold]
    fn changed(&self, start: u64, stored: u64, computed: u64) -> Error {
        let short = |sum: u64| (sum ^ sum >> 32) as u32;
        Error::checksum(&self.heap, start, short(stored), short(computed))
    }

    /// Whether a record is unchanged since it was written there, in this use of the segment.
    pub(super) fn is_whole(&self, record: &Located) -> bool {
        self.with_bytes(record, |key, value| self.compare_record(record, key, value)).is_ok()
    }
}

impl<M: Medium> Core<M> {
    /// The newest record of an entry.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when no record can begin there.
    #[inline]
    pub(super) fn record(&self, entry: Entry) -> Result<Located> {
        self.log.segments.locate(entry.place()).ok_or_else(|| self.no_record(entry))
    }

    #[cold]
    fn no_record(&self, entry: Entry) -> Error {
        let at = self.log.segments.offset(entry.place());
        let what = "no record begins here, where the newest one of a key was written";
        Error::corrupt(self.log.heap(), at, what)
    }

    /// Compares an entry's newest record with its checksum, and passes key and value to `read`. The
    /// caller holds the entry's shard.
    ///
    /// # Errors
    ///
    /// When the record has changed since it was written.
    #[inline]
    pub(super) fn read<R>(&self, entry: Entry, read: impl FnOnce(&[u8], &[u8]) -> R) -> Result<R> {
        let record = self.record(entry)?;
        self.log.segments.with_bytes(&record, |key, value| {
            self.log.segments.compare_record(&record, key, value)?;
            Ok(read(key, value))
        })
    }
}
