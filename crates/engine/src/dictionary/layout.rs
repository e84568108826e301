//! On-media layout of a dictionary.
//!
//! ```text
//! state    0  tag, number of the table               64  28 words: run k leads to 16 << k entries
//!          8  number of the column
//!         16  how many numbers were given away, and perhaps one that was not
//!
//! run      0  tag, number of the table               64  entries
//!          8  number of the column, k
//!
//! entry    0  checksum; 0 if the number was never given away
//!          8  the value: the bytes of a plain cell, filled up with zeros to a multiple of 8 bytes
//! ```
//!
//! Numbers are given away in order. The checksum covers the value, its number, and those of the
//! table and the column; it is never 0 or 1. An entry with another checksum was torn by a crash, or
//! damaged; with 1, opening has found nothing there.
//!
//! Entry and count of a number are written together, and fenced before the next number is. So a
//! crash leaves the count right, one short of the entries, or one ahead of them. Numbers on which
//! they do not agree so far were damaged: none of them is given away again.

use std::sync::Arc;

use remanent_pmem::heap::Heap;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, WORD_LEN};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::values::{Place, RUN_COUNT, Value, run_first, run_ids};
use crate::table::layout::{Kind, NUMBER};

/// Bytes of the state of a dictionary.
pub(crate) const STATE_LEN: u64 = RUNS + RUN_COUNT as u64 * WORD_LEN;
/// In a state.
const COUNT: u64 = 2 * WORD_LEN;
const RUNS: u64 = LINE_LEN;
const ENTRIES: u64 = LINE_LEN;
/// A checksum that no entry has.
const TORN: u64 = 1;
/// In an entry: the value.
const VALUE: u64 = WORD_LEN;

/// Writes and flushes the head of a state of zeros.
pub(crate) fn new_state<M: Medium>(medium: &M, state: u64, table: u32, column: u32) {
    medium.store(state, Kind::Dictionary.tag(table));
    medium.store(state + NUMBER, column.into());
    // Flush: fenced by the caller.
    medium.flush(state, 2 * WORD_LEN);
}

/// Where a dictionary lies in the pool.
pub(super) struct Store<M: Medium> {
    pub(super) heap: Arc<Heap<M>>,
    pub(super) state: u64,
    pub(super) table: u32,
    pub(super) column: u32,
    /// Bytes of a value.
    pub(super) value_len: usize,
}

impl<M: Medium> Clone for Store<M> {
    fn clone(&self) -> Self {
        Store { heap: Arc::clone(&self.heap), ..*self }
    }
}

impl<M: Medium> Store<M> {
    pub(super) fn medium(&self) -> &M {
        self.heap.medium()
    }

    pub(super) fn damaged(&self, offset: u64, what: &str) -> PoolError {
        // A faulty medium reads as zeros: as if it were damaged.
        if let Err(fault) = self.heap.verify() {
            return fault;
        }
        let Store { table, column, .. } = self;
        PoolError::corrupt(offset, format!("column {column} of table {table}: {what}"))
    }

    /// Refuses an offset that leads to no state of the dictionary.
    pub(super) fn require_state(&self) -> Result<(), PoolError> {
        let is_inside = self.is_inside(self.state, STATE_LEN);
        let head = [Kind::Dictionary.tag(self.table), u64::from(self.column)];
        match is_inside && self.head_of(self.state) == head {
            true => Ok(()),
            false => Err(self.damaged(self.state, "the catalog leads to no dictionary")),
        }
    }

    fn is_inside(&self, at: u64, len: u64) -> bool {
        let end = at.checked_add(len).filter(|_| at.is_multiple_of(WORD_LEN));
        end.is_some_and(|end| end <= self.medium().len())
    }

    fn head_of(&self, at: u64) -> [u64; 2] {
        [self.medium().load(at), self.medium().load(at + NUMBER)]
    }

    /// The head of a run.
    pub(super) fn run_head(&self, run: u32) -> [u64; 2] {
        [Kind::Entries.tag(self.table), u64::from(self.column) << 32 | u64::from(run)]
    }

    /// Offset of the word that leads to a run.
    pub(super) fn run_at(&self, run: u32) -> u64 {
        self.state + RUNS + u64::from(run) * WORD_LEN
    }

    /// Bytes of a run.
    pub(super) fn run_len(&self, run: u32) -> u64 {
        ENTRIES + run_ids(run) * self.entry_len()
    }

