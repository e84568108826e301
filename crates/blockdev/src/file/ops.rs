//! Reading, writing, and syncing.
//!
//! Content is written past the caches, like the blocks of a [`Disk`](crate::Disk), and `sync`
//! executes the fence. A fence covers only the stores of its own thread. So each thread's writes
//! are noted, and the thread that syncs writes the others' once more.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use remanent_pmem::Medium;
use remanent_pmem::heap::{Block, Heap, Lane};
use remanent_pmem::pool::layout::{CHUNK_LEN, RUN_MAX};
use remanent_pmem::sync::PauseMutex;

use super::layout::{EXTENT_COUNT, EXTENT_LEN_MAX, Extent, State};
use super::pair::Pair;
use crate::line::WORDS;
use crate::{Error, Result};

/// Maximal number of unsynced ranges that are noted. A write that would exceed it makes all of them
/// durable.
const UNSYNCED_MAX: usize = 64;
/// Bytes that are written at once, of zeros or of data that another thread wrote.
const PIECE_LEN: u64 = 4096;
/// If the pool has no run for all missing bytes, the approximate number of parts they come in; and
/// the maximal number of extents taken at once, because the heap's lane notes each.
const STEP_EXTENTS: u64 = 8;
const STEP_EXTENTS_MAX: usize = 2 * STEP_EXTENTS as usize;

/// A file's persistent part, and the volatile part that exists once in a process.
#[derive(Debug)]
pub(super) struct Body<M: Medium> {
    pub(super) heap: Heap<M>,
    /// Bytes of the file that readers may read.
    len: AtomicU64,
    is_present: AtomicBool,
    /// Set one after the other, and never changed.
    extents: Box<[OnceLock<Extent>]>,
    pub(super) writing: PauseMutex<Writing>,
}

/// State of the thread that changes the file.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) pair: Pair,
    pub(super) groups: Box<[Pair]>,
    /// The durable content of `pair`.
    pub(super) state: State,
    unsynced: Vec<Unsynced>,
    /// Bytes from the beginning that a killed process may have left in the caches alone.
    in_doubt: u64,
}

/// Data that a thread wrote and that are not durable yet.
#[derive(Debug)]
struct Unsynced {
    range: Range<u64>,
    thread: ThreadId,
}

impl Writing {
    /// Nothing that the pairs lead to counts as durable.
    pub(super) fn new(pair: Pair, groups: Box<[Pair]>) -> Self {
        let state = State::decode(pair.words());
        Writing { pair, groups, state, unsynced: Vec::new(), in_doubt: state.len }
    }

    fn note(&mut self, range: Range<u64>) {
        let thread = thread::current().id();
        if let Some(last) = self.unsynced.last_mut().filter(|last| last.thread == thread)
            && range.start <= last.range.end
            && last.range.start <= range.end
        {
            last.range = last.range.start.min(range.start)..last.range.end.max(range.end);
            return;
        }
        self.unsynced.push(Unsynced { range, thread });
    }
}

impl<M: Medium> Body<M> {
    pub(super) fn new(heap: Heap<M>, writing: Writing) -> Self {
        Body {
            heap,
            len: AtomicU64::new(writing.state.len),
            is_present: AtomicBool::new(writing.state.is_present),
            extents: (0..EXTENT_COUNT).map(|_| OnceLock::new()).collect(),
            writing: PauseMutex::new(writing),
        }
    }

    pub(super) fn medium(&self) -> &M {
        self.heap.medium()
    }

    pub(super) fn verify(&self) -> Result<()> {
        Ok(self.heap.verify()?)
    }

    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> {
        self.extents.iter().map_while(OnceLock::get).copied()
    }

    /// Adds the next extent to those that are known.
    pub(super) fn add_extent(&self, extent: Extent) {
        let vacant = self.extents.iter().find(|place| place.get().is_none());
        vacant.expect("there are as many places as extents").get_or_init(|| extent);
    }

    /// Bytes that the extents have room for.
    pub(super) fn capacity(&self) -> u64 {
        self.extents().last().map_or(0, Extent::end)
    }

    pub(super) fn len(&self) -> u64 {
        // Acquire: partner of `publish`; the bytes below the length are visible.
        self.len.load(Ordering::Acquire)
    }

