//! Pool memory: raw, counted, and what it costs at the least.

pub(crate) mod area;
pub(crate) mod counting;
pub(crate) mod floor;
pub(crate) mod pool;
