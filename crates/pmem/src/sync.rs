//! Waiting for other threads so that the simulator can schedule them, and fencing for them.

use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use crate::Medium;

/// A mutex for volatile state that is also held across calls of the medium.
///
/// Its waiters call [`Medium::pause`], so that the simulator can schedule the holder.
#[derive(Debug, Default)]
pub struct PauseMutex<T>(Mutex<T>);

impl<T> PauseMutex<T> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> Self {
        PauseMutex(Mutex::new(value))
    }

    /// Waits for the lock. What a holder that panicked left behind is handed on as it is.
    #[inline]
    pub fn lock<M: Medium>(&self, medium: &M) -> MutexGuard<'_, T> {
        loop {
            match self.0.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => medium.pause(),
            }
        }
    }

    /// The lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, when nobody else can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Has every running thread of the process execute a full fence, so that none of them needs one of its own
/// at a place that is passed much more often (`membarrier`). False where the kernel cannot.
pub fn fence_all_threads() -> bool {
    can_fence_all_threads() && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Whether [`fence_all_threads`] works here; registers the process for it, once.
pub(crate) fn can_fence_all_threads() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no pointer and changes no memory.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    answer == 0
}
