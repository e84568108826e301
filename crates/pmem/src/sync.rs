//! A lock for volatile state that is also held across medium calls.

use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::Medium;

/// A mutex whose waiters call [`Medium::pause`], so that the simulator can schedule the holder.
#[derive(Debug, Default)]
pub(crate) struct PauseMutex<T>(Mutex<T>);

impl<T> PauseMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        PauseMutex(Mutex::new(value))
    }

    /// Waits for the lock. A holder that panicked leaves the value as it was: all of them are caches
    /// of what the pool holds.
    pub(crate) fn lock<M: Medium>(&self, medium: &M) -> MutexGuard<'_, T> {
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => medium.pause(),
            }
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