    pub(super) fn is_present(&self) -> bool {
        // Acquire: partner of `set_present`.
        self.is_present.load(Ordering::Acquire)
    }

    fn publish(&self, len: u64) {
        // Release: partner of `len`.
        self.len.store(len, Ordering::Release);
    }

    /// The places of a range of the file: each part, and its pool offset. The extents for it exist.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.extents().filter_map(move |extent| {
            let part = range.start.max(extent.start)..range.end.min(extent.end());
            let at = |part: &Range<u64>| extent.at + (part.start - extent.start);
            (!part.is_empty()).then(|| (part.clone(), at(&part)))
        })
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let count = self.len().saturating_sub(offset).min(bytes.len() as u64);
        self.copy_out(offset, &mut bytes[..count as usize]);
        self.verify()?;
        Ok(count as usize)
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) {
        for (part, at) in self.parts(offset..offset + bytes.len() as u64) {
            let places = (part.start - offset) as usize..(part.end - offset) as usize;
            self.medium().read(at, &mut bytes[places]);
        }
    }

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        let mut writing = self.writing.lock(self.medium());
        self.make_room(&mut writing, end)?;
        let len = self.len();
        self.put_zeros(&mut writing, len..offset);
        self.put(&mut writing, offset, bytes);
        self.publish(len.max(end));
        self.verify()
    }

    /// Writes to existing extents; durable after `make_durable`.
    fn put(&self, writing: &mut Writing, offset: u64, bytes: &[u8]) {
        let range = offset..offset + bytes.len() as u64;
        for (part, at) in self.parts(range.clone()) {
            let places = (part.start - offset) as usize..(part.end - offset) as usize;
            self.medium().write_streaming(at, &bytes[places]);
        }
        if self.medium().needs_flush() {
            writing.note(range);
        }
        if writing.unsynced.len() > UNSYNCED_MAX {
            self.make_durable(writing);
        }
    }

    fn put_zeros(&self, writing: &mut Writing, range: Range<u64>) {
        for start in range.clone().step_by(PIECE_LEN as usize) {
            let len = PIECE_LEN.min(range.end - start);
            self.put(writing, start, &[0; PIECE_LEN as usize][..len as usize]);
        }
    }

    /// Makes all written data durable, within the file's length or beyond it.
    fn make_durable(&self, writing: &mut Writing) {
        let Writing { unsynced, in_doubt, .. } = writing;
        if unsynced.is_empty() && *in_doubt == 0 {
            return;
        }
        for (part, at) in self.parts(0..*in_doubt) {
            // Flush: data of a killed process; fenced below.
            // Redundant: the simulator knows no second crash of another kind.
            self.medium().flush(at, part.end - part.start);
        }
        let thread = thread::current().id();
        for other in unsynced.iter().filter(|unsynced| unsynced.thread != thread) {
            self.write_again(other.range.clone());
        }
        // Fence: the data, before a length that includes them is written, and before they count as
        // durable.
        self.medium().fence();
        unsynced.clear();
        *in_doubt = 0;
    }

    /// Writes a range with its own content, so that this thread's fence covers it. Nobody writes
    /// meanwhile.
    #[cold]
    fn write_again(&self, range: Range<u64>) {
        let mut piece = [0; PIECE_LEN as usize];
        for start in range.clone().step_by(PIECE_LEN as usize) {
            let bytes = &mut piece[..PIECE_LEN.min(range.end - start) as usize];
            self.copy_out(start, bytes);
            for (part, at) in self.parts(start..start + bytes.len() as u64) {
                let places = (part.start - start) as usize..(part.end - start) as usize;
                self.medium().write_streaming(at, &bytes[places]);
            }
        }
    }

    /// Makes another state durable. The content that it includes is durable already.
    fn set_state(&self, writing: &mut Writing, state: State) {
        if state != writing.state {
            writing.pair.set(self.medium(), state.encode());
            // Fence: the state is acknowledged after it; and it comes before the next state, which
            // overwrites the other line.
            self.medium().fence();
            writing.state = state;
        }
    }

    pub(super) fn sync(&self) -> Result<()> {
        let mut writing = self.writing.lock(self.medium());
        self.make_durable(&mut writing);
        let state = State { len: self.len(), ..writing.state };
        self.set_state(&mut writing, state);
        self.verify()
    }

    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        let mut writing = self.writing.lock(self.medium());
        self.make_room(&mut writing, len)?;
        self.put_zeros(&mut writing, self.len()..len);
        if len > writing.state.len {
            self.make_durable(&mut writing);
        }
        let state = State { len, ..writing.state };
        self.set_state(&mut writing, state);
        self.publish(len);
        self.verify()
    }

    pub(super) fn set_present(&self, is_present: bool) -> Result<()> {
        let mut writing = self.writing.lock(self.medium());
        let state = State { is_present, len: if is_present { writing.state.len } else { 0 } };
        self.set_state(&mut writing, state);
        if !is_present {
            writing.unsynced.clear();
            writing.in_doubt = 0;
            self.publish(0);
        }
        // Release: partner of `is_present`.
        self.is_present.store(is_present, Ordering::Release);
        self.verify()
    }

    /// Takes extents until there is room for `len` bytes.
    ///
    /// # Errors
    ///
    /// When the pool is full or the file has the maximal number of extents. In both cases none was
    /// taken.
    fn make_room(&self, writing: &mut Writing, len: u64) -> Result<()> {
        if len <= self.capacity() {
            return Ok(());
        }
        // The lane is held until the extents are linked durably: it records that they may have to
        // be given back.
        let mut lane = self.heap.enter().prepare_to_write();
        let mut taken = Vec::new();
        if let Err(error) = self.take(&mut lane, len, &mut taken) {
            for Extent { at: offset, len, .. } in taken {
                lane.give_back(Block { offset, len });
            }
            return Err(error);
        }
        let first = self.extents().count();
        let mut taken = (first..).zip(taken).peekable();
        while let Some(&(index, _)) = taken.peek() {
            let number = index / WORDS;
            let group = &mut writing.groups[number];
            let mut words = *group.words();
            while let Some((index, extent)) = taken.next_if(|(index, _)| index / WORDS == number) {
                words[index % WORDS] = extent.encode();
                self.add_extent(extent);
            }
            group.set(self.medium(), words);
            // Fence: this group's extents, before those of the next group and before a length that
            // includes them.
            self.medium().fence();
        }
        Ok(())
    }

    /// Takes extents from the pool that nothing leads to yet: as few as possible, of which the last
    /// one doubles the file.
    fn take(&self, lane: &mut Lane<'_, M>, len: u64, taken: &mut Vec<Extent>) -> Result<()> {
        let (count, capacity) = (self.extents().count(), self.capacity());
        let needed_min = ((len - capacity) / STEP_EXTENTS).max(CHUNK_LEN);
        let mut end = capacity;
        while end < len {
            if count + taken.len() == EXTENT_COUNT || taken.len() == STEP_EXTENTS_MAX {
                return Err(Error::FileTooLong { len, extents: count, capacity });
            }
            let wanted = end.min(EXTENT_LEN_MAX).max(len - end).min(u64::from(RUN_MAX) * CHUNK_LEN);
            let (at, len) = take_part(lane, wanted.next_multiple_of(CHUNK_LEN), needed_min)?;
            taken.push(Extent { start: end, at, len });
            end += len;
        }
        Ok(())
    }
}

/// Takes `len` bytes, or the largest part of it that the pool has, at least `len_min`. Returns
/// offset and length.
fn take_part<M: Medium>(lane: &mut Lane<'_, M>, len: u64, len_min: u64) -> Result<(u64, u64)> {
    match lane.allocate(len) {
        Err(error) if error.is_full() && len / 2 >= len_min => {
            take_part(lane, (len / 2).next_multiple_of(CHUNK_LEN), len_min)
        }
        block => Ok((block?.offset, len)),
    }
}

impl<M: Medium> Drop for Body<M> {
    fn drop(&mut self) {
        let len = self.len();
        let writing = self.writing.get_mut();
        let is_written = !writing.unsynced.is_empty() || len > writing.state.len;
        if is_written && self.medium().fault().is_none() && !thread::panicking() {
            // Nobody can be told: what fails here was never acknowledged.
            let _ = self.sync();
        }
    }
}
