//! The allocator, under the smallest structure that can use it: a table of slots, each of which
//! leads to one block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use remanent_crashsim::{Outcome, Rng, Sim, Subject};
use remanent_pmem::heap::{Heap, Reclamation};
use remanent_pmem::pool::{RootObject, RootType};
use remanent_pmem::{Error, Link, Medium, Pool, Result, Word};

use crate::answer::{Answer, answer, is_refused};
use crate::pools::{Open, must_be_empty};

/// Slots of a table, one in each line.
pub(crate) const SLOTS: u64 = 8;
/// Lengths of blocks: small ones of two classes; three and seven in a chunk; and runs of chunks.
/// The state words of the longest run fill more than one line.
pub(crate) const LENS: [u64; 7] = [24, 200, 9_000, 21_800, 40_000, 190_000, 600_000];

/// A table of slots in a heap of its own.
pub(crate) struct Table {
    heap: Heap<Arc<Sim>>,
    watch: Mutex<Watch>,
}

/// History of the blocks, for the events that a scenario must reach. Volatile; its lock is held
/// between accesses of the medium, never during one.
#[derive(Debug, Default)]
struct Watch {
    /// Blocks that were replaced or taken out since the table was opened.
    retired: BTreeSet<u64>,
    /// Number of times that this happened, counting a block each time.
    replaced: u64,
    /// By thread, the block that it is about to read.
    reading: BTreeMap<u64, u64>,
}

/// Length of blocks that are allocated as by a step, all before the first of them is given back:
/// they lie in more chunks than a lane names.
const LEN_OF_STEPS: u64 = 21_800;
const BLOCKS_OF_STEP: usize = 10;

/// Number of blocks that others replace while one is read: enough for its memory to be reused.
const REPLACED_MEANWHILE: u64 = 4;
/// The other threads may have ended, or wait for something else.
const PAUSES_MAX: u32 = 20;

/// A block is allocated that was retired before.
pub(crate) const REUSED: &str = "a block is reused";
/// A block is retired while another thread is about to read it.
pub(crate) const RETIRED_UNDER_READER: &str = "a block is retired under a reader";
/// Another block is allocated while a reader of a retired block holds that one back.
pub(crate) const HELD_BACK: &str = "a block is held back by its reader";

/// Length and stamp of a block, which are its whole content.
pub(crate) type Content = (u64, u64);

impl RootObject<Arc<Sim>> for Table {
    fn root_type() -> RootType {
        RootType { name: "Table".to_owned(), layout: 1 }
    }

    fn create(heap: Heap<Arc<Sim>>) -> Result<Self> {
        // An empty table is all zeros, as the heap's header is.
        Ok(Table { heap, watch: Mutex::default() })
    }

    fn open(heap: Heap<Arc<Sim>>) -> Result<Self> {
        let table = Table { heap, watch: Mutex::default() };
        table.heap.recover(|block| {
            (0..SLOTS).any(|slot| table.slot(slot).load().offset() == block.offset)
        })?;
        Ok(table)
    }
}

