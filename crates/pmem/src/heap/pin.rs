//! Pins of readers: nothing that they can see is freed, for the price of two plain stores.
//!
//! A reader announces the epoch in a slot of its own thread, and loads. The announcement must be
//! visible before the loads, which would need a full fence, slower than the rest of a lookup. So
//! readers do not fence, and who frees knows that a slot may not show the last announcement yet.
//!
//! A slot keeps its epoch when its reader leaves, and its epochs only grow. If it shows the present
//! epoch, an announcement that it does not show yet has the same epoch, or a later one. So the
//! epoch may advance, whether the reader is inside or not. A thread that reads more often than the
//! epoch advances shows the present one nearly always.
//!
//! If a slot shows an older epoch and that its reader has left, this may be wrong. Then the reader
//! is told to fence when it comes back, and the kernel executes a fence in every running thread of
//! the process (`membarrier`): after that, either the announcement is visible, or the reader will
//! fence. So a thread that has ceased to read costs one such interrupt, which takes as long as
//! thousands of instructions, and one that reads seldom costs one each time. If the kernel cannot
//! do this, readers always fence.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

use super::{Heap, Lane};
use crate::medium::Medium;
use crate::sync::{PauseMutex, can_fence_all_threads, fence_all_threads};

/// Threads that can read without a lane; threads with higher numbers take one.
const SLOT_COUNT: usize = 64;

/// The announcements of a heap's readers.
#[derive(Debug)]
pub(super) struct Readers {
    slots: Box<[Slot]>,
    /// One past the highest slot that was ever used; slots from here on need no scan.
    used: AtomicUsize,
    /// Whether `membarrier` fences for the readers.
    is_asymmetric: bool,
    /// One thread at a time sends slots to rest.
    resting: PauseMutex<()>,
}

/// What a reader announces. Aligned to two lines, because the adjacent-line prefetcher fetches
/// pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot {
    /// An epoch, and whether the reader is inside, in bit 0. Only its thread writes this.
    announced: AtomicU64,
    /// [`AWAKE`], [`SETTLING`] or [`RESTING`].
    rest: AtomicU32,
}

/// The reader does not fence.
const AWAKE: u32 = 0;
/// The reader is to fence the next time, and may not know it yet.
const SETTLING: u32 = 1;
/// The reader fences the next time.
const RESTING: u32 = 2;

/// What a slot says of an advance of the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// It does not hold the epoch back.
    Passed,
    /// Its reader has left, as far as can be seen.
    Lingering,
    /// Its reader is inside with another epoch.
    Inside,
}

impl Slot {
    fn stand(&self, epoch: u64) -> Stand {
        // SeqCst: before the announcement. Who has woken between the two announces this epoch, or a
        // later one, because the fence in `wake` comes after that in `all_at`.
        let is_resting = self.rest.load(Ordering::SeqCst) == RESTING;
        // SeqCst: after the barrier, and in one order with the readers' fences. What a reader did
        // before it left happened before; partner of the Release in `leave` and in `announce`.
        let announced = self.announced.load(Ordering::SeqCst);
        match (announced / 2 == epoch, announced & INSIDE != 0) {
            (true, _) => Stand::Passed,
            (false, true) => Stand::Inside,
            (false, false) if is_resting => Stand::Passed,
            (false, false) => Stand::Lingering,
        }
    }

    /// Ends the announcement that the reader is inside.
    #[inline(always)]
    fn leave(&self) {
        // Relaxed: only this thread writes its announcement.
        let announced = self.announced.load(Ordering::Relaxed);
        // Release: partner of the load in `stand`; every load of this reader happened before.
        self.announced.store(announced & !INSIDE, Ordering::Release);
    }

    /// Ends a rest, after an announcement.
    #[cold]
    fn wake(&self) {
        // Relaxed: whoever still takes this slot for one at rest is right, until the fence.
        self.rest.store(AWAKE, Ordering::Relaxed);
        // SeqCst: the announcement is visible before any load of this reader; partner of the fence
        // in `all_at`.
        fence(Ordering::SeqCst);
    }
}

/// In an announcement: the reader is inside.
const INSIDE: u64 = 1;

/// While it lives, nothing that this thread can reach in the heap is freed.
#[derive(Debug)]
#[must_use = "what is read is protected only while the pin lives"]
pub struct Pin<'h, M: Medium> {
    held: Held<'h, M>,
    /// A pin belongs to the thread whose slot it uses.
    not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Held<'h, M: Medium> {
    Slot(&'h Slot),
    /// An outer pin of the same thread already protects this one.
    Outer,
    Lane {
        #[expect(dead_code, reason = "held for its drop")]
        lane: Lane<'h, M>,
    },
}

