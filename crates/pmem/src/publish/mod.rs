//! Types that carry the discipline of publication: what is not durable cannot be linked.

pub mod fresh;
pub mod link;
