//! Batches that are being committed, and those that a crash has left unfinished.
//!
//! An *intent* is what a batch is going to do, written down. Once it is durable the batch is
//! committed: whoever opens one of its maps after a crash completes what the intent says of it,
//! before anybody uses the map.

use std::sync::Arc;

use remanent_pmem::heap::{Block, Heap, Lane, Suspect, Violation};
use remanent_pmem::pool::layout::{CHUNK_LEN, RootId};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::sync::PauseMutex;
use remanent_pmem::{Error as PoolError, LINE_LEN, Medium, Pool, WORD_LEN};

use remanent_pmem::heap::layout::LANE_COUNT;

use super::layout;
use super::layout::{
    COMMITTED, DONE, EMPTY, Entry, LEN, OFFSET, RESUMED, STATE, SUM, checksum, decode, encode,
};
use crate::{Error, Result};

/// Name of the root that keeps the intents of a pool's batches. It comes into being with the first
/// batch.
pub(super) const ROOT: &str = "remanent batches";

/// Version of the layout, part of the root's type: changed with `layout.rs`.
const LAYOUT: u64 = 1;

/// The intents of a pool.
pub(crate) struct Intents<M: Medium> {
    heap: Heap<M>,
    /// What a crash has left, and what this process could not complete. Held by who completes it.
    unfinished: PauseMutex<Vec<Unfinished>>,
    /// Slots that no batch has.
    free_slots: PauseMutex<Vec<usize>>,
}

/// A slot for an intent. It is given back when this is dropped.
pub(super) struct Slot<'i, M: Medium> {
    intents: &'i Intents<M>,
    index: usize,
}

impl<M: Medium> Drop for Slot<'_, M> {
    fn drop(&mut self) {
        self.intents.free_slots.lock(self.intents.heap.medium()).push(self.index);
    }
}

/// A batch that was committed and not completed.
struct Unfinished {
    intent: Intent,
    /// Entries that are not done, and where that is noted.
    entries: Vec<(u64, Entry)>,
}

impl Unfinished {
    /// What was to be done to a map that was removed is done.
    fn retain_live(&mut self, live: &[(RootId, u64)]) {
        self.entries.retain(|(_, entry)| live.contains(&(entry.root, entry.generation)));
    }
}

/// An intent that is written down and flushed. It commits the batch once it is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an intent is kept until the batch is done"]
pub(super) struct Intent {
    /// Number of the slot that leads to it.
    slot: usize,
    /// Offset of the intent.
    offset: u64,
}

impl<M: Medium> Intents<M> {
    /// The intents of a pool; makes their root if it is not there.
    pub(super) fn of(pool: &Pool<M>) -> Result<Arc<Self>> {
        loop {
            match pool.open_root(ROOT) {
                Err(PoolError::NoSuchRoot { .. }) => {}
                opened => return Ok(opened?),
            }
            match pool.create_root(ROOT) {
                // Another thread was quicker.
                Err(PoolError::RootExists { .. }) => {}
                created => return Ok(created?),
            }
        }
    }

    /// The intents of a pool that has any, or had.
    pub(crate) fn existing(pool: &Pool<M>) -> Result<Option<Arc<Self>>> {
        Ok(if pool.has_root(ROOT)? { Some(pool.open_root(ROOT)?) } else { None })
    }

    pub(super) fn heap(&self) -> &Heap<M> {
        &self.heap
    }

