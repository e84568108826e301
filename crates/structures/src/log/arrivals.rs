//! Waiting for records to arrive.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Readers that sleep until there is a record for them.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    waiting: AtomicU32,
    lock: Mutex<()>,
    arrived: Condvar,
}

impl Arrivals {
    /// Wakes the sleeping readers, once the new end can be seen.
    #[inline]
    pub(super) fn announce(&self) {
        // SeqCst: after the new end was stored; partner of the addition in `wait`. Either this load
        // finds the waiting reader, or the reader finds the new end.
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.arrived.notify_all();
        }
    }

    /// Sleeps until `has_come` returns true or the time `most` has passed.
    pub(super) fn wait(&self, most: Duration, has_come: impl Fn() -> bool) {
        let until = Instant::now().checked_add(most);
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // SeqCst: before the end is read; partner of the load in `announce`.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !has_come() {
            let left = until.map_or(most, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            let woken = self.arrived.wait_timeout(guard, left);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        // SeqCst: as above.
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