impl Table {
    pub(crate) fn create_root(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Arc<Self>> {
        pool.create_root(name)
    }

    pub(crate) fn open_root(pool: &Pool<Arc<Sim>>, name: &str) -> Result<Arc<Self>> {
        pool.open_root(name)
    }

    /// Makes a table whose last slot holds a block of `len` bytes.
    pub(crate) fn fill(pool: &Pool<Arc<Sim>>, name: &str, len: u64) -> Result<()> {
        let table = Self::create_root(pool, name)?;
        table.put(SLOTS - 1, (len, 0)).map(drop)
    }

    /// Offset of the block of a slot.
    pub(crate) fn block_at(&self, slot: u64) -> Option<u64> {
        let word = self.slot(slot).load_durable();
        (!word.is_null()).then(|| word.offset())
    }

    fn watch<T>(&self, look: impl FnOnce(&mut Watch) -> T) -> T {
        look(&mut self.watch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_allocated(&self, offset: u64) {
        let (was_retired, is_held) = self.watch(|watch| {
            let held = |block| watch.retired.contains(block);
            (watch.retired.contains(&offset), watch.reading.values().any(held))
        });
        let medium = self.heap.medium();
        if was_retired {
            medium.reach(REUSED);
        }
        if is_held {
            medium.reach(HELD_BACK);
        }
        self.watch(|watch| watch.retired.remove(&offset));
    }

    fn note_retired(&self, offset: u64) {
        let is_read = self.watch(|watch| {
            watch.retired.insert(offset);
            watch.replaced += 1;
            watch.reading.values().any(|block| *block == offset)
        });
        if is_read {
            self.heap.medium().reach(RETIRED_UNDER_READER);
        }
    }

    fn slot(&self, slot: u64) -> Link<'_, Arc<Sim>> {
        Link::at(self.heap.medium(), self.heap.header() + slot * 64)
    }

    /// Puts a new block into a slot, and frees the old one.
    pub(crate) fn put(&self, slot: u64, (len, stamp): Content) -> Result<Option<Content>> {
        let medium = self.heap.medium();
        let mut lane = self.heap.enter().prepare_to_write();
        let block = lane.allocate(len)?;
        self.note_allocated(block.offset);
        medium.store(block.offset, len);
        medium.store(block.offset + 8, stamp);
        medium.store(block.offset + len - 8, stamp);
        // Flush: fenced below, before the slot leads here.
        medium.flush(block.offset, 16);
        // Flush: as above.
        medium.flush(block.offset + len - 8, 8);
        loop {
            let old = self.slot(slot).load_durable();
            let content = self.read(old)?;
            let suspect = (!old.is_null()).then(|| lane.suspect(old.offset()));
            // Fence: the new block, and the note that the old one is about to be unlinked.
            lane.fence();
            let new = Word::to(block.offset).with_tag(old.with_next_tag().tag());
            if self.slot(slot).replace(old, new).is_ok() {
                if !old.is_null() {
                    self.note_retired(old.offset());
                }
                suspect.into_iter().for_each(|suspect| lane.retire(suspect));
                self.heap.verify()?;
                return Ok(content);
            }
            suspect.into_iter().for_each(|suspect| lane.cancel(suspect));
        }
    }

    /// Empties a slot and frees its block.
    fn take(&self, slot: u64) -> Result<Option<Content>> {
        let mut lane = self.heap.enter().prepare_to_write();
        loop {
            let old = self.slot(slot).load_durable();
            let content = self.read_long(old)?;
            if old.is_null() {
                self.heap.verify()?;
                return Ok(None);
            }
            let suspect = lane.suspect(old.offset());
            // Fence: the note that the block is about to be unlinked.
            lane.fence();
            let new = Word::NULL.with_tag(old.with_next_tag().tag());
            if self.slot(slot).replace(old, new).is_ok() {
                self.note_retired(old.offset());
                // It is already durable. This is like structures that leave the flush to the lane's
                // next fence.
                lane.flush_later(self.heap.header() + slot * 64);
                lane.retire(suspect);
                self.heap.verify()?;
                return Ok(content);
            }
            lane.cancel(suspect);
        }
    }

    /// Allocates blocks, as a step does that is then given up, and gives them back.
    fn try_out(&self, len: u64) -> Result<()> {
        let mut lane = self.heap.enter().prepare_to_write();
        let count = if len == LEN_OF_STEPS { BLOCKS_OF_STEP } else { 1 };
        let mut blocks = Vec::new();
        let allocated = (0..count).try_for_each(|_| {
            let block = lane.allocate(len)?;
            self.heap.medium().store(block.offset, len);
            blocks.push(block);
            Ok(())
        });
        blocks.into_iter().for_each(|block| lane.give_back(block));
        self.heap.verify()?;
        allocated
    }

    fn get(&self, slot: u64) -> Result<Option<Content>> {
        let _pin = self.heap.pin();
        let word = self.slot(slot).load_durable();
        let thread = self.heap.medium().thread();
        self.watch(|watch| watch.reading.insert(thread, word.offset()));
        let content = self.read_long(word);
        self.watch(|watch| watch.reading.remove(&thread));
        self.heap.verify()?;
        content
    }

    /// Reads a block while others replace several. The block may be retired meanwhile; it must not
    /// change before the reader has left, whatever happens to its slot.
    fn read_long(&self, word: Word) -> Result<Option<Content>> {
        let content = self.read(word);
        let replaced = self.watch(|watch| watch.replaced);
        for _ in 0..PAUSES_MAX {
            self.heap.medium().pause();
            if self.watch(|watch| watch.replaced) >= replaced + REPLACED_MEANWHILE {
                break;
            }
        }
        let again = self.read(word);
        if let (Ok(before), Ok(after)) = (&content, &again)
            && before != after
        {
            let what = format!("block had {before:?}, has {after:?}: given out under its reader");
            return Err(Error::Corrupt { offset: word.offset(), what });
        }
        content.and(again)
    }

    /// Content of the block. Called inside a lane, so that the block is not freed meanwhile.
    fn read(&self, word: Word) -> Result<Option<Content>> {
        if word.is_null() {
            return Ok(None);
        }
        let (medium, offset) = (self.heap.medium(), word.offset());
        let (len, stamp) = (medium.load(offset), medium.load(offset + 8));
        self.heap.verify()?;
        if !(24..1 << 30).contains(&len) || medium.load(offset + len - 8) != stamp {
            let what = format!("block has len {len}, stamp {stamp}: given out while it was linked");
            return Err(Error::Corrupt { offset, what });
        }
        Ok(Some((len, stamp)))
    }

    /// The content of all slots that are not empty.
    pub(crate) fn contents(&self) -> Result<BTreeMap<u64, Content>> {
        let mut contents = BTreeMap::new();
        for slot in 0..SLOTS {
            contents.extend(self.get(slot)?.map(|content| (slot, content)));
        }
        Ok(contents)
    }

    /// Compares the allocated blocks with those that the slots lead to.
    pub(crate) fn check(&self) -> Outcome {
        let links = (0..SLOTS).map(|slot| self.slot(slot).load_durable());
        let blocks = links.filter(|link| !link.is_null()).map(Word::offset);
        must_be_empty(self.heap.check(blocks)?)
    }
}

/// One table, under load.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    /// Number of slots in operations.
    pub(crate) slots: u64,
    /// Lengths of blocks, among [`LENS`].
    pub(crate) lens: &'static [u64],
    /// Number of threads, and of the blocks that each puts into slot 0 before the start, one over
    /// the other.
    pub(crate) churn: (u64, u64),
    /// Of sixteen operations, so many more are reads.
    pub(crate) gets: u64,
    /// When retired blocks are freed.
    pub(crate) reclamation: Reclamation,
    /// Size beyond which the pool does not grow.
    pub(crate) size_max: u64,
}

/// One operation of the table.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(u64, Content),
    Take(u64),
    Get(u64),
    TryOut(u64),
}

