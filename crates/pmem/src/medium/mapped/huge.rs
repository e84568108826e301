//! Huge pages under a pool in memory, made ahead of need.
//!
//! A random access to a large pool pays as much for address translation as for the memory itself, and
//! pages of 2 MiB take most of that away (282 ns became 167 on the machine this was written on). tmpfs
//! hands out pages of 4 KiB unless its administrator said otherwise; `MADV_COLLAPSE` makes huge ones of
//! them, but takes milliseconds each where they hold something. So a thread does it to the regions that will be
//! used next, before anybody waits for them.

use std::collections::{BTreeSet, HashSet};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::mapping::Mapping;
use crate::medium::units::{HUGE_LEN, PAGE_LEN};

/// How long is waited for the thread; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Linux 6.1; the `libc` crate has it for some targets only.
const MADV_COLLAPSE: libc::c_int = 25;

/// The thread that prepares regions, and what was asked of it.
#[derive(Debug)]
pub(crate) struct Preparer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

// Only the drop uses the thread's handle, and what is shared lies behind a lock whose holders call
// no code of others.
impl UnwindSafe for Preparer {}
impl RefUnwindSafe for Preparer {}

#[derive(Debug, Default)]
struct Shared {
    asked: Mutex<Asked>,
    more: Condvar,
    /// The thread has done with a region.
    done: Condvar,
}

/// Regions by their numbers.
#[derive(Debug, Default)]
struct Asked {
    /// Everything that was ever asked for, unless it was given back.
    known: HashSet<u64>,
    waiting: BTreeSet<u64>,
    /// What the thread works at.
    present: Option<u64>,
    /// Where what was asked for last begins: from here on nothing was in use then.
    ahead: u64,
    stops: bool,
}

impl Asked {
    /// What to prepare next: the next of those that are not in use yet, which cost a tenth of the others,
    /// whose content has to be copied; then those.
    fn take(&mut self) -> Option<u64> {
        let next = self.waiting.range(self.ahead..).next().or(self.waiting.last()).copied()?;
        self.waiting.remove(&next);
        self.present = Some(next);
        Some(next)
    }
}

impl Preparer {
    /// Starts the thread.
    pub(crate) fn start(mapping: &Arc<Mapping>) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (mapping, orders) = (Arc::clone(mapping), Arc::clone(&shared));
        let thread = thread::Builder::new().name("remanent-pages".to_owned()).spawn(move || {
            while let Some(region) = orders.next() {
                let goes_on = prepare(&mapping, region * HUGE_LEN);
                orders.lock().present = None;
                orders.done.notify_all();
                if !goes_on {
                    return;
                }
            }
        })?;
        Ok(Preparer { shared, thread: Some(thread) })
    }

    /// Asks for the huge pages that overlap a range, each once.
    pub(crate) fn ask(&self, offset: u64, len: u64) {
        let mut asked = self.shared.lock();
        asked.ahead = offset / HUGE_LEN;
        for region in offset / HUGE_LEN..(offset + len).div_ceil(HUGE_LEN) {
            // The thread is gone where huge pages cannot be had: then small ones do.
            if asked.known.insert(region) {
                asked.waiting.insert(region);
            }
        }
        self.shared.more.notify_one();
    }

    /// Takes back what was asked for a range that the pool does not use any more: it is not to take space
    /// again. Waits while the thread works at a part of it: some milliseconds, and never for longer than
    /// [`PATIENCE`]; what the thread then still makes is room that the file system has less until the pool uses it.
    pub(crate) fn forget(&self, offset: u64, len: u64) {
        let regions = offset / HUGE_LEN..(offset + len).div_ceil(HUGE_LEN);
        let mut asked = self.shared.lock();
        for region in regions.clone() {
            asked.known.remove(&region);
            asked.waiting.remove(&region);
        }
        let is_present = |asked: &mut Asked| asked.present.is_some_and(|at| regions.contains(&at));
        let done = self.shared.done.wait_timeout_while(asked, PATIENCE, is_present);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to prepare; `None` when the thread is to end.
    fn next(&self) -> Option<u64> {
        let mut asked = self.lock();
        loop {
            if asked.stops {
                return None;
            }
            if let Some(region) = asked.take() {
                return Some(region);
            }
            asked = self.more.wait(asked).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Preparer {
    /// Waits for the thread, some milliseconds at most: it holds the pool file, and so its lock.
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread cost huge pages, nothing else.
            let _ = thread.join();
        }
    }
}

/// Gives the region at `offset` its memory, in one page if possible. False when the kernel makes no
/// huge pages of files in memory at all.
///
/// One small page has to be there for the kernel to begin with. The others are better holes: filling those
/// takes 0.2 ms, copying pages 3 ms.
fn prepare(mapping: &Mapping, offset: u64) -> bool {
    if offset + HUGE_LEN > mapping.len() || mapping.commit(offset, PAGE_LEN).is_err() {
        return true;
    }
    // SAFETY: the region was just seen to lie inside the mapping.
    let address = unsafe { mapping.base().add(offset as usize) };
    // SAFETY: collapsing changes the pages under the region, never its content.
    let collapsed = unsafe { libc::madvise(address.cast(), HUGE_LEN as usize, MADV_COLLAPSE) };
    let error = std::io::Error::last_os_error().raw_os_error();
    // Other errors are of the moment: no free huge page, a page that is busy.
    collapsed == 0 || error != Some(libc::EINVAL)
}
