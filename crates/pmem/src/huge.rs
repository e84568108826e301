//! Huge pages under a pool in memory, made ahead of need.
//!
//! A random access to a large pool pays as much for address translation as for the memory itself, and
//! pages of 2 MiB take most of that away (282 ns became 167 on the machine this was written on). tmpfs
//! hands out pages of 4 KiB unless its administrator said otherwise; `MADV_COLLAPSE` makes huge ones of
//! them, but takes milliseconds each. So a thread does it to the regions that will be used next, before
//! anybody waits for them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::mapping::Mapping;

/// Bytes of a huge page.
pub(crate) const HUGE_LEN: u64 = 2 << 20;

/// Linux 6.1; the `libc` crate has it for some targets only.
const MADV_COLLAPSE: libc::c_int = 25;

/// The thread that prepares regions, and what was asked of it.
#[derive(Debug)]
pub(crate) struct Preparer {
    /// Taken when the thread is to end.
    regions: Option<Sender<u64>>,
    thread: Option<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    asked: Arc<Mutex<HashSet<u64>>>,
}

impl Preparer {
    /// Starts the thread.
    pub(crate) fn start(mapping: &Arc<Mapping>) -> std::io::Result<Self> {
        let (regions, queue) = mpsc::channel();
        let mapping = Arc::clone(mapping);
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let asked = Arc::<Mutex<HashSet<u64>>>::default();
        let wanted = Arc::clone(&asked);
        let thread = thread::Builder::new().name("remanent-pages".to_owned()).spawn(move || {
            for region in queue {
                // Relaxed: seen a little later at worst.
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // What was given back meanwhile is not to take space again.
                let is_wanted = lock(&wanted).contains(&region);
                if is_wanted && !prepare(&mapping, region * HUGE_LEN) {
                    return;
                }
            }
        })?;
        Ok(Preparer { regions: Some(regions), thread: Some(thread), stopping, asked })
    }

    /// Asks for the huge pages that overlap a range, each once.
    pub(crate) fn ask(&self, offset: u64, len: u64) {
        let mut asked = lock(&self.asked);
        for region in offset / HUGE_LEN..(offset + len).div_ceil(HUGE_LEN) {
            if asked.insert(region)
                && let Some(regions) = &self.regions
            {
                // The thread is gone where huge pages cannot be had: then small ones do.
                let _ = regions.send(region);
            }
        }
    }
}

impl Preparer {
    /// Takes back what was asked for a range that the pool does not use any more.
    pub(crate) fn forget(&self, offset: u64, len: u64) {
        let mut asked = lock(&self.asked);
        for region in offset / HUGE_LEN..(offset + len).div_ceil(HUGE_LEN) {
            asked.remove(&region);
        }
    }
}

fn lock(asked: &Mutex<HashSet<u64>>) -> MutexGuard<'_, HashSet<u64>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Preparer {
    /// Waits for the thread, some milliseconds at most: it holds the pool file, and so its lock.
    fn drop(&mut self) {
        // Relaxed: seen a little later at worst.
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.regions.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread cost huge pages, nothing else.
            let _ = thread.join();
        }
    }
}

/// Gives the region at `offset` its memory, in one page if possible. False when the kernel makes no
/// huge pages of files in memory at all.
fn prepare(mapping: &Mapping, offset: u64) -> bool {
    if offset + HUGE_LEN > mapping.len() || mapping.commit(offset, HUGE_LEN).is_err() {
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
