//! Finding, adding and removing words.

use std::ops::ControlFlow;

use remanent_pmem::heap::Lane;
use remanent_pmem::sync::{PauseGuard, PauseMutex};
use remanent_pmem::{LINE_LEN, Medium, WORD_LEN};

use super::super::directory::Place;
use super::super::layout::{FACTOR, Hash, each_slot};
use super::layout::{Bucket, CHAINED_FROM, Entry, HOME_FIRST, Pair, SLOT_COUNT, Word};
use super::{Core, RowId};
use crate::Result;

/// Rows that are added at once: for so many, lines are fetched ahead.
const TOGETHER: usize = 16;

/// Locks of buckets. Buckets of one segment have different ones, and other segments share some of
/// them.
pub(super) struct Locks(Box<[Lock]>);

#[derive(Default)]
#[repr(align(16))]
struct Lock(PauseMutex<()>);

impl Locks {
    /// A segment takes one in 32 when it is split.
    const COUNT: u64 = 8192;

    pub(super) fn new() -> Self {
        Locks((0..Self::COUNT).map(|_| Lock::default()).collect())
    }

    fn index(bucket: Bucket) -> usize {
        // The highest bits: those of segments that lie beside each other are far apart.
        let lines = bucket.segment() / LINE_LEN;
        let first = lines.wrapping_mul(FACTOR) >> (u64::BITS - Self::COUNT.ilog2());
        ((first + bucket.index) % Self::COUNT) as usize
    }

    #[inline(always)]
    pub(super) fn lock<M: Medium>(&self, medium: &M, bucket: Bucket) -> PauseGuard<'_, ()> {
        self.0[Self::index(bucket)].0.lock(medium)
    }

    #[inline(always)]
    fn try_lock(&self, bucket: Bucket) -> Option<PauseGuard<'_, ()>> {
        self.0[Self::index(bucket)].0.try_lock()
    }

    /// The locks of all these buckets.
    pub(super) fn lock_all<M: Medium>(
        &self,
        medium: &M,
        buckets: impl Iterator<Item = Bucket>,
    ) -> Vec<PauseGuard<'_, ()>> {
        let mut indices: Vec<usize> = buckets.map(Self::index).collect();
        // Two threads with segments that share locks take them in one order.
        indices.sort_unstable();
        indices.into_iter().map(|index| self.0[index].0.lock(medium)).collect()
    }
}

/// The buckets of a hash, locked.
pub(super) struct Held<'l> {
    pub(super) place: Place<'l>,
    pub(super) pair: Pair,
    _home: PauseGuard<'l, ()>,
    other: Option<PauseGuard<'l, ()>>,
}

impl<M: Medium> Core<M> {
    #[inline(always)]
    pub(super) fn hash(&self, key: u64) -> Hash {
        Hash::of_word(key, self.seed)
    }

    #[inline(always)]
    pub(super) fn word(&self, bucket: Bucket, slot: u32) -> Word {
        Word(self.medium().load(bucket.slot_at(slot)))
    }

