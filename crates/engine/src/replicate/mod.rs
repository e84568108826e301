//! What a database tells others of its commits, so that they follow it: write sets by primary keys,
//! in the order of commits; a gate between durable and acknowledged; applying write sets.

pub(crate) mod apply;
pub(crate) mod collect;
mod database;
mod export;
pub(crate) mod gate;
pub(crate) mod schema;
pub(crate) mod write_set;

pub use self::gate::Gate;
pub use self::write_set::{Change, OwnedValue, SchemaChange, WriteSet};
