//! Scenarios: what is started in the guest, what load it gets, and what must be there after a power cut.

mod disk;
mod entries;
mod ext4;
mod server;
mod sqlite;
mod tree;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;

use anyhow::Result;

use crate::guest::Guest;
use crate::message::Past;
use crate::program::Program;

/// All there are.
pub(crate) const ALL: &[&dyn Scenario] = &[
    &server::HONEST,
    &server::SPACE,
    &server::SPACE_ON_DISK,
    &ext4::HONEST,
    &disk::Disk,
    &sqlite::Sqlite,
    &server::TOO_EARLY,
    &ext4::UNSYNCED,
    &server::SPACE_UNSYNCED,
];

/// One thing that is put to the test by power cuts.
///
/// What a writer writes is a function of the seed, the round, the writer and a number (`Random::of`), so that all that
/// needs to be kept outside the machine is how many of the first of them were acknowledged.
pub(crate) trait Scenario: Sync {
    fn name(&self) -> &'static str;

    /// One line for people.
    fn about(&self) -> &'static str;

    /// How many write at a time.
    fn writers(&self) -> usize;

    /// Writes acknowledged under load before the power fails.
    fn acks(&self) -> Range<u64>;

    /// What the guest needs besides its system, this program and the tools for its memory.
    fn programs(&self) -> &'static [Program];

    /// Modules of the kernel that it needs besides; `?` at the end says "or built in".
    fn modules(&self) -> &'static [&'static str] {
        &[]
    }

    /// What `Guest::directory` lies on.
    fn storage(&self) -> Storage {
        Storage::Memory
    }

    /// In the guest, at each boot: starts what is under test, and checks what was there before.
    ///
    /// # Errors
    ///
    /// `Lost` when something acknowledged is gone; anything else means that the rig is at fault.
    fn open(&self, guest: &Guest, past: &Past) -> Result<Opened>;
}

/// What keeps files when the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// The persistent memory, with ext4 mounted for DAX.
    Memory,
    /// A disk with ext4, whose write cache is lost with the power.
    Disk,
}

/// What a scenario found, and what goes on.
pub(crate) struct Opened {
    /// How many writes of each writer of the last round were found; nothing when there was none.
    pub(crate) kept: Vec<u64>,
    /// What was measured, by a name that ends with its unit.
    pub(crate) facts: BTreeMap<String, f64>,
    pub(crate) load: Box<dyn Load>,
}

/// Load that ends with the power.
pub(crate) trait Load {
    /// Writes as the round has it, and tells the host what is acknowledged. Returns only with an error.
    fn run(self: Box<Self>, guest: &Guest, round: u64) -> Result<Infallible>;
}

/// A scenario that the command line names.
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
/// The host learns of an error at once. The other writers go on meanwhile: the machine is about to end.
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
