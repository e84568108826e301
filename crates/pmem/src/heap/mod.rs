//! A heap: the space of one structure, and safe reclamation for its readers.
//!
//! A heap owns whole chunks. A thread enters it through a [`Lane`]. While the thread holds the
//! lane, no other thread uses the lane's allocator, and nothing that this thread can still see is
//! freed.
//!
//! # Reliable bits after a crash
//!
//! Allocation only sets a bit in memory, without a flush or a fence. This is safe because of what a
//! lane records durably: the chunks that it allocates from (its *active* chunks), before it uses
//! them; and the blocks that are about to be unlinked (its *suspects*), before they are unlinked.
//! After a crash the bits of active chunks and of suspects are unreliable. Recovery asks the
//! structure about each such block whether it is linked, and sets the bit accordingly. All other
//! bits are exact. The work is bounded by the lanes that were in use, whatever the pool holds.

mod check;
pub mod layout;
mod ops;
mod pin;
pub(crate) mod reclamation;
mod recover;
mod sweep;

use std::cell::UnsafeCell;
use std::collections::{HashSet, VecDeque};
use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use check::Usage;
pub use ops::{Lane, Suspect};
pub use pin::Pin;
pub use reclamation::Reclamation;
pub use sweep::SweepCursor;

pub use crate::violation::Violation;

use self::layout::{CLASS_COUNT, Class, LANE_COUNT, SUSPECT_COUNT};
use self::pin::Readers;
use crate::medium::Medium;
use crate::pool::Pool;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, RootId};
use crate::sync::{PauseMutex, Queue};
use crate::{Fault, Result};

/// Pool memory returned by an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Pool offset of the first byte, aligned to 32 bytes.
    pub offset: u64,
    /// Usable bytes, at least as many as requested.
    pub len: u64,
}

/// The space of one root.
#[derive(Debug)]
pub struct Heap<M: Medium> {
    pool: Pool<M>,
    reclamation: Reclamation,
    owner: RootId,
    chunk: ChunkId,
    lanes: Box<[LaneSlot]>,
    /// One past the highest lane that was ever entered; lanes from here on need no scan.
    lanes_used: AtomicUsize,
    readers: Readers,
    /// Global epoch. If threads that announce an epoch after e cannot reach a block, nobody can
    /// once the epoch is e + 2.
    epoch: AtomicU64,
    chunks: PauseMutex<HeapChunks>,
    /// Threads that wait for a lane.
    waiting: Queue,
}

/// The chunks that lanes may take; volatile, and found as the heap is used.
#[derive(Debug)]
struct HeapChunks {
    /// Chunks with enough free blocks, by class.
    partial: [Vec<ChunkId>; CLASS_COUNT],
    /// Chunks in `partial`, and those that lanes allocate from. They are not listed again, and not
    /// given back.
    listed: HashSet<ChunkId>,
    active: HashSet<ChunkId>,
    /// For each chunk, the number of frees until it is examined again; 0 if it was not examined
    /// yet.
    frees_left: Vec<u16>,
    /// All chunks before this one were examined since the heap was opened.
    scanned: ChunkId,
    /// A bit for each class without a free block in the whole pool: a search found none, and none
    /// was freed since.
    exhausted: u32,
    /// Where the search for a class in the whole pool continues.
    scarce: [ChunkId; CLASS_COUNT],
}

impl HeapChunks {
    fn look_again_after(&mut self, chunk: ChunkId, frees: u32) {
        let index = chunk.0 as usize;
        if index >= self.frees_left.len() {
            self.frees_left.resize(index + 1, 0);
        }
        self.frees_left[index] = frees as u16;
    }
}

/// The volatile half of a lane. Aligned to two lines, because the adjacent-line prefetcher fetches
/// pairs.
#[derive(Debug)]
#[repr(align(128))]
struct LaneSlot {
    /// 0 if no thread is inside, else the announced epoch times two plus one.
    announced: AtomicU64,
    /// How often the lane was left.
    left: AtomicU64,
    state: UnsafeCell<LaneState>,
}

// SAFETY: only the thread that changed `announced` from 0 accesses `state` (see `Heap::enter`).
unsafe impl Sync for LaneSlot {}

// What a panic leaves in a lane is whole: `Lane` changes it in methods of its own, which call no
// code of others, and its drop gives the lane free.
impl RefUnwindSafe for LaneSlot {}

