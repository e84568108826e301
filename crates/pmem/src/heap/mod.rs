//! A heap: the space of one structure, and safe reclamation for its readers.
//!
//! A heap owns whole chunks. Threads enter it through a [`Lane`], which is at once an allocator that no
//! other thread touches meanwhile, and a promise that nothing this thread can still see is freed.
//!
//! # What is trusted after a crash
//!
//! Allocation only sets a bit in memory: no flush, no fence. What makes that safe is that a lane
//! durably names the chunks it allocates from (its *active* chunks) before it uses them, and the blocks
//! that are on their way out (its *suspects*) before they are unlinked. After a crash the bits of
//! active chunks and of suspects are not trusted: the structure is asked, block by block, whether the
//! block is linked, and the bit becomes the answer. Everything else is exact. The work is bounded by the
//! lanes that were in use, whatever the pool holds.

mod check;
pub mod layout;
mod ops;
mod pin;
pub(crate) mod reclamation;
mod recover;

use std::cell::UnsafeCell;
use std::collections::{HashSet, VecDeque};
use std::panic::RefUnwindSafe;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub use check::Usage;
pub use ops::{Lane, Suspect};
pub use pin::Pin;
pub use reclamation::Reclamation;

pub use crate::violation::Violation;

use self::layout::{CLASS_COUNT, Class, LANE_COUNT, SUSPECT_COUNT};
use self::pin::Readers;
use crate::medium::Medium;
use crate::pool::Pool;
use crate::pool::layout::{CHUNK_LEN, ChunkId, ChunkKind, RootId};
use crate::sync::PauseMutex;
use crate::{Fault, Result};

/// Pool memory that an allocation returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// Pool offset of the first byte, aligned to 32 bytes.
    pub offset: u64,
    /// Usable bytes, at least those asked for.
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
    /// One past the highest lane ever entered: the others need no look.
    lanes_used: AtomicUsize,
    readers: Readers,
    /// Global epoch; what was retired in epoch e is unreachable for all once it is e + 2.
    epoch: AtomicU64,
    chunks: PauseMutex<HeapChunks>,
}

/// Which chunks lanes may take up; volatile, found out as the heap is used.
#[derive(Debug)]
struct HeapChunks {
    /// Chunks with blocks worth taking, by class.
    partial: [Vec<ChunkId>; CLASS_COUNT],
    /// What is in `partial`, and what lanes allocate from: not to be listed, not to be given back.
    listed: HashSet<ChunkId>,
    active: HashSet<ChunkId>,
    /// Frees in each chunk until it is to be looked at again; 0 for one that was not looked at.
    frees_left: Vec<u16>,
    /// Chunks before this one were looked at since the heap was opened.
    scanned: ChunkId,
    /// Classes of which a search of the whole pool found no free block, and none was freed since: a bit each.
    exhausted: u32,
    /// Where such a search of a class goes on.
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

/// A lane's volatile half. Aligned to two lines: the adjacent-line prefetcher fetches pairs.
#[derive(Debug)]
#[repr(align(128))]
struct LaneSlot {
    /// 0 when nobody is inside, else the announced epoch times two plus one.
    announced: AtomicU64,
    state: UnsafeCell<LaneState>,
}

// SAFETY: `state` is only touched by the thread that set `announced` from 0 (see `Heap::enter`).
unsafe impl Sync for LaneSlot {}

// What a panic leaves in a lane is whole: `Lane` changes it in methods of its own, which call no
// code of others, and its drop gives the lane free.
impl RefUnwindSafe for LaneSlot {}

#[derive(Debug)]
struct LaneState {
    cursors: [Cursor; CLASS_COUNT],
    free_slots: VecDeque<u16>,
    retired: VecDeque<Retired>,
    /// Retired blocks at which freeing is tried next.
    attempt_at: usize,
    /// Retired blocks at which the epoch is to move on next.
    advance_at: usize,
    /// How many of them are runs of chunks.
    retired_large: usize,
    /// Lines to be flushed before the next fence in this lane, whichever thread it is of.
    unflushed: Vec<u64>,
    /// Slots of large blocks allocated by the operation in progress.
    large: Vec<u16>,
}

/// Where a lane allocates blocks of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    chunk: Option<ChunkId>,
    /// Next bitmap word to look at.
    word: u32,
    /// Free bits of the word before, not handed out yet.
    available: u64,
}

#[derive(Clone, Copy, Debug)]
struct Retired {
    offset: u64,
    slot: u16,
    epoch: u64,
}

impl<M: Medium> Heap<M> {
    /// Takes possession of a fresh, zeroed heap chunk.
    pub(crate) fn create(pool: Pool<M>, owner: RootId, chunk: ChunkId) -> Result<Self> {
        let heap = Self::new(pool, owner, chunk);
        // Fence: the chunk's state word and its zeros are durable before the structure builds on them.
        heap.medium().fence();
        Ok(heap)
    }