    /// Takes a slot; waits while others have all of them.
    pub(super) fn take_slot(&self) -> Result<Slot<'_, M>> {
        let medium = self.heap.medium();
        loop {
            if let Some(index) = self.free_slots.lock(medium).pop() {
                return Ok(Slot { intents: self, index });
            }
            let mut unfinished = self.unfinished.lock(medium);
            if unfinished.len() == LANE_COUNT {
                // Maps may have been removed.
                self.forget_finished(&mut unfinished)?;
            }
            if unfinished.len() == LANE_COUNT {
                return Err(Error::TooManyUnfinished { limit: LANE_COUNT });
            }
            drop(unfinished);
            medium.pause();
        }
    }

    /// Writes an intent down and flushes it. The caller's next fence commits the batch.
    pub(super) fn write(
        &self,
        lane: &mut Lane<'_, M>,
        slot: &Slot<'_, M>,
        entries: &[Entry],
    ) -> Result<Intent> {
        let medium = self.heap.medium();
        let bytes = encode(entries);
        let len = bytes.len() as u64;
        let block = lane.allocate(len)?;
        medium.write(block.offset, &bytes);
        // Flush: fenced by the step that does what the intent says, before anything is published.
        medium.flush(block.offset, len);
        let at = self.slot_at(slot.index);
        medium.store(at + OFFSET, block.offset);
        medium.store(at + LEN, len);
        medium.store(at + SUM, checksum(&bytes));
        // Release: last of the slot in its line's order of stores.
        medium.store(at + STATE, COMMITTED);
        // Flush: as the intent; the two share a fence.
        medium.flush(at, LINE_LEN);
        Ok(Intent { slot: slot.index, offset: block.offset })
    }

    /// Notes that an intent is about to be forgotten, in the lane that will forget it. The caller
    /// fences before that.
    pub(super) fn suspect(lane: &mut Lane<'_, M>, intent: Intent) -> Suspect {
        lane.suspect(intent.offset)
    }

    /// Forgets an intent: what it says is done, durably, or nothing of it is.
    pub(super) fn forget(&self, lane: &mut Lane<'_, M>, intent: Intent, suspect: Suspect) {
        let medium = self.heap.medium();
        let at = self.slot_at(intent.slot);
        medium.store(at + STATE, EMPTY);
        // Flush and fence: before others may change the batch's keys, which must not be changed
        // back then.
        medium.flush(at, LINE_LEN);
        lane.fence();
        lane.retire(suspect);
    }

    /// Takes over a batch that is committed, and could not be completed: who opens one of its maps
    /// completes it there.
    pub(super) fn leave_unfinished(&self, slot: Slot<'_, M>, intent: Intent, entries: &[Entry]) {
        let places = decode(&encode(entries)).unwrap_or_default();
        let entries = places.into_iter().map(|(at, entry)| (intent.offset + at, entry)).collect();
        let unfinished = Unfinished { intent, entries };
        self.unfinished.lock(self.heap.medium()).push(unfinished);
        // Its slot is not free.
        std::mem::forget(slot);
    }

    /// Has `apply` do what unfinished batches say of a map that is being opened. Returns what there
    /// is no room for.
    pub(crate) fn complete(
        &self,
        root: RootId,
        generation: u64,
        mut apply: impl FnMut(&Entry) -> Result<()>,
    ) -> Result<Vec<Entry>> {
        let medium = self.heap.medium();
        let mut unfinished = self.unfinished.lock(medium);
        let mut left = Vec::new();
        for batch in unfinished.iter_mut() {
            let is_of_map = |(_, entry): &mut (u64, Entry)| {
                entry.root == root && entry.generation == generation
            };
            let entries: Vec<(u64, Entry)> = batch.entries.extract_if(.., is_of_map).collect();
            let applied = entries.iter().try_for_each(|(_, entry)| apply(entry));
            let Err(error) = applied.and_then(|()| self.note_done(batch.intent, &entries)) else {
                continue;
            };
            if error.is_full() {
                left.extend(entries.iter().map(|(_, entry)| entry.clone()));
            }
            batch.entries.extend(entries);
            // Where keys are abandoned, the map is open already.
            if !error.is_full() && !matches!(error, Error::Abandoned) {
                return Err(error);
            }
        }
        self.forget_finished(&mut unfinished)?;
        Ok(left)
    }

    /// Notes durably that entries of an unfinished batch are done.
    fn note_done(&self, intent: Intent, entries: &[(u64, Entry)]) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let medium = self.heap.medium();
        let state = self.slot_at(intent.slot) + STATE;
        medium.store(state, RESUMED);
        // Flush and fence: the slot says that entries may be done before one says that it is.
        // Redundant fence: but when an entry's line alone is written back before the fence that
        // follows, which short runs do not bring about.
        medium.persist(state, WORD_LEN);
        for (at, _) in entries {
            medium.store(*at, DONE);
            // Flush: fenced below.
            // Redundant: where all maps of the batch are opened before one is changed, as the
            // simulator does.
            medium.flush(*at, WORD_LEN);
        }
        // Fence: before others change these keys. The next opening must not change them back.
        // Redundant: as the flush.
        medium.fence();
        Ok(self.heap.verify()?)
    }

    /// Gives the slots free of batches of which nothing is left to be done.
    fn forget_finished(&self, unfinished: &mut Vec<Unfinished>) -> Result<()> {
        if unfinished.is_empty() {
            return Ok(());
        }
        let live = self.heap.pool().live_roots();
        unfinished.iter_mut().for_each(|batch| batch.retain_live(&live));
        self.heap.verify()?;
        for batch in unfinished.extract_if(.., |batch| batch.entries.is_empty()) {
            let mut lane = self.heap.enter().prepare_to_write();
            let suspect = Self::suspect(&mut lane, batch.intent);
            // Flush and fence: the suspect, before nothing leads to the intent any more.
            // Redundant: but when the slot's line is written back before the suspect's, and the
            // intent lies in a chunk that no lane allocates from, which short runs do not bring
            // about.
            lane.fence();
            self.forget(&mut lane, batch.intent, suspect);
            drop(lane);
            self.free_slots.lock(self.heap.medium()).push(batch.intent.slot);
        }
        Ok(self.heap.verify()?)
    }

    fn slot_at(&self, index: usize) -> u64 {
        self.heap.header() + layout::slot(index)
    }

    /// What is wrong with the intents. No batch may be in progress.
    pub(super) fn check(&self) -> Result<Vec<Violation>> {
        let unfinished = self.unfinished.lock(self.heap.medium());
        let intents: Vec<u64> = unfinished.iter().map(|batch| batch.intent.offset).collect();
        Ok(self.heap.check(intents.into_iter())?)
    }

    fn new(heap: Heap<M>, unfinished: Vec<Unfinished>) -> Self {
        let has_slot = |index: &usize| unfinished.iter().all(|batch| batch.intent.slot != *index);
        let free_slots = (0..LANE_COUNT).rev().filter(has_slot).collect();
        let (unfinished, free_slots) = (PauseMutex::new(unfinished), PauseMutex::new(free_slots));
        Intents { heap, unfinished, free_slots }
    }

    fn read(heap: &Heap<M>, index: usize) -> Option<Unfinished> {
        let medium = heap.medium();
        let at = heap.header() + layout::slot(index);
        let [offset, len, sum, state] =
            [OFFSET, LEN, SUM, STATE].map(|field| medium.load(at + field));
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= medium.len());
        if ![COMMITTED, RESUMED].contains(&state) || !is_inside {
            return None;
        }
        // A damaged length must not ask for more memory than the block has.
        let large_len = || heap.large_len(offset).ok().flatten().unwrap_or(0);
        if len > CHUNK_LEN && len > large_len() {
            return None;
        }
        let mut bytes = vec![0; len as usize];
        medium.read(offset, &mut bytes);
        let mut entries = decode(&bytes).filter(|_| checksum(&bytes) == sum)?;
        for (at, _) in &mut entries {
            *at += offset;
        }
        let count = entries.len();
        entries.retain(|(at, _)| medium.load(*at) != DONE);
        if state == COMMITTED && entries.len() < count {
            return None;
        }
        // Flush: fenced by the heap's recovery together with the header, which has the slot, and
        // before that makes durable that the block is used. Where a process was killed, the intent
        // may still lie in the caches alone.
        medium.flush(offset, len);
        Some(Unfinished { intent: Intent { slot: index, offset }, entries })
    }
}

