//! The thread that makes batches safe, and the bound on how far it may lag behind.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use remanent_pmem::sync::{PauseGuard, PauseMutex, fence_all_threads};
use remanent_pmem::{Medium, PAGE_LEN};

use crate::{Error, Result};

/// How batches are made safe, that is, durable.
///
/// ```
/// use std::time::Duration;
/// use remanent_structures::BatchOptions;
///
/// let options = BatchOptions { lag_age: Duration::from_millis(100), ..BatchOptions::default() };
/// assert_eq!(options.lag_bytes, 8 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Bytes that may be written and not yet safe. A writer that finds more makes them safe before
    /// it returns. Default: 8 MiB.
    pub lag_bytes: u64,
    /// How long written bytes may stay unsafe. The thread begins to make them safe after half of
    /// this time. Default: 20 ms.
    pub lag_age: Duration,
    /// Whether a thread makes batches safe. Without it, only calls of `sync` do, and writers that
    /// reach `lag_bytes`; `lag_age` then has no effect. Default: true.
    pub background: bool,
    /// Bytes of a segment, the unit in which a new [`BatchMap`](crate::BatchMap) takes and reclaims
    /// space: a multiple of 64 KiB, at most 1 MiB. An existing map keeps its own. Default: 1 MiB.
    pub segment_len: u64,
}

impl Default for BatchOptions {
    fn default() -> Self {
        BatchOptions {
            lag_bytes: 8 << 20,
            lag_age: Duration::from_millis(20),
            background: true,
            segment_len: 1 << 20,
        }
    }
}

impl BatchOptions {
    /// Options without a thread, for programs that decide themselves when a batch is made safe.
    pub fn without_thread() -> Self {
        BatchOptions { background: false, ..BatchOptions::default() }
    }

    /// Bytes that fill a batch.
    fn batch_len(&self) -> u64 {
        (self.lag_bytes / 4).clamp(BATCH_PAGES * PAGE_LEN, BATCH_LEN_MAX)
    }
}

/// How far the safe state lags behind the acknowledged one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that were written and are not safe. A crash may undo them, the latest first.
    pub bytes: u64,
}

/// Pages that the thread waits for, unless time is up. The two fences of a batch are then an eighth
/// of a fence per page.
const BATCH_PAGES: u64 = 16;
/// The most bytes that a batch waits for. While it waits for more, the first ones leave the caches.
const BATCH_LEN_MAX: u64 = 256 << 10;

/// A structure whose batches are made safe.
pub(crate) trait Batches: Send + Sync + 'static {
    /// Bytes that were written and are not safe.
    fn unsafe_bytes(&self) -> u64;

    /// Makes everything safe that was complete before the call, in one batch.
    fn persist(&self) -> Result<()>;

    /// Does a part of the housekeeping after a batch. Returns whether more is left.
    fn tidy(&self) -> Result<bool> {
        Ok(false)
    }
}

/// The thread. Dropping this stops it and waits for its end. With `background: false`, no thread.
#[derive(Debug)]
pub(crate) struct Background {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

// Only `drop` uses the thread's handle. All else that the thread shares is single words, and values
// that are set once.
impl UnwindSafe for Background {}
impl RefUnwindSafe for Background {}

/// What writers and the thread tell each other.
#[derive(Debug)]
struct Signals {
    options: BatchOptions,
    /// One of the constants below.
    mode: AtomicU32,
    stop: AtomicBool,
    failure: OnceLock<String>,
    thread: OnceLock<Thread>,
}

/// The thread works, or there is none.
const AWAKE: u32 = 0;
/// The thread waits for a full batch, or until time is up.
const DOZING: u32 = 1;
/// The thread waits until something is written.
const RESTING: u32 = 2;
/// The thread has ended, and `failure` says why.
const FAILED: u32 = 3;

impl Background {
    /// Starts the thread, if `options` ask for one.
    pub(crate) fn start<B: Batches>(batches: Arc<B>, options: BatchOptions) -> Result<Self> {
        let signals = Arc::new(Signals {
            options,
            mode: AtomicU32::new(AWAKE),
            stop: AtomicBool::new(false),
            failure: OnceLock::new(),
            thread: OnceLock::new(),
        });
        let mut background = Background { signals, thread: None };
        if options.background {
            let signals = Arc::clone(&background.signals);
            let spawned = thread::Builder::new()
                .name("remanent-batches".to_owned())
                .spawn(move || signals.serve(&*batches));
            let thread = spawned.map_err(|error| Error::Persister { what: error.to_string() })?;
            let _ = background.signals.thread.set(thread.thread().clone());
            background.thread = Some(thread);
        }
        Ok(background)
    }

