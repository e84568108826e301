//! Keys that a batch is about to change: other writers of these keys wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::heap::{Heap, Lane};
use remanent_pmem::sync::PauseMutex;

/// The keys of a map that batches have closed to other writers, by their hashes.
///
/// A writer enters its lane first, and then asks. A batch closes its keys first, and then waits for those who hold lanes.
/// So either the writer finds its key closed, or the batch waits for the writer.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// How many keys are closed: none, most of the time.
    count: AtomicUsize,
    closed: PauseMutex<Closed>,
}

#[derive(Debug, Default)]
struct Closed {
    keys: Vec<u64>,
    /// Whether somebody does something with the whole map, for which batches wait.
    all: bool,
}

impl Gate {
    /// Enters the heap for a change of one key: when no batch is changing that.
    #[inline(always)]
    pub(crate) fn enter<'h, M: Medium>(
        &self,
        heap: &'h Heap<M>,
        key: impl Fn() -> u64,
    ) -> Lane<'h, M> {
        loop {
            let lane = heap.enter().prepare_to_write();
            // SeqCst: after the lane was claimed; partner of the addition in `close`.
            if self.count.load(Ordering::SeqCst) == 0 || !self.is_closed(heap.medium(), key()) {
                return lane;
            }
            drop(lane);
            heap.medium().pause();
        }
    }

    #[cold]
    fn is_closed<M: Medium>(&self, medium: &M, key: u64) -> bool {
        let closed = self.closed.lock(medium);
        closed.keys.contains(&key)
    }

    /// Closes a key to others; waits while others have it closed. Batches close their keys in one order.
    pub(super) fn close<M: Medium>(&self, medium: &M, key: u64) {
        loop {
            let mut closed = self.closed.lock(medium);
            if !closed.all && !closed.keys.contains(&key) {
                closed.keys.push(key);
                // SeqCst: before the batch looks for writers; partner of the load in `enter`.
                self.count.fetch_add(1, Ordering::SeqCst);
                return;
            }
            drop(closed);
            medium.pause();
        }
    }

    /// Opens a key again.
    pub(super) fn open<M: Medium>(&self, medium: &M, key: u64) {
        let mut closed = self.closed.lock(medium);
        if let Some(index) = closed.keys.iter().position(|&closed| closed == key) {
            closed.keys.swap_remove(index);
            // Release: what the batch did comes before what those do who waited.
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Does something with the whole map while no batch changes any key.
    pub(crate) fn without_batches<M: Medium, R>(
        &self,
        medium: &M,
        action: impl FnOnce() -> R,
    ) -> R {
        loop {
            let mut closed = self.closed.lock(medium);
            if !closed.all && closed.keys.is_empty() {
                closed.all = true;
                break;
            }
            drop(closed);
            medium.pause();
        }
        let _opened = Opened { gate: self, medium };
        action()
    }
}

/// Lets batches go on when it goes, also by a panic.
struct Opened<'g, M: Medium> {
    gate: &'g Gate,
    medium: &'g M,
}

impl<M: Medium> Drop for Opened<'_, M> {
    fn drop(&mut self) {
        self.gate.closed.lock(self.medium).all = false;
    }
}