#[derive(Debug)]
struct LaneState {
    cursors: [Cursor; CLASS_COUNT],
    free_slots: VecDeque<u16>,
    retired: VecDeque<Retired>,
    /// Number of retired blocks at which the next attempt to free is made.
    attempt_at: usize,
    /// Number of retired blocks at which the next attempt to advance the epoch is made.
    advance_at: usize,
    /// Number of retired runs of chunks.
    retired_large: usize,
    /// Lines to be flushed before the next fence in this lane, whichever thread executes it.
    unflushed: Vec<u64>,
    /// Suspect slots of the large blocks that the operation in progress has allocated, and of the
    /// chunks that it has left behind with small ones.
    announced: Vec<u16>,
    /// Classes, a bit each, of which the operation in progress has taken a chunk.
    activated: u64,
}

/// Where a lane allocates blocks of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    chunk: Option<ChunkId>,
    /// Next bitmap word to load.
    word: u32,
    /// Free bits of the previous word that are not handed out yet.
    available: u64,
}

#[derive(Clone, Copy, Debug)]
struct Retired {
    offset: u64,
    slot: u16,
    /// Threads that announce a later one cannot reach it.
    epoch: u64,
}

impl<M: Medium> Heap<M> {
    /// Creates the heap in a fresh, zeroed chunk.
    pub(crate) fn create(pool: Pool<M>, owner: RootId, chunk: ChunkId) -> Result<Self> {
        let heap = Self::new(pool, owner, chunk);
        // Fence: the chunk's state word and its zeros are durable before the structure relies on
        // them.
        heap.medium().fence();
        Ok(heap)
    }

    /// Opens an existing heap; the structure then calls [`recover`](Heap::recover).
    pub(crate) fn open(pool: Pool<M>, owner: RootId, chunk: ChunkId) -> Result<Self> {
        Ok(Self::new(pool, owner, chunk))
    }

    fn new(pool: Pool<M>, owner: RootId, chunk: ChunkId) -> Self {
        let reclamation = pool.reclamation();
        let lanes = (0..LANE_COUNT).map(|_| LaneSlot {
            announced: AtomicU64::new(0),
            left: AtomicU64::new(0),
            state: UnsafeCell::new(LaneState {
                cursors: [Cursor::default(); CLASS_COUNT],
                free_slots: (0..SUSPECT_COUNT).collect(),
                retired: VecDeque::new(),
                attempt_at: 0,
                advance_at: reclamation.third_of_batch(),
                retired_large: 0,
                unflushed: Vec::new(),
                announced: Vec::new(),
                activated: 0,
            }),
        });
        pool.heaps().lock(pool.medium()).insert(owner);
        let scanned = ChunkId(0).next_data();
        let chunks = HeapChunks {
            partial: [const { Vec::new() }; CLASS_COUNT],
            listed: HashSet::new(),
            active: HashSet::new(),
            frees_left: Vec::new(),
            scanned,
            exhausted: 0,
            scarce: [scanned; CLASS_COUNT],
        };
        Heap {
            pool,
            reclamation,
            owner,
            chunk,
            lanes: lanes.collect(),
            readers: Readers::new(),
            lanes_used: AtomicUsize::new(0),
            epoch: AtomicU64::new(1),
            chunks: PauseMutex::new(chunks),
            waiting: Queue::default(),
        }
    }

    /// The pool that the heap lies in.
    pub fn pool(&self) -> &Pool<M> {
        &self.pool
    }

    /// The medium of that pool.
    #[inline(always)]
    pub fn medium(&self) -> &M {
        self.pool.medium()
    }

    /// Number of the root that the heap belongs to.
    pub fn owner(&self) -> RootId {
        self.owner
    }

    /// Offset of the 2 KiB for the structure's header; zeros in a fresh heap.
    pub fn header(&self) -> u64 {
        self.chunk.offset()
    }

    /// Number of times a root of [this number](Heap::owner) was created in the pool. No other heap
    /// that ever existed in the pool has the same number and generation. Use it to recognise what
    /// an earlier heap left in the same memory.
    pub fn generation(&self) -> u64 {
        self.pool.root_generation(self.owner)
    }

    /// Reports a fault of the medium, if there was one.
    ///
    /// Called at the end of an operation, before it is acknowledged.
    ///
    /// # Errors
    ///
    /// [`Error::Medium`](crate::Error::Medium) from the first fault on.
    #[inline(always)]
    pub fn verify(&self) -> Result<()> {
        match self.medium().fault() {
            None => Ok(()),
            Some(fault) => Err(report(fault)),
        }
    }