    /// The options that the batches are made safe with.
    pub(crate) fn options(&self) -> &BatchOptions {
        &self.signals.options
    }

    /// Called after something was written. Wakes the thread if it is needed. Returns whether the
    /// bound is reached, so that the writer must make a batch safe itself.
    #[inline]
    pub(crate) fn note(&self, unsafe_bytes: u64) -> Result<bool> {
        // Relaxed: `rest` runs `fence_all_threads` after its store of RESTING. So either this load
        // sees RESTING, or the thread sees what was written before this call.
        let mode = self.signals.mode.load(Ordering::Relaxed);
        if mode != AWAKE {
            self.signals.wake(mode, unsafe_bytes)?;
        }
        Ok(unsafe_bytes >= self.signals.options.lag_bytes)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Release: partner of the Acquire in `serve`.
        self.signals.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread was caught, and writers were told.
            let _ = thread.join();
        }
    }
}

impl Signals {
    #[cold]
    fn wake(&self, mode: u32, unsafe_bytes: u64) -> Result<()> {
        if mode == FAILED {
            // Acquire: after the Relaxed load in `note`; partner of the Release store in `serve`.
            fence(Ordering::Acquire);
            let what = self.failure.get().cloned().unwrap_or_default();
            return Err(Error::Persister { what });
        }
        let is_needed = mode == RESTING || unsafe_bytes >= self.options.batch_len();
        // AcqRel: only the writer whose exchange succeeds wakes the thread.
        let woken = || self.mode.compare_exchange(mode, AWAKE, Ordering::AcqRel, Ordering::Relaxed);
        if is_needed
            && woken().is_ok()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
        Ok(())
    }

    /// The life of the thread.
    fn serve(&self, batches: &impl Batches) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work(batches)));
        let what = match worked {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        let _ = self.failure.set(what);
        // Release: the failure is set before the mode; partner of the fence in `wake`.
        self.mode.store(FAILED, Ordering::Release);
    }

    fn work(&self, batches: &impl Batches) -> Result<()> {
        // A crash may have left something to tidy up.
        let mut has_more = true;
        // Acquire: partner of the Release in `drop`.
        while !self.stop.load(Ordering::Acquire) {
            match batches.unsafe_bytes() {
                0 if !has_more => self.rest(batches),
                waiting if waiting < self.options.batch_len() && !has_more => self.doze(),
                _ => {}
            }
            if batches.unsafe_bytes() > 0 {
                batches.persist()?;
            }
            has_more = batches.tidy()?;
        }
        Ok(())
    }

    /// Waits until something is written.
    fn rest(&self, batches: &impl Batches) {
        // SeqCst: partner of the load in `note`; the mode is stored before the bytes are read again
        // below.
        self.mode.store(RESTING, Ordering::SeqCst);
        // A writer that loaded the old mode has stored its bytes before this fence, so that they
        // are seen below.
        let is_fenced = fence_all_threads();
        if batches.unsafe_bytes() == 0 && !self.stop.load(Ordering::Acquire) {
            if is_fenced { thread::park() } else { thread::park_timeout(self.options.lag_age / 2) }
        }
        // Relaxed: only a hint for writers.
        self.mode.store(AWAKE, Ordering::Relaxed);
        // Without the fence, the bytes may have waited for half of `lag_age` already: wait no
        // longer.
        if is_fenced && batches.unsafe_bytes() < self.options.batch_len() {
            self.doze();
        }
    }

    /// Waits for a full batch, or until time is up.
    fn doze(&self) {
        self.mode.store(DOZING, Ordering::Relaxed);
        if !self.stop.load(Ordering::Acquire) {
            thread::park_timeout(self.options.lag_age / 2);
        }
        self.mode.store(AWAKE, Ordering::Relaxed);
    }
}

