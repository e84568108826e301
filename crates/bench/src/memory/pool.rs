//! Pools as the benches make them.

use remanent_pmem::{Durability, Emulation, Options, Pool};

/// A pool that outlives the process, on DRAM that stands for this.
pub(crate) fn options(emulation: Emulation) -> Options {
    Pool::options().durability(Durability::Process).emulation(emulation)
}
