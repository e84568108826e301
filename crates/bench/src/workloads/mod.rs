//! Workloads of the benches: keys, values, and their order.

pub(crate) mod entries;
pub(crate) mod keys;
pub(crate) mod urls;
pub(crate) mod values;
