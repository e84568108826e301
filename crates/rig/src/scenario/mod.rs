//! Scenarios: what is started in the guest, its load, and what must be there after a power cut.

mod disk;
mod entries;
mod ext4;
mod server;
mod sqlite;
mod tatp;
mod tree;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;

use anyhow::Result;

use crate::guest::Guest;
use crate::message::Past;
use crate::program::Program;

/// All scenarios.
pub(crate) const ALL: &[&dyn Scenario] = &[
    &server::HONEST,
    &server::SPACE,
    &server::SPACE_ON_DISK,
    &ext4::HONEST,
    &disk::Disk,
    &sqlite::Sqlite,
    &tatp::HONEST,
    &server::TOO_EARLY,
    &ext4::UNSYNCED,
    &tatp::TOO_EARLY,
    &server::SPACE_UNSYNCED,
];

/// A test by power cuts.
///
/// The content of a write is a function of seed, round, writer and number (`Random::of`). So the
/// host only has to record how many writes were acknowledged.
pub(crate) trait Scenario: Sync {
    fn name(&self) -> &'static str;

    /// One line for people.
    fn about(&self) -> &'static str;

    /// Number of concurrent writers.
    fn writers(&self) -> usize;

    /// Writes acknowledged under load before the power fails.
    fn acks(&self) -> Range<u64>;

    /// Programs that the guest needs, besides its system, the rig and the tools for its memory.
    fn programs(&self) -> &'static [Program];

    /// Further kernel modules that it needs; `?` at the end means "or built in".
    fn modules(&self) -> &'static [&'static str] {
        &[]
    }

    /// The storage of `Guest::directory`.
    fn storage(&self) -> Storage {
        Storage::Memory
    }

    /// Called in the guest after each boot: starts the program under test, and checks its content.
    ///
    /// # Errors
    ///
    /// `Lost` when something acknowledged is gone; any other error is a failure of the rig.
    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened>;
}

/// The storage that keeps files across power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// The persistent memory, with ext4 mounted for DAX.
    Memory,
    /// A disk with ext4, whose write cache is lost with the power.
    Disk,
}

/// The result of the check, and the load that follows.
pub(crate) struct Opened {
    /// Number of writes found of each writer in the last round; empty if there was none.
    pub(crate) kept: Vec<u64>,
    /// Measured values, by a name that ends with its unit.
    pub(crate) facts: BTreeMap<String, f64>,
    pub(crate) load: Box<dyn Load>,
}

/// Load that runs until the power is cut.
pub(crate) trait Load {
    /// Writes the round's writes, and reports acknowledgements to the host. Returns only with an
    /// error.
    fn run(self: Box<Self>, guest: &Guest, round: u64) -> Result<Infallible>;
}

/// A scenario named on the command line.
#[derive(Clone, Copy)]
pub(crate) struct Named(pub(crate) &'static dyn Scenario);

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

/// The scenario of that name.
pub(crate) fn named(name: &str) -> Result<Named, String> {
    match ALL.iter().find(|scenario| scenario.name() == name) {
        Some(scenario) => Ok(Named(*scenario)),
        None => {
            let names: Vec<&str> = ALL.iter().map(|scenario| scenario.name()).collect();
            Err(format!("there is no scenario `{name}`; expected one of {}", names.join(", ")))
        }
    }
}

/// Runs `write` for each writer in a thread of its own.
///
/// An error is reported to the host at once. The other writers continue, because the machine is
/// about to end.
pub(crate) fn in_threads<S: Send>(
    guest: &Guest,
    states: Vec<S>,
    write: impl Fn(usize, S) -> Result<Infallible> + Sync,
) -> Result<Infallible> {
    std::thread::scope(|scope| {
        for (writer, state) in states.into_iter().enumerate() {
            let write = &write;
            scope.spawn(move || {
                let Err(error) = write(writer, state);
                guest.fail(error.context(format!("writer {writer}")));
            });
        }
    });
    anyhow::bail!("all writers have ended, each with an error of its own")
}
