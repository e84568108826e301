//! Options and counters of the simulated medium.

use serde::Serialize;

use super::trace::Site;

/// What a crash takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// The process dies. Every executed store survives, and nothing needs a flush.
    Process,
    /// The power fails. A store that was not flushed and fenced may or may not survive.
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
    /// Pages of 4 KiB with atomic sectors of 512 bytes: a file in the page cache, flushed by msync.
    Page,
}

/// Options of a [`Sim`](crate::Sim).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SimOptions {
    /// Initial length in bytes.
    pub len: u64,
    /// Length in bytes up to which the medium can grow. Memory that is never touched costs nothing.
    pub capacity: u64,
    /// What a crash takes away.
    pub class: Class,
    /// The unit in which the medium writes back.
    pub granularity: Granularity,
    /// Whether a compare-exchange also orders the thread's earlier flushes, as on x86-64.
    ///
    /// Off by default, so that code that relies on it is found.
    pub rmw_orders_flushes: bool,
    /// Whether [`Medium::release`](remanent_pmem::Medium::release) works. Otherwise it always
    /// returns false.
    pub releases: bool,
    /// The growth that fails as if the disk were full, counted from 1 in each run.
    pub grow_fails_at: Option<u64>,
    /// The flush, fence or sync that is left out.
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

/// Counts of accesses to a medium, by one thread or by all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Words stored. A compare-exchange that fails stores none.
    pub stores: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Lines flushed.
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
