//! Sorted sets: how they lie in the ordered map, and what is read of them.

pub(super) mod layout;
pub(super) mod ranks;
pub(super) mod view;
