//! What the users process tells its observer: a line of JSON for each event.

use std::io::Write;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A token of a long transaction, as text.
pub(super) type TokenText = String;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Event {
    /// A statement of a long transaction has returned; `statement` have by now. The first event of
    /// a transaction is that of its first statement.
    Statement { token: TokenText, statement: u32 },
    /// A long transaction of an earlier process goes on; `statement` of its statements took effect.
    Resumed { token: TokenText, statement: u32 },
    /// It has committed with so many statements. The row that they count in says `counted`.
    Committed { token: TokenText, statement: u32, counted: u32 },
    /// A user has got an answer for the first time. Before, the process has begun to work, opened
    /// the pool, and opened the database.
    FirstAnswer { began_ns: u64, pool_ns: u64, database_ns: u64, at_ns: u64 },
    /// What users have done since the event of this kind before.
    Window { at_ns: u64, done: u64, p99_ns: u64, tiles_left: u64 },
}

impl Event {
    /// Writes it to standard output.
    pub(super) fn tell(&self) -> Result<()> {
        let mut line = serde_json::to_string(self)?;
        line.push('\n');
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).context("nobody observes")
    }

    pub(super) fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("the users say {line:?}"))
    }
}

/// Nanoseconds of the clock that all processes share.
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
