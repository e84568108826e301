//! A violation: what broke, after which crashes, and how to reproduce it.

use std::fmt;

use serde::Serialize;

use crate::config::Only;

/// The kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// The run itself panicked, blocked, did not end, or could not create the structure.
    Run,
    /// An operation was refused although [`Config::may_refuse`](crate::Config::may_refuse) is not
    /// set.
    Refused,
    /// After a crash during creation there is no structure, and none can be created.
    Creation,
    /// The answers of the run contradict each other, before any crash.
    Linearizability,
    /// Recovery, or what followed it, panicked or did not end.
    Panic,
    /// Recovery refused an undamaged image.
    Open,
    /// The oracle does not allow the recovered state.
    State,
    /// The structure's own check failed.
    Check,
    /// Operations after recovery gave a wrong answer or left a wrong state.
    After,
    /// An answer was given although the medium had reported a fault.
    Fault,
}

/// One of the crashes that led to a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// The crash point: the number of events before it, since the start or since the previous
    /// crash.
    pub point: u64,
    /// The number of the image at this point.
    pub image: u64,
    /// The event before which the power failed.
    pub event: String,
    /// What survived of the pending stores, by offset, and the injected fault.
    pub survived: String,
}

/// A failure of the structure, with what is needed to reproduce it.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// The kind of the violation.
    pub broken: Broken,
    /// What was found, and what was expected.
    pub what: String,
    /// The crash, and the crash in the life after it if there was one. Empty if the run itself
    /// failed.
    pub crashes: Vec<Crash>,
    /// The last operations before the first crash.
    pub ops: Vec<String>,
    /// The configuration, in short.
    pub config: String,
    /// The command that reproduces it.
    pub command: String,
}

impl Violation {
    /// The value of [`Config::only`](crate::Config::only) that reproduces this violation alone.
    pub fn only(&self) -> Only {
        Only { path: self.crashes.iter().map(|crash| (crash.point, crash.image)).collect() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "violation ({:?}) with seed {}: {}", self.broken, self.seed, self.what)?;
        for (index, crash) in self.crashes.iter().enumerate() {
            let when = if index == 0 { "crashed" } else { "after recovery, crashed again" };
            writeln!(f, "  {when} at point {}, image {}", crash.point, crash.image)?;
            writeln!(f, "    before {}", crash.event)?;
            writeln!(f, "    survived: {}", crash.survived)?;
        }
        self.ops.iter().try_for_each(|op| writeln!(f, "  {op}"))?;
        writeln!(f, "  with {}", self.config)?;
        write!(f, "  again: {}", self.command)
    }
}