impl Readers {
    pub(super) fn new() -> Self {
        Readers {
            slots: (0..SLOT_COUNT).map(|_| Slot::default()).collect(),
            used: AtomicUsize::new(0),
            is_asymmetric: can_fence_all_threads(),
            resting: PauseMutex::new(()),
        }
    }

    /// Whether no reader is inside with an older epoch than the present one, `epoch`. `thread`
    /// asks.
    ///
    /// Everything that was unlinked before this call is invisible to readers that enter later.
    pub(super) fn all_at(&self, epoch: u64, thread: u64) -> bool {
        // SeqCst: between what was unlinked and the scan; partner of the fences of readers.
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst);
        let others = || (0..).zip(&self.slots[..used]).filter(|(index, _)| *index != thread);
        let own = self.slots[..used].get(thread as usize);
        if own.is_some_and(|slot| slot.stand(epoch) == Stand::Inside) {
            return false;
        }
        let mut is_sure = true;
        for (_, slot) in others() {
            match slot.stand(epoch) {
                Stand::Passed => {}
                Stand::Inside => return false,
                Stand::Lingering => is_sure &= !self.is_asymmetric,
            }
        }
        is_sure || self.have_all_left(epoch, others().map(|(_, slot)| slot))
    }

    /// As [`all_at`](Readers::all_at), where some slots linger. Sends those to rest.
    #[cold]
    fn have_all_left<'s>(&self, epoch: u64, slots: impl Iterator<Item = &'s Slot> + Clone) -> bool {
        // One at a time: a slot that another thread makes SETTLING behind this thread's barrier is
        // not at rest. And that thread is about to find out the same.
        let Some(_resting) = self.resting.try_lock() else { return false };
        let lingering = slots.clone().filter(|slot| slot.stand(epoch) == Stand::Lingering);
        // SeqCst: before the barrier. A reader whose announcement is not visible after that loads
        // this later, and fences.
        lingering.for_each(|slot| slot.rest.store(SETTLING, Ordering::SeqCst));
        if !fence_all_threads() {
            return false;
        }
        for slot in slots.clone() {
            // SeqCst: after the barrier. Fails where the reader has woken meanwhile.
            let (set, missed) = (Ordering::SeqCst, Ordering::Relaxed);
            let _ = slot.rest.compare_exchange(SETTLING, RESTING, set, missed);
        }
        slots.into_iter().all(|slot| slot.stand(epoch) != Stand::Inside)
    }

    /// Announces the present epoch in this slot, of this number. Returns false when an outer pin of
    /// the thread has done so.
    #[inline(always)]
    fn announce(&self, index: usize, slot: &Slot, epoch: &AtomicU64) -> bool {
        // Relaxed: only this thread writes its announcement.
        if slot.announced.load(Ordering::Relaxed) & INSIDE != 0 {
            return false;
        }
        // Acquire: before the load of the epoch. Who does not scan this slot yet has unlinked what
        // it frees before that.
        if index >= self.used.load(Ordering::Acquire) {
            // SeqCst: a full fence, once, so that a thread that frees after this scans the slot.
            self.used.fetch_max(index + 1, Ordering::SeqCst);
        }
        // Acquire: what was unlinked before an epoch is invisible to its readers; partner of the
        // exchange in `Heap::try_advance`. An old epoch delays reclamation and never hastens it.
        let epoch = epoch.load(Ordering::Acquire);
        // Release: who sees this knows that this reader has left before; partner of the load in
        // `Slot::stand`.
        slot.announced.store(epoch * 2 + INSIDE, Ordering::Release);
        if self.is_asymmetric {
            // For the compiler, the announcement comes before this load, and this load before all
            // others. For the CPU, the barrier in `have_all_left` is enough: if it comes to this
            // thread behind this load, the announcement is visible; else the load sees SETTLING.
            compiler_fence(Ordering::SeqCst);
            if slot.rest.load(Ordering::Acquire) != AWAKE {
                slot.wake();
            }
        } else {
            // SeqCst: the announcement is visible before any load of this reader.
            fence(Ordering::SeqCst);
        }
        true
    }
}

