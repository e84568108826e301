//! Refusing connections when the process has no file descriptors left.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, accept_with};

/// Shortest time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A file descriptor in reserve: with it, a connection can be accepted, told why it is refused, and
/// closed, although the process has no other descriptor left.
///
/// Without it, such clients would wait in vain, and the listener would wake its thread again and
/// again.
#[derive(Debug)]
pub struct Spare {
    file: Option<File>,
    log: Seldom,
}

impl Default for Spare {
    fn default() -> Self {
        Spare::new()
    }
}

impl Spare {
    /// Opens the descriptor.
    #[must_use]
    pub fn new() -> Self {
        Spare { file: open(), log: Seldom::default() }
    }

    /// Refuses a connection that `listener` could not accept because of `error`, and sends `text`
    /// to it as far as the socket takes it. Logs refusals now and then.
    ///
    /// Returns false if nothing could be done. The caller then waits for
    /// [`ACCEPT_PAUSE`](crate::ACCEPT_PAUSE) before it accepts again.
    pub fn refuse(&mut self, listener: impl AsFd, error: &std::io::Error, text: &[u8]) -> bool {
        if let Some(count) = self.count_refusal() {
            tracing::warn!(%error, refused = count, "cannot accept connections; see `ulimit -n`");
        }
        let errno = rustix::io::Errno::from_io_error(error);
        let lacks_descriptors =
            matches!(errno, Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE));
        if !lacks_descriptors || self.file.take().is_none() {
            self.file = self.file.take().or_else(open);
            return false;
        }
        let accepted = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        let is_refused = accepted.is_ok();
        if let Ok(socket) = accepted {
            let _ = rustix::io::write(&socket, text);
        }
        self.file = open();
        is_refused
    }

    /// Counts a refused connection. Once a minute at most, returns how many there were since the
    /// last time it did.
    pub fn count_refusal(&mut self) -> Option<u64> {
        self.log.count()
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}

/// A counter of frequent events that are logged rarely.
#[derive(Debug, Default)]
struct Seldom {
    told: Option<Instant>,
    count: u64,
}

impl Seldom {
    /// Counts an event. If the last log line is old enough, returns how many there were since.
    fn count(&mut self) -> Option<u64> {
        self.count += 1;
        if self.told.is_some_and(|told| told.elapsed() < LOG_INTERVAL) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}