    /// Enters the heap: claims a lane and announces the epoch. Waits while every lane is taken;
    /// threads that wait get lanes in the order in which they came.
    ///
    /// While the lane is held, nothing that this thread can reach is freed.
    #[inline]
    pub fn enter(&self) -> Lane<'_, M> {
        let thread = self.medium().thread();
        // Who waits is served first.
        let lane = self.waiting.is_empty().then(|| self.try_enter_any(thread));
        lane.flatten().unwrap_or_else(|| self.line_up(thread))
    }

    #[inline]
    fn try_enter_any(&self, thread: u64) -> Option<Lane<'_, M>> {
        let first = thread as usize % LANE_COUNT;
        (first..first + LANE_COUNT).find_map(|index| self.try_enter(index % LANE_COUNT, thread))
    }

    #[cold]
    fn line_up(&self, thread: u64) -> Lane<'_, M> {
        let _turn = self.waiting.line_up(self.medium());
        loop {
            match self.try_enter_any(thread) {
                Some(lane) => return lane,
                None => self.medium().pause(),
            }
        }
    }

    /// Enters the heap for writing, as [`enter`](Heap::enter) and
    /// [`prepare_to_write`](Lane::prepare_to_write) do, unless that means to wait or to free
    /// blocks. `None` then.
    ///
    /// As it never waits for readers, it may be called by a thread that holds a [`Pin`].
    #[inline(always)]
    pub fn try_enter_to_write(&self) -> Option<Lane<'_, M>> {
        if !self.waiting.is_empty() {
            return None;
        }
        let thread = self.medium().thread();
        let lane = self.try_enter(thread as usize % LANE_COUNT, thread)?;
        lane.is_prepared().then_some(lane)
    }

    #[inline(always)]
    fn try_enter(&self, index: usize, thread: u64) -> Option<Lane<'_, M>> {
        let slot = &self.lanes[index];
        // Relaxed: the announced epoch may be old, which delays reclamation and never hastens it.
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SeqCst: acquires the lane from its last holder (Release in `Lane::drop`), and orders the
        // announcement before every load of this operation; partner of the scan in `try_advance`.
        slot.announced
            .compare_exchange(0, epoch * 2 + 1, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        if index >= self.lanes_used.load(Ordering::Relaxed) {
            // SeqCst: before any load of this operation, as above.
            self.lanes_used.fetch_max(index + 1, Ordering::SeqCst);
        }
        // SAFETY: after the announcement only this thread accesses the lane's state, until
        // `Lane::drop` withdraws it.
        let state = unsafe { &mut *slot.state.get() };
        Some(Lane::new(self, index, state, thread))
    }

    /// The present epoch; see [`has_passed`](Heap::has_passed).
    pub fn epoch(&self) -> u64 {
        // SeqCst: after everything that this thread did before, so that a thread that announces a
        // later epoch sees it.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.epoch.load(Ordering::SeqCst)
    }

    /// Whether every operation has ended that was inside the heap when [`epoch`](Heap::epoch)
    /// returned `epoch`. Call it again until it returns true; do not call it inside an operation.
    pub fn has_passed(&self, epoch: u64) -> bool {
        self.try_advance();
        // SeqCst: everything that those operations did comes before what this thread does next.
        self.epoch.load(Ordering::SeqCst) >= epoch + 2
    }

    /// Waits until every operation that holds a lane now has left it. May not be called inside a
    /// lane.
    ///
    /// Operations that enter later see what the caller stored before with `SeqCst` order.
    pub fn wait_for_lanes(&self) {
        // SeqCst: after what the caller stored; partner of the exchange in `try_enter`.
        let used = self.lanes_used.load(Ordering::SeqCst);
        for lane in &self.lanes[..used] {
            // Acquire: partner of the Release in `Lane::drop`; what that operation did comes before
            // what the caller does next.
            let left = lane.left.load(Ordering::Acquire);
            // SeqCst: as above.
            while lane.announced.load(Ordering::SeqCst) != 0
                && lane.left.load(Ordering::Acquire) == left
            {
                self.medium().pause();
            }
        }
    }

    /// Advances the global epoch, if every thread inside has announced it.
    fn try_advance(&self) {
        // SeqCst: the scan comes after the unlinking of the blocks to be freed, in the total order
        // of the announcements.
        let epoch = self.epoch.load(Ordering::SeqCst);
        let used = self.lanes_used.load(Ordering::SeqCst);
        let seen_by_all = self.lanes[..used].iter().all(|slot| {
            let announced = slot.announced.load(Ordering::SeqCst);
            announced == 0 || announced / 2 == epoch
        });
        if seen_by_all && self.readers.all_at(epoch, self.medium().thread()) {
            // SeqCst: one thread advances the epoch; a failure means that another did.
            let _ =
                self.epoch.compare_exchange(epoch, epoch + 1, Ordering::SeqCst, Ordering::Relaxed);
        }
    }

    /// Whether a large block of this heap, of at least `len` bytes, begins at `offset`.
    ///
    /// # Errors
    ///
    /// When the state word is damaged.
    pub fn has_large(&self, offset: u64, len: u64) -> Result<bool> {
        Ok(self.large_len(offset)?.is_some_and(|found| found >= len))
    }

    /// Bytes of the large block of this heap that begins at `offset`; `None` when none does.
    ///
    /// # Errors
    ///
    /// When the state word is damaged.
    pub fn large_len(&self, offset: u64) -> Result<Option<u64>> {
        let chunk = ChunkId::containing(offset);
        if chunk.offset() != offset || !chunk.is_data() || chunk >= self.pool.chunk_end() {
            return Ok(None);
        }
        let state = self.pool.chunk_state(chunk)?;
        let is_ours = state.kind == ChunkKind::LargeHead && state.owner == self.owner.0;
        Ok(is_ours.then_some(u64::from(state.run) * CHUNK_LEN))
    }

    /// Checks whether the pool has room for `count` large blocks of `len` bytes. Others may take it
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) when there is no room.
    pub fn check_room(&self, len: u64, count: u64) -> Result<()> {
        self.pool.check_room(len.div_ceil(CHUNK_LEN).clamp(1, u64::from(u32::MAX)) as u32, count)
    }

    /// The class of a chunk with small blocks of this heap; `None` for other chunks, and for chunks
    /// that were set aside.
    fn class_of(&self, chunk: ChunkId) -> Option<Class> {
        let state = self.pool.usable_state(chunk);
        let ours = state.kind == ChunkKind::Small && state.owner == self.owner.0;
        if ours { Class::from_number(state.class) } else { None }
    }
}

