//! Raw pool memory, to measure the cost of the medium itself.

use std::path::Path;

use anyhow::{Context, Result};
use remanent_pmem::{Emulation, Mapped, Medium, PAGE_LEN, Pool};

use super::pool;
use crate::cleanup::Scratch;
use crate::report::Ground;
use crate::workloads::keys::mix;

/// Pool memory that no structure uses, opened as NVRAM: every flush and fence is real.
pub(crate) struct Area {
    pool: Pool,
    start: u64,
    len: u64,
    /// Removed after the pool is closed.
    _scratch: Scratch,
}

impl Area {
    /// `len` bytes, a power of two and at least a page, in a new pool in `directory`; each page has
    /// been touched.
    ///
    /// # Errors
    ///
    /// When there is not enough memory.
    pub(crate) fn new(directory: &Path, len: u64) -> Result<Self> {
        assert!(len.is_power_of_two() && len >= PAGE_LEN, "places are drawn by a mask");
        let scratch = Scratch::new(directory)?;
        let options = pool::options(Emulation::Nvram).size_max(4 * len + (1 << 30));
        let pool = options.create(scratch.path().join("area.pool"))?;
        let start = pool.medium().len().next_multiple_of(PAGE_LEN);
        let medium = pool.medium();
        medium.grow(start + len).context("cannot grow the pool for raw memory")?;
        medium.commit(start, len).context("not enough memory for the raw area")?;
        for page in 0..len / PAGE_LEN {
            medium.store(start + page * PAGE_LEN, page);
        }
        Ok(Area { pool, start, len, _scratch: scratch })
    }

    /// The medium.
    pub(crate) fn medium(&self) -> &Mapped {
        self.pool.medium()
    }

    /// Backing and guarantee of the pool.
    pub(crate) fn ground(&self) -> Ground {
        Ground::of_pool(&self.pool)
    }

    /// Number of places of `unit` bytes, a power of two.
    pub(crate) fn places(&self, unit: u64) -> u64 {
        self.len / unit
    }

    /// Pool offset of a place of `unit` bytes; places repeat beyond the end.
    pub(crate) fn place(&self, unit: u64, index: u64) -> u64 {
        self.start + index % self.places(unit) * unit
    }

    /// Pool offset of the `turn`-th place in this order of visits.
    pub(crate) fn visit(&self, order: Order, unit: u64, turn: u64) -> u64 {
        match order {
            Order::Same => self.start,
            Order::Sequential => self.place(unit, turn),
            Order::Random => self.place(unit, mix(turn)),
        }
    }
}

/// The order in which places are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Same,
    Sequential,
    Random,
}

impl Order {
    pub(crate) const ALL: [Order; 3] = [Order::Same, Order::Sequential, Order::Random];

    /// Name of the order in rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Same => "same line",
            Order::Sequential => "sequential",
            Order::Random => "random",
        }
    }
}
