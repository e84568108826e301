//! Keys that a batch is about to change: other writers of these keys wait.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use remanent_pmem::Medium;
use remanent_pmem::heap::{Heap, Lane};
use remanent_pmem::sync::PauseMutex;

use crate::nesting::Nesting;
use crate::{Error, Result};

/// The keys of a map that batches have closed to other writers, by their hashes.
///
/// A writer enters its lane first, and then asks. A batch closes its keys first, and then waits for
/// those who hold lanes. So either the writer finds its key closed, or the batch waits for the
/// writer.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// How many keys are closed: none, most of the time.
    count: AtomicUsize,
    closed: PauseMutex<Closed>,
}

#[derive(Debug, Default)]
struct Closed {
    keys: HashSet<u64>,
    /// Keys of batches that are committed and could not be completed. Nobody may build on them
    /// until the map is opened again.
    abandoned: HashSet<u64>,
    /// Whether an operation changes the whole map. Batches wait for it.
    all: bool,
}

impl Closed {
    /// Whether the key is closed; an error if it stays so.
    fn has(&self, key: u64) -> Result<bool> {
        if self.abandoned.contains(&key) {
            Err(Error::Abandoned)
        } else {
            Ok(self.keys.contains(&key))
        }
    }
}

impl Gate {
    /// Enters the heap for a change of one key, once no batch is changing that.
    ///
    /// # Errors
    ///
    /// [`Error::Abandoned`] when a batch was to change the key and could not be completed.
    /// [`Error::Nested`] when this thread may not wait for a batch.
    #[inline(always)]
    pub(crate) fn enter<'h, M: Medium>(
        &self,
        heap: &'h Heap<M>,
        key: impl Fn() -> u64,
    ) -> Result<Lane<'h, M>> {
        loop {
            let lane = heap.enter().prepare_to_write();
            if self.has_no_keys() || !self.is_closed(heap.medium(), key())? {
                return Ok(lane);
            }
            drop(lane);
            Nesting::refuse()?;
            heap.medium().pause();
        }
    }

    /// As [`enter`](Gate::enter), unless that means to wait, to free blocks, or to look the key up.
    /// `None` then. May be called by a thread that has pinned the heap.
    #[inline(always)]
    pub(crate) fn try_enter<'h, M: Medium>(&self, heap: &'h Heap<M>) -> Option<Lane<'h, M>> {
        let lane = heap.try_enter_to_write()?;
        self.has_no_keys().then_some(lane)
    }

    /// Whether no key is closed. Asked after a lane was claimed.
    #[inline(always)]
    fn has_no_keys(&self) -> bool {
        // SeqCst: after the lane was claimed; partner of the addition in `close`.
        self.count.load(Ordering::SeqCst) == 0
    }

    #[cold]
    fn is_closed<M: Medium>(&self, medium: &M, key: u64) -> Result<bool> {
        self.closed.lock(medium).has(key)
    }

    /// Closes a key to others; waits while others have it closed. Batches close their keys in one
    /// order.
    ///
    /// # Errors
    ///
    /// [`Error::Abandoned`] when another batch was to change the key and could not be completed.
    pub(super) fn close<M: Medium>(&self, medium: &M, key: u64) -> Result<()> {
        loop {
            let mut closed = self.closed.lock(medium);
            if !closed.has(key)? && !closed.all {
                closed.keys.insert(key);
                // SeqCst: before the batch looks for writers; partner of the load in
                // `has_no_keys`.
                self.count.fetch_add(1, Ordering::SeqCst);
                return Ok(());
            }
            drop(closed);
            medium.pause();
        }
    }

    /// Closes a key for good: whoever wants to change it gets an error.
    pub(crate) fn abandon<M: Medium>(&self, medium: &M, key: u64) {
        let mut closed = self.closed.lock(medium);
        if closed.abandoned.insert(key) {
            // SeqCst: as in `close`.
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Opens a key again.
    pub(super) fn open<M: Medium>(&self, medium: &M, key: u64) {
        let mut closed = self.closed.lock(medium);
        if closed.keys.remove(&key) {
            // Release: partner of the load in `has_no_keys`; those who waited see what the batch
            // did.
            self.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Runs `action`, which changes the whole map, while no batch changes any key.
    ///
    /// # Errors
    ///
    /// That of `action`; [`Error::Abandoned`] when a batch was to change a key and could not be
    /// completed. [`Error::Nested`] when this thread may not wait for batches.
    pub(crate) fn without_batches<M: Medium, R>(
        &self,
        medium: &M,
        action: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        Nesting::refuse()?;
        loop {
            let mut closed = self.closed.lock(medium);
            if !closed.abandoned.is_empty() {
                return Err(Error::Abandoned);
            }
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

/// Lets batches go on when it is dropped, also by a panic.
struct Opened<'g, M: Medium> {
    gate: &'g Gate,
    medium: &'g M,
}

impl<M: Medium> Drop for Opened<'_, M> {
    fn drop(&mut self) {
        self.gate.closed.lock(self.medium).all = false;
    }
}
