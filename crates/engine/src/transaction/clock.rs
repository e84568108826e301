//! The time by which transactions expire that nobody goes on with.

use std::time::{Duration, Instant};

use remanent_pmem::Medium;
use remanent_pmem::sync::PauseMutex;

/// A clock, which begins when the database is opened.
pub(crate) struct Clock(PauseMutex<Source>);

struct Source {
    now: Box<dyn Fn() -> Duration + Send + Sync>,
    /// What it showed at the beginning.
    zero: Duration,
    has_begun: bool,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Self::of(move || start.elapsed())
    }

    fn of(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let now = Box::new(now);
        Clock(PauseMutex::new(Source { now, zero: Duration::ZERO, has_begun: false }))
    }

    /// Begins when somebody can use the database: not while opening takes its time. Only the first
    /// call counts.
    pub(crate) fn begin<M: Medium>(&self, medium: &M) {
        let mut source = self.0.lock(medium);
        if !source.has_begun {
            source.zero = (source.now)();
            source.has_begun = true;
        }
    }

    /// Goes by another clock, and begins anew.
    pub(crate) fn set<M: Medium>(
        &self,
        medium: &M,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) {
        let zero = now();
        *self.0.lock(medium) = Source { now: Box::new(now), zero, has_begun: true };
    }

    /// Milliseconds since it began.
    pub(crate) fn now_ms<M: Medium>(&self, medium: &M) -> u64 {
        let source = self.0.lock(medium);
        (source.now)().saturating_sub(source.zero).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use remanent_pmem::Pool;

    use super::*;

    #[test]
    fn what_opening_takes_is_no_time_of_a_transaction() {
        let pool = Pool::options().create_in_memory().unwrap();
        let now_ms = Arc::new(AtomicU64::new(0));
        let shown_ms = Arc::clone(&now_ms);
        let clock = Clock::of(move || Duration::from_millis(shown_ms.load(Ordering::Relaxed)));
        now_ms.store(700, Ordering::Relaxed);
        clock.begin(pool.medium());
        assert_eq!(clock.now_ms(pool.medium()), 0);
        now_ms.store(900, Ordering::Relaxed);
        // Another handle of the same database.
        clock.begin(pool.medium());
        assert_eq!(clock.now_ms(pool.medium()), 200);
        clock.set(pool.medium(), || Duration::from_millis(5));
        clock.begin(pool.medium());
        assert_eq!(clock.now_ms(pool.medium()), 0);
    }
}
