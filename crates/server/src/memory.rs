//! The memory that clients take together: requests that arrive, answers that wait to be read, and
//! copies that commands make.
//!
//! One bound holds for all of it. Each buffer has a [`Share`], and asks it before it grows. When a
//! share is refused, the client gets an error, and the session closes the client that takes most
//! and stalls (see [`Clients::close_largest`](crate::clients::Clients::close_largest)).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes clients take, and their bound.
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
        // Relaxed: only shown to users.
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that clients may take together.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Takes `bytes` more, or returns false if that would exceed the bound.
    fn take(&self, bytes: u64) -> bool {
        let sum = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.max);
        // Relaxed: the count publishes nothing else.
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        // Relaxed: as in `take`.
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The clients' memory that one buffer or one command takes. Dropping it gives the memory back.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    len: u64,
    /// First bytes that do not count, so that small requests are served whatever other clients
    /// take.
    uncounted: u64,
}

impl Share {
    /// A share of no bytes, whose first `uncounted` bytes will not count.
    pub(crate) fn new(memory: &Arc<Memory>, uncounted: usize) -> Self {
        Share { memory: Arc::clone(memory), len: 0, uncounted: uncounted as u64 }
    }

    /// Makes the share `len` bytes long, or returns false and leaves it if that would exceed the
    /// bound.
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

    /// Makes the share `bytes` longer, or returns false and leaves it if that would exceed the
    /// bound.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        self.resize((self.len as usize).saturating_add(bytes))
    }

    /// Bytes that count towards the bound.
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
