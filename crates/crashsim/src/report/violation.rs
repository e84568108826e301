//! A violation: what broke, after which crashes, and how to show it again.

use std::fmt;

use serde::Serialize;

use crate::config::Only;

/// What a violation broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Broken {
    /// The run itself panicked, blocked, did not end, or could not create the structure.
    Run,
    /// An operation was refused where the configuration leaves room for all.
    Refused,
    /// What a crash left of a creation is no structure, and none can be created there.
    Creation,
    /// The answers of the run contradict each other, before any crash.
    Linearizability,
    /// Something panicked after the crash, or did not end.
    Panic,
    /// Recovery refused an image that is not damaged.
    Open,
    /// The recovered state is none that the oracle allows.
    State,
    /// The structure's own check failed.
    Check,
    /// Operations after the recovery answered or left something wrong.
    After,
    /// Something was answered although the medium had reported a fault.
    Fault,
}

/// One crash on the way to a violation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// The crash point: how many events came before it, since the start or since the crash before.
    pub point: u64,
    /// The number of the image at this point.
    pub image: u64,
    /// The event before which the power failed.
    pub event: String,
    /// What survived of what was pending, by offset, and what else went wrong.
    pub survived: String,
}

/// Something on which the structure failed.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// The seed of the run.
    pub seed: u64,
    /// What was broken.
    pub broken: Broken,
    /// What was found, and what was expected.
    pub what: String,
    /// The crash, and the one in the life after it when that was crashed too; none when the run itself failed.
    pub crashes: Vec<Crash>,
    /// The last operations before the first crash.
    pub ops: Vec<String>,
    /// The configuration, in short.
    pub config: String,
    /// The command that shows it again.
    pub command: String,
}

impl Violation {
    /// What [`Config::only`](crate::Config::only) must be to see this violation alone.
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
