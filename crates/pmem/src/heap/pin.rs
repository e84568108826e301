//! Pins of readers: nothing that they can see is freed, for the price of two plain stores.
//!
//! A reader announces the epoch in a slot of its own thread, and loads. The announcement must be
//! visible before the loads, which would need a full fence, slower than the rest of a lookup. Here
//! the thread that frees pays instead: it makes the kernel execute a fence in every running thread
//! of the process (`membarrier`), once for a batch of blocks. If the kernel cannot do this, readers
//! fence themselves.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

use super::{Heap, Lane};
use crate::medium::Medium;
use crate::sync::{can_fence_all_threads, fence_all_threads};

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
}

/// Aligned to two lines, because the adjacent-line prefetcher fetches pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Slot(AtomicU64);

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
    Slot(&'h AtomicU64),
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
        }
    }

    /// Whether every reader inside has announced `epoch`, as seen by `thread`.
    ///
    /// Everything unlinked before this call is invisible to readers that are not inside.
    pub(super) fn all_at(&self, epoch: u64, thread: u64) -> bool {
        // Relaxed: partner, through the barrier below, of the exchange in `announce`.
        let used = self.used.load(Ordering::Relaxed);
        let others = (0..used).any(|slot| slot as u64 != thread);
        if others {
            self.barrier();
        }
        // SeqCst: after the barrier, and in one order with the symmetric readers' fences.
        let used = self.used.load(Ordering::SeqCst);
        self.slots[..used].iter().all(|slot| {
            let announced = slot.0.load(Ordering::SeqCst);
            announced == 0 || announced / 2 == epoch
        })
    }

    fn barrier(&self) {
        if self.is_asymmetric {
            fence_all_threads();
        } else {
            // SeqCst: partner of the readers' own fences.
            fence(Ordering::SeqCst);
        }
    }
}

impl<M: Medium> Heap<M> {
    /// Enters the heap for reading. Never waits for other threads, unless there are more than 64.
    #[inline(always)]
    pub fn pin(&self) -> Pin<'_, M> {
        let thread = self.medium().thread();
        let held = match self.readers.slots.get(thread as usize) {
            Some(slot) => self.announce(thread as usize, &slot.0),
            None => Held::Lane { lane: self.enter() },
        };
        Pin { held, not_send: PhantomData }
    }

    #[inline(always)]
    fn announce<'h>(&self, index: usize, slot: &'h AtomicU64) -> Held<'h, M> {
        // Relaxed: only this thread writes its slot.
        if slot.load(Ordering::Relaxed) != 0 {
            return Held::Outer;
        }
        if index >= self.readers.used.load(Ordering::Relaxed) {
            // SeqCst: a full fence, once, so that a thread that frees after this scans the slot.
            self.readers.used.fetch_max(index + 1, Ordering::SeqCst);
        }
        // Relaxed: the announced epoch may be old, which delays reclamation and never hastens it.
        let epoch = self.epoch.load(Ordering::Relaxed);
        slot.store(epoch * 2 + 1, Ordering::Relaxed);
        if self.readers.is_asymmetric {
            // For the compiler, the announcement comes before the loads. For the CPU,
            // `Readers::barrier` of the thread that frees ensures it.
            compiler_fence(Ordering::SeqCst);
        } else {
            // SeqCst: the announcement is visible before any load of this reader.
            fence(Ordering::SeqCst);
        }
        Held::Slot(slot)
    }
}

impl<M: Medium> Drop for Pin<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Held::Slot(slot) = self.held {
            // Release: partner of the loads in `all_at`; every load of this reader happened before.
            slot.store(0, Ordering::Release);
        }
    }
}
