//! What is simulated, and what is counted.

use serde::Serialize;

use super::trace::Site;

/// What a crash takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The process dies: every store that was executed survives, and nothing needs a flush.
    Process,
    /// The power fails: what was not flushed and fenced survives or not.
    #[default]
    Power,
}

/// The unit in which the medium writes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    /// Lines of 64 bytes: persistent memory.
    #[default]
    Line,
    /// Pages of 4 KiB whose 512-byte sectors are atomic: a file in the page cache, flushed by msync.
    Page,
}

/// What a [`Sim`](crate::Sim) simulates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimOptions {
    /// Bytes that can be accessed at first.
    pub len: u64,
    /// Bytes up to which the medium grows. Memory that is never touched costs nothing.
    pub capacity: u64,
    /// What a crash takes away.
    pub class: Class,
    /// The unit in which the medium writes back.
    pub granularity: Granularity,
    /// Whether a compare-exchange also orders the thread's earlier flushes, as on x86-64.
    ///
    /// Off by default: code that relies on it is more fragile than it looks, and is caught then.
    pub rmw_orders_flushes: bool,
    /// Whether [`Medium::release`](remanent_pmem::Medium::release) works here.
    pub releases: bool,
    /// The growth, counted from 1 in each run, that fails as if the disk were full.
    pub grow_fails_at: Option<u64>,
    /// A flush, fence or sync that is left out.
    pub mutant: Option<Site>,
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            len: 1 << 20,
            capacity: 64 << 20,
            class: Class::Power,
            granularity: Granularity::Line,
            rmw_orders_flushes: false,
            releases: true,
            grow_fails_at: None,
            mutant: None,
        }
    }
}

/// How often something was done to a medium, by one thread or by all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Words stored; a compare-exchange that fails is none.
    pub stores: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Lines that were flushed.
    pub flushed_lines: u64,
    /// Calls of `fence`.
    pub fences: u64,
    /// Calls of `sync_file`.
    pub syncs: u64,
}

impl Counters {
    pub(super) fn add(&mut self, other: &Counters) {
        self.stores += other.stores;
        self.flushes += other.flushes;
        self.flushed_lines += other.flushed_lines;
        self.fences += other.fences;
        self.syncs += other.syncs;
    }
}