impl<M: Medium> RootObject<M> for Intents<M> {
    fn root_type() -> RootType {
        RootType { name: "Batches".to_owned(), layout: LAYOUT }
    }

    fn create(heap: Heap<M>) -> Result<Self, PoolError> {
        // A fresh header of zeros has no intent.
        Ok(Self::new(heap, Vec::new()))
    }

    fn open(heap: Heap<M>) -> Result<Self, PoolError> {
        let live = heap.pool().live_roots();
        let mut unfinished: Vec<Unfinished> =
            (0..LANE_COUNT).filter_map(|index| Self::read(&heap, index)).collect();
        unfinished.iter_mut().for_each(|batch| batch.retain_live(&live));
        let is_unfinished =
            |block: Block| unfinished.iter().any(|batch| batch.intent.offset == block.offset);
        heap.recover(is_unfinished)?;
        let medium = heap.medium();
        for index in 0..LANE_COUNT {
            let at = heap.header() + layout::slot(index) + STATE;
            let is_torn = unfinished.iter().all(|batch| batch.intent.slot != index);
            if is_torn && medium.load(at) != EMPTY {
                medium.store(at, EMPTY);
                // Flush and fence: an intent that did not arrive must not be taken for one later.
                // Redundant: but when a later intent has the same bytes at the same offset, and is
                // forgotten in another slot, which short runs do not bring about.
                medium.persist(at, WORD_LEN);
            }
        }
        heap.verify()?;
        Ok(Self::new(heap, unfinished))
    }
}