impl<M: Medium> Heap<M> {
    /// Enters the heap for reading. Never waits for other threads, unless there are more than 64.
    #[inline(always)]
    pub fn pin(&self) -> Pin<'_, M> {
        let thread = self.medium().thread();
        let held = match self.readers.slots.get(thread as usize) {
            Some(slot) => match self.readers.announce(thread as usize, slot, &self.epoch) {
                true => Held::Slot(slot),
                false => Held::Outer,
            },
            None => Held::Lane { lane: self.enter() },
        };
        Pin { held, not_send: PhantomData }
    }
}

impl<M: Medium> Drop for Pin<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Held::Slot(slot) = self.held {
            slot.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;

    const OWN: u64 = 0;

    fn enter(readers: &Readers, index: usize, epoch: &AtomicU64) -> bool {
        readers.announce(index, &readers.slots[index], epoch)
    }

    /// A slot with the present epoch needs no barrier, and one at rest needs none either.
    #[test]
    fn a_slot_holds_back_what_its_reader_can_see() {
        let (readers, epoch) = (Readers::new(), AtomicU64::new(1));
        let rest = |index: usize| readers.slots[index].rest.load(Ordering::Relaxed);
        assert!(readers.all_at(1, OWN), "nobody has ever been inside");
        assert!(enter(&readers, 1, &epoch) && !enter(&readers, 1, &epoch), "an outer pin counts");
        assert!(readers.all_at(1, OWN), "it has announced the epoch");
        assert!(!readers.all_at(2, OWN) && rest(1) == AWAKE, "it is inside");
        readers.slots[1].leave();
        assert!(readers.all_at(1, OWN) && rest(1) == AWAKE, "it is as if it were inside");
        assert!(readers.all_at(2, OWN), "it has left");
        if readers.is_asymmetric {
            assert_eq!(rest(1), RESTING);
        }
        epoch.store(2, Ordering::Release);
        assert!(enter(&readers, 1, &epoch) && rest(1) == AWAKE, "it fences and is awake");
        assert!(readers.all_at(2, OWN) && !readers.all_at(3, OWN));
        readers.slots[1].rest.store(RESTING, Ordering::Relaxed);
        assert!(!readers.all_at(3, OWN), "who was inside when it was sent to rest is inside still");
    }

    #[test]
    fn the_own_pin_holds_the_epoch_back() {
        let (readers, epoch) = (Readers::new(), AtomicU64::new(1));
        assert!(enter(&readers, OWN as usize, &epoch));
        assert!(readers.all_at(1, OWN) && !readers.all_at(2, OWN));
        readers.slots[OWN as usize].leave();
        assert!(readers.all_at(2, OWN));
    }

    /// One thread replaces a cell and spoils the old one when two epochs have passed; others read
    /// cells, and sleep now and then.
    #[test]
    fn no_reader_finds_what_was_freed() {
        const CELLS: usize = 64;
        let (readers, epoch, is_over) = (Readers::new(), AtomicU64::new(1), AtomicBool::new(false));
        let (current, cells) = (AtomicUsize::new(0), [const { AtomicBool::new(true) }; CELLS]);
        let read = |index: usize| {
            let mut turn = index;
            while !is_over.load(Ordering::Relaxed) {
                enter(&readers, index, &epoch);
                let cell = &cells[current.load(Ordering::Acquire)];
                for _ in 0..turn % 5 {
                    assert!(cell.load(Ordering::Relaxed), "a cell was freed under its reader");
                }
                readers.slots[index].leave();
                turn += 1;
                if turn.is_multiple_of(1_000 * index) {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        };
        let freed = std::thread::scope(|scope| {
            for index in 1..4 {
                let read = &read;
                scope.spawn(move || read(index));
            }
            let (mut retired, mut freed) = (VecDeque::new(), 0_u64);
            let mut free: Vec<usize> = (1..CELLS).collect();
            let end = Instant::now() + Duration::from_millis(300);
            while Instant::now() < end {
                if let Some(next) = free.pop() {
                    cells[next].store(true, Ordering::Relaxed);
                    let old = current.swap(next, Ordering::SeqCst);
                    retired.push_back((old, epoch.load(Ordering::SeqCst) + 1));
                }
                let now = epoch.load(Ordering::SeqCst);
                if readers.all_at(now, OWN) {
                    epoch.store(now + 1, Ordering::SeqCst);
                }
                while let Some((cell, _)) = retired.pop_front_if(|(_, since)| *since + 2 <= now) {
                    cells[cell].store(false, Ordering::Relaxed);
                    free.push(cell);
                    freed += 1;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            freed
        });
        assert!(freed > CELLS as u64, "readers that stand still held everything back");
    }
}
