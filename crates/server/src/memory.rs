//! The memory that clients take together: requests that arrive, answers that wait, and what commands copy meanwhile.
//!
//! One bound holds for all of it. Whoever holds memory has a [`Share`], and asks before it grows. A refusal is an answer
//! to the client, never the end of the process; the session closes whoever holds most and does not read (see
//! [`Clients::close_largest`](crate::clients::Clients::close_largest)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much clients take, and may take.
#[derive(Debug)]
pub(crate) struct Memory {
    taken: AtomicU64,
    max: u64,
}

impl Memory {
    pub(crate) fn new(max: u64) -> Self {
        Memory { taken: AtomicU64::new(0), max }
    }

    /// Bytes that clients take now.
    pub(crate) fn taken(&self) -> u64 {
        // Relaxed: for people.
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that clients may take together.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Takes `bytes` more, unless that is more than there may be.
    fn take(&self, bytes: u64) -> bool {
        let sum = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.max);
        // Relaxed: a count, which publishes nothing.
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        // Relaxed: as in `take`.
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one buffer, or one command, takes of the clients' memory; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    len: u64,
    /// Bytes that are not counted, so that who needs little is served however much others take.
    uncounted: u64,
}

impl Share {
    /// Takes nothing yet; the first `uncounted` bytes will not count.
    pub(crate) fn new(memory: &Arc<Memory>, uncounted: usize) -> Self {
        Share { memory: Arc::clone(memory), len: 0, uncounted: uncounted as u64 }
    }

    /// Makes it `len` bytes; false, and nothing is changed, when that is more than there may be.
    pub(crate) fn resize(&mut self, len: usize) -> bool {
        let len = len as u64;
        let (before, after) = (self.counted(), len.saturating_sub(self.uncounted));
        if after > before && !self.memory.take(after - before) {
            return false;
        }
        if after < before {
            self.memory.give_back(before - after);
        }
        self.len = len;
        true
    }

    /// Makes it `bytes` larger; false, and nothing is changed, when that is more than there may be.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.resize((self.len as usize).saturating_add(bytes))
    }

    /// Bytes that count.
    pub(crate) fn counted(&self) -> u64 {
        self.len.saturating_sub(self.uncounted)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.give_back(self.counted());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_one_bound() {
        let memory = Arc::new(Memory::new(1000));
        let mut first = Share::new(&memory, 100);
        let mut second = Share::new(&memory, 0);
        assert!(first.resize(100) && memory.taken() == 0);
        assert!(first.resize(700) && memory.taken() == 600);
        assert!(!second.resize(401) && memory.taken() == 600);
        assert!(second.grow(300) && second.grow(100) && !second.grow(1));
        assert!(!first.grow(1) && !first.grow(usize::MAX));
        assert!(first.resize(50) && memory.taken() == 400);
        drop(second);
        assert!(first.resize(1100) && memory.taken() == 1000);
        drop(first);
        assert_eq!(memory.taken(), 0);
    }
}
