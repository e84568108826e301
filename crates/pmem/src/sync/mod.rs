//! Waiting for other threads in a way that the simulator can schedule, and fences for all threads.

mod queue;

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;

use spin::mutex::{SpinMutex, SpinMutexGuard};

pub use self::queue::{Queue, Turn};
use crate::medium::Medium;

/// A mutex for volatile state, which may be held during calls of the medium.
///
/// Waiting threads call [`Medium::pause`], so that the simulator can schedule the holder. Unlocking
/// is a plain store. The locked instruction that most mutexes use would wait until all stores have
/// left the core, including streaming stores.
///
/// A panic unlocks the mutex and poisons nothing. So the holder calls code that may panic, such as
/// a closure of the library's user, only while the value is consistent: before the first change, or
/// after the last.
#[derive(Debug, Default)]
pub struct PauseMutex<T>(SpinMutex<T>);

// The rule above makes them right: a thread that locks the mutex after a panic finds a consistent
// value.
impl<T> UnwindSafe for PauseMutex<T> {}
impl<T> RefUnwindSafe for PauseMutex<T> {}

/// Holds a [`PauseMutex`] until it is dropped.
pub type PauseGuard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> PauseMutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        PauseMutex(SpinMutex::new(value))
    }

    /// Waits for the lock. If a holder panicked, the value is as it left it.
    #[inline]
    pub fn lock<M: Medium>(&self, medium: &M) -> PauseGuard<'_, T> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => medium.pause(),
            }
        }
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<PauseGuard<'_, T>> {
        self.0.try_lock()
    }

    /// The value, without locking: `&mut self` proves that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// Makes every running thread of the process execute a full fence (`membarrier`). Code that runs
/// much more often then needs no fence of its own. Returns false if the kernel cannot do this.
pub fn fence_all_threads() -> bool {
    can_fence_all_threads() && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Whether [`fence_all_threads`] works here. Registers the process for it, once.
pub(crate) fn can_fence_all_threads() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes no pointer and changes no memory.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    answer == 0
}