impl Subject for Allocator {
    type Op = Op;
    type Ret = Answer<Content>;
    type State = BTreeMap<u64, Content>;
    type Handle = Open<Arc<Table>>;

    fn create(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::create(medium, self.size_max, |pool, name| {
            pool.set_reclamation(self.reclamation);
            Table::create_root(pool, name)
        })
    }

    fn prepare(&self, _: &Arc<Sim>, open: Self::Handle) -> Outcome<Self::Handle> {
        let (threads, blocks) = self.churn;
        for thread in 0..threads {
            let churned = open.pool.medium().as_thread(thread, |_| -> Result<()> {
                for stamp in 0..blocks {
                    open.object.put(0, (self.lens[0], stamp))?;
                }
                open.object.take(0).map(drop)
            });
            churned?;
        }
        Ok(open)
    }

    fn open(&self, medium: Arc<Sim>) -> Outcome<Self::Handle> {
        Open::recover(medium, |pool, name| {
            pool.set_reclamation(self.reclamation);
            Table::open_root(pool, name)
        })
    }

    fn apply(&self, open: &Self::Handle, op: &Op) -> Answer<Content> {
        let found = |content: Option<Content>| content.map_or(Answer::None, Answer::Value);
        let table = &open.object;
        match *op {
            Op::Put(slot, content) => answer(table.put(slot, content), found),
            Op::Take(slot) => answer(table.take(slot), found),
            Op::Get(slot) => answer(table.get(slot), found),
            Op::TryOut(len) => answer(table.try_out(len), |()| Answer::None),
        }
    }

    fn model(&self, state: &mut Self::State, op: &Op) -> Answer<Content> {
        let found = |content: Option<Content>| content.map_or(Answer::None, Answer::Value);
        match *op {
            Op::Put(slot, content) => found(state.insert(slot, content)),
            Op::Take(slot) => found(state.remove(&slot)),
            Op::Get(slot) => found(state.get(&slot).copied()),
            Op::TryOut(_) => Answer::None,
        }
    }

    fn observe(&self, open: &Self::Handle) -> Outcome<Self::State> {
        Ok(open.object.contents()?)
    }

    fn op(&self, rng: &mut Rng) -> Op {
        let slot = rng.below(self.slots);
        let len = *rng.pick(self.lens);
        match rng.below(10 + self.gets) {
            0..=4 => Op::Put(slot, (len, rng.below(1 << 30))),
            5..=7 => Op::Take(slot),
            8 => Op::TryOut(len),
            _ => Op::Get(slot),
        }
    }

    fn check(&self, open: &Self::Handle) -> Outcome {
        open.object.check()?;
        open.check()
    }

    fn is_refused(&self, answer: &Answer<Content>) -> bool {
        is_refused(answer)
    }
}
