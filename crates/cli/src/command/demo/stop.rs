//! Ending early without leaving a process or a file behind.
//!
//! The signal handler sets a flag only. Whatever takes long asks for it and returns an error, so
//! that destructors kill the users process and remove the pool.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::command::output::has_failed;

static IS_ASKED: AtomicBool = AtomicBool::new(false);

/// Why a demonstration ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// SIGINT, SIGTERM or SIGHUP.
    Interrupted,
    /// Standard output has gone.
    OutputLost,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stop::Interrupted => "interrupted",
            Stop::OutputLost => "nobody reads the output",
        })
    }
}

impl std::error::Error for Stop {}

/// Has [`check`] fail from the first signal on.
pub(super) fn install() -> Result<()> {
    // Relaxed: a flag.
    ctrlc::set_handler(|| IS_ASKED.store(true, Ordering::Relaxed))
        .context("cannot install a handler for Ctrl-C")
}

/// Fails if there is no use in going on.
pub(super) fn check() -> Result<()> {
    if IS_ASKED.load(Ordering::Relaxed) {
        return Err(Stop::Interrupted.into());
    }
    if has_failed() {
        return Err(Stop::OutputLost.into());
    }
    Ok(())
}