/// Waits for a lock whose holder may be waiting for a disk.
pub(crate) fn lock_patiently<'a, T, M: Medium>(
    mutex: &'a PauseMutex<T>,
    medium: &M,
) -> PauseGuard<'a, T> {
    let mut patience = Patience::default();
    loop {
        match mutex.try_lock() {
            Some(guard) => return guard,
            None => patience.wait(medium),
        }
    }
}

/// Waits for another thread, which may be waiting for a disk: spins first, then sleeps.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    turns: u32,
}

impl Patience {
    pub(crate) fn wait<M: Medium>(&mut self, medium: &M) {
        medium.pause();
        self.turns += 1;
        if self.turns > TURNS {
            thread::sleep(NAP);
        }
    }
}

/// Turns before the first nap.
const TURNS: u32 = 200;
const NAP: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use super::*;

    #[derive(Default)]
    struct Counted {
        written: AtomicU64,
        safe: AtomicU64,
        batches: AtomicU64,
        fails: AtomicBool,
    }

    impl Batches for Counted {
        fn unsafe_bytes(&self) -> u64 {
            self.written.load(Ordering::SeqCst) - self.safe.load(Ordering::SeqCst)
        }

        fn persist(&self) -> Result<()> {
            if self.fails.load(Ordering::SeqCst) {
                return Err(Error::Persister { what: "as told".to_owned() });
            }
            self.batches.fetch_add(1, Ordering::SeqCst);
            self.safe.store(self.written.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(())
        }
    }

    fn write(counted: &Counted, background: &Background, bytes: u64) -> Result<bool> {
        counted.written.fetch_add(bytes, Ordering::SeqCst);
        background.note(counted.unsafe_bytes())
    }

    fn wait_until(what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < Duration::from_secs(20), "{what}");
            thread::yield_now();
        }
    }

    #[test]
    fn what_is_written_becomes_safe_without_a_call() {
        let counted = Arc::new(Counted::default());
        let options = BatchOptions { lag_age: Duration::from_millis(2), ..Default::default() };
        let background = Background::start(Arc::clone(&counted), options).unwrap();
        for _ in 0..20 {
            // Long enough for the thread to rest at times.
            thread::sleep(Duration::from_millis(1));
            assert!(!write(&counted, &background, 10).unwrap());
        }
        wait_until("not safe", || counted.unsafe_bytes() == 0);
        assert!(counted.batches.load(Ordering::SeqCst) <= 20);
    }

    #[test]
    fn a_full_batch_is_not_waited_for() {
        let counted = Arc::new(Counted::default());
        let options = BatchOptions { lag_age: Duration::from_secs(3600), ..Default::default() };
        let background = Background::start(Arc::clone(&counted), options).unwrap();
        write(&counted, &background, 10).unwrap();
        wait_until("full batch", || {
            write(&counted, &background, BATCH_LEN_MAX).unwrap();
            counted.batches.load(Ordering::SeqCst) > 0
        });
    }

    #[test]
    fn who_reaches_the_bound_is_told() {
        let counted = Arc::new(Counted::default());
        let options = BatchOptions { lag_bytes: 100, ..BatchOptions::without_thread() };
        let background = Background::start(Arc::clone(&counted), options).unwrap();
        assert!(!write(&counted, &background, 99).unwrap());
        assert!(write(&counted, &background, 1).unwrap());
    }

    #[test]
    fn a_failure_reaches_the_writer() {
        let counted = Arc::new(Counted::default());
        counted.fails.store(true, Ordering::SeqCst);
        let options = BatchOptions { lag_age: Duration::from_millis(1), ..Default::default() };
        let background = Background::start(Arc::clone(&counted), options).unwrap();
        wait_until("the failure is told", || write(&counted, &background, 1).is_err());
        let error = write(&counted, &background, 1).unwrap_err();
        assert!(error.to_string().contains("as told"), "{error}");
    }
}
