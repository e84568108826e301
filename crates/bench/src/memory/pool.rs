//! Pools for the benches.

use remanent_pmem::{Durability, Emulation, Options, Pool};

/// A pool that outlives the process, on DRAM with this emulation.
pub(crate) fn options(emulation: Emulation) -> Options {
    Pool::options().durability(Durability::Process).emulation(emulation)
}
