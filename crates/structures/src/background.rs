//! The thread that makes batches safe, and the bound on how far it may lag.

use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use remanent_pmem::sync::{PauseGuard, PauseMutex, fence_all_threads};
use remanent_pmem::{Medium, PAGE_LEN};

use crate::{Error, Result};

/// How batches are made safe: durable for certain.
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
    /// Bytes that may be written and not yet safe. A writer that finds more makes them safe before it
    /// returns. Default: 8 MiB.
    pub lag_bytes: u64,
    /// How long what was written may be unsafe: the thread begins to make it safe after half of this.
    /// Default: 20 ms.
    pub lag_age: Duration,
    /// Whether a thread makes batches safe. Without it only writers do, when they reach `lag_bytes`, and
    /// whoever calls `sync`; `lag_age` then means nothing. Default: true.
    pub background: bool,
    /// Bytes of a segment, the unit in which a new [`BatchMap`](crate::BatchMap) takes space and reclaims it: a
    /// multiple of 64 KiB, at most 1 MiB. An existing one keeps its own. Default: 1 MiB.
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
    /// No thread: for programs that say themselves when a batch is to be made safe.
    pub fn without_thread() -> Self {
        BatchOptions { background: false, ..BatchOptions::default() }
    }

    /// Bytes that are worth a batch.
    fn batch_len(&self) -> u64 {
        (self.lag_bytes / 4).clamp(BATCH_PAGES * PAGE_LEN, BATCH_LEN_MAX)
    }
}

/// How far what is safe lags behind what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Bytes that were written and are not safe: a crash may take them back, the last ones first.
    pub bytes: u64,
}

/// Pages that the thread waits for, unless time is up: two fences are then an eighth of one a page.
const BATCH_PAGES: u64 = 16;
/// Bytes of a batch that is not waited for any longer: more of them would only leave the caches.
const BATCH_LEN_MAX: u64 = 256 << 10;

/// What has batches to be made safe.
pub(crate) trait Batches: Send + Sync + 'static {
    /// Bytes that were written and are not safe.
    fn unsafe_bytes(&self) -> u64;

    /// Makes safe whatever was complete before the call, in one batch.
    fn persist(&self) -> Result<()>;

    /// A step of housekeeping, done after a batch; whether there is more to do.
    fn tidy(&self) -> Result<bool> {
        Ok(false)
    }
}

/// The thread, stopped and waited for when this is dropped. With `background: false`, no thread.
#[derive(Debug)]
pub(crate) struct Background {
    signals: Arc<Signals>,
    thread: Option<JoinHandle<()>>,
}

// Only the drop uses the thread's handle; what is shared with the thread are single words, and
// values that are set once.
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
/// It waits for a full batch, or until time is up.
const DOZING: u32 = 1;
/// It waits for anything to do.
const RESTING: u32 = 2;
/// It has ended, and `failure` says why.
const FAILED: u32 = 3;

impl Background {
    /// Starts the thread, when `options` ask for one.
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

    /// What the batches are made safe by.
    pub(crate) fn options(&self) -> &BatchOptions {
        &self.signals.options
    }

    /// Called after something was written: wakes the thread when it is needed. Whether the writer is to make
    /// a batch safe itself, because the bound is reached.
    #[inline]
    pub(crate) fn note(&self, unsafe_bytes: u64) -> Result<bool> {
        // Relaxed: a thread that rests has fenced for us since it said so.
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
            // A panic in it was caught and told to whoever wrote.
            let _ = thread.join();
        }
    }
}

impl Signals {
    #[cold]
    fn wake(&self, mode: u32, unsafe_bytes: u64) -> Result<()> {
        if mode == FAILED {
            let what = self.failure.get().cloned().unwrap_or_default();
            return Err(Error::Persister { what });
        }
        let is_needed = mode == RESTING || unsafe_bytes >= self.options.batch_len();
        // AcqRel: one writer wakes it, the others need not.
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
        // Release: partner of the load in `note`; whoever sees the mode finds the failure.
        self.mode.store(FAILED, Ordering::Release);
    }

    fn work(&self, batches: &impl Batches) -> Result<()> {
        // After a crash there may be something to prepare.
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
        // SeqCst: before the second look below.
        self.mode.store(RESTING, Ordering::SeqCst);
        // A writer that saw the old mode has stored before this fence, so we see what it wrote.
        let is_fenced = fence_all_threads();
        if batches.unsafe_bytes() == 0 && !self.stop.load(Ordering::Acquire) {
            if is_fenced { thread::park() } else { thread::park_timeout(self.options.lag_age / 2) }
        }
        // Relaxed: only a hint for writers.
        self.mode.store(AWAKE, Ordering::Relaxed);
        // Without the fence, what was written may have waited for half of the time already.
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

/// Waits for a lock that may be held while a disk works.
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

/// Waiting for what another thread does, perhaps with a disk: in short turns first, then asleep.
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
