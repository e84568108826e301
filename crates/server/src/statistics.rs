//! Counts of calls of each command, and of errors of each kind.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kinds of errors that are counted separately. The server has fewer.
const ERROR_CODES_MAX: usize = 128;

/// Counts of all clients.
#[derive(Debug)]
pub(crate) struct Statistics {
    /// Indexed by the number of the command.
    commands: Box<[Counters]>,
    errors: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug)]
struct Counters {
    calls: AtomicU64,
    duration_ns: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
}

/// Counts of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandCount {
    /// Calls that ran.
    pub(crate) calls: u64,
    /// Time that they took together.
    pub(crate) duration_ns: u64,
    /// Calls that were refused before they ran.
    pub(crate) rejected: u64,
    /// Calls that ran and were answered by an error.
    pub(crate) failed: u64,
}

impl Default for Statistics {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        let counters =
            |_| Counters { calls: zero(), duration_ns: zero(), rejected: zero(), failed: zero() };
        Statistics { commands: (0..=u8::MAX).map(counters).collect(), errors: Mutex::default() }
    }
}

impl Statistics {
    /// The counts of a command.
    pub(crate) fn of(&self, command: u8) -> CommandCount {
        let counters = &self.commands[usize::from(command)];
        // Relaxed, here and below: only shown to users.
        CommandCount {
            calls: counters.calls.load(Ordering::Relaxed),
            duration_ns: counters.duration_ns.load(Ordering::Relaxed),
            rejected: counters.rejected.load(Ordering::Relaxed),
            failed: counters.failed.load(Ordering::Relaxed),
        }
    }

    fn add(&self, command: u8, count: CommandCount) {
        let counters = &self.commands[usize::from(command)];
        let pairs = [
            (&counters.calls, count.calls),
            (&counters.duration_ns, count.duration_ns),
            (&counters.rejected, count.rejected),
            (&counters.failed, count.failed),
        ];
        for (counter, count) in pairs.into_iter().filter(|(_, count)| *count > 0) {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Counts an error by its code, the first word of its text.
    pub(crate) fn count_error(&self, text: &str) {
        let code = text.split(' ').next().unwrap_or_default();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERROR_CODES_MAX || errors.contains_key(code) {
            *errors.entry(code.to_owned()).or_default() += 1;
        }
    }

    /// How many errors there were of each code.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets all counts to 0.
    pub(crate) fn reset(&self) {
        for counters in &self.commands {
            for counter in
                [&counters.calls, &counters.duration_ns, &counters.rejected, &counters.failed]
            {
                counter.store(0, Ordering::Relaxed);
            }
        }
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Counts of one connection that are not among those of all clients yet. They are of one command at
/// a time, because most requests call the same command as the one before.
#[derive(Debug, Default)]
pub(crate) struct Unreported {
    /// The number of that command.
    command: Option<u8>,
    count: CommandCount,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Rejected,
    Failed,
}

impl Unreported {
    /// Counts a call. When it calls another command than the calls before, these are reported
    /// first.
    pub(crate) fn add(
        &mut self,
        command: u8,
        ended: Ended,
        duration: Duration,
        statistics: &Statistics,
    ) {
        if self.command != Some(command) {
            self.report(statistics);
            self.command = Some(command);
        }
        if ended == Ended::Rejected {
            self.count.rejected += 1;
            return;
        }
        self.count.calls += 1;
        self.count.duration_ns += duration.as_nanos() as u64;
        self.count.failed += u64::from(ended == Ended::Failed);
    }

    /// Adds the counts to those of all clients.
    pub(crate) fn report(&mut self, statistics: &Statistics) {
        if let Some(command) = self.command.take() {
            statistics.add(command, std::mem::take(&mut self.count));
        }
    }
}
