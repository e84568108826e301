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
}

impl Clock {
    pub(crate) fn new() -> Self {
        let start = Instant::now();
        Clock(PauseMutex::new(Source {
            now: Box::new(move || start.elapsed()),
            zero: Duration::ZERO,
        }))
    }

    /// Goes by another clock, and begins anew.
    pub(crate) fn set<M: Medium>(
        &self,
        medium: &M,
        now: impl Fn() -> Duration + Send + Sync + 'static,
    ) {
        let zero = now();
        *self.0.lock(medium) = Source { now: Box::new(now), zero };
    }

    /// Milliseconds since it began.
    pub(crate) fn now_ms<M: Medium>(&self, medium: &M) -> u64 {
        let source = self.0.lock(medium);
        (source.now)().saturating_sub(source.zero).as_millis() as u64
    }
}
