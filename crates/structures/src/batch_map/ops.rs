//! Reading, writing, removing and scanning, on the bytes of keys and values.

use remanent_pmem::sync::PauseGuard;
use std::cell::Cell;
use std::ops::ControlFlow;

use remanent_pmem::Medium;

use super::Core;
use super::index::{Entry, SHARD_BITS, Table};
use super::layout::{KEY, KEY_LEN_MAX, Kind, VALUE_LEN_MAX};
use super::record::Record;
use super::space::Purpose;
use crate::background::lock_patiently;
use crate::{Change, Error, Result};

/// The entries whose hashes have the same upper bits.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) table: Table,
    /// Keys that have a value.
    pub(super) len: u64,
}

/// To make room for growth in a full pool, a segment is emptied when at least this part of it is
/// dead: one in 16.
const WORTH_ONE_IN: u64 = 16;

/// When a value is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    Absent,
    Present,
}

/// A key, and its hash in the index.
#[derive(Clone, Copy)]
pub(super) struct Hashed<'a> {
    pub(super) hash: u64,
    pub(super) bytes: &'a [u8],
}

/// The slot of a key's entry in its shard, or the slot where it would be inserted.
type Found = Result<usize, usize>;

impl<M: Medium> Core<M> {
    #[inline]
    pub(super) fn shard(&self, hash: u64) -> PauseGuard<'_, Shard> {
        self.shards[(hash >> (64 - SHARD_BITS)) as usize].0.lock(self.medium())
    }

    /// Finds the slot of a key's entry. Keys of the same hash are compared by their records.
    ///
    /// # Errors
    ///
    /// When a record with this hash is damaged, since it may be the key's.
    #[inline]
    pub(super) fn find(&self, table: &Table, key: Hashed<'_>) -> Result<Found> {
        let mut damaged = None;
        let found = self.search(table, key, |other| {
            if self.is_damaged(other) {
                damaged = Some(other);
            }
        });
        match damaged {
            None => Ok(found),
            Some(entry) => Err(self.damage_of(entry)),
        }
    }

    /// As [`find`](Core::find), but calls `meet` for each entry with the same hash and another key.
    #[inline]
    pub(super) fn search(
        &self,
        table: &Table,
        key: Hashed<'_>,
        mut meet: impl FnMut(Entry),
    ) -> Found {
        table.find(key.hash, |entry| {
            let is_it = self.log.segments.locate(entry.place()).is_some_and(|record| {
                record.head.key_len == key.bytes.len() as u64
                    && self.medium().equals(record.start + KEY, key.bytes)
            });
            if !is_it {
                meet(entry);
            }
            is_it
        })
    }

    /// Whether the newest record of an entry is damaged. Called when the hashes of two different
    /// keys are equal, for which damage is nearly the only reason.
    #[cold]
    fn is_damaged(&self, entry: Entry) -> bool {
        let segments = &self.log.segments;
        segments.locate(entry.place()).is_none_or(|record| !segments.is_whole(&record))
    }

    #[cold]
    fn damage_of(&self, entry: Entry) -> Error {
        let what = "a record was whole when it was looked at again";
        let start = self.log.segments.offset(entry.place());
        let damage = self.read(entry, |_, _| ()).err();
        damage.unwrap_or_else(|| Error::corrupt(self.log.heap(), start, what))
    }

    /// Passes the value of a key to `read`.
    pub(super) fn get_with<R>(
        &self,
        key: Hashed<'_>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let shard = self.shard(key.hash);
        let found = self.find(&shard.table, key)?.ok().map(|at| shard.table.get(at));
        let result = match found.filter(|entry| !entry.is_tombstone()) {
            Some(entry) => Some(self.read(entry, |_, value| read(value))?),
            None => None,
        };
        drop(shard);
        self.log.heap().verify()?;
        Ok(result)
    }

    /// Whether a key has a value. The value is not read.
    pub(super) fn contains(&self, key: Hashed<'_>) -> Result<bool> {
        let shard = self.shard(key.hash);
        let found = self.find(&shard.table, key)?;
        let is_present = has_value(&shard.table, found);
        drop(shard);
        self.log.heap().verify()?;
        Ok(is_present)
    }

    /// Sets the value of a key. Returns whether the key had one.
    pub(super) fn write(&self, key: Hashed<'_>, value: &[u8], when: When) -> Result<bool> {
        check_len("key", key.bytes, KEY_LEN_MAX)?;
        check_len("value", value, VALUE_LEN_MAX)?;
        self.with_room(
            || Purpose::Growth,
            || {
                let mut shard = self.shard(key.hash);
                let found = self.find(&shard.table, key)?;
                let is_present = has_value(&shard.table, found);
                let is_wanted = match when {
                    When::Always => true,
                    When::Absent => !is_present,
                    When::Present => is_present,
                };
                if is_wanted {
                    self.put(&mut shard, found, key, value)?;
                }
                Ok(is_present)
            },
        )
    }

    /// Removes the value of a key without reading it. Returns whether there was one.
    pub(super) fn remove(&self, key: Hashed<'_>) -> Result<bool> {
        self.remove_after(key, |_| Ok(())).map(|removed| removed.is_some())
    }

    /// Removes the value of a key after passing it to `read`.
    pub(super) fn remove_with<R>(
        &self,
        key: Hashed<'_>,
        read: impl Fn(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.remove_after(key, |entry| self.read(entry, |_, value| read(value)))
    }

    /// Removes the value of a key, unless `look` fails for its entry.
    fn remove_after<R>(
        &self,
        key: Hashed<'_>,
        look: impl Fn(Entry) -> Result<R>,
    ) -> Result<Option<R>> {
        self.with_room(
            || Purpose::Removal,
            || {
                let mut shard = self.shard(key.hash);
                let found = self.find(&shard.table, key)?;
                match found.ok().map(|at| shard.table.get(at)).filter(|it| !it.is_tombstone()) {
                    Some(entry) => {
                        let seen = look(entry)?;
                        self.bury(&mut shard, found, key)?;
                        Ok(Some(seen))
                    }
                    None => Ok(None),
                }
            },
        )
    }

    /// Changes the value of a key as `change` decides. `with_bytes` passes on the bytes of a new
    /// value.
    pub(super) fn modify<R, T>(
        &self,
        key: Hashed<'_>,
        mut change: impl FnMut(Option<&[u8]>) -> (Change<T>, R),
        with_bytes: impl Fn(&T, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<R> {
        check_len("key", key.bytes, KEY_LEN_MAX)?;
        let purpose = Cell::new(Purpose::Growth);
        self.with_room(
            || purpose.get(),
            || {
                let mut shard = self.shard(key.hash);
                let found = self.find(&shard.table, key)?;
                let is_present = has_value(&shard.table, found);
                let entry = found.ok().filter(|_| is_present).map(|at| shard.table.get(at));
                let (change, result) = match entry {
                    Some(entry) => self.read(entry, |_, value| change(Some(value)))?,
                    None => change(None),
                };
                match change {
                    Change::Keep => {}
                    Change::Put(value) => with_bytes(&value, &mut |value| {
                        check_len("value", value, VALUE_LEN_MAX)?;
                        self.put(&mut shard, found, key, value)
                    })?,
                    Change::Remove if is_present => {
                        purpose.set(Purpose::Removal);
                        self.bury(&mut shard, found, key)?;
                    }
                    Change::Remove => {}
                }
                Ok(result)
            },
        )
    }

    /// Appends a value, and makes the index lead to it.
    fn put(&self, shard: &mut Shard, found: Found, key: Hashed<'_>, value: &[u8]) -> Result<()> {
        let Hashed { hash, bytes } = key;
        let record = Record { kind: Kind::Value, hash, key: bytes, value };
        let is_new = !has_value(&shard.table, found);
        let place = self.log.append(record, Purpose::Growth)?;
        match found {
            Ok(at) => {
                let old = shard.table.get(at);
                self.count_out(old);
                shard.table.set(at, old.replaced(place, false));
            }
            Err(at) => shard.table.insert(at, Entry::new(hash, place)),
        }
        shard.len += u64::from(is_new);
        Ok(())
    }

    /// Appends a tombstone for a key that has a value.
    fn bury(&self, shard: &mut Shard, found: Found, key: Hashed<'_>) -> Result<()> {
        let Ok(at) = found else { return Ok(()) };
        let Hashed { hash, bytes } = key;
        let record = Record { kind: Kind::Tombstone, hash, key: bytes, value: &[] };
        let place = self.log.append(record, Purpose::Removal)?;
        let old = shard.table.get(at);
        self.count_out(old);
        shard.table.set(at, old.replaced(place, true));
        shard.len -= 1;
        Ok(())
    }

    /// Counts the record that an entry leads to as dead.
    pub(super) fn count_out(&self, entry: Entry) {
        // If the record is damaged, its segment keeps a live record in the count, so it is left
        // alone.
        if let Some(record) = self.log.segments.locate(entry.place()) {
            self.log.segments.kill(entry.place(), record.head);
        }
    }

    /// Removes all values. Returns how many there were.
    pub(super) fn clear(&self) -> Result<u64> {
        let count = self.clear_log()?;
        self.keep_pace()?;
        Ok(count)
    }

    fn clear_log(&self) -> Result<u64> {
        let _compacting = lock_patiently(&self.compacting, self.medium());
        let mut shards: Vec<_> =
            self.shards.iter().map(|shard| shard.0.lock(self.medium())).collect();
        if shards.iter().all(|shard| shard.table.is_empty()) {
            drop(shards);
            return self.log.sync().map(|()| 0);
        }
        self.log.clear()?;
        let count = shards.iter().map(|shard| shard.len).sum();
        shards.iter_mut().for_each(|shard| **shard = Shard::default());
        Ok(count)
    }

    /// The number of keys that have a value.
    pub(super) fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock(self.medium()).len).sum()
    }

    /// Visits about `limit` entries whose hash is at least `cursor`. Returns the cursor to go on
    /// from, or 0 after the last entry. Entries of the same hash are visited together.
    pub(super) fn scan(
        &self,
        cursor: u64,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        let mut left = limit.max(1);
        let mut from = cursor;
        for number in cursor >> (64 - SHARD_BITS)..1 << SHARD_BITS {
            let shard = self.shards[number as usize].0.lock(self.medium());
            let scanned = self.scan_shard(&shard.table, from, &mut left, &mut visit)?;
            drop(shard);
            self.log.heap().verify()?;
            if let ControlFlow::Break(next) = scanned {
                return Ok(next);
            }
            from = 0;
        }
        Ok(0)
    }

    fn scan_shard(
        &self,
        table: &Table,
        from: u64,
        left: &mut usize,
        visit: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<ControlFlow<u64>> {
        let mut last = None;
        for entry in table.entries_from(from).filter(|entry| !entry.is_tombstone()) {
            if *left == 0 && last != Some(entry.hash) {
                return Ok(ControlFlow::Break(entry.hash));
            }
            self.read(entry, &mut *visit)?;
            *left = left.saturating_sub(1);
            last = Some(entry.hash);
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Runs a change, and runs it again when the pool was full and room could be made. Compacts
    /// afterwards if the log has become too long. For a removal, any dead record is reason enough
    /// to empty a segment.
    fn with_room<R>(
        &self,
        purpose: impl Fn() -> Purpose,
        mut change: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        let dead_min = || match purpose() {
            Purpose::Removal => 1,
            _ => self.log.segments.segment_len / WORTH_ONE_IN,
        };
        loop {
            let relieved = self.relieved();
            match change() {
                Err(error) if error.is_full() && self.relieve(relieved, dead_min())? => {}
                result => {
                    let result = result?;
                    self.keep_pace()?;
                    self.log.heap().verify()?;
                    return Ok(result);
                }
            }
        }
    }
}

fn has_value(table: &Table, found: Found) -> bool {
    found.is_ok_and(|at| !table.get(at).is_tombstone())
}

fn check_len(what: &'static str, bytes: &[u8], limit: u64) -> Result<()> {
    let len = bytes.len() as u64;
    if len > limit { Err(Error::TooLong { what, len, limit }) } else { Ok(()) }
}