    /// All words of a bucket, also those that are none.
    #[inline(always)]
    pub(super) fn words(&self, bucket: Bucket) -> [Word; SLOT_COUNT] {
        // Written out: `array::from_fn` is not always inlined.
        let word = |slot| self.word(bucket, slot);
        [word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7)]
    }

    /// Whether a bucket has no word, and is not the first one.
    #[inline(always)]
    pub(super) fn is_empty(&self, bucket: Bucket) -> bool {
        self.words(bucket).iter().fold(0, |all, word| all | word.0) == 0
    }

    /// The segment of a hash.
    #[inline(always)]
    pub(super) fn place(&self, hash: Hash) -> Result<Place<'_>> {
        self.directory.place(hash, |hash| self.touch(hash))
    }

    /// Finds the segment of a hash, and enters it in the volatile directory.
    #[cold]
    fn touch(&self, hash: Hash) -> Result<()> {
        let _shape = self.shape.lock(self.medium());
        let pointer = self.nodes().segment_pointer(hash)?;
        self.heap.verify()?;
        self.directory.grow_to(pointer.depth);
        self.directory.fill(self.directory.find(hash), hash, pointer.target.offset());
        Ok(())
    }

    #[inline(always)]
    fn prefetch(&self, hash: Hash) {
        for bucket in self.buckets.pair(self.directory.find(hash).segment, hash).buckets() {
            self.medium().prefetch(bucket.offset);
        }
    }

    /// Calls `visit` with all rows of a hash, until it breaks.
    #[inline]
    pub(super) fn find<R>(
        &self,
        hash: Hash,
        mut visit: impl FnMut(RowId) -> ControlFlow<R>,
    ) -> Result<Option<R>> {
        self.prefetch(hash);
        let _pin = self.heap.pin();
        let found = self.look(hash)?;
        // A faulty medium reads as zeros.
        self.heap.verify()?;
        for (words, alike) in found {
            for slot in each_slot(alike) {
                let word = words[slot as usize];
                let flow = match word.entry() {
                    Some(Entry::Row(row)) => visit(row),
                    Some(Entry::Chain(_)) => self.visit_chain(word, &mut visit)?,
                    None => ControlFlow::Continue(()),
                };
                if let ControlFlow::Break(result) = flow {
                    return Ok(Some(result));
                }
            }
        }
        Ok(None)
    }

    /// The words of the buckets of a hash while they were led to, and which of them have its bits.
    /// One that was there all the time is among them.
    #[inline(always)]
    fn look(&self, hash: Hash) -> Result<[([Word; SLOT_COUNT], u32); 2]> {
        loop {
            let place = self.place(hash)?;
            let found = self.buckets.pair(place.segment, hash).buckets().map(|bucket| {
                // Acquire: before the directory is asked again; partner of the end of `split`.
                let words = self.words(bucket);
                (words, Word::which(&words, |word| word.is_of(hash)) & bucket.slots())
            });
            if self.directory.leads_to(place, hash) {
                return Ok(found);
            }
        }
    }

    /// Adds a word.
    #[inline]
    pub(super) fn insert(&self, hash: Hash, row: RowId) -> Result<()> {
        self.prefetch(hash);
        self.insert_fetched(hash, row)
    }

    #[inline(always)]
    fn insert_fetched(&self, hash: Hash, row: RowId) -> Result<()> {
        match self.insert_quickly(hash, row)? {
            true => Ok(()),
            false => self.insert_slowly(hash, row),
        }
    }

    /// Adds a word where there is room. Returns whether it did.
    #[inline(always)]
    pub(super) fn insert_quickly(&self, hash: Hash, row: RowId) -> Result<bool> {
        let is_put = self.put(&mut self.hold(hash)?, Word::of_row(hash, row));
        self.heap.verify()?;
        Ok(is_put)
    }

    /// Adds a word unless it is there; flushed in both cases.
    pub(super) fn ensure(&self, hash: Hash, row: RowId) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        loop {
            let mut held = self.hold_both(hash)?;
            if let Some(at) = self.place_of_row(held.pair, hash, row)? {
                // Flush: fenced by the caller; it may have been stored by a killed process.
                self.medium().flush(at, WORD_LEN);
                return Ok(self.heap.verify()?);
            }
            if self.add(&mut lane, &mut held, hash, row)? {
                return Ok(self.heap.verify()?);
            }
            let place = held.place;
            drop(held);
            self.split(&mut lane, place, hash)?;
        }
    }

    /// Where the word of a row is.
    fn place_of_row(&self, pair: Pair, hash: Hash, row: RowId) -> Result<Option<u64>> {
        for (at, word) in self.alike(pair, hash) {
            let at = match word == Word::of_row(hash, row) {
                true => Some(at),
                false => self.place_in_blocks(word, row)?,
            };
            if at.is_some() {
                return Ok(at);
            }
        }
        Ok(None)
    }

    /// Adds words, whose lines are fetched while others are added.
    pub(super) fn insert_all(&self, rows: impl Iterator<Item = (u64, RowId)>) -> Result<()> {
        let mut rows = rows.map(|(key, row)| (self.hash(key), row)).fuse();
        let mut fetched: Vec<(Hash, RowId)> = Vec::with_capacity(TOGETHER);
        loop {
            for (hash, row) in rows.by_ref().take(TOGETHER) {
                self.prefetch(hash);
                fetched.push((hash, row));
            }
            if fetched.is_empty() {
                return Ok(());
            }
            for (hash, row) in fetched.drain(..) {
                self.insert_fetched(hash, row)?;
            }
        }
    }

    /// Locks the home of a hash.
    #[inline(always)]
    fn hold(&self, hash: Hash) -> Result<Held<'_>> {
        loop {
            let place = self.place(hash)?;
            let pair = self.buckets.pair(place.segment, hash);
            let _home = self.locks.lock(self.medium(), pair.home);
            if self.directory.leads_to(place, hash) {
                return Ok(Held { place, pair, _home, other: None });
            }
        }
    }

    /// Locks both buckets of a hash.
    fn hold_both(&self, hash: Hash) -> Result<Held<'_>> {
        loop {
            let mut held = self.hold(hash)?;
            held.other = self.locks.try_lock(held.pair.other);
            if held.other.is_some() {
                return Ok(held);
            }
            drop(held);
            self.heap.verify()?;
            self.medium().pause();
        }
    }

    #[inline(always)]
    pub(super) fn free_slots(&self, bucket: Bucket) -> u32 {
        !Word::which(&self.words(bucket), |_| true) & bucket.slots()
    }

    /// Puts a word into a free slot. False when there is none, or the other bucket is needed and
    /// another thread has it.
    #[inline(always)]
    fn put<'c>(&'c self, held: &mut Held<'c>, word: Word) -> bool {
        let Pair { home, other } = held.pair;
        let free_at_home = self.free_slots(home);
        let used = (home.slots() & !free_at_home).count_ones();
        if free_at_home != 0 && used < HOME_FIRST {
            self.store(home, free_at_home, word);
            return true;
        }
        if held.other.is_none() {
            held.other = self.locks.try_lock(other);
        }
        let free_in_other = if held.other.is_some() { self.free_slots(other) } else { 0 };
        match free_in_other.count_ones() > free_at_home.count_ones() {
            true => self.store(other, free_in_other, word),
            false if free_at_home != 0 => self.store(home, free_at_home, word),
            false => return false,
        }
        true
    }

    /// Stores a word in one of the free slots.
    #[inline(always)]
    fn store(&self, bucket: Bucket, free: u32, word: Word) {
        self.change(bucket.slot_at(free.trailing_zeros()), word);
    }

    /// Changes a slot, or a word of a block.
    #[inline(always)]
    pub(super) fn change(&self, at: u64, word: Word) {
        self.medium().store(at, word.0);
        // Flush: fenced by the caller of the index, before it says that the row is there.
        self.medium().flush(at, WORD_LEN);
    }

    /// Adds a word where there may have to be room first.
    #[cold]
    fn insert_slowly(&self, hash: Hash, row: RowId) -> Result<()> {
        let insert = || self.insert_in_lane(&mut self.heap.enter().prepare_to_write(), hash, row);
        match insert() {
            // Other lanes may hold blocks that are not freed yet.
            Err(error) if error.is_full() => {
                self.heap.relieve();
                insert()
            }
            result => result,
        }
    }

    /// Adds a word, and makes room for it.
    pub(super) fn insert_in_lane(
        &self,
        lane: &mut Lane<'_, M>,
        hash: Hash,
        row: RowId,
    ) -> Result<()> {
        loop {
            let mut held = self.hold_both(hash)?;
            if self.add(lane, &mut held, hash, row)? {
                return Ok(self.heap.verify()?);
            }
            let place = held.place;
            drop(held);
            self.split(lane, place, hash)?;
        }
    }

    /// Adds a word to its buckets, or to a chain. False when neither has room.
    fn add<'c>(
        &'c self,
        lane: &mut Lane<'_, M>,
        held: &mut Held<'c>,
        hash: Hash,
        row: RowId,
    ) -> Result<bool> {
        if self.put(held, Word::of_row(hash, row)) {
            return Ok(true);
        }
        let Some(at) = self.place_in_chain(held.pair, hash) else { return Ok(false) };
        self.insert_in_chain(lane, at, hash, row)?;
        Ok(true)
    }

    /// The slot of a word that leads to a chain of this hash, or will.
    fn place_in_chain(&self, pair: Pair, hash: Hash) -> Option<u64> {
        let alike: Vec<(u64, Word)> = self.alike(pair, hash).collect();
        let chain = alike.iter().find(|(_, word)| matches!(word.entry(), Some(Entry::Chain(_))));
        let is_row = |(_, word): &&(u64, Word)| matches!(word.entry(), Some(Entry::Row(_)));
        let first = alike.iter().find(is_row).filter(|_| alike.len() >= CHAINED_FROM);
        chain.or(first).map(|(at, _)| *at)
    }

    /// The words in a pair of buckets that have the bits of a hash, with their places.
    pub(super) fn alike(&self, pair: Pair, hash: Hash) -> impl Iterator<Item = (u64, Word)> {
        pair.buckets()
            .into_iter()
            .flat_map(|bucket| each_slot(bucket.slots()).map(move |slot| bucket.slot_at(slot)))
            .map(|at| (at, Word(self.medium().load(at))))
            .filter(move |(_, word)| *word != Word::NONE && word.is_of(hash))
    }

    /// Removes a word. Returns whether it was there.
    pub(super) fn remove(&self, hash: Hash, row: RowId) -> Result<bool> {
        self.prefetch(hash);
        let is_found = self.remove_from_buckets(&self.hold_both(hash)?, hash, row);
        match is_found {
            Some(is_found) => {
                self.heap.verify()?;
                Ok(is_found)
            }
            None => self.remove_in_lane(&mut self.heap.enter().prepare_to_write(), hash, row),
        }
    }

    /// `None` when the word may be in a chain.
    fn remove_from_buckets(&self, held: &Held<'_>, hash: Hash, row: RowId) -> Option<bool> {
        let mut may_be_in_chain = false;
        for (at, word) in self.alike(held.pair, hash) {
            if word == Word::of_row(hash, row) {
                self.change(at, Word::NONE);
                return Some(true);
            }
            may_be_in_chain |= matches!(word.entry(), Some(Entry::Chain(_)));
        }
        (!may_be_in_chain).then_some(false)
    }

    /// Removes a word, wherever it is.
    pub(super) fn remove_in_lane(
        &self,
        lane: &mut Lane<'_, M>,
        hash: Hash,
        row: RowId,
    ) -> Result<bool> {
        let held = self.hold_both(hash)?;
        let mut is_found = self.remove_from_buckets(&held, hash, row);
        if is_found.is_none() {
            let alike: Vec<(u64, Word)> = self.alike(held.pair, hash).collect();
            for (at, word) in alike {
                if self.remove_from_chain(lane, at, word, row)? {
                    is_found = Some(true);
                    break;
                }
            }
        }
        self.heap.verify()?;
        Ok(is_found == Some(true))
    }
}
