//! What becomes of connections when the process has no descriptors left.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, accept_with};

/// How often the log says that connections are refused, at most.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A descriptor that is kept back, so that a connection can be accepted, told why, and closed when there are no others.
/// Without it, those who connect would wait for nothing, and the listener would wake its thread again and again.
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
    /// Opens the descriptor that is kept back.
    #[must_use]
    pub fn new() -> Self {
        Spare { file: open(), log: Seldom::default() }
    }

    /// Does what can be done about a listener that could not accept; false when that is nothing, and whoever accepts is
    /// to wait a while. The client gets `text`, which is best effort.
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

    /// Counts a connection that is refused; how many there were since that was last told, when it is time to tell again.
    pub fn count_refusal(&mut self) -> Option<u64> {
        self.log.count()
    }
}

fn open() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Counts what happens often, and lets it be told seldom.
#[derive(Debug, Default)]
struct Seldom {
    told: Option<Instant>,
    count: u64,
}

impl Seldom {
    /// Counts one more; how many there were since they were last told, when it is time to tell again.
    fn count(&mut self) -> Option<u64> {
        self.count += 1;
        if self.told.is_some_and(|told| told.elapsed() < LOG_INTERVAL) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}
