//! Polling: a worker whose clients send without a pause looks for requests for a moment before it
//! sleeps.
//!
//! Waking a sleeping thread costs microseconds, which a client on this machine pays when it sends.
//! So a worker does not sleep between requests that follow each other closely. After a longer pause
//! it sleeps at once: an idle server takes no CPU time, and rare requests cost no polling.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// What the connections of a worker tell its poller and each other.
#[derive(Debug)]
pub(super) struct Polling {
    /// Longest time without a request in which the worker polls.
    pause_max: Duration,
    /// Reads of all connections.
    reads: AtomicU64,
    /// Id of the client that was read from last.
    reader: AtomicU64,
    is_awake: AtomicBool,
    /// Notified of a read while the poller sleeps.
    resumed: Notify,
}

impl Polling {
    pub(super) fn new(pause_max: Duration) -> Self {
        let (reads, reader) = (AtomicU64::new(0), AtomicU64::new(0));
        Polling {
            pause_max,
            reads,
            reader,
            is_awake: AtomicBool::new(false),
            resumed: Notify::new(),
        }
    }

    /// Notes that bytes of a client were read. Returns whether those before were of another client,
    /// so that several clients are at work.
    pub(super) fn note_read(&self, client: u64) -> bool {
        // Relaxed, here and below: the poller and the connections run on one thread.
        self.reads.store(self.reads.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let before = self.reader.load(Ordering::Relaxed);
        self.reader.store(client, Ordering::Relaxed);
        if !self.is_awake.load(Ordering::Relaxed) {
            self.resumed.notify_one();
        }
        before != client
    }

    /// Keeps the worker from sleeping while reads follow each other closely. Never returns.
    pub(super) async fn run(&self) {
        let mut last: Option<Instant> = None;
        loop {
            self.resumed.notified().await;
            let now = Instant::now();
            let is_close = last.is_some_and(|last| now.duration_since(last) < self.pause_max);
            last = Some(if is_close { self.poll(now).await } else { now });
        }
    }

    /// Polls until there has been no read for a while, and returns the time of the last one.
    async fn poll(&self, mut last: Instant) -> Instant {
        self.is_awake.store(true, Ordering::Relaxed);
        let mut seen = self.reads.load(Ordering::Relaxed);
        while last.elapsed() < self.pause_max {
            // The runtime looks for events, and runs the connections that have some.
            tokio::task::yield_now().await;
            let reads = self.reads.load(Ordering::Relaxed);
            if reads == seen {
                // Other threads that wait for this core go first. Not while there are requests:
                // a thread that computes would have the core for milliseconds after each.
                std::thread::yield_now();
            } else {
                (seen, last) = (reads, Instant::now());
            }
        }
        self.is_awake.store(false, Ordering::Relaxed);
        last
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const PAUSE_MAX: Duration = Duration::from_micros(200);

    /// Runs the poller until it waits, and returns whether it polls.
    fn polls(poller: std::pin::Pin<&mut impl Future<Output = ()>>, polling: &Polling) -> bool {
        let state = poller.poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(state, Poll::Pending);
        polling.is_awake.load(Ordering::Relaxed)
    }

    #[test]
    fn a_worker_polls_after_close_reads_and_not_for_long() {
        let polling = Polling::new(PAUSE_MAX);
        let mut poller = pin!(polling.run());
        assert!(!polls(poller.as_mut(), &polling), "there was no request");
        polling.note_read(1);
        assert!(!polls(poller.as_mut(), &polling), "a first request comes after a pause");
        // The system may interrupt this thread between two reads.
        let has_polled = (0..1000).any(|_| {
            polling.note_read(1);
            polls(poller.as_mut(), &polling)
        });
        assert!(has_polled);
        std::thread::sleep(2 * PAUSE_MAX);
        assert!(!polls(poller.as_mut(), &polling), "requests have ceased");
        std::thread::sleep(2 * PAUSE_MAX);
        polling.note_read(1);
        assert!(!polls(poller.as_mut(), &polling), "a single request");
    }

    #[test]
    fn a_worker_that_is_not_to_poll_does_not() {
        let polling = Polling::new(Duration::ZERO);
        let mut poller = pin!(polling.run());
        for _ in 0..1000 {
            polling.note_read(1);
            assert!(!polls(poller.as_mut(), &polling));
        }
    }

    #[test]
    fn clients_learn_whether_others_are_at_work() {
        let polling = Polling::new(PAUSE_MAX);
        let found = [1, 1, 2, 2, 1, 1].map(|client| polling.note_read(client));
        assert_eq!(found, [true, false, true, false, true, false]);
    }
}
