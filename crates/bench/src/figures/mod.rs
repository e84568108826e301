//! One module a bench: what is run, in which order, and which claims follow.

pub(crate) mod batch_list;
pub(crate) mod hashmap;
pub(crate) mod kv;
pub(crate) mod line_tx;
pub(crate) mod maps;
pub(crate) mod primitives;
pub(crate) mod restart;
