//! What a crash may leave of the medium: pending stores, the images that they allow, and injected
//! faults.

pub(crate) mod fault;
pub(crate) mod image;
pub(crate) mod litmus;
pub(crate) mod pending;
