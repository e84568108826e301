//! Waiting for other threads so that the simulator can schedule them, and fencing for them.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;

use spin::mutex::{SpinMutex, SpinMutexGuard};

use crate::medium::Medium;

/// A mutex for volatile state that is also held across calls of the medium.
///
/// Its waiters call [`Medium::pause`], so that the simulator can schedule the holder. It is given back by a plain store: an
/// instruction that locks the bus, as most mutexes have there, waits until all that was stored has left the core, streaming
/// stores included.
///
/// A panic gives the lock free and poisons nothing. So whoever holds it calls code that may panic,
/// such as a closure of the library's user, only while the value is as others may find it: before
/// the first change, or after the last.
#[derive(Debug, Default)]
pub struct PauseMutex<T>(SpinMutex<T>);

// The rule above makes them right: whoever locks after a panic finds a value that is whole.
impl<T> UnwindSafe for PauseMutex<T> {}
impl<T> RefUnwindSafe for PauseMutex<T> {}

/// A [`PauseMutex`] that is held, until this is dropped.
pub type PauseGuard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> PauseMutex<T> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> Self {
        PauseMutex(SpinMutex::new(value))
    }

    /// Waits for the lock. What a holder that panicked left behind is handed on as it is.
    #[inline]
    pub fn lock<M: Medium>(&self, medium: &M) -> PauseGuard<'_, T> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => medium.pause(),
            }
        }
    }

    /// The lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<PauseGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value, when nobody else can have the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
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
