//! What a crash leaves of the medium: what is pending at a moment, the images that this allows, and faults beside them.

pub(crate) mod fault;
pub(crate) mod image;
pub(crate) mod litmus;
pub(crate) mod pending;
