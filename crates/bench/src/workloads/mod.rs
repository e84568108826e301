//! What the benches ask of a store: keys, values, and the order in which they come.

pub(crate) mod entries;
pub(crate) mod keys;
pub(crate) mod urls;
