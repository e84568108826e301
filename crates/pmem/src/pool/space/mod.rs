//! Who has which chunk.

mod content;
mod find;
mod give_back;
mod growth;
pub(crate) mod purpose;
mod reclaim;
pub(crate) mod reserve;
pub(crate) mod search;
mod take;