#[cold]
fn report(fault: Fault) -> crate::Error {
    crate::Error::Medium(fault)
}

impl<M: Medium> Drop for Heap<M> {
    fn drop(&mut self) {
        // Errors cannot be reported here; the next opening recovers.
        let _ = self.quiesce();
        self.pool.heaps().lock(self.medium()).remove(&self.owner);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;
    use crate::medium::Mapped;
    use crate::pool::{RootObject, RootType};

    struct Bare(Heap<Mapped>);

    impl RootObject<Mapped> for Bare {
        fn root_type() -> RootType {
            RootType { name: "bare".to_owned(), layout: 0 }
        }
        fn create(heap: Heap<Mapped>) -> Result<Self> {
            Ok(Bare(heap))
        }
        fn open(heap: Heap<Mapped>) -> Result<Self> {
            Ok(Bare(heap))
        }
    }

    #[test]
    fn threads_that_wait_for_a_lane_get_one_in_order() {
        let pool = Pool::options().create_in_memory().unwrap();
        let heap = &pool.create_root::<Bare>("root").unwrap().0;
        let mut held: Vec<_> = (0..LANE_COUNT).map(|_| heap.enter()).collect();
        let served = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in 0..5 {
                let served = &served;
                scope.spawn(move || {
                    let _lane = heap.enter();
                    served.lock().unwrap().push(number);
                });
                // The next one comes when this one is in line.
                while heap.waiting.len() != number + 1 {
                    thread::yield_now();
                }
            }
            held.pop();
        });
        assert_eq!(served.into_inner().unwrap(), [0, 1, 2, 3, 4]);
        assert!(heap.waiting.is_empty());
    }

    #[test]
    fn nobody_overtakes_who_waits_for_a_lane() {
        let pool = Pool::options().create_in_memory().unwrap();
        let heap = &pool.create_root::<Bare>("root").unwrap().0;
        drop(heap.enter().prepare_to_write());
        assert!(heap.try_enter_to_write().is_some());
        let first = heap.waiting.line_up(pool.medium());
        assert!(heap.try_enter_to_write().is_none());
        thread::scope(|scope| {
            let behind = scope.spawn(|| heap.enter());
            while heap.waiting.len() != 2 {
                thread::yield_now();
            }
            assert!(!behind.is_finished(), "there are lanes, but it is not its turn");
            drop(first);
            drop(behind.join().unwrap());
        });
    }
}