    /// Takes possession of a heap that exists; the structure then calls [`recover`](Heap::recover).
    pub(crate) fn open(pool: Pool<M>, owner: RootId, chunk: ChunkId) -> Result<Self> {
        Ok(Self::new(pool, owner, chunk))
    }

    fn new(pool: Pool<M>, owner: RootId, chunk: ChunkId) -> Self {
        let reclamation = pool.reclamation();
        let lanes = (0..LANE_COUNT).map(|_| LaneSlot {
            announced: AtomicU64::new(0),
            state: UnsafeCell::new(LaneState {
                cursors: [Cursor::default(); CLASS_COUNT],
                free_slots: (0..SUSPECT_COUNT).collect(),
                retired: VecDeque::new(),
                attempt_at: 0,
                advance_at: reclamation.half_batch(),
                retired_large: 0,
                unflushed: Vec::new(),
                large: Vec::new(),
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

    /// Offset of the 2 KiB that belong to the structure; zeros in a fresh heap.
    pub fn header(&self) -> u64 {
        self.chunk.offset()
    }

    /// How often a root of [this number](Heap::owner) was created in the pool: no other heap that ever was has
    /// both. Memory may still hold what an earlier one has left.
    pub fn generation(&self) -> u64 {
        self.pool.root_generation(self.owner)
    }

    /// Reports what the medium could not do, if anything.
    ///
    /// Asked at the end of an operation, before it is acknowledged.
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

    /// Enters the heap: claims a lane and announces the epoch. Waits when every lane is taken.
    ///
    /// While the lane is held, nothing that this thread can reach is freed.
    #[inline]
    pub fn enter(&self) -> Lane<'_, M> {
        let thread = self.medium().thread();
        let mut index = thread as usize % LANE_COUNT;
        loop {
            for _ in 0..LANE_COUNT {
                if let Some(lane) = self.try_enter(index, thread) {
                    return lane;
                }
                index = (index + 1) % LANE_COUNT;
            }
            self.medium().pause();
        }
    }

    #[inline(always)]
    fn try_enter(&self, index: usize, thread: u64) -> Option<Lane<'_, M>> {
        let slot = &self.lanes[index];
        // Relaxed: an old epoch is announced at worst, which holds reclamation back, never forward.
        let epoch = self.epoch.load(Ordering::Relaxed);
        // SeqCst: acquires the lane from its last holder (Release in `Lane::drop`), and orders the
        // announcement before every load of this operation, against the scan in `try_advance`.
        slot.announced
            .compare_exchange(0, epoch * 2 + 1, Ordering::SeqCst, Ordering::Relaxed)
            .ok()?;
        if index >= self.lanes_used.load(Ordering::Relaxed) {
            // SeqCst: before any load of this operation, as above.
            self.lanes_used.fetch_max(index + 1, Ordering::SeqCst);
        }
        // SAFETY: the announcement made this thread the only one that touches the lane's state until
        // `Lane::drop` takes it back.
        let state = unsafe { &mut *slot.state.get() };
        Some(Lane::new(self, index, state, thread))
    }

    /// The present epoch; see [`has_passed`](Heap::has_passed).
    pub fn epoch(&self) -> u64 {
        // SeqCst: after everything that this thread did before it asks, as in `Lane::retire`.
        self.epoch.load(Ordering::SeqCst)
    }

    /// Whether every operation has left that was inside the heap when [`epoch`](Heap::epoch) answered
    /// `epoch`. To be asked again until it says so, and not by one that is inside.
    pub fn has_passed(&self, epoch: u64) -> bool {
        self.try_advance();
        // SeqCst: what those operations did comes before what this thread does next.
        self.epoch.load(Ordering::SeqCst) >= epoch + 2
    }

    /// Moves the global epoch on when every thread inside has seen it.
    fn try_advance(&self) {
        // SeqCst: the scan comes after the unlinking of what is to be freed, in the total order that
        // the announcements are part of.
        let epoch = self.epoch.load(Ordering::SeqCst);
        let used = self.lanes_used.load(Ordering::SeqCst);
        let seen_by_all = self.lanes[..used].iter().all(|slot| {
            let announced = slot.announced.load(Ordering::SeqCst);
            announced == 0 || announced / 2 == epoch
        });
        if seen_by_all && self.readers.all_at(epoch, self.medium().thread()) {
            // SeqCst: only one thread moves it on; failing means that another did.
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

    /// Asks whether the pool has room for `count` large blocks of `len` bytes. Others may take it meanwhile.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) when it has not.
    pub fn check_room(&self, len: u64, count: u64) -> Result<()> {
        self.pool.check_room(len.div_ceil(CHUNK_LEN).clamp(1, u64::from(u32::MAX)) as u32, count)
    }

    /// The class of a chunk with small blocks of ours; of one that was set aside there is none.
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
        // An unclean end is what recovery is for; nothing to report to.
        let _ = self.quiesce();
        self.pool.heaps().lock(self.medium()).remove(&self.owner);
    }
}
