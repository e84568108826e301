//! Types for publication: a block that is not durable cannot be linked.

pub mod fresh;
pub mod link;
