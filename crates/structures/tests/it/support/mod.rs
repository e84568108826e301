//! What tests of several structures use.

pub(crate) mod memory;

use std::sync::Arc;

use remanent_crashsim::{Sim, SimOptions};
use remanent_pmem::pool::{Format, Guarantee};
use remanent_pmem::{Options, Pool};

/// A pool on a simulated medium that counts flushes and fences.
pub(crate) fn sim_pool(guarantee: Guarantee) -> Pool<Arc<Sim>> {
    let size_max = 64 << 20;
    let sim = Sim::new(SimOptions { capacity: size_max, ..SimOptions::default() });
    Pool::format(Arc::new(sim), &Format { guarantee, ..Format::new(size_max) }).unwrap()
}

/// Fences of `action`.
pub(crate) fn fences(pool: &Pool<Arc<Sim>>, action: impl FnOnce()) -> u64 {
    pool.medium().reset_counters();
    action();
    pool.medium().counters().fences
}

/// How pools on files are made.
pub(crate) fn options() -> Options {
    Pool::options().size_max(4 << 30)
}

/// A directory for pools on files.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
