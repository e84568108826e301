//! Pool memory: raw, with counters, and its minimal cost.

pub(crate) mod area;
pub(crate) mod counting;
pub(crate) mod floor;
pub(crate) mod pool;
