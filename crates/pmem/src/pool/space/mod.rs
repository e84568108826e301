//! The chunks of a pool: taking them, giving them back, and growth.

mod content;
mod find;
mod give_back;
mod growth;
pub(crate) mod purpose;
mod reclaim;
pub(crate) mod reserve;
pub(crate) mod search;
mod take;