    /// Bytes of an entry.
    pub(super) fn entry_len(&self) -> u64 {
        VALUE + (self.value_len as u64).next_multiple_of(WORD_LEN)
    }

    /// Offset of a run; `None` if there is none.
    pub(super) fn run(&self, run: u32) -> Result<Option<u64>, PoolError> {
        // Acquire: before what is in the run; partner of the store in `make_run`.
        match self.medium().load(self.run_at(run)) {
            0 => Ok(None),
            at if self.is_inside(at, self.run_len(run))
                && self.head_of(at) == self.run_head(run) =>
            {
                Ok(Some(at))
            }
            _ => Err(self.damaged(self.run_at(run), "a dictionary leads to no run of entries")),
        }
    }

    /// Offset of an entry of a run.
    pub(super) fn entry_at(&self, run: u64, at: u64) -> u64 {
        run + ENTRIES + at * self.entry_len()
    }

    /// Numbers that were given away, and perhaps one more that a crash has kept from that. `runs`
    /// are those that are there.
    ///
    /// # Errors
    ///
    /// When count and entries contradict each other.
    pub(super) fn count(&self, runs: &[u64]) -> Result<u64, PoolError> {
        let medium = self.medium();
        let counted = medium.load(self.state + COUNT);
        let is_written = |id: u64| {
            let place = u32::try_from(id).ok().map(Place::of);
            let entry = place.and_then(|Place { run, at }| Some((*runs.get(run as usize)?, at)));
            entry.is_some_and(|(run, at)| medium.load(self.entry_at(run, at)) != 0)
        };
        let is_short = is_written(counted);
        let count = counted.saturating_add(u64::from(is_short));
        let has_room = count <= run_first(runs.len() as u32);
        let has_before = counted < 2 || is_written(counted - 2);
        match has_room && has_before && !is_written(count) {
            true => Ok(count),
            false => {
                let what = "a dictionary has another number of entries than it counts";
                Err(self.damaged(self.state + COUNT, what))
            }
        }
    }

    /// Makes the last of `count` entries, and what the state counts, agree after a crash, and
    /// flushes them. An entry that the crash took away names no value.
    pub(super) fn settle(&self, at: u64, count: u64) {
        let medium = self.medium();
        if medium.load(at) == 0 {
            medium.store(at, TORN);
        }
        // Flush: fenced by the caller, before another number is given away.
        // Redundant: but where a crash comes after another one, as in `dictionaries-killed-twice`.
        medium.flush(at, self.entry_len());
        if medium.load(self.state + COUNT) != count {
            medium.store(self.state + COUNT, count);
        }
        // Flush: likewise. A crash may leave the next count out, but not two of them.
        // Redundant: but where a crash comes after another one, as in `dictionaries-recovery`.
        medium.flush(self.state, LINE_LEN);
    }

    fn checksum(&self, id: u32, value: &[u8]) -> u64 {
        let names = [self.table, self.column, id];
        let mut bytes: SmallVec<[u8; 64]> =
            names.iter().flat_map(|name| name.to_le_bytes()).collect();
        bytes.extend_from_slice(value);
        xxh3_64(&bytes).max(TORN + 1)
    }

    /// The value of a number; `None` if its entry is not there, or is damaged.
    pub(super) fn read(&self, id: u32) -> Option<Value> {
        let Place { run, at } = Place::of(id);
        let at = self.entry_at(self.run(run).ok()??, at);
        let mut value = SmallVec::from_elem(0, self.value_len);
        self.medium().read(at + VALUE, &mut value);
        (self.medium().load(at) == self.checksum(id, &value)).then_some(value)
    }

    /// Writes and flushes an entry, and that its number is given away.
    pub(super) fn write(&self, at: u64, id: u32, value: &[u8]) {
        let medium = self.medium();
        let mut bytes: SmallVec<[u8; 64]> = SmallVec::from_slice(value);
        bytes.resize((self.entry_len() - VALUE) as usize, 0);
        medium.write(at + VALUE, &bytes);
        medium.store(at, self.checksum(id, value));
        // Flush: fenced by the caller, before anybody learns the number.
        medium.flush(at, self.entry_len());
        medium.store(self.state + COUNT, u64::from(id) + 1);
        // Flush: likewise, before the next number is given away.
        medium.flush(self.state, LINE_LEN);
    }
}
