//! A line of threads that wait for the same thing: who came first is served first.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::medium::Medium;

/// A line of threads.
///
/// Who holds the first place tries to get what all of them wait for. Who comes, and finds threads
/// in line, lines up behind them without trying. A thread that ends while it stands in line keeps
/// all behind it from being served.
///
/// ```
/// use remanent_pmem::Pool;
/// use remanent_pmem::sync::Queue;
///
/// let pool = Pool::options().create_in_memory()?;
/// let queue = Queue::default();
/// let first = queue.line_up(pool.medium());
/// assert_eq!(queue.len(), 1);
/// drop(first);
/// assert!(queue.is_empty());
/// # Ok::<(), remanent_pmem::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Queue {
    /// The number that the next one draws.
    next: AtomicU64,
    /// The number of who is first.
    first: AtomicU64,
}

/// The first place in a line. Dropping it lets the next one be first.
#[derive(Debug)]
#[must_use = "dropping it lets the next one be first"]
pub struct Turn<'q>(&'q Queue);

impl Queue {
    /// How many stand in line.
    #[inline]
    pub fn len(&self) -> u64 {
        // Relaxed: who comes at the same moment may be before or behind.
        let first = self.first.load(Ordering::Relaxed);
        self.next.load(Ordering::Relaxed).saturating_sub(first)
    }

    /// Whether nobody stands in line.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until all are gone that were in line before.
    #[cold]
    pub fn line_up<M: Medium>(&self, medium: &M) -> Turn<'_> {
        // Relaxed: the order of the numbers is that of the line, and says nothing else.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire: what the one before has left; partner of the store in `Turn::drop`.
        while self.first.load(Ordering::Acquire) != number {
            medium.pause();
        }
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release: partner of the load in `line_up`.
        self.0.first.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;

    use super::*;
    use crate::Pool;

    #[test]
    fn who_comes_first_is_served_first() {
        let pool = Pool::options().create_in_memory().unwrap();
        let (queue, served) = (Queue::default(), Mutex::new(Vec::new()));
        assert_eq!(queue.len(), 0);
        let first = queue.line_up(pool.medium());
        thread::scope(|scope| {
            for number in 0..12 {
                let (queue, served, medium) = (&queue, &served, pool.medium());
                scope.spawn(move || {
                    let _turn = queue.line_up(medium);
                    served.lock().unwrap().push(number);
                });
                // The next one comes when this one is in line.
                while queue.len() != number + 2 {
                    thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(served.into_inner().unwrap(), (0..12).collect::<Vec<u64>>());
        assert_eq!(queue.len(), 0);
    }
}
